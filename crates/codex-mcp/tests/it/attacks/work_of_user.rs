//! The user's own hooks, commits and index in a repository in which Codex works.

use std::fs;

use scripted_model::{Reply, Script};
use testkit::write_program;

use super::fixture::{RepositoryFixture, commit};
use crate::jobs::{wait_for, wait_for_file};

/// The user's hooks and settings apply inside the sandbox, and a push works.
#[tokio::test]
async fn commits_are_made_with_the_users_hooks_and_settings() {
    let release = testkit::codex::newest();
    let push = "git push --quiet origin HEAD:refs/heads/side";
    let script = Script::new().otherwise([
        Reply::shell("git checkout --quiet -b side && echo x > x.txt && git add x.txt"),
        Reply::shell("git commit --quiet --message x; echo y > y.txt; git add y.txt"),
        Reply::shell(push),
        Reply::say("Done."),
    ]);
    let stage = RepositoryFixture::new(release, script).await;
    let hook = stage.git_dir().join("hooks/commit-msg");
    write_program(&hook, "#!/bin/sh\necho hooked >> \"$1\"\n");
    stage.home.add_remote(&stage.home.tmp().join("remote.git"));
    let args = [
        "x",
        "--sandbox",
        "workspace-write",
        "--until",
        "branch=side",
        "--until",
        "pushed",
    ];
    let (code, result, stderr) = stage.run(&args).await;
    assert_eq!(code, Some(0), "{result:#}\n{stderr}");
    let git = |args: &[&str]| stage.home.git(args);
    assert_eq!(git(&["rev-parse", "--abbrev-ref", "HEAD"]), "side");
    assert_eq!(git(&["log", "-1", "--format=%B"]), "x\nhooked");
    assert_eq!(git(&["log", "-1", "--format=%an"]), "Test");
    assert_eq!(git(&["status", "--porcelain"]), "A  y.txt");
    assert_eq!(
        git(&["rev-parse", "origin/side"]),
        git(&["rev-parse", "side"])
    );
    assert_eq!(git(&["fsck", "--strict"]), "");
    let left = stage.home.state_home().join("codex-mcp/git-private");
    assert_eq!(fs::read_dir(left).unwrap().count(), 0, "{stderr}");
}

/// Commits in the repository once the run has begun, and then writes `mine.txt`.
async fn commit_as_user(stage: &RepositoryFixture) {
    let git = stage.home.state_home().join("codex-mcp/git-private");
    let is_ready = |run: fs::DirEntry| run.path().join("synced.json").exists();
    let runs = || fs::read_dir(&git).into_iter().flatten().flatten();
    wait_for("the beginning of the run", async || {
        runs().any(is_ready).then_some(())
    })
    .await;
    stage
        .home
        .git(&["commit", "--quiet", "--allow-empty", "--message", "mine"]);
    fs::write(stage.home.work().join("mine.txt"), "").unwrap();
}

/// The arguments of a run with this criterion and this many turns at most.
fn run_args<'a>(criterion: &'a str, turns: &'a str) -> [&'a str; 7] {
    [
        "x",
        "--sandbox",
        "workspace-write",
        "--until",
        criterion,
        "--max-turns",
        turns,
    ]
}

/// The user works in the same repository while Codex works.
#[tokio::test]
async fn commits_of_the_user_during_a_run_stay() {
    let release = testkit::codex::newest();
    let script = Script::new().otherwise([
        commit("a.txt"),
        Reply::shell("until [ -e mine.txt ]; do sleep 0.01; done"),
        Reply::say("Done."),
    ]);
    let stage = RepositoryFixture::new(release, script).await;
    let args = run_args("commits=2", "1");
    let users = commit_as_user(&stage);
    let ((code, result, stderr), ()) = tokio::join!(stage.run(&args), users);
    assert_eq!(code, Some(2), "{result:#}\n{stderr}");
    assert_eq!(
        stage.home.git(&["log", "-1", "--format=%s", "main"]),
        "mine"
    );
    let kept = stage
        .home
        .git(&["for-each-ref", "--format=%(refname)", "refs/codex-mcp"]);
    assert!(kept.ends_with("/heads/main"), "{kept}");
    assert_eq!(stage.home.git(&["show", &format!("{kept}:a.txt")]), "made");
    assert!(
        result["warnings"].to_string().contains("refs/codex-mcp"),
        "{result:#}"
    );
    assert!(stderr.contains("refs/codex-mcp"), "{stderr}");
}

