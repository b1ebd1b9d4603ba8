//! Where jobs are: a file of SQLite for the processes of one machine, or a database
//! of PostgreSQL for many machines.
//!
//! - What a worker writes is checked against its [`Claim`]: a worker that has lost
//!   its lease changes nothing.
//! - Leases are counted by the database's clock alone.
//! - No transaction is open while anything else is waited for.
//! - A change that failed with [`StoreError::Unreachable`] may have been made or
//!   not. All changes can be asked for again: a [`NewJob`] has its name already,
//!   and what was finished twice is [`Written::Lost`] the second time.
//! - When the process dies, nothing is lost that a method has returned from. When
//!   the power fails, neither are jobs that were submitted; of what came after, the
//!   last moments may be lost in a file of SQLite, and the job is then, once its
//!   lease has ended, failed or runs again. PostgreSQL may lose the last events of a
//!   job, and of all else what its `synchronous_commit` says.
//! - Each job is signed with the key of the host that has submitted it
//!   ([`Job::origin`]). What may be done with jobs of others is said by [`Access`].
//! - Questions of Codex's and instructions to workers are signed too, each for one attempt.
//!   A question is there for as long as its attempt holds the lease.
//! - When a job ends, credentials in its prompt are masked.
//! - PostgreSQL keeps no NUL character; both databases get U+FFFD in its place.
//!
//! sqlx has a thread for each connection to SQLite; on none of them is a process
//! started.

/// Reads something from a store; once more if the connection turns out to be lost.
///
/// A macro, as the compiler doesn't see that a future may go to another thread if
/// that depends on a closure for any connection (rust-lang/rust#100013).
macro_rules! reading {
    ($store:expr, $work:expr) => {{
        let pool = $store.lane(crate::store::pool::Purpose::Read);
        let mut tries = 2;
        let read = loop {
            tries -= 1;
            let read = async {
                let mut taken = pool.take().await?;
                let read = $work(&mut taken.connection).await?;
                taken.give_back();
                Ok(read)
            };
            match crate::store::in_time(read).await {
                Err(fault) if crate::store::error::Fault::is_disconnected(&fault) && tries > 0 => {
                    pool.forget_idle();
                }
                read => break read,
            }
        };
        read.map_err(|fault| fault.at(&$store.location))
    }};
}

