//! The store of jobs: a file of SQLite for the processes of one machine, or a database of
//! PostgreSQL for many machines.
//!
//! - Each write of a worker is checked against its [`Claim`]: a worker that has lost its lease
//!   changes nothing.
//! - Leases are measured by the database's clock only.
//! - No transaction stays open while the process waits for anything else.
//! - A change that failed with [`StoreError::AnswerLost`] may have been made or not. Every
//!   change can be repeated: a [`NewJob`] has its ID already, [`JobStore::append_from`] skips
//!   events that are there, and a second [`JobStore::finish`] is [`WriteOutcome::Lost`].
//! - When the process dies, no completed change is lost. When the power fails, no submitted job
//!   is lost. The last later changes may be lost in a file of SQLite; the job then fails or
//!   runs again once its lease has ended. PostgreSQL may lose the last events of a job, and of
//!   other changes what its `synchronous_commit` allows.
//! - Each job is signed with the key of the machine that has submitted it ([`Job::origin`]).
//!   [`Access`] defines what this machine may do with jobs of others.
//! - A worker signs the thread of a job, so that nobody else who writes to the store chooses it
//!   ([`Job::proven_session`]).
//! - Codex's questions and instructions to workers are signed too, each for one attempt. A
//!   question exists as long as its attempt holds the lease.
//! - When a job ends, credentials in its prompt are masked.
//! - Others may write any row. A job whose row cannot be read fails, and lists leave out such rows,
//!   as the last events of a job do. A text beyond our bounds is never read, as one of 1 GB would end
//!   each process that lists jobs.
//! - PostgreSQL stores no NUL character; both databases get U+FFFD in its place.
//!
//! sqlx has a thread for each connection to SQLite; no process is started on these threads.

/// Reads from a store, and retries once if the connection is lost.
///
/// This is a macro, as the compiler cannot prove that such a function's future is `Send` for a
/// closure over any connection (rust-lang/rust#100013).
macro_rules! reading {
    ($store:expr, $work:expr) => {{
        let pool = $store.pool_for(crate::store::pool::Purpose::Read);
        let mut tries = 2;
        let read = loop {
            tries -= 1;
            let read = async {
                let mut taken = pool.take().await?;
                let read = $work(&mut taken.connection).await?;
                taken.give_back();
                Ok(read)
            };
            match crate::store::in_time(crate::store::TRANSACTION_TIMEOUT, read).await {
                Err(fault) if crate::store::error::Fault::is_disconnected(&fault) && tries > 0 => {
                    pool.forget_idle();
                }
                read => break read,
            }
        };
        read.map_err(|fault| fault.at(&$store.location))
    }};
}

/// Makes a change in one transaction, and retries it after a conflict with another.
macro_rules! writing {
    ($store:expr, $work:expr) => {
        writing!(
            $store,
            $work,
            crate::store::pool::Purpose::Write,
            crate::store::Notify::Nobody
        )
    };
    ($store:expr, $work:expr, $purpose:expr, $tell:expr) => {{
        let pool = $store.pool_for($purpose);
        let mut tries = crate::store::TRIES;
        let (written, progress) = loop {
            tries -= 1;
            let mut progress = crate::store::error::ChangeProgress::Uncommitted;
            let change = async {
                let mut taken = crate::store::begin(pool, $purpose).await?;
                let done = $work(&mut taken.connection).await;
                crate::store::end(taken, $tell, done, &mut progress).await
            };
            match crate::store::in_time(crate::store::TRANSACTION_TIMEOUT, change).await {
                Err(fault) if crate::store::error::Fault::is_conflict(&fault) && tries > 0 => {
                    tokio::time::sleep(crate::store::PAUSE).await;
                }
                written => break (written, progress),
            }
        };
        written.map_err(|fault| fault.of_change(progress, &$store.location))
    }};
}

mod access;
mod cells;
mod columns;
mod error;
mod events;
mod file_events;
mod instructions;
mod lists;
mod migrations;
mod pool;
mod postgres;
mod questions;
mod queue;
mod reading;
mod record;
mod recovery;
mod removal;
mod rows;
mod schema;
mod signature;
mod sql;
mod task_ids;
mod tls;
mod tls_error;
mod watch;
mod workers;

use std::time::Duration;
use std::{fmt, io};

