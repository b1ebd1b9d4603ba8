//! Commits that deceive or exhaust the program's git, with the real Codex.

use std::fs;

use scripted_model::{Reply, Script};
use serde_json::Value;

use super::repository::Stage;

/// `.gitmodules` has git leave the submodule out of what it lists.
const HIDDEN_SUBMODULE: &str = r#"
mkdir sub
(
    unset $(git rev-parse --local-env-vars)
    cd sub
    git init --quiet
    git -c user.name=x -c user.email=x commit --quiet --allow-empty --message x
    git config core.fsmonitor "touch CAUGHT; true"
)
id=$(env -u GIT_DIR -u GIT_COMMON_DIR -u GIT_WORK_TREE git -C sub rev-parse HEAD)
printf '[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n\tignore = all\n' > .gitmodules
printf 'sub\n.gitmodules\n' > .gitignore
git add .gitignore
git commit --quiet --message ignore
tree=$( (git ls-tree HEAD; printf '160000 commit %s\tsub\n' "$id") | git mktree --missing)
git update-ref refs/heads/main "$(git commit-tree -p HEAD -m sub "$tree")"
"#;

/// A billion paths of ten trees.
const BOMB: &str = r#"
id=$(echo x | git hash-object -w --stdin)
mode='100644 blob'
for level in 1 2 3 4 5 6 7 8 9; do
    id=$(for name in 0 1 2 3 4 5 6 7 8 9; do printf "$mode $id\t$name\n"; done | git mktree)
    mode='040000 tree'
done
tree=$( (git ls-tree HEAD; printf "040000 tree $id\tbomb\n") | git mktree)
git update-ref refs/heads/main "$(git commit-tree -p HEAD -m bomb "$tree")"
"#;

async fn stage(plant: &str) -> Stage {
    let script = Script::new().otherwise([Reply::shell("sh \"$HOME/plant\""), Reply::say("Done.")]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
    let plant = plant.replace("CAUGHT", stage.caught().to_str().unwrap());
    fs::write(stage.home.home().join("plant"), plant).unwrap();
    stage
}

async fn run(stage: &Stage) -> (Option<i32>, Value, String) {
    let args = ["x", "--sandbox", "workspace-write", "--approve", "never"];
    let until = ["--until", "commits=1", "--max-turns", "1"];
    stage.run(&[&args[..], &until].concat()).await
}

/// What the model does in the sandbox, by the user: what the repository would have if the
/// commits were taken over.
fn plant_as_user(stage: &Stage) {
    let plant = stage.home.home().join("plant");
    let alias = format!("alias.plant=!sh {}", plant.display());
    stage.home.git(&["-c", &alias, "plant"]);
}

/// The control is a repository that has the commits.
#[tokio::test]
async fn submodule_that_gitmodules_hides_is_refused() {
    let attacked = stage(HIDDEN_SUBMODULE).await;
    let (code, result, told) = run(&attacked).await;
    assert_eq!(code, Some(2), "{result:#}\n{told}");
    let refusal = "Codex's commits cannot be taken over: they add the submodule \"sub\"";
    assert!(told.contains(refusal), "{told}");
    let git = |args: &[&str]| attacked.home.git(args);
    assert!(!git(&["ls-tree", "HEAD"]).contains("160000"));
    git(&["reset", "--quiet", "--hard"]);
    git(&["status"]);
    assert!(!attacked.was_attacked(), "{told}");

    let control = stage(HIDDEN_SUBMODULE).await;
    plant_as_user(&control);
    let git = |args: &[&str]| control.home.git(args);
    let listed = git(&["log", "--raw", "-m"]);
    assert!(!listed.contains("160000"), "{listed}");
    fs::remove_file(control.home.work().join(".gitmodules")).unwrap();
    git(&["reset", "--quiet", "--hard"]);
    git(&["status"]);
    assert!(
        control.was_attacked(),
        "the control shows the attack working"
    );
}

#[tokio::test]
async fn commit_with_a_billion_paths_is_refused() {
    let attacked = stage(BOMB).await;
    let before = attacked.home.git(&["rev-parse", "main"]);
    let (code, result, told) = run(&attacked).await;
    assert_eq!(code, Some(2), "{result:#}\n{told}");
    assert!(told.contains("over 1000000 more paths"), "{told}");
    assert_eq!(attacked.home.git(&["rev-parse", "main"]), before);
}

/// Three commits, each with the paths of eight more trees of so many levels.
fn chain(levels: usize) -> String {
    let levels = "1 ".repeat(levels);
    format!(
        r#"
id=$(echo x | git hash-object -w --stdin)
mode='100644 blob'
for level in {levels}; do
    id=$(for name in 0 1 2 3 4 5 6 7 8 9; do printf "$mode $id\t$name\n"; done | git mktree)
    mode='040000 tree'
done
for commit in 1 2 3; do
    tree=$( (git ls-tree main
        for name in 1 2 3 4 5 6 7 8; do printf "040000 tree $id\t$commit-$name\n"; done) |
        git mktree)
    git update-ref refs/heads/main "$(git commit-tree -p main -m $commit "$tree")"
done
"#
    )
}

/// Each commit adds less than the limit, and all of them more. The control is as many
/// commits with fewer paths.
#[tokio::test]
async fn commits_that_add_up_to_too_many_paths_are_refused() {
    let attacked = stage(&chain(5)).await;
    let before = attacked.home.git(&["rev-parse", "main"]);
    let (code, result, told) = run(&attacked).await;
    assert_eq!(code, Some(2), "{result:#}\n{told}");
    assert!(told.contains("over 1000000 more paths"), "{told}");
    assert_eq!(attacked.home.git(&["rev-parse", "main"]), before);

    let control = stage(&chain(1)).await;
    let (_, result, told) = run(&control).await;
    assert_eq!(
        control.home.git(&["rev-list", "--count", "main"]),
        "4",
        "{result:#}\n{told}"
    );
}
