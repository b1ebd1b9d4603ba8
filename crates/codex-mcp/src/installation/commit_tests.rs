//! Tests of the build script's part that finds the commit.

#[path = "../../build/commit.rs"]
mod commit;

use std::fs;
use std::path::Path;
use std::process::Command;

use commit::{checked_out, shortened};

fn git(directory: &Path, args: &[&str]) -> String {
    let ran = Command::new("git")
        .arg("-C")
        .arg(directory)
        .args(["-c", "user.name=you", "-c", "user.email=you@localhost"])
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{args:?}: {ran:?}");
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

fn commit_something(directory: &Path) -> String {
    git(directory, &["commit", "-q", "--allow-empty", "-m", "x"]);
    git(directory, &["rev-parse", "HEAD"])
}

#[test]
fn given_commit_is_a_hash() {
    let hash = "1d66ea9bdcc131aa86ae30ec1ab4df29bf07c2e8";
    assert_eq!(shortened(hash).as_deref(), Some("1d66ea9b"));
    assert_eq!(shortened("1d66ea9b\n").as_deref(), Some("1d66ea9b"));
    for wrong in ["", "1d66ea9", "main", "1d66ea9b; rm", "1d66eaxx"] {
        assert_eq!(shortened(wrong), None, "{wrong}");
    }
}

#[test]
fn commit_of_a_checkout_is_found_and_its_files_change() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    assert_eq!(checked_out(root), None);
    git(root, &["init", "-q", "-b", "main"]);
    assert_eq!(checked_out(root), None, "there is no commit");
    let hash = commit_something(root);
    let found = checked_out(root).unwrap();
    assert!(hash.starts_with(&found.hash));
    assert!(found.files.iter().all(|file| file.exists()), "{found:?}");

    // Packed refs: the branch has no file until the next commit.
    git(root, &["pack-refs", "--all"]);
    let packed = checked_out(root).unwrap();
    let contents = |files: &[std::path::PathBuf]| -> Vec<Vec<u8>> {
        files.iter().map(|file| fs::read(file).unwrap()).collect()
    };
    let before = contents(&packed.files);
    let next = commit_something(root);
    assert_ne!(contents(&packed.files), before, "a commit goes unnoticed");
    assert!(next.starts_with(&checked_out(root).unwrap().hash));

    git(root, &["checkout", "-q", "--detach", &hash]);
    assert!(hash.starts_with(&checked_out(root).unwrap().hash));
}

#[test]
fn archive_within_another_repository_has_no_commit() {
    let directory = tempfile::tempdir().unwrap();
    git(directory.path(), &["init", "-q"]);
    commit_something(directory.path());
    let below = directory.path().join("codex-mcp-0.1.0");
    fs::create_dir(&below).unwrap();
    assert_eq!(checked_out(&below), None);
}
