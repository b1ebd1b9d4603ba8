//! The lock of a worker, one for each store on each machine. It is a file lock, which the system
//! releases when the process ends, however it ends.

use std::fs::{File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use safe_files::state_file::with_suffix;
use settings::store_location::Location;
use tokio::time::{Instant, sleep};

use crate::{files, machine};

/// How long a process that checks the lock may hold it, and the pause between two attempts.
const LOCK_TIMEOUT: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(5);

/// The lock of the worker of a store on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerLock {
    lock: PathBuf,
}

/// Holds the lock until it is dropped.
#[derive(Debug)]
pub struct LockGuard {
    _lock: File,
}

impl WorkerLock {
    /// The lock for this store: beside the file of a store, or in the state directory for a
    /// database server.
    #[must_use]
    pub fn of(store: &Location, state: &Path) -> Self {
        Self::on(&machine::name(), store, state)
    }

    /// The lock on the machine of this name: several may share a state directory, as on NFS.
    pub(super) fn on(machine: &str, store: &Location, state: &Path) -> Self {
        let lock = match store {
            Location::Sqlite(path) => with_suffix(path, ".worker"),
            Location::Postgres(url) => {
                // A URL may have characters that a file name cannot. If two builds of this
                // program hash differently, each has its own worker.
                let mut hasher = DefaultHasher::new();
                (machine, url.target()).hash(&mut hasher);
                state.join(format!("worker-{:016x}.lock", hasher.finish()))
            }
        };
        Self { lock }
    }

    /// The file that is locked.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.lock
    }

    /// Takes the lock; `None` if another worker has it.
    ///
    /// # Errors
    ///
    /// When the file can't be used.
    pub async fn take(&self) -> io::Result<Option<LockGuard>> {
        let until = Instant::now() + LOCK_TIMEOUT;
        loop {
            match self.try_take()? {
                None if Instant::now() < until => sleep(PAUSE).await,
                taken => return Ok(taken),
            }
        }
    }

    /// Takes the lock without waiting for a process that only checks it.
    ///
    /// # Errors
    ///
    /// When the file can't be used.
    pub fn try_take(&self) -> io::Result<Option<LockGuard>> {
        let file = self.open()?;
        match file.try_lock() {
            Ok(()) => Ok(Some(LockGuard { _lock: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Whether a worker holds the lock.
    ///
    /// # Errors
    ///
    /// When the file can't be used.
    pub fn is_taken(&self) -> io::Result<bool> {
        match self.open()?.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn open(&self) -> io::Result<File> {
        files::open_to_append(&self.lock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lock_is_held_by_one_worker() {
        let directory = tempfile::tempdir().unwrap();
        let store = Location::Sqlite(directory.path().join("new/jobs.db"));
        let place = WorkerLock::of(&store, directory.path());
        assert!(!place.is_taken().unwrap());
        let taken = place.take().await.unwrap();
        assert!(taken.is_some());
        assert!(place.is_taken().unwrap());
        assert!(place.take().await.unwrap().is_none());
        drop(taken);
        assert!(!place.is_taken().unwrap());
    }

    /// A process that checks the lock does not keep a worker from taking it.
    #[tokio::test]
    async fn lock_waits_for_a_process_that_checks_it() {
        let directory = tempfile::tempdir().unwrap();
        let place = WorkerLock::of(
            &Location::Sqlite(directory.path().join("jobs.db")),
            directory.path(),
        );
        let looking = place.open().unwrap();
        looking.try_lock_shared().unwrap();
        tokio::spawn(async move {
            sleep(PAUSE * 2).await;
            drop(looking);
        });
        assert!(place.take().await.unwrap().is_some());
    }

    #[test]
    fn each_store_has_its_own_lock() {
        let state = Path::new("/state");
        let of = |text: &str| WorkerLock::of(&text.parse().unwrap(), state).lock;
        assert_eq!(of("/a/jobs.db"), Path::new("/a/jobs.db.worker"));
        let server = of("postgres://me:sesame@db/jobs?sslmode=disable");
        assert!(server.starts_with(state));
        assert_ne!(server, of("postgres://me@db/jobs2?sslmode=disable"));
        // The password does not choose the lock, but all that chooses the tables does.
        assert_eq!(server, of("postgres://me@db/jobs?sslmode=disable"));
        assert_ne!(
            server,
            of("postgres://me@db/jobs?sslmode=disable&dbname=other")
        );
        assert_ne!(
            server,
            of("postgres://me@db/jobs?sslmode=disable&host=elsewhere")
        );
        assert_ne!(
            server,
            of("postgres://me@db/jobs?sslmode=disable&options=-csearch_path=x")
        );
    }

    #[test]
    fn machines_that_share_a_state_directory_have_a_lock_each() {
        let store = "postgres://me@db/jobs?sslmode=disable".parse().unwrap();
        let on = |machine| WorkerLock::on(machine, &store, Path::new("/state")).lock;
        assert_ne!(on("a"), on("b"));
        assert_eq!(on("a"), on("a"));
    }
}
