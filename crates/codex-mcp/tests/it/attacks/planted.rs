//! Programs that a model plants below the top of a repository, for the user's next git
//! command there, with the real Codex.

use std::fs;

use scripted_model::{Reply, Script};

use super::fixture::RepositoryFixture;
use super::recommended_commands::run_in_shell;

const RUN_ARGS: [&str; 4] = ["--sandbox", "workspace-write", "--max-turns", "1"];

/// A run in which the model runs these scripts one after the other. Returns whether the user's git
/// ran a planted program afterwards, and the output of the run.
async fn run_with_planted(
    prepare: &str,
    scripts: &[&str],
    until: &str,
    user: &str,
) -> (bool, String) {
    let release = testkit::codex::newest();
    let in_work = |stage: &RepositoryFixture, text: &str| {
        let text = text.replace("CAUGHT", stage.caught().to_str().unwrap());
        run_in_shell(&stage.home, &stage.home.work(), &text);
    };
    // The control: the same scripts without a run.
    let control = RepositoryFixture::new(release, Script::new()).await;
    for script in [prepare].iter().chain(scripts).chain([&user]) {
        in_work(&control, script);
    }
    assert!(
        control.was_attacked(),
        "the control shows the attack working"
    );

    let names = (0..scripts.len()).map(|number| Reply::shell(format!("sh ../plant{number}")));
    let script = Script::new().otherwise(names.chain([Reply::say("Done.")]));
    let stage = RepositoryFixture::new(release, script).await;
    for (number, script) in scripts.iter().enumerate() {
        let text = script.replace("CAUGHT", stage.caught().to_str().unwrap());
        fs::write(stage.home.root().join(format!("plant{number}")), text).unwrap();
    }
    in_work(&stage, prepare);
    let args = [&["x"][..], &RUN_ARGS, &["--until", until]].concat();
    let (_, result, stderr) = stage.run(&args).await;
    in_work(&stage, user);
    (stage.was_attacked(), format!("{result:#}\n{stderr}"))
}

/// Removes the variables of the model's commands that lead git to the private directory.
const UNSET: &str = "unset $(git rev-parse --local-env-vars); ";

#[tokio::test]
async fn bare_repository_planted_among_tracked_files_is_disarmed() {
    let plant = "mkdir -p src/objects src/refs; echo 'ref: refs/heads/x' > src/HEAD; \
        printf '[core]\\nrepositoryformatversion=0\\nbare=false\\nworktree=..\\n\
        fsmonitor=\"echo x >> CAUGHT; true\"\\n' > src/config; \
        printf 'HEAD\\nconfig\\n.gitignore\\n' > src/.gitignore; touch made";
    let prepare = "mkdir src; echo a > src/a; git add src; git commit -qm a";
    let (attacked, output) =
        run_with_planted(prepare, &[plant], "files=made", "cd src; git status").await;
    assert!(!attacked, "{output}");
    assert!(output.contains("src/HEAD-moved-aside-"), "{output}");
}

#[tokio::test]
async fn settings_and_hooks_of_an_ignored_clone_are_restored() {
    let prepare = "echo own/ > .gitignore; git add .gitignore; git commit -qm ignore; \
        git init -q own/clone; cd own/clone; git commit -qm x --allow-empty";
    let plant = [
        UNSET,
        "cd own/clone; git config core.fsmonitor 'echo x >> CAUGHT; true'; \
         printf '#!/bin/sh\\necho hook >> CAUGHT\\n' > .git/hooks/post-commit; \
         chmod +x .git/hooks/post-commit; touch ../../made",
    ]
    .concat();
    let user = "cd own/clone; git status; git commit -qm y --allow-empty";
    let (attacked, output) = run_with_planted(prepare, &[&plant], "files=made", user).await;
    assert!(!attacked, "{output}");
    assert!(
        output.contains("settings of the repository \\\"own/clone\\\" were changed"),
        "{output}"
    );
}

#[tokio::test]
async fn new_repository_is_named_when_ignored_or_not_taken_over() {
    let prepare = "echo ignored/ > .gitignore; git add .gitignore; git commit -qm ignore";
    let plant = [
        UNSET,
        "for it in vendor ignored/it; do git init -q $it; \
         git -C $it config core.fsmonitor 'echo x >> CAUGHT; true'; done",
    ]
    .concat();
    let commit = "git update-index --add --cacheinfo \
        160000,aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,zz; git commit -qm b";
    let user = "cd vendor; git status";
    let (_, output) = run_with_planted(prepare, &[&plant, commit], "commits=1", user).await;
    assert!(output.contains("cannot be taken over"), "{output}");
    for name in ["vendor/", "ignored/it/"] {
        let named = format!("{name} is a git repository of its own");
        assert!(output.contains(&named), "{output}");
    }
}

/// The changed files stay, as the user may have requested them.
#[tokio::test]
async fn changed_files_that_git_settings_lead_to_are_named() {
    let prepare = "mkdir -p .husky/_; echo '*' > .husky/_/.gitignore; \
        printf '#!/bin/sh\\n' > .husky/_/pre-commit; chmod +x .husky/_/pre-commit; \
        git config core.hooksPath .husky/_; printf '[alias]\\nst = status\\n' > aliases; \
        git add aliases; git commit -qm aliases; git config include.path ../aliases";
    let plant = "printf '#!/bin/sh\\necho hook >> CAUGHT\\n' > .husky/_/pre-commit; \
        printf '[alias]\\nst = !echo >> CAUGHT\\n' > aliases; touch made";
    let user = "git commit -qm x --allow-empty";
    let (attacked, output) = run_with_planted(prepare, &[plant], "files=made", user).await;
    assert!(attacked, "{output}");
    for words in [
        ".husky/_/pre-commit changed during the run",
        "core.hookspath leads to it",
        "aliases changed during the run",
        "include.path leads to it",
    ] {
        assert!(output.contains(words), "{words}: {output}");
    }
}

/// Settings that name a missing program, each with a user's command that runs it.
#[tokio::test]
async fn missing_programs_that_git_settings_name_are_named() {
    for (setting, user) in [
        ("alias.go '!tools/go'", "git go"),
        ("core.fsmonitor tools/go", "git status"),
        (
            "credential.helper '!tools/go'",
            "echo url=https://x.invalid | GIT_TERMINAL_PROMPT=0 git credential fill || true",
        ),
        ("sequence.editor tools/go", "git rebase -i --root || true"),
    ] {
        let prepare = format!("git config {setting}");
        let plant = "mkdir tools; printf '#!/bin/sh\necho x >> CAUGHT\n' > tools/go; \
            chmod +x tools/go; echo tools > .gitignore; touch made";
        let (attacked, output) = run_with_planted(&prepare, &[plant], "files=made", user).await;
        assert!(attacked, "{setting}: {output}");
        let named = "tools/go changed during the run, and your git uses what is there";
        assert!(output.contains(named), "{setting}: {output}");
    }
}
