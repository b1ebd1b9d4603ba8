//! Takeovers that were killed or could not move refs.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use scripted_model::Reply;
use testkit::write_program;

use super::{PausedRun, TIME_LIMIT, directories, doctor, only_directory, second_run};
use crate::attacks::fixture::{RepositoryFixture, commit};
use crate::jobs::wait_for_file;

/// The step of a takeover at which the run is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KillPoint {
    BeforeRefs,
    AfterRefs,
    AfterHead,
    AfterIndex,
}

/// A wrapper of git that kills the run whose process ID is in `run-pid`, before or after one of its
/// git commands.
fn killing_git(stage: &RepositoryFixture, killed: KillPoint) -> PathBuf {
    let git = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|directory| directory.join("git"))
        .find(|git| git.is_file())
        .unwrap();
    let (question, before) = match killed {
        KillPoint::BeforeRefs => ("update-ref", "kill -9 $pid; exit 1"),
        KillPoint::AfterRefs => ("update-ref", ""),
        KillPoint::AfterHead | KillPoint::AfterIndex => ("symbolic-ref", ""),
    };
    let directory = stage.home.root().join("killing");
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *\" {question} -\"*\"codex-mcp: \"*) ;; *) exec {git} \"$@\" ;; esac\n\
         pid=$(cat {pid})\n{before}\n{git} \"$@\"\nkill -9 $pid\n",
        git = git.display(),
        pid = stage.home.root().join("run-pid").display(),
    );
    let path = directory.join("git");
    write_program(&path, &script);
    directory
}

/// A stage on which a takeover was killed.
async fn killed_takeover(killed: KillPoint) -> RepositoryFixture {
    let first = [
        Reply::shell("git checkout --quiet -b side && echo c > c.txt"),
        commit("a.txt"),
        Reply::shell("git add c.txt"),
    ];
    let path = |stage: &RepositoryFixture| {
        let git = killing_git(stage, killed);
        let path = std::env::var("PATH").unwrap();
        vec![("PATH", format!("{}:{path}", git.display()))]
    };
    let others = [Reply::say("Done.")];
    let mut paused = PausedRun::with(&first, &others, &[], path).await;
    let pid = paused.run.id().unwrap();
    fs::write(paused.stage.home.root().join("run-pid"), pid.to_string()).unwrap();
    paused.gate.release();
    paused.run.wait().await.unwrap();
    let stage = paused.kill().await;
    // Lock files as a git leaves them that is killed during a write.
    let directory = only_directory(&stage);
    let lock = directory.join("private/refs/heads/other.lock");
    fs::write(lock, "").unwrap();
    fs::write(directory.join("index.new.lock"), "").unwrap();
    stage
}

/// The order of a takeover: the lock of the index, refs, `HEAD`, the index.
fn assert_killed_at(stage: &RepositoryFixture, killed: KillPoint) {
    let has_branch = !stage.home.git(&["branch", "--list", "side"]).is_empty();
    assert_eq!(has_branch, killed != KillPoint::BeforeRefs, "{killed:?}");
    let head = match killed {
        KillPoint::BeforeRefs | KillPoint::AfterRefs => "refs/heads/main",
        KillPoint::AfterHead | KillPoint::AfterIndex => "refs/heads/side",
    };
    let git = |args: &[&str]| stage.home.git(args);
    assert_eq!(git(&["symbolic-ref", "HEAD"]), head, "{killed:?}");
    assert!(stage.git_dir().join("index.lock").exists(), "{killed:?}");
    assert_eq!(git(&["ls-files"]), "README.md", "{killed:?}");
}