/// In the first turn, the user commits on the checked-out branch, which is not moved then.
#[tokio::test]
async fn other_branches_are_moved_in_each_turn() {
    let more = "git update-ref refs/heads/side \
                \"$(git commit-tree -p side -m two 'side^{tree}')\"";
    let script = Script::new()
        .on("not complete", [Reply::shell(more), Reply::say("Two.")])
        .otherwise([
            commit("a.txt"),
            Reply::shell("git branch side; until [ -e mine.txt ]; do sleep 0.01; done"),
            Reply::say("One."),
        ]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    let args = run_args("commits=3", "2");
    let users = commit_as_user(&stage);
    let ((_, result, stderr), ()) = tokio::join!(stage.run(&args), users);
    let git = |args: &[&str]| stage.home.git(args);
    assert_eq!(
        git(&["log", "--format=%s", "side"]),
        "two\na.txt\nStart",
        "{result:#}\n{stderr}"
    );
    assert_eq!(git(&["log", "--format=%s", "main"]), "mine\nStart");
    let warnings = result["warnings"].to_string();
    assert!(!warnings.contains("refs/heads/side"), "{warnings}");
}

/// In the second turn, the user commits on top of Codex's commit, and fetches a commit that somebody
/// else has made on top of it.
#[tokio::test]
async fn commits_below_those_of_others_count() {
    let wait = "touch second; until [ -e mine.txt ]; do sleep 0.01; done";
    let script = Script::new()
        .on("not complete", [Reply::shell(wait), Reply::say("Done.")])
        .otherwise([commit("a.txt"), Reply::say("One.")]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    let users = async {
        let git = |args: &[&str]| stage.home.git(args);
        wait_for_file(&stage.home.work().join("second")).await;
        let theirs = git(&["commit-tree", "-p", "main", "-m", "theirs", "main^{tree}"]);
        git(&["update-ref", "refs/remotes/origin/main", &theirs]);
        git(&["commit", "--quiet", "--allow-empty", "--message", "mine"]);
        fs::write(stage.home.work().join("mine.txt"), "").unwrap();
    };
    let args = run_args("commits=2", "2");
    let ((code, result, stderr), ()) = tokio::join!(stage.run(&args), users);
    assert_eq!(code, Some(0), "{result:#}\n{stderr}");
    assert_eq!(result["turns"], 2, "{result:#}");
}

#[tokio::test]
async fn files_that_the_user_stages_during_a_run_stay_staged() {
    let script = Script::new().otherwise([
        commit("a.txt"),
        Reply::shell("until [ -e staged.txt ]; do sleep 0.01; done"),
        Reply::say("Done."),
    ]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    let users = async {
        wait_for_file(&stage.home.work().join("a.txt")).await;
        fs::write(stage.home.work().join("mine.txt"), "mine").unwrap();
        stage.home.git(&["add", "mine.txt"]);
        fs::write(stage.home.work().join("staged.txt"), "").unwrap();
    };
    let args = ["x", "--sandbox", "workspace-write", "--until", "commits=1"];
    let ((code, result, stderr), ()) = tokio::join!(stage.run(&args), users);
    assert_eq!(code, Some(0), "{result:#}\n{stderr}");
    let status = stage.home.git(&["status", "--porcelain"]);
    assert_eq!(status, "A  mine.txt\n?? staged.txt");
    assert_eq!(stage.home.git(&["show", "main:a.txt"]), "made");
}

#[tokio::test]
async fn commits_are_made_in_a_repository_with_long_ids() {
    let script = Script::new().otherwise([commit("a.txt"), Reply::say("Done.")]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    let other = stage.home.root().join("other");
    let path = other.to_str().unwrap();
    stage
        .home
        .git(&["init", "--quiet", "--object-format=sha256", path]);
    let git = |args: &[&str]| stage.home.git(&[&["-C", path], args].concat());
    for (key, value) in [("user.name", "Test"), ("user.email", "test@example.com")] {
        git(&["config", key, value]);
    }
    let args = [
        "x",
        "--repo",
        path,
        "--sandbox",
        "workspace-write",
        "--until",
        "commits=1",
        "--until",
        "clean",
    ];
    let (code, result, stderr) = stage.run(&args).await;
    assert_eq!(code, Some(0), "{result:#}\n{stderr}");
    assert_eq!(git(&["rev-parse", "HEAD"]).len(), 64);
    assert_eq!(git(&["status", "--porcelain"]), "");
    assert_eq!(git(&["fsck", "--strict"]), "");
}

/// The next step of a merge depends on files that are not taken over.
#[tokio::test]
async fn run_is_refused_while_a_merge_is_under_way() {
    let script = Script::new().otherwise([Reply::say("Done.")]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    fs::write(
        stage.git_dir().join("MERGE_HEAD"),
        stage.home.git(&["rev-parse", "HEAD"]),
    )
    .unwrap();
    let args = ["x", "--sandbox", "workspace-write", "--until", "commits=1"];
    let (code, _, stderr) = stage.run(&args).await;
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stderr.contains("finish or abort it"), "{stderr}");
}

/// An index can be split without a setting, and git reads `yes` as true.
#[tokio::test]
async fn run_is_refused_with_a_split_index_and_in_a_sparse_checkout() {
    let script = Script::new().otherwise([Reply::say("Done.")]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    let args = ["x", "--sandbox", "workspace-write", "--until", "commits=1"];
    for (change, expected) in [
        ("update-index --split-index", "its index is split"),
        ("config core.sparseCheckout yes", "it has a sparse checkout"),
    ] {
        let change: Vec<&str> = change.split(' ').collect();
        stage.home.git(&change);
        let (code, _, stderr) = stage.run(&args).await;
        assert_eq!(code, Some(3), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
}
