//! The directory of the program's own state.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::home_directory::home_directory;

/// The state directory: `codex-mcp` in `XDG_STATE_HOME`, by default in `~/.local/state`. `None` if
/// that variable is no absolute path and the user has no home directory.
pub fn state_directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // Relative paths do not count (XDG Base Directory Specification 0.8).
    let set = variable("XDG_STATE_HOME").map(PathBuf::from);
    let set = set.filter(|path| path.is_absolute());
    let default = || Some(home_directory(variable)?.join(".local/state"));
    Some(set.or_else(default)?.join("codex-mcp"))
}

/// Creates a directory and its parents, accessible to this user only.
pub fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(variables: &[(&str, &str)]) -> Option<PathBuf> {
        state_directory(|name| {
            let set = variables.iter().find(|(known, _)| *known == name);
            set.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn state_is_in_a_directory_of_the_user() {
        let home = ("HOME", "/home/me");
        let default = Some(PathBuf::from("/home/me/.local/state/codex-mcp"));
        assert_eq!(state(&[home]), default);
        assert_eq!(state(&[home, ("XDG_STATE_HOME", "relative")]), default);
        let set = state(&[home, ("XDG_STATE_HOME", "/state")]);
        assert_eq!(set, Some(PathBuf::from("/state/codex-mcp")));
        let account = home_directory(|_| None);
        let of_account = account.map(|home| home.join(".local/state/codex-mcp"));
        for variables in [&[][..], &[("HOME", "")], &[("HOME", "relative")]] {
            assert_eq!(state(variables), of_account, "{variables:?}");
        }
    }
}
