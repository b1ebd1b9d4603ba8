//! The lock on a directory of a run or a view, held by its process until it ends.
//!
//! The system releases the lock when the process ends, however it ends. So a directory
//! whose lock is free belongs to a process that is over.

use std::fs::{self, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::state_directory::make_directory;
use crate::state_file::open_to_lock;
use crate::untrusted_file::{Links, open};

/// The file that is locked, below the directory of the run.
pub const LOCK: &str = "lock";

/// How long a run waits for the lock of its own directory (30 s), as another run may be
/// recovering its content; and the pause between two attempts.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// How long a recovery waits for a lock (200 ms): `doctor` holds one for a moment.
const RECOVERY_TIMEOUT: Duration = Duration::from_millis(200);

/// A held lock, released when this is dropped.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: fs::File,
}

impl DirectoryLock {
    /// Creates the directory of a run, if it does not exist, and locks it.
    ///
    /// # Errors
    ///
    /// Those of the file system; an error that names the directory if another process has
    /// not released it for 30 s.
    pub async fn create(directory: &Path) -> io::Result<Self> {
        let until = Instant::now() + LOCK_TIMEOUT;
        loop {
            make_directory(directory)?;
            match Self::try_take(directory) {
                Ok(Some(lock)) => return Ok(lock),
                // Another process has removed the directory in between.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(None) | Err(_) if Instant::now() >= until => {
                    let seconds = LOCK_TIMEOUT.as_secs();
                    return Err(io::Error::other(format!(
                        "{} has been locked by another process for {seconds} s",
                        directory.display()
                    )));
                }
                Ok(None) | Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// Locks an existing directory; `None` if a run holds the lock.
    ///
    /// # Errors
    ///
    /// As [`Self::try_take`].
    pub async fn take_if_free(directory: &Path) -> io::Result<Option<Self>> {
        let until = Instant::now() + RECOVERY_TIMEOUT;
        loop {
            match Self::try_take(directory)? {
                None if Instant::now() < until => sleep(PAUSE).await,
                taken => return Ok(taken),
            }
        }
    }

    /// Locks an existing directory without waiting; `None` if another process holds the lock.
    ///
    /// # Errors
    ///
    /// Those of the file system; [`io::ErrorKind::NotFound`] if the directory has been
    /// removed.
    pub fn try_take(directory: &Path) -> io::Result<Option<Self>> {
        let path = directory.join(LOCK);
        let file = open_to_lock(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // The last owner may have removed the file after it was opened here.
        let (held, there) = (file.metadata()?, fs::symlink_metadata(&path)?);
        match (held.dev(), held.ino()) == (there.dev(), there.ino()) {
            true => Ok(Some(Self { _file: file })),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Whether a run holds the lock of a directory. Nothing is created.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn is_held(directory: &Path) -> io::Result<bool> {
        let file = match open(&directory.join(LOCK), Links::Refused) {
            Ok(file) => file,
            Err(error) if error.is_not_found() => return Ok(false),
            Err(error) => return Err(io::Error::other(error)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn directory_is_held_by_one_run_at_a_time() {
        let all = tempfile::tempdir().unwrap();
        let directory = all.path().join("run");
        let missing = DirectoryLock::try_take(&directory).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let lock = DirectoryLock::create(&directory).await.unwrap();
        assert!(DirectoryLock::is_held(&directory).unwrap());
        assert!(DirectoryLock::try_take(&directory).unwrap().is_none());
        drop(lock);
        assert!(!DirectoryLock::is_held(&directory).unwrap());
        assert!(DirectoryLock::try_take(&directory).unwrap().is_some());
    }

    /// `doctor` holds the lock that briefly in [`DirectoryLock::is_held`].
    #[tokio::test]
    async fn briefly_held_lock_is_waited_for() {
        let all = tempfile::tempdir().unwrap();
        let directory = all.path().join("run");
        drop(DirectoryLock::create(&directory).await.unwrap());
        let shared = fs::File::open(directory.join(LOCK)).unwrap();
        shared.lock_shared().unwrap();
        let taking = tokio::spawn({
            let directory = directory.clone();
            async move { DirectoryLock::take_if_free(&directory).await }
        });
        tokio::task::yield_now().await;
        assert!(!taking.is_finished());
        drop(shared);
        assert!(taking.await.unwrap().unwrap().is_some());
    }

    /// The next owner must not hold the lock of a file that is gone.
    #[tokio::test]
    async fn removed_directory_is_created_again() {
        let all = tempfile::tempdir().unwrap();
        let directory = all.path().join("run");
        let lock = DirectoryLock::create(&directory).await.unwrap();
        let next = tokio::spawn({
            let directory = directory.clone();
            async move { DirectoryLock::create(&directory).await }
        });
        tokio::task::yield_now().await;
        fs::remove_dir_all(&directory).unwrap();
        drop(lock);
        let next = next.await.unwrap().unwrap();
        assert!(DirectoryLock::is_held(&directory).unwrap());
        drop(next);
    }
}
