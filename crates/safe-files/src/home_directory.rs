//! The user's home directory.

use std::ffi::OsString;
use std::path::PathBuf;

use nix::unistd::{Uid, User};

/// `HOME` if it is an absolute path, else the home directory of the user's account, where Codex
/// looks then too. `None` if that is not known either.
///
/// A relative path is never taken: it would lead into the directory in which a client has started
/// us, which may be a stranger's.
pub fn home_directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let of_account = || Some(User::from_uid(Uid::effective()).ok()??.dir);
    let set = variable("HOME").map(PathBuf::from);
    let set = set.filter(|path| path.is_absolute());
    set.or_else(of_account).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_home_is_not_taken() {
        let home = |value: Option<&str>| home_directory(|_| value.map(OsString::from));
        assert_eq!(home(Some("/h")), Some(PathBuf::from("/h")));
        let of_account = home(None);
        assert!(of_account.as_ref().is_none_or(|path| path.is_absolute()));
        for relative in ["", ".", "h", "../h"] {
            assert_eq!(home(Some(relative)), of_account, "{relative:?}");
        }
    }
}
