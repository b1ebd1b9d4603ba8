//! What differs between the releases of Codex in how `codex exec` is to be run.
//!
//! Source: 0.104.0, 0.153.4 and 0.169.0, run. The flags that are used are the same
//! in all of them. `--full-auto` is not among them: it is an error in 0.169.0.

use codex_mcp_protocol::codex::Release;

/// What is known to refuse a session that it doesn't know. 0.104.0 begins a new
/// one; those in between weren't run.
const FIRST_TO_REFUSE_SESSIONS: Release = Release::new(0, 153, 4);

/// What is known to have profiles in files of their own, and to go on without a
/// word if there is no such file.
const FIRST_WITH_PROFILE_FILES: Release = Release::new(0, 153, 4);

/// How a release wants to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ways {
    pub(super) unknown_session: UnknownSession,
    pub(super) profile: ProfileKind,
}

/// What becomes of the resumption of a session that Codex doesn't know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnknownSession {
    /// An error of Codex's.
    Refused,
    /// A new session, silently: we have to look ourselves.
    StartsAfresh,
}

/// What `--profile NAME` means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProfileKind {
    /// `[profiles.NAME]` in `config.toml`. Codex says if there is none.
    Table,
    /// `$CODEX_HOME/NAME.config.toml`. Codex doesn't say if there is none.
    File,
}

impl Ways {
    pub(super) fn of(release: Option<Release>) -> Self {
        let since = |first: Release| release.is_none_or(|release| release >= first);
        Self {
            unknown_session: match since(FIRST_TO_REFUSE_SESSIONS) {
                true => UnknownSession::Refused,
                false => UnknownSession::StartsAfresh,
            },
            profile: match since(FIRST_WITH_PROFILE_FILES) {
                true => ProfileKind::File,
                false => ProfileKind::Table,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_release_has_its_ways() {
        let old = Ways {
            unknown_session: UnknownSession::StartsAfresh,
            profile: ProfileKind::Table,
        };
        let new = Ways {
            unknown_session: UnknownSession::Refused,
            profile: ProfileKind::File,
        };
        for (release, ways) in [
            ("0.104.0", old),
            ("0.130.0", old),
            ("0.153.4", new),
            ("0.154.0", new),
            ("0.169.0", new),
        ] {
            assert_eq!(Ways::of(Release::parse(release)), ways, "{release}");
        }
        assert_eq!(Ways::of(None), new);
    }
}
