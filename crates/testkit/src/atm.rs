//! The real `atm` programs, as `cargo xtask provision` installs them.

use std::path::PathBuf;

/// The versions that the tests exchange mail with, oldest first:
/// `atm-versions.txt`.
#[must_use]
pub fn versions() -> Vec<&'static str> {
    include_str!("../atm-versions.txt")
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .filter(|version| !version.is_empty())
        .collect()
}

/// The program of a version.
///
/// # Panics
/// If the version is not installed.
#[must_use]
pub fn binary(version: &str) -> PathBuf {
    let directory = crate::target_dir().join("atm").join(version);
    let binary = directory.join("bin/atm");
    assert!(
        binary.is_file(),
        "atm {version} is not installed: nothing at {}. Run `cargo xtask provision`.",
        binary.display()
    );
    binary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "Run `cargo xtask provision`.")]
    fn missing_version_is_an_error() {
        let _ = binary("0.0.0");
    }
}
