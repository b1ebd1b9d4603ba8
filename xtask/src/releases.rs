//! The lists of releases, of Codex and of atm, that the tests run against.

use anyhow::{bail, ensure};

/// Reads a list: one version a line, oldest first; blank lines and
/// everything after `#` are skipped.
///
/// # Errors
/// When a line is no plain `MAJOR.MINOR.PATCH`, when a version does not come after
/// the one before it, or when there is none at all.
pub(crate) fn parse(text: &str) -> anyhow::Result<Vec<String>> {
    let mut releases = Vec::new();
    let mut newest = None;
    for (index, line) in text.lines().enumerate() {
        let version = line.split('#').next().unwrap_or_default().trim();
        if version.is_empty() {
            continue;
        }
        let number = index + 1;
        let Some(numbers) = numbers(version) else {
            bail!("line {number}: `{version}` is no version such as 0.169.0");
        };
        ensure!(
            newest < Some(numbers),
            "line {number}: {version} does not come after the version before it; list the oldest first"
        );
        newest = Some(numbers);
        releases.push(version.to_owned());
    }
    ensure!(!releases.is_empty(), "no version is listed");
    Ok(releases)
}

/// The plain versions among those that a registry has that are neither older than the first of the
/// list, nor in it, nor an exception.
pub(crate) fn unlisted(registry: &[String], list: &[String], exceptions: &[&str]) -> Vec<String> {
    let oldest = list.first().and_then(|version| numbers(version));
    let is_missing = |version: &&String| {
        numbers(version).is_some_and(|numbers| Some(numbers) >= oldest)
            && !list.contains(version)
            && !exceptions.contains(&version.as_str())
    };
    registry.iter().filter(is_missing).cloned().collect()
}

/// The three numbers of a plain version. It becomes a directory name and an argument of
/// npm or cargo, so nothing else passes.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let parts: Vec<u64> = version
        .split('.')
        .map(|part| {
            let digits = part.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| part.parse().ok()).flatten()
        })
        .collect::<Option<_>>()?;
    parts.try_into().ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "test code")]

    use super::*;

    #[test]
    fn comments_and_blank_lines_are_skipped() {
        let text = "# why\n\n0.104.0\n  0.153.4  # the last with it\n\t\n0.169.0";
        assert_eq!(parse(text).unwrap(), ["0.104.0", "0.153.4", "0.169.0"]);
    }

    #[test]
    fn order_is_numeric() {
        assert!(parse("0.9.0\n0.10.0\n").is_ok());
    }

    #[test]
    fn malformed_list_is_refused() {
        for (text, complaint) in [
            ("", "no version"),
            ("# only words", "no version"),
            ("0.104", "line 1: `0.104` is no version"),
            ("0.104.0.1", "is no version"),
            ("\nlatest", "line 2: `latest`"),
            ("../0.1.0", "is no version"),
            ("+1.0.0", "is no version"),
            ("1..0", "is no version"),
            ("0.1.0 0.2.0", "is no version"),
            ("0.2.0\n0.1.0", "line 2: 0.1.0 does not come after"),
            ("0.2.0\n0.2.0", "line 2: 0.2.0 does not come after"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(complaint), "{text:?}: {error}");
        }
    }

    #[test]
    fn plain_versions_that_the_list_lacks_are_named() {
        let owned = |versions: &[&str]| -> Vec<String> {
            versions
                .iter()
                .map(|version| (*version).to_owned())
                .collect()
        };
        let registry = owned(&[
            "0.9.0",
            "0.10.0",
            "0.11.0",
            "0.11.0-linux-x64",
            "0.12.0-alpha.1",
            "0.12.0",
            "0.13.0",
        ]);
        let list = owned(&["0.10.0", "0.13.0"]);
        assert_eq!(unlisted(&registry, &list, &["0.12.0"]), ["0.11.0"]);
    }

    #[test]
    fn matrix_has_each_release_of_the_tests_and_ends_with_the_same() {
        let tests = parse(include_str!("../../crates/testkit/codex-releases.txt")).unwrap();
        let matrix = parse(include_str!("../matrix-releases.txt")).unwrap();
        assert!(tests.iter().all(|release| matrix.contains(release)));
        assert_eq!(tests.last(), matrix.last());
    }
}