/// Makes a change in a store, all of it or nothing; again if another was in its way.
macro_rules! writing {
    ($store:expr, $work:expr) => {
        writing!(
            $store,
            $work,
            crate::store::pool::Purpose::Write,
            crate::store::Tell::Nobody
        )
    };
    ($store:expr, $work:expr, $purpose:expr, $tell:expr) => {{
        let pool = $store.lane($purpose);
        let mut tries = crate::store::TRIES;
        let written = loop {
            tries -= 1;
            let written = async {
                let mut taken = crate::store::begin(pool, $purpose).await?;
                let done = $work(&mut taken.connection).await;
                crate::store::end(taken, $tell, done).await
            };
            match crate::store::in_time(written).await {
                Err(fault) if crate::store::error::Fault::is_conflict(&fault) && tries > 0 => {
                    tokio::time::sleep(crate::store::PAUSE).await;
                }
                written => break written,
            }
        };
        written.map_err(|fault| fault.at(&$store.location))
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
mod numbers;
mod pool;
mod questions;
mod queue;
mod reading;
mod record;
mod rows;
mod schema;
mod signature;
mod sql;
mod watch;
mod workers;

use std::time::Duration;
use std::{fmt, io};

use settings::{Access, Location};
use tokio::time::timeout;

use access::Identity;
use error::Fault;
use pool::{Pool, Purpose};
use sql::{Connection, Dialect};

pub use error::StoreError;
pub use events::{Appended, MOST_EVENTS};
pub use instructions::DONE;
pub use reading::JobThread;
pub use record::{
    Claim, Claimed, Demand, Filter, Finished, Instructed, Instruction, Job, JobSummary,
    LONGEST_TEXT, Listed, NewEvent, NewInstruction, NewJob, NewQuestion, NewWorker, Origin, Owner,
    Progress, PromptText, Question, Reaped, Renewed, Request, StoredEvent, Whose, Worker, Written,
    new_worker_id,
};
pub use watch::Watch;

/// How often a change is tried that others are in the way of, and the pause between
/// two tries.
const TRIES: u32 = 8;
const PAUSE: Duration = Duration::from_millis(10);

/// How long one transaction may take, or one look: a server that no longer answers isn't
/// waited for. Longer than writers of a file wait for each other.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many connections read at once.
const READERS: usize = 3;

/// How many connections write to a server at once: a worker runs four jobs.
const WRITERS: usize = 4;

/// A store of jobs. It may be used by many at once.
pub struct JobStore {
    location: Location,
    identity: Identity,
    lanes: Lanes,
    watch: watch::Watcher,
}

/// The connections.
struct Lanes {
    read: Pool,
    /// A file has one writer at a time: here they wait for each other in the order in
    /// which they came, which they don't where SQLite makes them wait.
    write: Pool,
    /// For what must not be lost when the power fails.
    through: Pool,
}

impl JobStore {
    /// Opens a store, and makes it if it isn't there: a file for this user alone.
    ///
    /// # Errors
    ///
    /// [`StoreError`], if it is none, can't be reached, or a newer program has made
    /// it, or if this host has no key.
    pub async fn open(location: &Location, access: &Access) -> Result<Self, StoreError> {
        let prepared = schema::prepare(location).await;
        prepared.map_err(|fault| fault.at(location))?;
        let identity = Identity::new(location, access)?;
        let writers = match location {
            Location::Sqlite(_) => 1,
            Location::Postgres(_) => WRITERS,
        };
        let pool = |purpose, most| Pool::new(location, purpose, most);
        let lanes = Lanes {
            read: pool(Purpose::Read, READERS),
            write: pool(Purpose::Write, writers),
            through: pool(Purpose::WriteThrough, writers),
        };
        Ok(Self {
            location: location.clone(),
            identity,
            lanes,
            watch: watch::Watcher::new(location),
        })
    }

    /// Where it is.
    #[must_use]
    pub fn location(&self) -> &Location {
        &self.location
    }

    fn lane(&self, purpose: Purpose) -> &Pool {
        match purpose {
            Purpose::Read => &self.lanes.read,
            Purpose::WriteBehind | Purpose::Write => &self.lanes.write,
            Purpose::WriteThrough => &self.lanes.through,
        }
    }
}

impl fmt::Debug for JobStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobStore({})", self.location)
    }
}

/// Who is told of a change, beyond those who look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tell {
    Nobody,
    /// Whoever waits for [`Watch::changed`].
    Watchers,
}

/// What is done, unless it takes too long: then its connection is closed.
async fn in_time<T>(work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    timeout(PATIENCE, work).await.unwrap_or_else(|_| {
        let why = format!("no answer for {} s", PATIENCE.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, why).into())
    })
}

/// Ends a transaction, as what was done in it says.
async fn end<T>(
    mut taken: pool::Taken<'_>,
    tell: Tell,
    done: Result<T, Fault>,
) -> Result<T, Fault> {
    let connection = &mut taken.connection;
    let done = match done {
        Ok(done) => connection.script("COMMIT").await.map(|()| done),
        Err(fault) => Err(fault),
    };
    match done {
        Ok(done) => {
            if tell == Tell::Watchers && connection.dialect() == Dialect::Postgres {
                tell_watchers(connection).await?;
            }
            taken.give_back();
            Ok(done)
        }
        Err(fault) => {
            // Where even this fails, the connection is closed.
            if connection.script("ROLLBACK").await.is_ok() {
                taken.give_back();
            }
            Err(fault)
        }
    }
}

/// Nothing has been done yet, so that a lost connection can be replaced in silence.
async fn begin(pool: &Pool, purpose: Purpose) -> Result<pool::Taken<'_>, Fault> {
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

/// After the change, not in it: PostgreSQL lets only one transaction at a time be
/// committed that tells something. Those who aren't told look all the same.
async fn tell_watchers(connection: &mut Connection) -> Result<(), Fault> {
    match connection.script(watch::NOTIFY).await {
        Err(fault) if !fault.is_disconnected() => Err(fault),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
