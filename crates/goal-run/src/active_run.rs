//! Detects runs that are active in the same directory. A run compares the repository with its state
//! at the start, and cannot tell which run has changed it: each run also counts the changes of the
//! others.
//!
//! Each run has a locked directory in the state directory, which records the path that it works in.
//! The system releases the lock however the process ends.

use std::path::Path;
use std::{fs, io};

use safe_files::directory_lock::DirectoryLock;
use safe_files::scratch::{self, Scratch};
use safe_files::state_file;
use safe_files::untrusted_file::{Links, read_text};

use super::caller::Caller;

/// The directory of the marks, in the state directory.
const DIRECTORY: &str = "active-runs";

/// The file with the path, in the directory of a run.
const TOP: &str = "top";

/// The longest path that is read, in bytes.
const LONGEST: u64 = 64 * 1024;

/// The mark of an active run, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct ActiveRun {
    mark: Scratch,
    /// The path in which it works.
    top: String,
}

impl ActiveRun {
    /// Marks a run in this directory. `None` if the state directory cannot be used, which is no
    /// failure: the marks serve only for a warning.
    pub(super) fn begin(top: &Path) -> Option<Self> {
        let begun = scratch::place(DIRECTORY).and_then(|directory| Self::begin_in(&directory, top));
        begun
            .inspect_err(|error| tracing::debug!("the run is not marked as active: {error}"))
            .ok()
    }

    fn begin_in(directory: &Path, top: &Path) -> io::Result<Self> {
        let mark = Scratch::make(directory)?;
        let top = top.to_string_lossy().into_owned();
        let file = mark.path().join(TOP);
        state_file::replace(&file, top.as_bytes()).map_err(io::Error::other)?;
        Ok(Self { mark, top })
    }

    /// The warning that another run is active in the same directory.
    pub(super) fn warning(&self, caller: Caller) -> Option<String> {
        let own = self.mark.path();
        let marks = fs::read_dir(own.parent()?).ok()?.flatten();
        let mut others = marks.map(|mark| mark.path()).filter(|mark| mark != own);
        others.any(|mark| self.is_joined_by(&mark)).then(|| {
            format!(
                "another run works in this repository, and its changes count for this run too; \
                 with {} each run has a copy of its own",
                caller.worktree()
            )
        })
    }

    fn is_joined_by(&self, mark: &Path) -> bool {
        let is_active = DirectoryLock::is_held(mark).unwrap_or(false);
        let top = read_text(&mark.join(TOP), LONGEST, Links::Refused);
        is_active && top.is_ok_and(|top| top == self.top)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_run_in_a_directory_is_warned_while_the_first_is_active() {
        let marks = tempfile::tempdir().unwrap();
        let begin = |top: &str| ActiveRun::begin_in(marks.path(), Path::new(top)).unwrap();
        let warning = |run: &ActiveRun| run.warning(Caller::Shell);
        let first = begin("/repo");
        let elsewhere = begin("/other");
        assert_eq!(warning(&first), None);
        assert_eq!(warning(&elsewhere), None);
        let second = begin("/repo");
        let told = warning(&second).unwrap();
        assert!(told.contains("with --worktree"), "{told}");
        drop(first);
        assert_eq!(warning(&second), None);
    }
}
