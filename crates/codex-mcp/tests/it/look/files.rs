//! The criterion of files that match patterns.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::process::Command;
use std::time::SystemTime;

use super::{Scene, beginnings};

#[tokio::test]
async fn files_count_when_new_or_changed() {
    let scene = Scene::new();
    scene.write(".gitignore", "build/\n");
    scene.write("build/out", "old");
    scene.write("src/a.rs", "old");
    let patterns = ["files=build/*", "files=docs/**/*.md", "files=src/a.rs"];
    let run = scene.run(&patterns).await;
    assert_eq!(beginnings(&run.judged().await), ["no", "no", "no"]);

    let file = fs::File::options()
        .append(true)
        .open(scene.work().join("src/a.rs"))
        .unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    scene.write("build/out", "old");
    assert_eq!(
        beginnings(&run.judged().await),
        ["no", "no", "no"],
        "touched, or written with the same"
    );

    scene.write("build/out", "new");
    scene.write("docs/a/b/c.md", "x");
    scene.write("src/a.rs", "new");
    assert_eq!(beginnings(&run.judged().await), ["yes", "yes", "yes"]);
    fs::remove_file(scene.work().join("src/a.rs")).unwrap();
    assert_eq!(beginnings(&run.judged().await), ["yes", "yes", "no"]);
}

#[tokio::test]
async fn links_and_git_directory_are_not_followed() {
    let scene = Scene::new();
    fs::write(scene.home.tmp().join("outside.txt"), "x").unwrap();
    scene.write("inner/real.txt", "x");
    let work = scene.work();
    symlink(scene.home.tmp(), work.join("out")).unwrap();
    symlink(scene.home.tmp().join("outside.txt"), work.join("out.txt")).unwrap();
    symlink("nowhere", work.join("dangling.txt")).unwrap();
    symlink(".git/config", work.join("config.txt")).unwrap();
    symlink("inner/real.txt", work.join("link.txt")).unwrap();
    symlink("inner", work.join("way")).unwrap();
    symlink(".", work.join("inner/loop")).unwrap();
    let run = scene
        .run(&[
            "files=**/*.txt",
            "files=out/outside.txt",
            "files=way/real.txt",
            "files=**/config",
            "files=**/HEAD",
        ])
        .await;
    let files = run.start.files.get().unwrap();
    let paths: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(paths, ["inner/real.txt", "link.txt", "way/real.txt"]);
    let stamp = files["link.txt"].clone();
    scene.write("inner/real.txt", "y");
    let now = run.looker.now().await;
    assert_ne!(now.files.get().unwrap()["link.txt"], stamp);
}

#[tokio::test]
async fn directories_do_not_count_as_files() {
    let scene = Scene::new();
    let work = scene.work();
    fs::create_dir(work.join("directory.x")).unwrap();
    let made = Command::new("mkfifo").arg(work.join("pipe.x")).status();
    assert!(made.unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(work.join("s.x")).unwrap();
    let run = scene
        .run(&["files=*.x", "files=pipe.x", "files=directory.x"])
        .await;
    assert!(run.start.files.get().unwrap().is_empty());
}

#[tokio::test]
async fn long_file_is_identified_by_length_and_time() {
    let scene = Scene::new();
    let path = scene.work().join("long.bin");
    let file = fs::File::create(&path).unwrap();
    file.set_len(65 * 1024 * 1024).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let run = scene.run(&["files=long.bin"]).await;
    assert_eq!(beginnings(&run.judged().await), ["no"]);
    file.set_modified(SystemTime::now()).unwrap();
    assert_eq!(beginnings(&run.judged().await), ["yes"]);
}

#[tokio::test]
async fn unreadable_file_counts_as_present() {
    let scene = Scene::new();
    let path = scene.work().join("secret");
    let options = fs::File::options()
        .write(true)
        .create(true)
        .mode(0o000)
        .clone();
    let run = scene.run(&["files=secret"]).await;
    options.open(&path).unwrap();
    assert_eq!(beginnings(&run.judged().await), ["yes"]);
}

/// As root, this proves nothing: root reads such a file.
#[tokio::test]
async fn taking_away_the_permission_to_read_is_no_change() {
    let scene = Scene::new();
    scene.write("a.txt", "old");
    let run = scene.run(&["files=a.txt"]).await;
    let none = fs::Permissions::from_mode(0o000);
    fs::set_permissions(scene.work().join("a.txt"), none).unwrap();
    assert_eq!(beginnings(&run.judged().await), ["no"]);
}

#[tokio::test]
async fn names_that_are_not_utf8_are_marked() {
    let scene = Scene::new();
    let run = scene.run(&["files=odd/*", "diff_within=src"]).await;
    let odd = scene.work().join("odd");
    fs::create_dir(&odd).unwrap();
    fs::write(odd.join(OsStr::from_bytes(b"a\xff")), "x").unwrap();
    fs::write(odd.join(OsStr::from_bytes(b"a\xfe")), "x").unwrap();
    let now = run.looker.now().await;
    let files: Vec<_> = now.files.get().unwrap().keys().cloned().collect();
    assert_eq!(files, ["odd/a\\xfe", "odd/a\\xff"]);
    let dirty: Vec<_> = now
        .tree
        .get()
        .unwrap()
        .state
        .dirty
        .keys()
        .cloned()
        .collect();
    assert_eq!(dirty, files);
    assert_eq!(beginnings(&run.judged().await), ["yes", "no"]);
}
