//! The recorded states of a repository's submodules, in the state directory, where Codex cannot
//! write.
//!
//! There is one directory per git directory. Each run holds a shared lock on the file `lock` in it
//! while it is active, and runs that are active at the same time use the same `notes.json`. So a
//! run never records entries that another run's Codex has planted, and the next run finds the notes
//! of a run that was killed. The last active run removes the directory.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::state::{Bytes, SubmoduleState};
use safe_files::state_directory::make_directory;
use safe_files::state_file::open_to_lock;

/// The directory of all notes, below the state directory.
const DIRECTORY: &str = "git-submodules";
const LOCK: &str = "lock";
const NOTES: &str = "notes.json";

/// How long a run waits for another one that restores and records (3 min, more than both may take),
/// and the pause between two attempts.
pub(super) const TIMEOUT: Duration = Duration::from_secs(3 * 60);
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// The submodules before Codex began.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Notes {
    /// By their paths from the top.
    pub(super) submodules: BTreeMap<Bytes, SubmoduleState>,
    /// Absolute paths that were moved aside, and where the earlier file could not be written yet.
    pub(super) unwritten: Vec<Bytes>,
}

/// The directory of a repository's notes.
#[derive(Debug, Clone)]
pub(super) struct NotesDirectory(PathBuf);

/// The situation in which a run begins its protection.
#[derive(Debug)]
pub(super) enum RunStart {
    /// No other run is active. Holds the notes of a killed run, if there are any.
    Alone(ExclusiveLock, Option<io::Result<Notes>>),
    /// Another run is active. Holds that run's notes.
    Shared(SharedLock, Notes),
    /// Another run is recording or restoring.
    Wait,
}

/// The lock of a run that may write the notes.
#[derive(Debug)]
pub(super) struct ExclusiveLock(SharedLock);

/// The lock of an active run, held until this is dropped.
#[derive(Debug)]
pub(super) struct SharedLock {
    directory: PathBuf,
    file: File,
}

impl NotesDirectory {
    pub(super) fn of(git_dir: &Path, state: &Path) -> Self {
        let digest = Sha256::digest(git_dir.as_os_str().as_bytes());
        let name = URL_SAFE_NO_PAD.encode(digest);
        Self(state.join(DIRECTORY).join(name))
    }

    /// Whether there are notes: of an active run, or of a killed one.
    pub(super) fn is_there(&self) -> bool {
        self.0.join(NOTES).exists()
    }

    /// # Errors
    ///
    /// The errors of the file system.
    pub(super) fn try_begin(&self) -> io::Result<RunStart> {
        make_directory(&self.0)?;
        let path = self.0.join(LOCK);
        let file = match open_to_lock(&path) {
            // The last run has removed the directory in between.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(RunStart::Wait),
            file => file?,
        };
        let is_alone = match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => return Err(error),
        };
        if !is_alone && !is_shared(&file)? {
            return Ok(RunStart::Wait);
        }
        let is_same = match fs::symlink_metadata(&path) {
            Ok(there) => {
                let held = file.metadata()?;
                (held.dev(), held.ino()) == (there.dev(), there.ino())
            }
            Err(_) => false,
        };
        if !is_same {
            return Ok(RunStart::Wait);
        }
        let lock = SharedLock {
            directory: self.0.clone(),
            file,
        };
        let notes = lock.read();
        match (is_alone, notes) {
            (true, notes) => Ok(RunStart::Alone(ExclusiveLock(lock), notes)),
            (false, Some(notes)) => Ok(RunStart::Shared(lock, notes?)),
            // The other run has not written its notes yet.
            (false, None) => Ok(RunStart::Wait),
        }
    }
}

impl ExclusiveLock {
    /// Writes the notes, and admits other runs. `None` if another run was faster to take the lock.
    ///
    /// # Errors
    ///
    /// The errors of the file system.
    pub(super) fn write(self, notes: &Notes) -> io::Result<Option<SharedLock>> {
        let Self(lock) = self;
        lock.write(notes)?;
        Ok(is_shared(&lock.file)?.then_some(lock))
    }