#[tokio::test]
async fn killed_takeover_is_finished_by_the_next_run() {
    for killed in [
        KillPoint::BeforeRefs,
        KillPoint::AfterRefs,
        KillPoint::AfterHead,
        KillPoint::AfterIndex,
    ] {
        let stage = killed_takeover(killed).await;
        assert_killed_at(&stage, killed);
        let (lock, index) = ["index.lock", "index"]
            .map(|name| stage.git_dir().join(name))
            .into();
        let changed = match killed {
            KillPoint::BeforeRefs => "A  c.txt",
            // A takeover that has begun is finished even if files were removed meanwhile.
            KillPoint::AfterRefs | KillPoint::AfterHead => {
                fs::remove_file(stage.home.work().join("c.txt")).unwrap();
                "AD c.txt"
            }
            KillPoint::AfterIndex => {
                fs::rename(lock, index).unwrap();
                "A  c.txt"
            }
        };
        let found = doctor(&stage).await;
        assert_eq!(found[0]["value"]["state"], "interrupted", "{found:?}");

        let (code, result, stderr) = second_run(&stage, &[]).await;
        // The first run's commit does not count for the second run.
        assert_eq!(code, Some(2), "{killed:?}: {result:#}\n{stderr}");
        let git = |args: &[&str]| stage.home.git(args);
        assert_eq!(git(&["symbolic-ref", "HEAD"]), "refs/heads/side");
        assert_eq!(git(&["show", "side:a.txt"]), "made");
        assert_eq!(git(&["rev-list", "--count", "side"]), "2");
        assert_eq!(git(&["status", "--porcelain"]), changed, "{killed:?}");
        assert_eq!(git(&["fsck", "--strict"]), "");
        assert_eq!(directories(&stage), [] as [PathBuf; 0], "{killed:?}");
        let left = fs::read_dir(stage.git_dir()).unwrap();
        let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let left: Vec<_> = left.filter(|name| name.starts_with("codex-mcp")).collect();
        assert_eq!(left, [] as [String; 0], "{killed:?}");
        let warnings = result["warnings"].to_string();
        let what = match killed {
            KillPoint::BeforeRefs => "imported refs/heads/side; HEAD is refs/heads/side now",
            KillPoint::AfterRefs => "imported its index; HEAD is refs/heads/side now",
            KillPoint::AfterHead | KillPoint::AfterIndex => "imported its index",
        };
        assert!(warnings.contains(what), "{killed:?}: {warnings}");
        assert!(warnings.contains(" ago): "), "{killed:?}: {warnings}");
        assert!(stderr.contains(what), "{killed:?}: {stderr}");
        let found = doctor(&stage).await;
        assert_eq!(found[0]["status"], "ok", "{found:?}");
    }
}

#[tokio::test]
async fn checkout_stays_when_the_working_tree_has_changed() {
    let paused = PausedRun::new(&[commit("a.txt")], &[Reply::say("Done.")]).await;
    let stage = paused.kill().await;
    fs::remove_file(stage.home.work().join("a.txt")).unwrap();
    let git = |args: &[&str]| stage.home.git(args);
    let index = fs::read(stage.git_dir().join("index")).unwrap();
    let (_, result, stderr) = second_run(&stage, &[]).await;
    assert_eq!(git(&["rev-list", "--count", "main"]), "1", "{stderr}");
    assert_eq!(fs::read(stage.git_dir().join("index")).unwrap(), index);
    let name = only_directory(&stage).file_name().unwrap().to_owned();
    let kept = format!("refs/codex-mcp/{}/heads/main", name.to_str().unwrap());
    let warnings = result["warnings"].to_string();
    let what_to_do = format!("run `git merge {kept}`");
    assert!(warnings.contains(&what_to_do), "{warnings}");
    git(&["merge", "--quiet", &kept]);
    assert_eq!(git(&["show", "main:a.txt"]), "made");
}

