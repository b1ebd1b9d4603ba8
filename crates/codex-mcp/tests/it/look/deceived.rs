//! Repositories whose settings change during the run to make criteria seem met.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, SystemTime};

use goal_run::look::LookError;
use testkit::wait::wait_for;

use super::{Scene, beginnings};

/// The control is the last push, to the user's remote.
#[tokio::test]
async fn pushed_counts_only_at_the_remote_of_the_user() {
    let scene = Scene::new();
    let theirs = scene.with_remote();
    let own = scene.home.root().join("own.git");
    let own = own.to_str().unwrap();
    scene.git(&["init", "--quiet", "--bare", "--initial-branch=main", own]);
    let url = theirs.to_str().unwrap();
    let run = scene.run(&["pushed"]).await;
    scene.commit("a");
    scene.git(&["push", "--quiet", own, "main"]);
    for (key, value) in [
        ("remote.origin.url", own),
        ("remote.origin.pushurl", own),
        (&format!("url.{own}.insteadOf"), url),
        (&format!("url.{own}.pushInsteadOf"), url),
        ("branch.main.remote", own),
        ("branch.main.pushRemote", own),
        ("remote.pushDefault", own),
    ] {
        scene.git(&["config", key, value]);
        assert_eq!(beginnings(&run.judged().await), ["no"], "{key}");
    }
    let included = scene.home.root().join("included");
    fs::write(&included, format!("[remote \"origin\"]\n\turl = {own}\n")).unwrap();
    scene.git(&["config", "include.path", included.to_str().unwrap()]);
    assert_eq!(beginnings(&run.judged().await), ["no"]);
    let control = scene.run(&["pushed"]).await;
    let now = control.looker.now().await;
    let judged = control.verdict(&now, goal_run::logic::snapshot::Preexisting::Counts);
    assert_eq!(
        beginnings(&super::told(&judged)),
        ["yes"],
        "with these settings it holds"
    );
    fs::remove_file(scene.work().join(".git/config")).unwrap();
    scene.git(&["push", "--quiet", url, "main"]);
    assert_eq!(beginnings(&run.judged().await), ["yes"]);
}

#[tokio::test]
async fn marks_in_the_index_hide_no_change() {
    let scene = Scene::new();
    scene.write("kept-out", "mine");
    scene.commit("README.md");
    scene.git(&["update-index", "--skip-worktree", "kept-out"]);
    scene.write("kept-out", "changed by the user before the run");
    for mark in ["--skip-worktree", "--assume-unchanged"] {
        let run = scene.run(&["clean", "diff_within=src"]).await;
        assert_eq!(beginnings(&run.judged().await), ["yes", "yes"]);
        scene.git(&["update-index", mark, "README.md"]);
        scene.write("README.md", mark);
        let status = scene.git(&["status", "--porcelain"]);
        assert_eq!(status, "", "git itself is deceived");
        assert_eq!(beginnings(&run.judged().await), ["no", "no"], "{mark}");
        for unmark in ["--no-skip-worktree", "--no-assume-unchanged"] {
            scene.git(&["update-index", unmark, "README.md"]);
        }
        scene.git(&["checkout", "README.md"]);
    }
}

/// A file of the same length and time counts as unchanged where the repository says so.
#[tokio::test]
async fn settings_of_time_stamps_hide_no_change() {
    let scene = Scene::new();
    scene.commit("README.md");
    let file = scene.work().join("README.md");
    let length = fs::metadata(&file).unwrap().len();
    let set_time = || {
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let file = fs::File::options().write(true).open(&file).unwrap();
        file.set_modified(long_ago).unwrap();
    };
    set_time();
    scene.git(&["config", "core.checkStat", "minimal"]);
    scene.git(&["config", "core.trustctime", "false"]);
    scene.git(&["update-index", "--refresh"]);
    let run = scene.run(&["clean"]).await;
    assert_eq!(beginnings(&run.judged().await), ["yes"]);
    // Git compares the ctime in whole seconds.
    let changed = || fs::metadata(&file).unwrap().ctime();
    let noted = changed();
    let other = "x".repeat(length.try_into().unwrap());
    wait_for("a ctime of another second", async || {
        fs::write(&file, &other).unwrap();
        set_time();
        (changed() != noted).then_some(())
    })
    .await;
    let status = scene.git(&["status", "--porcelain"]);
    assert_eq!(status, "", "git itself is deceived");
    assert_eq!(beginnings(&run.judged().await), ["no"]);
}

