//! Temporary directories for files that Codex reads.
//!
//! They lie in the state directory, which no sandbox of Codex can write. In a temporary
//! directory, the commands of any other session could put links in place of the files.
//! A process that is killed leaves its directories behind; the next one removes them.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use tempfile::TempDir;

use crate::directory_lock::DirectoryLock;
use crate::state_directory::{make_directory, state_directory};

/// How often a directory is created again that another process removes before it is locked.
const ATTEMPTS: usize = 5;

/// A directory for this process alone. It is removed when this is dropped.
#[derive(Debug)]
pub struct Scratch {
    directory: TempDir,
    /// Released after the directory is removed.
    _lock: DirectoryLock,
}

/// The path of the directory of this name in the state directory.
///
/// # Errors
///
/// If the user has no home directory.
pub fn path(name: &str) -> io::Result<PathBuf> {
    let no_home = || io::Error::other("neither HOME nor XDG_STATE_HOME is set");
    let state = state_directory(|name| env::var_os(name)).ok_or_else(no_home)?;
    Ok(state.join(name))
}

/// The directory of this name in the state directory, created if it does not exist.
///
/// # Errors
///
/// Those of the file system.
pub fn place(name: &str) -> io::Result<PathBuf> {
    let place = path(name)?;
    make_directory(&place)?;
    Ok(place)
}

impl Scratch {
    /// Creates a scratch directory below `place`, which holds nothing else, and removes those of
    /// killed processes.
    pub fn make(place: &Path) -> io::Result<Self> {
        remove_stale(place);
        for _ in 0..ATTEMPTS {
            let directory = TempDir::with_prefix_in("", place)?;
            match DirectoryLock::try_take(directory.path()) {
                Ok(Some(lock)) => {
                    return Ok(Self {
                        directory,
                        _lock: lock,
                    });
                }
                // Another process has mistaken it for a stale one.
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("other processes keep removing it"))
    }

    /// The path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes directories whose processes have ended. Failures are ignored.
fn remove_stale(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if let Ok(Some(_lock)) = DirectoryLock::try_take(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_of_a_killed_process_is_removed_by_the_next() {
        let place = tempfile::tempdir().unwrap();
        let live = Scratch::make(place.path()).unwrap();
        let Scratch { directory, _lock } = Scratch::make(place.path()).unwrap();
        let left = directory.keep();
        drop(_lock);
        let next = Scratch::make(place.path()).unwrap();
        assert!(live.path().exists() && next.path().exists());
        assert!(!left.exists());
    }
}
