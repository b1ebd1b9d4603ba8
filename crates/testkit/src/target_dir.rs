//! Cargo's target directory.

use std::env;
use std::path::{Path, PathBuf};

/// The directory that cargo builds into: `CARGO_TARGET_DIR` or `target` in the workspace. It also
/// holds the Codex releases, which later runs use again, and the homes of tests, which must not
/// lie in the system's temporary directory.
#[must_use]
pub fn target_dir() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap();
    match env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => workspace.join(directory),
        None => workspace.join("target"),
    }
}