use settings::{Access, Location, Setting, Source};
use tokio::time::timeout;

use access::Identity;
use error::{ChangeProgress, Fault};
use pool::{Pool, Purpose};
use sql::{Connection, Dialect};

pub use error::StoreError;
pub use events::{AppendOutcome, MOST_EVENTS};
pub use instructions::DONE;
pub use migrations::{NoSuchVersion, postgres_schema};
pub use reading::JobThread;
pub use record::{
    Claim, ClaimedJob, Demand, FinishedJob, InstructOutcome, Instruction, InstructionProgress, Job,
    JobFilter, JobList, JobSummary, LONGEST_TEXT, NewEvent, NewInstruction, NewJob, NewQuestion,
    NewWorker, Origin, Owner, Ownership, PromptText, Question, ReapedJob, RenewOutcome, Request,
    StoredEvent, WorkerRecord, WriteOutcome, new_worker_id,
};
pub use watch::Watch;

/// How often a conflicting change is tried, and the pause between two attempts.
const TRIES: u32 = 8;
const PAUSE: Duration = Duration::from_millis(10);

/// How long one transaction or read may take, so that nobody waits for a server that no longer
/// answers. It is longer than writers of a file wait for each other.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a notification may take, which follows a change within the same time.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(2);

/// The most connections that read at once.
const READERS: usize = 3;

/// The most connections that write to a server at once: a worker runs four jobs.
const WRITERS: usize = 4;

/// A store of jobs, for concurrent use.
pub struct JobStore {
    location: Location,
    identity: Identity,
    pools: Pools,
    watch: watch::Watcher,
}

/// The pools of connections, by purpose.
struct Pools {
    read: Pool,
    /// A file has one writer at a time: here writers wait in the order of their arrival, which
    /// SQLite itself does not guarantee.
    write: Pool,
    /// For changes that must survive a power failure.
    through: Pool,
}

impl JobStore {
    /// Whether there is a store. One that does not exist has no jobs, and need not be created to find
    /// none.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoDirectory`].
    pub fn exists(store: &Setting<Location>) -> Result<bool, StoreError> {
        let Location::Sqlite(path) = &store.value else {
            return Ok(true);
        };
        let setting = match &store.source {
            Source::Default => return Ok(path.exists()),
            Source::File(_, file) => format!("`store` in {}", file.display()),
            source => source.to_string(),
        };
        match path.parent() {
            Some(directory) if !directory.is_dir() => Err(StoreError::NoDirectory {
                directory: directory.to_owned(),
                setting,
            }),
            _ => Ok(path.exists()),
        }
    }

    /// Opens a store, and creates it if it does not exist; a file is accessible to this user
    /// only.
    ///
    /// # Errors
    ///
    /// [`StoreError`], if the location is no store or cannot be reached, if a newer program has
    /// created it, or if this machine's key cannot be used.
    pub async fn open(location: &Location, access: &Access) -> Result<Self, StoreError> {
        let prepared = schema::prepare(location).await;
        prepared.map_err(|fault| fault.at(location))?;
        let identity = Identity::new(location, access)?;
        Ok(Self::with(location, identity, |purpose| purpose))
    }

    /// Opens a store that exists, to read from it: no file is created or changed, and a change of
    /// a store that is a file fails.
    ///
    /// # Errors
    ///
    /// [`StoreError`], as of [`JobStore::open`], and if an older program has created the store.
    pub async fn inspect(location: &Location, access: &Access) -> Result<Self, StoreError> {
        let connected = schema::inspect(location).await;
        let connection = connected.map_err(|fault| fault.at(location))?;
        let identity = Identity::inspecting(location, access)?;
        let store = Self::with(location, identity, |_| Purpose::Inspect);
        store.pools.read.put(connection);
        Ok(store)
    }

    /// `connected` says for what the connections of a purpose are made.
    fn with(
        location: &Location,
        identity: Identity,
        connected: impl Fn(Purpose) -> Purpose,
    ) -> Self {
        let writers = match location {
            Location::Sqlite(_) => 1,
            Location::Postgres(_) => WRITERS,
        };
        let pool = |purpose, most| Pool::new(location, connected(purpose), most);
        let pools = Pools {
            read: pool(Purpose::Read, READERS),
            write: pool(Purpose::Write, writers),
            through: pool(Purpose::WriteThrough, writers),
        };
        Self {
            location: location.clone(),
            identity,
            pools,
            watch: watch::Watcher::new(location),
        }
    }