    /// Removes the notes, and the directory.
    ///
    /// # Errors
    ///
    /// The errors of the file system.
    pub(super) fn remove(self) -> io::Result<()> {
        let directory = &self.0.directory;
        fs::remove_file(directory.join(NOTES))?;
        fs::remove_file(directory.join(LOCK))?;
        // A failure is ignored: if the directory has a new lock in it, it belongs to another run.
        let _ = fs::remove_dir(directory);
        Ok(())
    }
}

impl SharedLock {
    /// Removes the notes if no other run is active. Otherwise writes the list of files that must
    /// still be restored.
    ///
    /// # Errors
    ///
    /// The errors of the file system.
    pub(super) fn release(self, unwritten: Vec<Bytes>) -> io::Result<()> {
        match self.file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        match self.read() {
            Some(Ok(notes)) if !unwritten.is_empty() => self.write(&Notes { unwritten, ..notes }),
            _ => ExclusiveLock(self).remove(),
        }
    }

    fn read(&self) -> Option<io::Result<Notes>> {
        match fs::read(self.directory.join(NOTES)) {
            Ok(text) => Some(serde_json::from_slice(&text).map_err(io::Error::from)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(Err(error)),
        }
    }

    fn write(&self, notes: &Notes) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
        file.write_all(&serde_json::to_vec(notes)?)?;
        file.as_file().sync_all()?;
        file.persist(self.directory.join(NOTES))?;
        Ok(())
    }
}

fn is_shared(file: &File) -> io::Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(path: &str) -> Notes {
        let path = Bytes(path.into());
        Notes {
            submodules: BTreeMap::from([(path, SubmoduleState::ABSENT)]),
            ..Notes::default()
        }
    }

    fn alone(directory: &NotesDirectory) -> (ExclusiveLock, Option<Notes>) {
        match directory.try_begin().unwrap() {
            RunStart::Alone(lock, notes) => (lock, notes.map(Result::unwrap)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn runs_that_live_at_once_share_notes_and_the_last_removes_them() {
        let state = tempfile::tempdir().unwrap();
        let directory = NotesDirectory::of(Path::new("/x/.git"), state.path());
        let (lock, left) = alone(&directory);
        assert!(left.is_none());
        assert!(matches!(directory.try_begin().unwrap(), RunStart::Wait));
        let first = lock.write(&notes("sub")).unwrap().unwrap();
        let RunStart::Shared(second, shared) = directory.try_begin().unwrap() else {
            panic!("the first run lives");
        };
        assert_eq!(shared.submodules, notes("sub").submodules);
        first.release(Vec::new()).unwrap();
        assert!(directory.is_there());
        second.release(Vec::new()).unwrap();
        assert!(!directory.0.exists());
    }

    #[test]
    fn notes_of_a_killed_run_are_left_for_the_next_one() {
        let state = tempfile::tempdir().unwrap();
        let directory = NotesDirectory::of(Path::new("/x/.git"), state.path());
        let (lock, _) = alone(&directory);
        drop(lock.write(&notes("sub")).unwrap().unwrap());
        let (lock, left) = alone(&directory);
        assert_eq!(left.unwrap().submodules, notes("sub").submodules);
        lock.remove().unwrap();
        assert!(!directory.is_there());
    }

    #[test]
    fn notes_stay_as_long_as_a_file_is_not_written() {
        let state = tempfile::tempdir().unwrap();
        let directory = NotesDirectory::of(Path::new("/x/.git"), state.path());
        let (lock, _) = alone(&directory);
        let lock = lock.write(&notes("sub")).unwrap().unwrap();
        lock.release(vec![Bytes(b"/x/sub/.git".to_vec())]).unwrap();
        let (_lock, left) = alone(&directory);
        assert_eq!(left.unwrap().unwritten, [Bytes(b"/x/sub/.git".to_vec())]);
    }
}
