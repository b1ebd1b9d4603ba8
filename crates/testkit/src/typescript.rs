//! The official TypeScript library of MCP, installed from npm.

use std::path::PathBuf;

use crate::target_dir;

/// The version that `cargo xtask provision` installs.
const VERSION: &str = include_str!("../typescript-version.txt");

/// The library's directory.
///
/// # Panics
/// When it is not installed.
#[must_use]
pub fn library() -> PathBuf {
    let version = VERSION.trim();
    let directory = target_dir()
        .join("typescript")
        .join(version)
        .join("node_modules/@modelcontextprotocol/sdk");
    assert!(
        directory.is_dir(),
        "the TypeScript library of MCP {version} is not installed. Run `cargo xtask provision`."
    );
    directory
}
