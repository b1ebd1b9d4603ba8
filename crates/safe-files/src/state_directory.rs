//! The directory of the program's own state.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The state directory, from `XDG_STATE_HOME` or else `HOME`; `None` if neither is an absolute
/// path.
pub fn state_directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let below_home = || path("HOME").map(|home| home.join(".local/state"));
    let state = path("XDG_STATE_HOME").or_else(below_home)?;
    Some(state.join("codex-mcp"))
}

/// Creates a directory and its parents, accessible to this user only.
pub fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}
