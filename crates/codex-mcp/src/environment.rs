//! The environment variables of this program, read as the XDG Base Directory Specification 0.8
//! requires: an empty variable counts as unset, and a directory counts only if its path is
//! absolute.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use safe_files::home_directory::home_directory;

/// The value of a variable that is set and not empty.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// The directory that a variable names by an absolute path.
fn directory(name: &str) -> Option<PathBuf> {
    let path = env::var_os(name).map(PathBuf::from);
    path.filter(|path| path.is_absolute())
}

/// The user's home directory.
pub(crate) fn home() -> Option<PathBuf> {
    home_directory(|name| env::var_os(name))
}

/// A directory of the user: the one that the variable `name` names, or else `below_home` in the
/// home directory. `None` if there is no home directory either.
pub(crate) fn user_directory(name: &str, below_home: &str) -> Option<PathBuf> {
    directory(name).or_else(|| Some(home()?.join(below_home)))
}