/// A file of the user's that git lists as uncommitted before and after the run alike.
#[tokio::test]
async fn restored_time_hides_no_change_of_an_uncommitted_file() {
    let scene = Scene::new();
    scene.write("mine", "before");
    let file = scene.work().join("mine");
    let noted = fs::metadata(&file).unwrap();
    let run = scene.run(&["diff_within=src"]).await;
    assert_eq!(beginnings(&run.judged().await), ["yes"]);
    scene.write("mine", "behind");
    let opened = fs::File::options().write(true).open(&file).unwrap();
    opened.set_modified(noted.modified().unwrap()).unwrap();
    let now = fs::metadata(&file).unwrap();
    assert_eq!(
        (now.len(), now.modified().unwrap()),
        (noted.len(), noted.modified().unwrap()),
        "length and time deceive"
    );
    assert_eq!(beginnings(&run.judged().await), ["no"]);

    let run = scene.run(&["diff_within=src"]).await;
    let status = scene.git(&["status", "--porcelain"]);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(scene.git(&["status", "--porcelain"]), status);
    assert_eq!(beginnings(&run.judged().await), ["no"]);
}

#[tokio::test]
async fn excludes_and_file_modes_are_those_of_the_start() {
    let scene = Scene::new();
    let run = scene.run(&["clean", "diff_within=src"]).await;
    fs::create_dir_all(scene.work().join(".git/info")).unwrap();
    fs::write(scene.work().join(".git/info/exclude"), "*\n").unwrap();
    scene.write("left", "x");
    assert_eq!(scene.git(&["status", "--porcelain"]), "");
    assert_eq!(beginnings(&run.judged().await), ["no", "no"]);
    fs::remove_file(scene.work().join(".git/info/exclude")).unwrap();
    let excludes = scene.home.root().join("excludes");
    fs::write(&excludes, "*\n").unwrap();
    scene.git(&["config", "core.excludesFile", excludes.to_str().unwrap()]);
    assert_eq!(scene.git(&["status", "--porcelain"]), "");
    assert_eq!(beginnings(&run.judged().await), ["no", "no"]);
    fs::remove_file(scene.work().join("left")).unwrap();
    assert_eq!(beginnings(&run.judged().await), ["yes", "yes"]);
    scene.git(&["config", "core.fileMode", "false"]);
    let readme = scene.work().join("README.md");
    fs::set_permissions(&readme, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(scene.git(&["status", "--porcelain"]), "");
    assert_eq!(beginnings(&run.judged().await), ["no", "no"]);
}

/// The control: git itself uses the repository that each file names.
#[tokio::test]
async fn repository_in_another_place_is_refused() {
    let scene = Scene::new();
    let home = scene.home.root().to_str().unwrap().to_owned();
    scene.git(&["config", "core.worktree", &home]);
    assert_eq!(scene.git(&["rev-parse", "--show-toplevel"]), home);
    let refused = scene.try_at(&scene.work(), &["commits=1"]).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("core.worktree"), "{refused}");
    scene.git(&["config", "--unset", "core.worktree"]);

    let evil = scene.home.root().join("evil");
    fs::create_dir(&evil).unwrap();
    let dot_git = scene.work().join(".git");
    fs::write(
        evil.join(".git"),
        format!("gitdir: {}\n", dot_git.display()),
    )
    .unwrap();
    let taken = scene.git_in(&evil, &["rev-parse", "--absolute-git-dir"]);
    assert_eq!(taken, dot_git.to_str().unwrap());
    let refused = scene.try_at(&evil, &["commits=1"]).await.unwrap_err();
    assert!(matches!(refused, LookError::Start { .. }), "{refused}");
    assert!(
        refused.to_string().contains("does not link back"),
        "{refused}"
    );

    fs::remove_file(evil.join(".git")).unwrap();
    std::os::unix::fs::symlink(&dot_git, evil.join(".git")).unwrap();
    let refused = scene.try_at(&evil, &["commits=1"]).await.unwrap_err();
    assert!(refused.to_string().contains("symbolic link"), "{refused}");
}
