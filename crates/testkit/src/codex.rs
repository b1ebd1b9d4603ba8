//! The real Codex releases, as `cargo xtask provision` installs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::directory::{copy_directory, made_once};

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

/// The variable with the release that takes the place of the newest one.
const VARIABLE: &str = "CODEX_MCP_TEST_CODEX";

/// The newest release that the tests run against, unless `CODEX_MCP_TEST_CODEX` names another one.
#[must_use]
pub fn newest() -> &'static str {
    static NEWEST: LazyLock<String> = LazyLock::new(|| {
        std::env::var(VARIABLE).unwrap_or_else(|_| releases().last().unwrap().to_string())
    });
    &NEWEST
}

/// Whether a release is this one or a later one.
#[must_use]
pub fn is_since(release: &str, first: [u32; 3]) -> bool {
    let numbers = release.split('.').map(|number| number.parse().unwrap());
    numbers.collect::<Vec<u32>>().as_slice() >= first.as_slice()
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

/// Puts into an empty CODEX_HOME what this release makes there at its first start: its databases
/// and skills. To make them again in each test takes a quarter of the start.
pub(crate) fn start_before(version: &str, codex_home: &Path) {
    copy_directory(&first_home(version), codex_home);
}

/// The CODEX_HOME of a release that was started once, without a configuration.
fn first_home(version: &str) -> PathBuf {
    made_once(install(version).join("first-home"), |home| {
        // With plugins, Codex asks git about its marketplace over the network.
        let config = home.join("config.toml");
        fs::write(&config, "features.plugins = false\n").unwrap();
        let ended = Command::new(native_binary(version))
            .arg("app-server")
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home)
            .env("CODEX_HOME", home)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(ended.success(), "Codex {version} ended with {ended}");
        fs::remove_file(config).unwrap();
    })
}

fn install(version: &str) -> PathBuf {
    crate::target_dir().join("codex").join(version)
}

fn node_modules(version: &str) -> PathBuf {
    install(version).join("node_modules")
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
    }

    #[test]
    fn releases_are_compared_by_their_numbers() {
        assert!(is_since("0.104.0", [0, 104, 0]));
        assert!(is_since("0.130.0", [0, 104, 1]));
        assert!(!is_since("0.99.9", [0, 104, 0]));
    }

    #[test]
    #[should_panic(expected = "Run `cargo xtask provision`.")]
    fn missing_release_is_an_error() {
        let _ = native_binary("0.0.0");
    }
}
