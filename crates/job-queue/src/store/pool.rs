//! Pools of connections, one for each purpose.
//!
//! A connection that is dropped during its use is closed, which rolls back its transaction. This
//! happens when the caller's future is dropped, or when an error has left the connection in an
//! unknown state.
#![expect(clippy::disallowed_methods, reason = "files of our own state")]

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use common::sync;
use safe_files::state_file::with_suffix;
use settings::store_location::Location;
use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep};

use super::error::Fault;
use super::postgres::{self, StandbyPolicy};
use super::sql::{Connection, Dialect};
use crate::files;

/// How long a process waits for the locks of other writers.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an inspection waits for the locks of writers, which rarely exclude readers.
const INSPECT_TIMEOUT: Duration = Duration::from_millis(200);

/// The pause between two attempts to lock a file.
const PAUSE: Duration = Duration::from_millis(2);

/// The purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Writes no file, neither the database nor one beside it.
    Inspect,
    Read,
    /// Changes survive the death of a process. The last ones may be lost in a power failure.
    WriteBehind,
    /// As `WriteBehind` for SQLite. PostgreSQL commits synchronously, as the server may lose
    /// power independently of the worker.
    Write,
    /// Changes survive a power failure.
    WriteThrough,
}

/// A pool of connections for one purpose.
pub(super) struct Pool {
    location: Location,
    purpose: Purpose,
    permits: Semaphore,
    idle: Mutex<Vec<Connection>>,
}

/// A connection that is in use. Dropping it closes the connection.
pub(super) struct PooledConnection<'a> {
    pub(super) connection: Connection,
    pool: &'a Pool,
    _permit: Option<SemaphorePermit<'a>>,
}

impl PooledConnection<'_> {
    /// Returns the connection to the pool. No transaction may be open on it.
    pub(super) fn give_back(self) {
        sync::lock(&self.pool.idle).push(self.connection);
    }

    /// Closes the connection and all idle ones: if one was lost, the others may be lost too.
    pub(super) fn discard(self) {
        self.pool.forget_idle();
    }
}

impl Pool {
    /// A pool of at most `most` connections, which are opened on demand.
    pub(super) fn new(location: &Location, purpose: Purpose, most: usize) -> Self {
        Self {
            location: location.clone(),
            purpose,
            permits: Semaphore::new(most),
            idle: Mutex::default(),
        }
    }

    /// Waits for a connection. An idle one may turn out to be lost.
    pub(super) async fn take(&self) -> Result<PooledConnection<'_>, Fault> {
        // Only a closed semaphore fails, and this one is never closed.
        let permit = self.permits.acquire().await.ok();
        let idle = sync::lock(&self.idle).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => connect(&self.location, self.purpose).await?,
        };
        Ok(PooledConnection {
            connection,
            pool: self,
            _permit: permit,
        })
    }

    /// Closes all idle connections: if one was lost, the others may be lost too.
    pub(super) fn forget_idle(&self) {
        sync::lock(&self.idle).clear();
    }

    /// Adds an idle connection.
    pub(super) fn put(&self, connection: Connection) {
        sync::lock(&self.idle).push(connection);
    }
}

/// Connects for this purpose to a store that exists.
pub(super) async fn connect(location: &Location, purpose: Purpose) -> Result<Connection, Fault> {
    match location {
        Location::Sqlite(path) if purpose == Purpose::Inspect => {
            let connection = unchanging(path).connect().await?;
            Ok(Connection::Sqlite(connection))
        }
        Location::Sqlite(path) => {
            // A database that is being created, or closed for the last time, is busy, and
            // opening it does not wait for that.
            let _lock = lock(path).await?;
            let options = sqlite(path, purpose);
            Ok(Connection::Sqlite(options.connect().await?))
        }
        Location::Postgres(url) => {
            let policy = match purpose {
                Purpose::Inspect => StandbyPolicy::Accept,
                _ => StandbyPolicy::Refuse,
            };
            // On the heap: otherwise the future of each call of the store would have room for it.
            let connection = Box::pin(postgres::connect(url, policy)).await?;
            Ok(Connection::Postgres(connection))
        }
    }
}

/// Connects to create or upgrade a store; for SQLite with the lock that must be held meanwhile.
pub(super) async fn first(location: &Location) -> Result<(Connection, Option<File>), Fault> {
    match location {
        Location::Sqlite(path) => {
            let lock = lock(path).await?;
            make_file(path)?;
            let options = sqlite(path, Purpose::WriteThrough);
            let options = options.journal_mode(SqliteJournalMode::Wal);
            let connection = options.connect().await?;
            Ok((Connection::Sqlite(connection), Some(lock)))
        }
        Location::Postgres(_) => Ok((connect(location, Purpose::WriteThrough).await?, None)),
    }
}

fn sqlite(path: &Path, purpose: Purpose) -> SqliteConnectOptions {
    let synchronous = match purpose {
        Purpose::WriteThrough => SqliteSynchronous::Full,
        Purpose::Inspect | Purpose::Read | Purpose::WriteBehind | Purpose::Write => {
            SqliteSynchronous::Normal
        }
    };
    SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(LOCK_TIMEOUT)
        .synchronous(synchronous)
        // Masked and pruned texts must not remain in free pages.
        .pragma("secure_delete", "ON")
        .thread_name(|number| format!("jobs-{number}"))
        .disable_statement_logging()
}

/// Reads a file without writing one next to it. SQLite would create its log to read a database that
/// nobody has open, unless the file is declared immutable. A process that opens the database
/// meanwhile can make such a read fail.
///
/// Source: <https://www.sqlite.org/wal.html>, "Read-Only Databases".
fn unchanging(path: &Path) -> SqliteConnectOptions {
    let is_open = with_suffix(path, "-wal").exists();
    SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .immutable(!is_open)
        .busy_timeout(INSPECT_TIMEOUT)
        .thread_name(|number| format!("jobs-{number}"))
        .disable_statement_logging()
}

/// Creates an empty file, accessible to this user only, unless it exists. SQLite gives its other
/// files the same mode.
fn make_file(path: &Path) -> io::Result<()> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Waits for the lock beside a file, which is released when the returned file is dropped.
async fn lock(path: &Path) -> Result<File, Fault> {
    let file = lock_file(path)?;
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => sleep(PAUSE).await,
            Err(TryLockError::WouldBlock) => return Err(Fault::Locked(LOCK_TIMEOUT.as_secs())),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
}

/// The path of the lock beside a file.
pub(super) fn lock_path(path: &Path) -> PathBuf {
    with_suffix(path, ".lock")
}

fn lock_file(path: &Path) -> io::Result<File> {
    let lock = lock_path(path);
    match files::open_to_append(&lock) {
        // The store is read-only for this user.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            File::open(&lock).map_err(|_| error)
        }
        made => made,
    }
}

impl Connection {
    /// Begins a write transaction. SQLite has one at a time.
    pub(super) async fn begin(&mut self, purpose: Purpose) -> Result<(), Fault> {
        let begin = match (self.dialect(), purpose) {
            (Dialect::Sqlite, _) => "BEGIN IMMEDIATE",
            (Dialect::Postgres, Purpose::WriteBehind) => {
                "BEGIN; SET LOCAL synchronous_commit TO OFF"
            }
            (Dialect::Postgres, _) => "BEGIN",
        };
        self.script(begin).await
    }
}
