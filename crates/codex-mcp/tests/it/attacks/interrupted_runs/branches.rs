//! Branches and worktrees to which the commits of interrupted runs belong.

use std::fs;
use std::path::PathBuf;

use scripted_model::Reply;
use serde_json::Value;

use super::{PausedRun, directories, doctor, only_directory, second_run};
use crate::attacks::fixture::{RepositoryFixture, commit};
use crate::attacks::recommended_commands::{recommended_command, run_in_shell};

/// The worktree of a run, and its branch.
fn worktree(stage: &RepositoryFixture) -> (String, String) {
    let listed = stage.home.git(&["worktree", "list", "--porcelain"]);
    let block = listed.split("\n\n").nth(1).unwrap();
    let value = |key: &str| {
        let mut lines = block.lines();
        lines
            .find_map(|line| line.strip_prefix(key))
            .unwrap()
            .to_owned()
    };
    (value("worktree "), value("branch "))
}

#[tokio::test]
async fn commits_in_a_worktree_are_imported_by_a_run_elsewhere() {
    let others = [Reply::say("Done.")];
    let first = [commit("a.txt")];
    let paused = PausedRun::with(&first, &others, &["--worktree"], |_| Vec::new()).await;
    let stage = paused.kill().await;
    let (path, branch) = worktree(&stage);
    let (_, _, stderr) = second_run(&stage, &[]).await;
    let git = |args: &[&str]| stage.home.git(args);
    assert_eq!(
        git(&["show", &format!("{branch}:a.txt")]),
        "made",
        "{stderr}"
    );
    assert_eq!(git(&["-C", &path, "status", "--porcelain"]), "");
    assert_eq!(git(&["rev-list", "--count", "main"]), "1");
    assert_eq!(directories(&stage), [] as [PathBuf; 0], "{stderr}");
}

#[tokio::test]
async fn commits_of_a_removed_worktree_are_kept_aside() {
    let others = [Reply::say("Done.")];
    let first = [commit("a.txt")];
    let paused = PausedRun::with(&first, &others, &["--worktree"], |_| Vec::new()).await;
    let stage = paused.kill().await;
    let (path, branch) = worktree(&stage);
    let git = |args: &[&str]| stage.home.git(args);
    git(&["worktree", "remove", "--force", &path]);
    let (_, result, stderr) = second_run(&stage, &[]).await;
    let name = only_directory(&stage).file_name().unwrap().to_owned();
    let branch = branch.strip_prefix("refs/").unwrap();
    let kept = format!("refs/codex-mcp/{}/{branch}", name.to_str().unwrap());
    assert_eq!(git(&["show", &format!("{kept}:a.txt")]), "made", "{stderr}");
    let warnings = result["warnings"].to_string();
    assert!(
        warnings.contains(&format!("git merge {kept}")),
        "{warnings}"
    );
    let (_, _, stderr) = second_run(&stage, &[]).await;
    assert!(
        !stderr.contains("interrupted run"),
        "the run is reported only once: {stderr}"
    );
}

#[tokio::test]
async fn branch_that_has_advanced_stays_and_the_commits_are_kept_aside() {
    let paused = PausedRun::new(&[commit("a.txt")], &[Reply::say("Done.")]).await;
    let stage = paused.kill().await;
    let git = |args: &[&str]| stage.home.git(args);
    git(&["commit", "--quiet", "--allow-empty", "--message", "mine"]);
    let (_, result, stderr) = second_run(&stage, &[]).await;
    assert_eq!(git(&["log", "-1", "--format=%s", "main"]), "mine");
    let directory = only_directory(&stage);
    let name = directory.file_name().unwrap().to_str().unwrap();
    let kept = format!("refs/codex-mcp/{name}/heads/main");
    assert_eq!(git(&["show", &format!("{kept}:a.txt")]), "made");
    let warnings = result["warnings"].as_array().unwrap();
    let of_run = |warning: &&Value| {
        let text = warning.as_str().unwrap();
        text.starts_with(&format!("interrupted run {name} (")) && !text.contains('\n')
    };
    assert_eq!(warnings.iter().filter(of_run).count(), 2, "{stderr}");

    let found = doctor(&stage).await;
    assert_eq!(found[0]["value"]["state"], "kept", "{found:?}");
    let (_, result, _) = second_run(&stage, &[]).await;
    let warnings = result["warnings"].to_string();
    assert!(
        !warnings.contains(name),
        "the run is reported only once: {warnings}"
    );
    assert_eq!(only_directory(&stage), directory);
}

/// The control: the command as it was before it was quoted.
#[tokio::test]
async fn merge_command_for_a_hostile_branch_name_is_quoted() {
    const BRANCH: &str = "main;echo>$HOME/caught;true";
    let branch = Reply::shell(format!("git checkout --quiet -b '{BRANCH}'"));
    let paused = PausedRun::new(&[branch, commit("a.txt")], &[Reply::say("Done.")]).await;
    let stage = paused.kill().await;
    fs::remove_file(stage.home.work().join("a.txt")).unwrap();
    let (_, result, stderr) = second_run(&stage, &[]).await;
    let warnings = result["warnings"].as_array().unwrap();
    let mut texts = warnings.iter().filter_map(Value::as_str);
    let merge = texts.find_map(|text| recommended_command(text, "git merge "));
    let merge = merge.unwrap_or_else(|| panic!("{stderr}"));

    let raw = merge.replace('\'', "");
    run_in_shell(&stage.home, &stage.home.work(), &raw);
    stage.wait_until_attacked().await;
    let merged = run_in_shell(&stage.home, &stage.home.work(), &merge);
    assert!(merged.status.success(), "{merge}: {merged:?}");
    assert!(!stage.was_attacked(), "{merge}");
    assert_eq!(stage.home.git(&["show", "main:a.txt"]), "made");
}
