//! The private git directories of interrupted runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Instant;

use scripted_model::{Reply, Script};
use testkit::process::wait_for_pipe_open;

use super::{PausedRun, TIME_LIMIT, directories, doctor, only_directory, second_run};
use crate::attacks::fixture::{RUN_PLANT, RepositoryFixture, commit};

#[tokio::test]
async fn replaced_repository_gets_no_commits() {
    let paused = PausedRun::new(&[commit("a.txt")], &[Reply::say("Done.")]).await;
    let stage = paused.kill().await;
    let aside = stage.home.root().join("aside");
    fs::rename(stage.git_dir(), &aside).unwrap();
    let (from, to) = (aside.to_str().unwrap(), stage.git_dir());
    stage
        .home
        .git(&["clone", "--quiet", "--bare", from, to.to_str().unwrap()]);
    stage.home.git(&["config", "core.bare", "false"]);
    let found = doctor(&stage).await;
    assert_eq!(found[0]["value"]["state"], "orphaned", "{found:?}");
    let (_, _, stderr) = second_run(&stage, &[]).await;
    assert!(!stderr.contains("interrupted run"), "{stderr}");
    assert_eq!(stage.home.git(&["rev-list", "--count", "main"]), "1");
    only_directory(&stage);
}

#[tokio::test]
async fn directory_of_a_live_run_is_not_removed() {
    let others = [commit("b.txt"), Reply::say("Done.")];
    let mut paused = PausedRun::new(&[commit("a.txt")], &others).await;
    let stage = &paused.stage;
    let directory = only_directory(stage);
    let found = doctor(stage).await;
    assert_eq!(found[0]["value"]["state"], "in-use", "{found:?}");
    assert_eq!(
        found[0]["value"]["repository"],
        stage.home.work().to_str().unwrap()
    );

    let (code, result, stderr) = second_run(stage, &[]).await;
    assert_eq!(code, Some(0), "{result:#}\n{stderr}");
    let git = |args: &[&str]| stage.home.git(args);
    assert_eq!(git(&["ls-tree", "--name-only", "main"]), "README.md\nb.txt");
    assert!(!stderr.contains("interrupted run"), "{stderr}");
    assert_eq!(only_directory(stage), directory);

    paused.gate.release();
    let ended = paused.run.wait().await.unwrap();
    assert_eq!(ended.code(), Some(2), "the second run has advanced main");
    let kept = git(&["for-each-ref", "--format=%(refname)", "refs/codex-mcp"]);
    assert_eq!(git(&["show", &format!("{kept}:a.txt")]), "made");
}

#[tokio::test]
async fn damaged_directory_is_named_and_the_next_run_begins() {
    let others = [commit("b.txt"), Reply::say("Done.")];
    let paused = PausedRun::new(&[commit("a.txt")], &others).await;
    let stage = paused.kill().await;
    let directory = only_directory(&stage);
    fs::write(directory.join("synced.json"), "{").unwrap();
    let (code, result, stderr) = second_run(&stage, &[]).await;
    assert_eq!(code, Some(0), "{result:#}\n{stderr}");
    let path = directory.to_str().unwrap();
    assert!(result["warnings"].to_string().contains(path), "{result:#}");
    assert!(stderr.contains(path), "{stderr}");
    assert!(directory.join("private/refs/heads/main").is_file());
    let found = doctor(&stage).await;
    assert_eq!(found[0]["value"]["state"], "unreadable", "{found:?}");
    assert_eq!(found[0]["value"]["path"], path);

    // A directory without this file was never given to Codex, so the next run removes it.
    fs::remove_file(directory.join("synced.json")).unwrap();
    let (_, result, _) = second_run(&stage, &[]).await;
    assert!(!result["warnings"].to_string().contains(path), "{result:#}");
    assert_eq!(directories(&stage), [] as [PathBuf; 0]);
}

#[tokio::test]
async fn directory_of_another_repository_is_not_removed() {
    let others = [commit("b.txt"), Reply::say("Done.")];
    let paused = PausedRun::new(&[commit("a.txt")], &others).await;
    let stage = paused.kill().await;
    let directory = only_directory(&stage);
    let other = stage.home.root().join("other");
    let other = other.to_str().unwrap();
    stage.home.git(&["clone", "--quiet", ".", other]);
    for (key, value) in [("user.name", "Test"), ("user.email", "test@example.com")] {
        stage.home.git(&["-C", other, "config", key, value]);
    }
    let (code, result, stderr) = second_run(&stage, &["--repo", other]).await;
    assert_eq!(code, Some(0), "{result:#}\n{stderr}");
    assert!(!stderr.contains("interrupted run"), "{stderr}");
    assert_eq!(only_directory(&stage), directory);
    assert_eq!(stage.home.git(&["rev-list", "--count", "main"]), "1");
    stage
        .home
        .git(&["-C", other, "cat-file", "-e", "main:b.txt"]);
}

