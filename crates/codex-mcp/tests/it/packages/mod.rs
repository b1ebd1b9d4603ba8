//! The packages that `cargo xtask dist` makes: they are installed, run and removed.

mod debian;
mod file_server;
mod installer;
mod mcpb;
mod npm;
mod npm_script;

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Packages in a directory of the test. It is no home, as these may lie in memory.
struct Packages {
    directory: TempDir,
}

impl Packages {
    /// An empty directory.
    fn directory() -> TempDir {
        let parent = testkit::target_dir().join("test-packages");
        fs::create_dir_all(&parent).unwrap();
        tempfile::tempdir_in(fs::canonicalize(parent).unwrap()).unwrap()
    }

    /// Packages a program as if it were a static one for this machine.
    fn of(program: &Path) -> Self {
        let directory = Self::directory();
        let xtask = Path::new(env!("CARGO_BIN_EXE_codex-mcp")).with_file_name("xtask");
        assert!(xtask.is_file(), "no xtask: run `cargo build --workspace`");
        let made = Command::new(xtask)
            .args(["dist", "--quick", "--target", &triple(), "--binary"])
            .arg(program)
            .arg("--out")
            .arg(directory.path())
            .args(["--repository", "https://forge.example/acme/codex-mcp"])
            // Of this crate, when a test runner has set it.
            .env(
                "CARGO_MANIFEST_DIR",
                concat!(env!("CARGO_MANIFEST_DIR"), "/../../xtask"),
            )
            .output()
            .unwrap();
        success(&made);
        let stdout = String::from_utf8_lossy(&made.stdout);
        for line in stdout.lines().filter(|line| line.starts_with(' ')) {
            assert!(line.len() <= 80, "{line:?}");
        }
        Self { directory }
    }

    /// Packages the program that is tested, without what only debuggers read.
    fn of_this_program() -> Self {
        let directory = Self::directory();
        let program = directory.path().join("codex-mcp");
        let strip = Command::new("strip")
            .arg("-o")
            .arg(&program)
            .arg(env!("CARGO_BIN_EXE_codex-mcp"))
            .output()
            .unwrap();
        success(&strip);
        Self::of(&program)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The archive without its ending: also the directory in it.
    fn archive_stem() -> String {
        format!("codex-mcp-{VERSION}-{}", triple())
    }
}

fn triple() -> String {
    format!("{ARCH}-unknown-linux-musl")
}

/// Checks that a program has succeeded, and returns its stdout.
fn success(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The version that a program says it has.
fn version_of(program: &Path) -> String {
    success(&Command::new(program).arg("--version").output().unwrap())
}
