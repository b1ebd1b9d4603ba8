//! Checks whether Codex's commands could write to the state directory. Git reads settings there
//! outside of the sandbox, so a run that may write does not begin with such a directory.

use std::env;
use std::path::{Path, PathBuf};

use safe_files::directory::resolved;
use safe_files::state_directory;

/// The directory, besides the workspace, in which Codex's commands may write in the sandbox
/// `workspace-write`.
const WRITABLE: &str = "/tmp";

/// The remedy.
pub(crate) const REMEDY: &str = "Set XDG_STATE_HOME to a directory elsewhere.";

/// Codex's commands could write to the state directory.
#[derive(Debug, thiserror::Error)]
#[error(
    "the state directory {} is below {WRITABLE}, where Codex's commands may write, so no run that \
     writes can begin", .path.display()
)]
pub struct WritableState {
    /// The state directory.
    pub(crate) path: PathBuf,
}

/// The state directory, without symbolic links; `None` if the user has no home directory.
///
/// # Errors
///
/// [`WritableState`] if Codex's commands could write to it.
pub(crate) fn state_directory() -> Result<Option<PathBuf>, WritableState> {
    let state = state_directory::state_directory(|name| env::var_os(name));
    checked(state.as_deref().map(resolved))
}

fn checked(state: Option<PathBuf>) -> Result<Option<PathBuf>, WritableState> {
    match state {
        Some(path) if path.starts_with(resolved(Path::new(WRITABLE))) => {
            Err(WritableState { path })
        }
        state => Ok(state),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_directory_below_the_writable_one_is_refused() {
        let of = |path: &str| checked(Some(PathBuf::from(path)));
        let error = of("/tmp/state/codex-mcp").unwrap_err().to_string();
        assert!(
            error.contains("/tmp/state/codex-mcp is below /tmp"),
            "{error}"
        );
        for path in ["/home/me/.local/state/codex-mcp", "/tmpfs/codex-mcp"] {
            assert_eq!(of(path).unwrap(), Some(PathBuf::from(path)));
        }
        assert_eq!(checked(None).unwrap(), None);
    }
}
