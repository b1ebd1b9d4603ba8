//! The real Codex releases, as `cargo xtask provision` installs them.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the native binary lies below `vendor/TARGET-TRIPLE`: the first since some
/// release between 0.104 and 0.153.4, the second before.
const NATIVE_BINARIES: [&str; 2] = ["bin/codex", "codex/codex"];

/// The releases that the tests run against, oldest first: `codex-releases.txt`.
#[must_use]
pub fn releases() -> Vec<&'static str> {
    include_str!("../codex-releases.txt")
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .filter(|version| !version.is_empty())
        .collect()
}

/// The newest release that the tests run against.
#[must_use]
pub fn newest() -> &'static str {
    releases().last().unwrap()
}

/// The native binary of a release.
///
/// # Panics
/// If the release is not installed.
#[must_use]
pub fn native_binary(version: &str) -> PathBuf {
    let packages = node_modules(version).join("@openai");
    directories(&packages)
        .into_iter()
        .filter(|package| name_starts_with(package, "codex-"))
        .flat_map(|package| directories(&package.join("vendor")))
        .flat_map(|vendor| NATIVE_BINARIES.map(|binary| vendor.join(binary)))
        .find(|binary| binary.is_file())
        .unwrap_or_else(|| missing(version, &packages))
}

/// The `codex` script that npm puts on the PATH: a Node program that starts the
/// native binary.
///
/// # Panics
/// If the release is not installed.
#[must_use]
pub fn npm_shim(version: &str) -> PathBuf {
    let shim = node_modules(version).join(".bin/codex");
    if !shim.is_file() {
        missing(version, &shim);
    }
    shim
}

fn node_modules(version: &str) -> PathBuf {
    crate::target_dir()
        .join("codex")
        .join(version)
        .join("node_modules")
}

fn directories(parent: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else {
        return Vec::new();
    };
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn name_starts_with(path: &Path, prefix: &str) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with(prefix))
}

fn missing(version: &str, place: &Path) -> ! {
    panic!(
        "Codex {version} is not installed: nothing usable at {}. Run `cargo xtask provision`.",
        place.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_version_numbers_oldest_first() {
        let numbers: Vec<Vec<u32>> = releases()
            .iter()
            .map(|version| version.split('.').map(|n| n.parse().unwrap()).collect())
            .collect();

        assert!(!numbers.is_empty());
        assert!(numbers.is_sorted(), "{numbers:?}");
        assert_eq!(newest(), *releases().last().unwrap());
    }

    #[test]
    #[should_panic(expected = "Run `cargo xtask provision`.")]
    fn missing_release_is_an_error() {
        let _ = native_binary("0.0.0");
    }
}