    /// The location of the store.
    #[must_use]
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// The next number of a run, from 1. A number that is not used leaves a gap.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn next_run_number(&self) -> Result<u64, StoreError> {
        let sql = "INSERT INTO codex_numbers (of_what, last) VALUES ('run', 1) \
                   ON CONFLICT (of_what) DO UPDATE SET last = codex_numbers.last + 1 \
                   RETURNING last";
        let count = async |connection: &mut Connection| {
            let row = connection.row(sql, Vec::new()).await?;
            let row = row.ok_or(sqlx::Error::RowNotFound)?;
            let number = row.number("last")?.unwrap_or_default();
            Ok::<u64, Fault>(u64::try_from(number).unwrap_or_default())
        };
        writing!(self, count)
    }

    fn pool_for(&self, purpose: Purpose) -> &Pool {
        match purpose {
            Purpose::Inspect | Purpose::Read => &self.pools.read,
            Purpose::WriteBehind | Purpose::Write => &self.pools.write,
            Purpose::WriteThrough => &self.pools.through,
        }
    }
}

impl fmt::Debug for JobStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobStore({})", self.location)
    }
}

/// Who is notified of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notify {
    Nobody,
    /// All processes that wait in [`Watch::changed`].
    Watchers,
}

/// Runs work on a connection. If it takes longer than `limit`, it is dropped, which closes the
/// connection.
async fn in_time<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    timeout(limit, work).await.unwrap_or_else(|_| {
        let why = format!("no answer for {} s", limit.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, why).into())
    })
}

/// Commits a transaction if its work has succeeded, else rolls it back. A change that is committed
/// is reported as made, even if its watchers cannot be notified: the notification is only a hint.
async fn end<T>(
    mut taken: pool::PooledConnection<'_>,
    tell: Notify,
    done: Result<T, Fault>,
    progress: &mut ChangeProgress,
) -> Result<T, Fault> {
    let connection = &mut taken.connection;
    let done = match done {
        Ok(done) => {
            *progress = ChangeProgress::Committing;
            connection.script("COMMIT").await.map(|()| done)
        }
        Err(fault) => Err(fault),
    };
    match done {
        Ok(done) => {
            let told = timeout(NOTIFY_TIMEOUT, tell_watchers(connection, tell)).await;
            // Otherwise the state of the connection is unknown: it is dropped and thereby closed.
            match told {
                Ok(Ok(())) => taken.give_back(),
                Ok(Err(fault)) => {
                    tracing::warn!("cannot notify of a change in the job store: {fault}");
                }
                Err(_) => tracing::warn!("the job store does not answer a notification"),
            }
            Ok(done)
        }
        Err(fault) if fault.is_stale() => {
            taken.discard();
            Err(fault)
        }
        Err(fault) => {
            // If this fails too, the connection is dropped and thereby closed.
            if connection.script("ROLLBACK").await.is_ok() {
                taken.give_back();
            }
            Err(fault)
        }
    }
}

/// Begins a transaction. A lost connection is replaced, as nothing has been done on it yet.
async fn begin(pool: &Pool, purpose: Purpose) -> Result<pool::PooledConnection<'_>, Fault> {
    let mut taken = pool.take().await?;
    match taken.connection.begin(purpose).await {
        Ok(()) => Ok(taken),
        Err(fault) if fault.is_disconnected() => {
            pool.forget_idle();
            drop(taken);
            let mut taken = pool.take().await?;
            taken.connection.begin(purpose).await?;
            Ok(taken)
        }
        Err(fault) => Err(fault),
    }
}

/// Notifies the watchers after the change, and not within its transaction: PostgreSQL commits
/// only one transaction with a notification at a time. Watchers that miss it check anyway.
async fn tell_watchers(connection: &mut Connection, tell: Notify) -> Result<(), Fault> {
    match (tell, connection.dialect()) {
        (Notify::Watchers, Dialect::Postgres) => connection.script(watch::NOTIFY).await,
        (Notify::Nobody, _) | (_, Dialect::Sqlite) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
