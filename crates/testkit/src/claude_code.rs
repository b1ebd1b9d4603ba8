//! The real Claude Code, installed from npm.

use std::fs;
use std::path::PathBuf;

use crate::target_dir;

/// The version that `cargo xtask provision` installs.
const VERSION: &str = include_str!("../claude-code-version.txt");

/// Its native binary, from the package of this machine's platform.
///
/// # Panics
/// When it is not installed.
#[must_use]
pub fn native_binary() -> PathBuf {
    let version = VERSION.trim();
    let directory = target_dir().join("claude-code").join(version);
    let packages = fs::read_dir(directory.join("node_modules/@anthropic-ai"));
    let packages = packages.into_iter().flatten().flatten();
    let mut binaries = packages.map(|package| package.path().join("claude"));
    let found = binaries.find(|binary| binary.is_file());
    found.unwrap_or_else(|| {
        panic!("Claude Code {version} is not installed. Run `cargo xtask provision`.")
    })
}
