//! The archive and the Debian package of the program that is tested.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Packages, VERSION, success, version_of};

/// Both are of the same run, which compresses the program twice.
#[test]
fn archive_and_debian_package_are_installed_and_removed() {
    let packages = Packages::of_this_program();
    check_archive(&packages);
    check_debian_package(&packages);
}

fn check_archive(packages: &Packages) {
    let stem = Packages::archive_stem();
    let unpacked = Packages::directory();
    let tar = Command::new("tar")
        .arg("-xzf")
        .arg(packages.path(&format!("{stem}.tar.gz")))
        .current_dir(&unpacked)
        .output()
        .unwrap();
    success(&tar);

    let top = unpacked.path().join(stem);
    assert!(version_of(&top.join("codex-mcp")).contains(VERSION));
    for alias in ["codex-eyes", "codex-eyes-mcp"] {
        let help = Command::new(top.join(alias)).arg("--help").output();
        let help = success(&help.unwrap());
        let verb = alias.trim_start_matches("codex-");
        assert!(help.contains(&format!("codex-mcp {verb}")), "{help}");
    }
    for file in [
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "THIRD-PARTY-LICENSES.txt",
        "README.md",
        "man/man1/codex-mcp.1",
        "man/man1/codex-mcp-jobs-submit.1",
        "completions/codex-mcp.bash",
        "completions/_codex-mcp",
        "completions/codex-mcp.fish",
    ] {
        let text = fs::read_to_string(top.join(file));
        assert!(text.is_ok_and(|text| text.len() > 100), "{file}");
    }
    let licences = fs::read_to_string(top.join("THIRD-PARTY-LICENSES.txt")).unwrap();
    assert!(licences.contains("\ntokio 1."), "no licence of tokio");
    // Only the tests are built with it.
    assert!(!licences.contains("\nproptest 1."), "a licence of proptest");
}

fn check_debian_package(packages: &Packages) {
    let root = DebianRoot::new();
    let empty = root.files();
    let architecture = success(&root.dpkg(&["--print-architecture"]));
    let package = format!("codex-mcp_{VERSION}_{}.deb", architecture.trim());
    let package = packages.path(&package);
    success(&root.dpkg(&["--install", package.to_str().unwrap()]));

    let program = root.path().join("usr/bin/codex-mcp");
    assert!(version_of(&program).contains(VERSION));
    let installed = root.files();
    for file in [
        "usr/share/man/man1/codex-mcp-serve.1.gz",
        "usr/share/bash-completion/completions/codex-mcp",
        "usr/share/zsh/vendor-completions/_codex-mcp",
        "usr/share/fish/vendor_completions.d/codex-mcp.fish",
        "usr/share/doc/codex-mcp/copyright",
        "usr/share/doc/codex-mcp/THIRD-PARTY-LICENSES.txt.gz",
    ] {
        assert!(installed.contains(Path::new(file)), "{file}");
    }
    let status = success(&root.dpkg(&["--status", "codex-mcp"]));
    assert!(status.contains("Status: install ok installed"), "{status}");
    // The licence's empty lines must not end the paragraph.
    let copyright = fs::read_to_string(root.path().join("usr/share/doc/codex-mcp/copyright"));
    assert!(copyright.unwrap().contains("\n .\n Permission is hereby"));

    success(&root.dpkg(&["--purge", "codex-mcp"]));
    assert_eq!(root.files(), empty);
}

/// A directory that dpkg takes for the root of a system without packages.
struct DebianRoot(tempfile::TempDir);

impl DebianRoot {
    fn new() -> Self {
        let root = Packages::directory();
        let state = root.path().join("var/lib/dpkg");
        for directory in ["info", "updates", "triggers"] {
            fs::create_dir_all(state.join(directory)).unwrap();
        }
        fs::write(state.join("status"), "").unwrap();
        Self(root)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn dpkg(&self, args: &[&str]) -> std::process::Output {
        let mut root = std::ffi::OsString::from("--root=");
        root.push(self.path());
        Command::new("dpkg")
            .arg(root)
            // This user may be another than root. What Debian wants on PATH is for scripts, and
            // the package has none.
            .args(["--force-not-root", "--force-bad-path"])
            .args(args)
            .output()
            .unwrap()
    }

    /// The files and directories, without dpkg's own.
    fn files(&self) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        let mut waiting = vec![self.path().to_owned()];
        while let Some(directory) = waiting.pop() {
            for entry in fs::read_dir(&directory).unwrap() {
                let path = entry.unwrap().path();
                let below = path.strip_prefix(self.path()).unwrap().to_owned();
                if below.starts_with("var") {
                    continue;
                }
                if path.is_dir() {
                    waiting.push(path);
                }
                found.insert(below);
            }
        }
        found
    }
}