/// What git finds to differ from the private index itself.
async fn differing(stage: &RepositoryFixture) -> String {
    let mut git = tokio::process::Command::from(stage.home.command("git"));
    let git = git.args(["diff-files", "--name-only"]);
    let index = only_directory(stage).join("private/index");
    let output = git.env("GIT_INDEX_FILE", index).output().await.unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn checkout_stays_when_flags_in_the_index_hide_a_change() {
    for flag in ["--assume-unchanged", "--skip-worktree"] {
        let hide = Reply::shell(format!("git update-index {flag} a.txt"));
        let paused = PausedRun::new(&[commit("a.txt"), hide], &[Reply::say("Done.")]).await;
        let stage = paused.kill().await;
        fs::write(stage.home.work().join("a.txt"), "changed by the user").unwrap();
        // The control: with the private index, git does not see the change.
        assert!(!differing(&stage).await.contains("a.txt"), "{flag}");
        let index = fs::read(stage.git_dir().join("index")).unwrap();
        let (_, result, stderr) = second_run(&stage, &[]).await;
        let commits = stage.home.git(&["rev-list", "--count", "main"]);
        assert_eq!(commits, "1", "{flag}: {stderr}");
        assert_eq!(fs::read(stage.git_dir().join("index")).unwrap(), index);
        let warnings = result["warnings"].to_string();
        assert!(warnings.contains("run `git merge "), "{flag}: {warnings}");
    }
}

/// Checks that a run names the obstacle and changes nothing, and that the next run imports the
/// commit.
async fn assert_refused_then_imported(first: &[Reply], path: &str, why: &str) {
    let others = [Reply::say("Done.")];
    let paused = PausedRun::new(first, &others).await;
    let obstacle = paused.stage.home.work().join(path);
    if !obstacle.exists() {
        fs::write(&obstacle, "").unwrap();
    }
    let began = Instant::now();
    paused.gate.release();
    let output = paused.run.wait_with_output().await.unwrap();
    assert!(began.elapsed() < TIME_LIMIT, "{:?}", began.elapsed());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains(why), "{stderr}");
    let stage = paused.stage;
    let git = |args: &[&str]| stage.home.git(args);
    assert_eq!(git(&["rev-list", "--count", "main"]), "1", "{stderr}");
    let found = doctor(&stage).await;
    assert_eq!(found[0]["value"]["state"], "kept", "{found:?}");

    fs::remove_file(&obstacle).unwrap();
    let (_, result, stderr) = second_run(&stage, &[]).await;
    let warnings = result["warnings"].to_string();
    assert!(warnings.contains("imported refs/heads/main"), "{stderr}");
    assert_eq!(git(&["show", "main:a.txt"]), "made");
    assert_eq!(git(&["status", "--porcelain"]), "");
    assert_eq!(directories(&stage), [] as [PathBuf; 0]);
}

#[tokio::test]
async fn busy_index_lock_keeps_refs_from_moving() {
    assert_refused_then_imported(&[commit("a.txt")], ".git/index.lock", "index.lock").await;
}

#[tokio::test]
async fn pipe_as_gitattributes_keeps_refs_from_moving() {
    let first = [commit("a.txt"), Reply::shell("mkfifo .gitattributes")];
    let why = ".gitattributes is not a regular file";
    assert_refused_then_imported(&first, ".gitattributes", why).await;
}

/// The user's git holds the index lock for a moment and changes the index.
#[tokio::test]
async fn index_that_the_user_changes_during_a_takeover_is_merged() {
    let paused = PausedRun::new(&[commit("a.txt")], &[]).await;
    let stage = &paused.stage;
    fs::write(stage.home.work().join("mine.txt"), "mine").unwrap();
    let (index, lock) = ["index", "index.lock"]
        .map(|name| stage.git_dir().join(name))
        .into();
    // The takeover prepares its index from the old one, and waits for the lock.
    fs::copy(&index, &lock).unwrap();
    paused.gate.release();
    let prepared = only_directory(stage).join("takeover.json");
    wait_for_file(&prepared).await;
    let users = stage.home.root().join("users-index");
    fs::copy(&index, &users).unwrap();
    let mut git = tokio::process::Command::from(stage.home.command("git"));
    let git = git.args(["add", "mine.txt"]);
    let added = git.env("GIT_INDEX_FILE", &users).status().await.unwrap();
    assert!(added.success());
    fs::rename(&users, &index).unwrap();
    fs::remove_file(&lock).unwrap();

    let output = paused.run.wait_with_output().await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let status = paused.stage.home.git(&["status", "--porcelain"]);
    assert_eq!(status, "A  mine.txt");
}
