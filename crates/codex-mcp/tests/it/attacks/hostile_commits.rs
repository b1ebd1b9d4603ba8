//! Commits that deceive or exhaust the program's git, with the real Codex.

use std::fs;

use serde_json::Value;

use super::fixture::RepositoryFixture;

/// `.gitmodules` makes git omit the submodule from its listings.
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

/// A tree of a billion paths, made of ten trees.
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

async fn run(stage: &RepositoryFixture) -> (Option<i32>, Value, String) {
    let args = ["x", "--sandbox", "workspace-write", "--approve", "never"];
    let until = ["--until", "commits=1", "--max-turns", "1"];
    stage.run(&[&args[..], &until].concat()).await
}

/// The control is a repository that has the commits.
#[tokio::test]
async fn submodule_that_gitmodules_hides_is_refused() {
    let attacked = RepositoryFixture::planting(HIDDEN_SUBMODULE).await;
    let (code, result, stderr) = run(&attacked).await;
    assert_eq!(code, Some(2), "{result:#}\n{stderr}");
    let refusal = "Codex's commits cannot be taken over: they add the submodule \"sub\"";
    assert!(stderr.contains(refusal), "{stderr}");
    let git = |args: &[&str]| attacked.home.git(args);
    assert!(!git(&["ls-tree", "HEAD"]).contains("160000"));
    git(&["reset", "--quiet", "--hard"]);
    git(&["status"]);
    assert!(!attacked.was_attacked(), "{stderr}");

    let control = RepositoryFixture::planting(HIDDEN_SUBMODULE).await;
    control.plant_as_user();
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
    let attacked = RepositoryFixture::planting(BOMB).await;
    let before = attacked.home.git(&["rev-parse", "main"]);
    let (code, result, stderr) = run(&attacked).await;
    assert_eq!(code, Some(2), "{result:#}\n{stderr}");
    assert!(stderr.contains("over 1000000 more paths"), "{stderr}");
    assert_eq!(attacked.home.git(&["rev-parse", "main"]), before);
}

/// A script of three commits, each of which adds eight trees with this number of levels.
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

/// Each commit adds fewer paths than the limit, and all together add more. The control has the same
/// number of commits with fewer paths.
#[tokio::test]
async fn commits_with_too_many_paths_together_are_refused() {
    let attacked = RepositoryFixture::planting(&chain(5)).await;
    let before = attacked.home.git(&["rev-parse", "main"]);
    let (code, result, stderr) = run(&attacked).await;
    assert_eq!(code, Some(2), "{result:#}\n{stderr}");
    assert!(stderr.contains("over 1000000 more paths"), "{stderr}");
    assert_eq!(attacked.home.git(&["rev-parse", "main"]), before);

    let control = RepositoryFixture::planting(&chain(1)).await;
    let (_, result, stderr) = run(&control).await;
    assert_eq!(
        control.home.git(&["rev-list", "--count", "main"]),
        "4",
        "{result:#}\n{stderr}"
    );
}
