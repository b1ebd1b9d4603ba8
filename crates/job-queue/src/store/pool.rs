//! Connections, some of each kind.
//!
//! One that is dropped in the middle of something (its caller has gone, or an error
//! has left it in an unknown state) is closed, and with it ends its transaction.
#![expect(clippy::disallowed_methods, reason = "files of our own state")]

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use settings::store_location::Location;
use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout};

use super::error::Fault;
use super::sql::{Connection, Dialect};
use crate::files;

/// How long others' writing is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a server may take to take a connection.
const CONNECTING: Duration = Duration::from_secs(10);

/// The pause between two tries to get the lock of a file.
const PAUSE: Duration = Duration::from_millis(2);

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Read,
    /// What is written is there when a process dies. When the power fails, the last
    /// of it may be lost.
    WriteBehind,
    /// The same for SQLite. A server lives on when a worker dies, so that PostgreSQL
    /// has to keep to what it has said.
    Write,
    /// What is written is there also when the power fails.
    WriteThrough,
}

/// Connections of one kind.
pub(super) struct Pool {
    location: Location,
    purpose: Purpose,
    permits: Semaphore,
    idle: Mutex<Vec<Connection>>,
}

/// A connection, until it is given back.
pub(super) struct Taken<'a> {
    pub(super) connection: Connection,
    pool: &'a Pool,
    _permit: Option<SemaphorePermit<'a>>,
}

impl Taken<'_> {
    /// For the next one: nothing is under way on it.
    pub(super) fn give_back(self) {
        self.pool.idle().push(self.connection);
    }
}

impl Pool {
    /// At most so many at once; none is opened yet.
    pub(super) fn new(location: &Location, purpose: Purpose, most: usize) -> Self {
        Self {
            location: location.clone(),
            purpose,
            permits: Semaphore::new(most),
            idle: Mutex::default(),
        }
    }

    /// Waits for a connection. One that was idle may turn out to be lost.
    pub(super) async fn take(&self) -> Result<Taken<'_>, Fault> {
        // It fails when the semaphore is closed, which nobody does.
        let permit = self.permits.acquire().await.ok();
        let idle = self.idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => connect(&self.location, self.purpose).await?,
        };
        Ok(Taken {
            connection,
            pool: self,
            _permit: permit,
        })
    }

    /// Closes those that are idle: what has become of one may have become of all.
    pub(super) fn forget_idle(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn connect(location: &Location, purpose: Purpose) -> Result<Connection, Fault> {
    match location {
        Location::Sqlite(path) => {
            // Whoever opens a database may meet one that is being made, or closed
            // for the last time, and busy without its waiting for that.
            let _lock = lock(path).await?;
            let options = sqlite(path, purpose);
            Ok(Connection::Sqlite(options.connect().await?))
        }
        Location::Postgres(url) => postgres(url.options()).await,
    }
}

/// Connects for making or bringing up to date what is there; for SQLite with the
/// lock that has to be held until that is done.
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
        Location::Postgres(url) => Ok((postgres(url.options()).await?, None)),
    }
}

fn sqlite(path: &Path, purpose: Purpose) -> SqliteConnectOptions {
    let synchronous = match purpose {
        Purpose::WriteThrough => SqliteSynchronous::Full,
        Purpose::Read | Purpose::WriteBehind | Purpose::Write => SqliteSynchronous::Normal,
    };
    SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(PATIENCE)
        .synchronous(synchronous)
        // What is masked or pruned is not to be left in free pages.
        .pragma("secure_delete", "ON")
        .thread_name(|number| format!("jobs-{number}"))
        .disable_statement_logging()
}

async fn postgres(options: &PgConnectOptions) -> Result<Connection, Fault> {
    let options = options.clone().disable_statement_logging();
    let connecting = timeout(CONNECTING, options.connect());
    let connected = connecting.await.map_err(|_| {
        let why = format!("no answer for {} s", CONNECTING.as_secs());
        Fault::File(io::Error::new(io::ErrorKind::TimedOut, why))
    })?;
    Ok(Connection::Postgres(connected?))
}

/// Makes an empty file, for the user alone, unless there is one. What SQLite puts
/// beside it gets the same mode.
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

/// Waits for the lock beside a file, which ends when the returned file is dropped.
async fn lock(path: &Path) -> Result<File, Fault> {
    let file = lock_file(path)?;
    let until = Instant::now() + PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => sleep(PAUSE).await,
            Err(TryLockError::WouldBlock) => return Err(Fault::Locked(PATIENCE.as_secs())),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
}

fn lock_file(path: &Path) -> io::Result<File> {
    let lock = files::beside(path, ".lock");
    match files::open_to_append(&lock) {
        // A store that can only be read.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            File::open(&lock).map_err(|_| error)
        }
        made => made,
    }
}

impl Connection {
    /// Begins a transaction that writes: for SQLite, of which there is one at a time.
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
