//! Settings as git tells them, with the files that they come from.
//!
//! Source: git-config(1), `--show-scope` and `--null`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::{Deserialize, Serialize};

use super::invocation::SAFE;

/// The origin of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Scope {
    /// The machine, the user, or the environment.
    User,
    /// The repository's own files, and what they include.
    Repository,
}

/// A setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Setting {
    pub(super) scope: Scope,
    /// Whether it comes from a variable of the environment or the command line.
    pub(super) is_of_environment: bool,
    /// The key, in lower case except for a subsection.
    pub(super) key: OsString,
    /// The value; `None` if the key stands alone, which means true.
    pub(super) value: Option<OsString>,
}

impl Setting {
    /// The value, which is `true` where the key stands alone.
    pub(super) fn value(&self) -> &OsStr {
        self.value.as_deref().unwrap_or(OsStr::new("true"))
    }
}

/// The arguments that list all settings.
pub(super) const LIST: &[&str] = &["config", "--null", "--show-scope", "--list"];

/// Reads `SCOPE NUL KEY LF VALUE NUL`.
pub(super) fn read(output: &[u8]) -> Vec<Setting> {
    let mut records = output.split(|byte| *byte == 0);
    let mut settings = Vec::new();
    while let (Some(scope), Some(setting)) = (records.next(), records.next()) {
        let mut parts = setting.splitn(2, |byte| *byte == b'\n');
        let (key, value) = (parts.next().unwrap_or_default(), parts.next());
        if scope == b"command" && is_ours(key) {
            continue;
        }
        settings.push(Setting {
            scope: match scope {
                b"system" | b"global" | b"command" => Scope::User,
                _ => Scope::Repository,
            },
            is_of_environment: scope == b"command",
            key: OsString::from_vec(key.to_owned()),
            value: value.map(|value| OsStr::from_bytes(value).to_owned()),
        });
    }
    settings
}

/// Whether a setting of the command line is one of [`SAFE`]'s.
fn is_ours(key: &[u8]) -> bool {
    let ours = SAFE.iter().filter_map(|arg| arg.split_once('='));
    ours.into_iter()
        .any(|(name, _)| name.as_bytes().eq_ignore_ascii_case(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_with_their_scopes() {
        let output = b"system\0a.b\n1\0global\0c.d\0local\0e.f\np\nq\0worktree\0g.h\n\xff\0\
            command\0a.b\n2\0";
        let read: Vec<_> = read(output)
            .into_iter()
            .map(|setting| {
                (
                    setting.scope,
                    setting.key.clone(),
                    setting.value().to_owned(),
                )
            })
            .collect();
        let expected: [(Scope, &str, &[u8]); 5] = [
            (Scope::User, "a.b", b"1"),
            (Scope::User, "c.d", b"true"),
            (Scope::Repository, "e.f", b"p\nq"),
            (Scope::Repository, "g.h", b"\xff"),
            (Scope::User, "a.b", b"2"),
        ];
        let expected = expected
            .map(|(scope, key, value)| (scope, key.into(), OsStr::from_bytes(value).into()));
        assert_eq!(read, expected);
    }
}