/// The control is the directory itself, in which the planted programs run.
#[tokio::test]
async fn copy_of_a_kept_directory_runs_no_planted_program() {
    let script = Script::new().otherwise([
        commit("a.txt"),
        Reply::shell(RUN_PLANT),
        Reply::say("Done."),
    ]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    let caught = stage.caught();
    let caught = caught.display();
    let plant = format!(
        "echo x >> README.md && git stash --quiet\n\
         echo y >> README.md && git stash --quiet\n\
         cd \"$GIT_DIR\"\n\
         git config --file config core.fsmonitor 'touch {caught}; true'\n\
         git config --file config alias.go '!touch {caught}'\n\
         git config --file config core.pager 'touch {caught}; cat'\n\
         git config --file config uploadpack.packObjectsHook 'touch {caught}; true'\n\
         git config --file config core.hooksPath \"$GIT_DIR/hooks\"\n\
         git config --file config extensions.worktreeConfig true\n\
         git config --file config.worktree core.sshCommand 'touch {caught}; true'\n\
         mkdir -p hooks info && echo '* filter=x' > info/attributes\n\
         for hook in reference-transaction post-index-change; do\n\
         printf '#!/bin/sh\\ntouch {caught}\\n' > hooks/$hook; chmod +x hooks/$hook; done\n"
    );
    stage.write_plant(&plant);
    let (code, result, stderr) = second_run(&stage, &[]).await;
    assert_eq!(code, Some(0), "{result:#}\n{stderr}");
    let directory = only_directory(&stage);
    let (copy, private) = (directory.join("kept"), directory.join("private"));
    let copy = copy.to_str().unwrap();
    assert!(
        stderr.contains(&format!("git fetch {copy} REF")),
        "{stderr}"
    );

    let git = |args: &[&str]| stage.home.git(args);
    git(&["fetch", "--quiet", copy, "refs/stash:refs/heads/stashed"]);
    let line = git(&["diff", "stashed^", "stashed"]);
    assert!(line.ends_with("+y"), "{line}");
    let at = format!("--git-dir={copy}");
    assert_eq!(
        git(&[&at, "--work-tree=.", "stash", "list"])
            .lines()
            .count(),
        2
    );
    assert!(git(&["-C", copy, "log", "--format=%s", "main"]).starts_with("a.txt"));
    git(&["-C", copy, "update-ref", "refs/heads/new", "main"]);
    git(&[&at, "--work-tree=.", "status"]);
    git(&[&at, "fsck"]);
    assert!(!stage.was_attacked());
    let mode = fs::metadata(copy).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    let at = format!("--git-dir={}", private.display());
    for args in [
        &[&at, "--work-tree=.", "status"][..],
        &[&at, "go"],
        &[&at, "update-ref", "refs/heads/new", "main"],
    ] {
        git(args);
        stage.wait_until_attacked().await;
    }
}

/// Plants directories that are nested deeper than a path can name. The control removes such a path.
#[tokio::test]
async fn deeply_nested_directory_is_removed() {
    let nested = "chdir $ENV{GIT_DIR}; for (1..3000) { mkdir \"d\"; chdir \"d\" }";
    let plant = Reply::shell(format!("perl -e '{nested}'"));
    let others = [Reply::say("Done.")];
    let paused = PausedRun::new(&[commit("a.txt"), plant], &others).await;
    let directory = only_directory(&paused.stage);
    let control = paused.stage.home.root().join("control");
    fs::create_dir(&control).unwrap();
    let mut perl = tokio::process::Command::new("perl");
    let perl = perl.args(["-e", nested]).env("GIT_DIR", &control);
    assert!(perl.status().await.unwrap().success());
    let innermost = control.join(vec!["d"; 3_000].join("/"));
    assert!(fs::remove_dir(innermost).is_err());

    paused.gate.release();
    let output = paused.run.wait_with_output().await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(!directory.exists(), "{stderr}");

    // The state that a run leaves when it is killed during the removal.
    fs::create_dir(&directory).unwrap();
    fs::rename(&control, directory.join("private")).unwrap();
    let found = doctor(&paused.stage).await;
    assert_eq!(found[0]["value"]["state"], "unfinished", "{found:?}");
    second_run(&paused.stage, &[]).await;
    assert_eq!(directories(&paused.stage), [] as [PathBuf; 0]);
}

/// A pipe in place of `HEAD` blocks neither the end of the run nor a later run. The control is git,
/// which waits for the pipe.
#[tokio::test]
async fn pipe_in_place_of_head_blocks_no_run() {
    let pipe = "rm \"$GIT_DIR/HEAD\" && mkfifo \"$GIT_DIR/HEAD\"";
    let first = [commit("a.txt"), Reply::shell(pipe)];
    let others = [Reply::say("Done.")];
    let paused = PausedRun::new(&first, &others).await;
    let began = Instant::now();
    paused.gate.release();
    let output = paused.run.wait_with_output().await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("HEAD is not a regular file"), "{stderr}");
    let stage = paused.stage;
    let private = only_directory(&stage).join("private");
    let (_, _, stderr) = second_run(&stage, &[]).await;
    assert!(
        began.elapsed() < TIME_LIMIT,
        "{:?}: {stderr}",
        began.elapsed()
    );
    assert_eq!(stage.home.git(&["rev-list", "--count", "main"]), "1");
    let found = doctor(&stage).await;
    assert_eq!(found[0]["value"]["state"], "kept", "{found:?}");
    let copy = private.with_file_name("kept");
    let copy = copy.to_str().unwrap();
    assert_eq!(stage.home.git(&["-C", copy, "show", "main:a.txt"]), "made");

    let mut git = tokio::process::Command::new("git");
    let git = git
        .arg("--git-dir")
        .arg(&private)
        .args(["rev-parse", "HEAD"]);
    let waiting = git.kill_on_drop(true).spawn().unwrap();
    // If git returned, this would time out.
    wait_for_pipe_open(waiting.id().unwrap()).await;
}
