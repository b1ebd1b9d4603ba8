//! Codex's releases and their features.

use std::fmt;

/// A release of Codex, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Release {
    /// The oldest release whose app-server is supported: before it, `thread/start` takes
    /// other names for the sandboxes (0.66.0).
    pub const FIRST_APP_SERVER: Self = Self::new(0, 72, 0);

    /// The oldest release that the program is tested with.
    pub const OLDEST_TESTED: Self = Self::new(0, 104, 0);

    /// The first without `codex mcp-server`; 0.153.4 is the last that has it.
    pub const FIRST_WITHOUT_MCP_SERVER: Self = Self::new(0, 154, 0);

    /// The first that is known to keep a repository's `.git` from being written in
    /// `workspace-write`; 0.104.0 does not.
    pub const FIRST_WITH_PROTECTED_GIT: Self = Self::new(0, 130, 0);

    /// The first that is known to answer other requests while it asks its backend about
    /// the account's limits; 0.117.0 does not.
    pub const FIRST_WITH_CONCURRENT_LIMITS: Self = Self::new(0, 130, 0);

    /// The first that counts a picture by its tokens, and not by the letters of its data,
    /// against the model's context.
    pub const FIRST_WITH_PICTURE_TOKENS: Self = Self::new(0, 105, 0);

    /// The first whose `codex exec resume` answers a call of a tool that the thread has
    /// from another client; before it, the turn waits until it is interrupted.
    pub const FIRST_EXEC_WITH_DYNAMIC_TOOLS: Self = Self::new(0, 113, 0);

    /// The first interactive program with the same behaviour.
    pub const FIRST_TUI_WITH_DYNAMIC_TOOLS: Self = Self::new(0, 117, 0);

    /// The first that expects reasons in refusals, see
    /// [`LegacyRefusal`](super::LegacyRefusal).
    pub(super) const FIRST_REASONED_REFUSAL: Self = Self::new(0, 145, 0);

    /// The version of a Codex built from source.
    const BUILT_FROM_SOURCE: Self = Self::new(0, 0, 0);

    /// The release of this number.
    #[must_use]
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self {
            major,
            minor,
            patch,
        }
    }

    /// Parses `0.153.4`, also with a suffix: `0.153.4-linux-x64` as in npm's packages,
    /// `0.146.0-alpha.3`.
    ///
    /// `0.0.0` is no release: every Codex built from source reports it. Callers treat an
    /// unknown release as the newest.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::number(text).filter(|release| *release != Self::BUILT_FROM_SOURCE)
    }

    fn number(text: &str) -> Option<Self> {
        let number = text.split(['-', '+']).next()?;
        let mut parts = number.split('.').map(str::parse);
        let mut next = || parts.next()?.ok();
        let release = Self::new(next()?, next()?, next()?);
        parts.next().is_none().then_some(release)
    }

    /// The version in the output of `codex --version`, `codex-cli 0.169.0` for example,
    /// as written there, and its release if it has one, see [`parse`](Self::parse).
    /// `None` if the output is not that of a Codex.
    #[must_use]
    pub fn announced(said: &str) -> Option<(&str, Option<Self>)> {
        said.lines().find_map(|line| {
            let (name, version) = line.trim().split_once(' ')?;
            Self::number(version)?;
            matches!(name, "codex-cli" | "codex").then_some((version, Self::parse(version)))
        })
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_parsed_with_its_suffix() {
        for (text, release) in [
            ("0.153.4", Some(Release::new(0, 153, 4))),
            ("0.153.4-linux-x64", Some(Release::new(0, 153, 4))),
            ("0.146.0-alpha.3", Some(Release::new(0, 146, 0))),
            ("1.0.0+build", Some(Release::new(1, 0, 0))),
            ("0.0.0", None),
            ("0.0.0-dev", None),
            ("0.0.1", Some(Release::new(0, 0, 1))),
            ("0.153", None),
            ("0.153.4.1", None),
            ("latest", None),
            ("", None),
        ] {
            assert_eq!(Release::parse(text), release, "{text}");
        }
    }

    #[test]
    fn releases_are_ordered_by_number() {
        let last_with = Release::new(0, 153, 4);
        assert!(last_with < Release::FIRST_WITHOUT_MCP_SERVER);
        assert!(Release::new(0, 9, 0) < Release::FIRST_APP_SERVER);
        assert!(Release::new(1, 0, 0) > Release::FIRST_WITHOUT_MCP_SERVER);
    }

    #[test]
    fn version_output_of_codex_is_recognised() {
        for (said, version) in [
            ("codex-cli 0.169.0\n", Some("0.169.0")),
            (
                "WARNING: x\ncodex-cli 0.170.0-alpha.3\n",
                Some("0.170.0-alpha.3"),
            ),
            ("codex 1.2.3", Some("1.2.3")),
            ("codex-cli 0.0.0\n", Some("0.0.0")),
            ("codex-mcp 0.1.0\n", None),
            ("git version 2.47.3\n", None),
            ("codex-cli unknown\n", None),
            ("", None),
        ] {
            let announced = Release::announced(said).map(|(version, _)| version);
            assert_eq!(announced, version, "{said}");
        }
    }
}
