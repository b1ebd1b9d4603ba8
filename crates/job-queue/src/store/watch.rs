//! Waiting for something to change in a store, whoever changes it.
//!
//! While somebody waits, a task looks on their behalf, on a connection of its own.
//! A file of SQLite has a number that rises whenever another connection has changed
//! something. It is read when the status of the file, or of its log (`-wal`), has changed,
//! and for a while after that, as a commit is seen only after it was written: asking for
//! the status takes some µs, a statement 50 times as long. Where the system tells of
//! writes, it is read at once. PostgreSQL tells.
//! As what is told may be lost, and two changes may leave the same time stamp, waiting ends
//! after a while in any case.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use safe_files::state_file;
use settings::store_location::{Location, PostgresUrl};
use sqlx::ConnectOptions;
use sqlx::postgres::PgListener;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::JobStore;
use super::error::Fault;
use super::file_events::FileEvents;
use super::pool::{Pool, Purpose};

/// How often a file is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// The same while something was written that is not seen yet: mostly less than a
/// millisecond, and some where the writer waits for the disk.
const SOON: Duration = Duration::from_millis(1);

/// How long nothing is looked at after a change: each makes idle workers look for a job.
const REST: Duration = Duration::from_millis(2);

/// How long after a write the number is read with each look: a disk may be slow.
const SETTLING: Duration = Duration::from_millis(200);

/// After how long waiting ends although nothing was heard.
const FALLBACK: Duration = Duration::from_millis(500);

/// What tells those who wait.
pub(super) const NOTIFY: &str = "NOTIFY codex_jobs";
const CHANNEL: &str = "codex_jobs";

/// What waits for changes.
#[derive(Debug)]
pub struct Watch(watch::Receiver<u64>);

impl Watch {
    /// Waits until something may have changed since this was called last, or since
    /// it was made. That nothing has is possible too: it returns at least every 500
    /// ms.
    pub async fn changed(&mut self) {
        // It fails when the store is closed.
        if let Ok(Err(_)) = timeout(FALLBACK, self.0.changed()).await {
            sleep(FALLBACK).await;
        }
    }
}

/// Looks while somebody waits.
pub(super) struct Watcher {
    location: Location,
    shared: Arc<Shared>,
}

struct Shared {
    changes: watch::Sender<u64>,
    looker: Mutex<Looker>,
}

/// Whether there is a task that looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looker {
    Absent,
    Present,
}

impl Watcher {
    pub(super) fn new(location: &Location) -> Self {
        Self {
            location: location.clone(),
            shared: Arc::new(Shared {
                changes: watch::Sender::new(0),
                looker: Mutex::new(Looker::Absent),
            }),
        }
    }
}

impl JobStore {
    /// Waits for changes from now on. To be called on the runtime.
    #[must_use]
    pub fn watch(&self) -> Watch {
        let Watcher { location, shared } = &self.watch;
        let mut looker = shared.looker();
        let receiver = shared.changes.subscribe();
        if *looker == Looker::Absent {
            *looker = Looker::Present;
            tokio::spawn(look(location.clone(), Arc::clone(shared)));
        }
        Watch(receiver)
    }
}

impl Shared {
    fn looker(&self) -> MutexGuard<'_, Looker> {
        self.looker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether to go on looking. Under the lock, so that whoever begins to wait
    /// either is seen here or finds nobody who looks.
    fn is_wanted(&self) -> bool {
        let mut looker = self.looker();
        if self.changes.is_closed() {
            *looker = Looker::Absent;
        }
        *looker == Looker::Present
    }
}

/// Looks until nobody waits any more.
async fn look(location: Location, shared: Arc<Shared>) {
    let changes = &shared.changes;
    while shared.is_wanted() {
        let looked = match &location {
            Location::Sqlite(path) => look_at_file(&location, path, changes).await,
            Location::Postgres(url) => listen(url, changes).await,
        };
        if let Err(fault) = looked {
            tracing::debug!("watching the job store: {fault}");
            sleep(FALLBACK).await;
        }
    }
}

async fn look_at_file(
    location: &Location,
    path: &Path,
    changes: &watch::Sender<u64>,
) -> Result<(), Fault> {
    let pool = Pool::new(location, Purpose::Read, 1);
    let mut taken = pool.take().await?;
    let log = state_file::with_suffix(path, "-wal");
    let mut events = FileEvents::of(path);
    let mut seen = None;
    let mut stamps = None;
    let mut written = Written::now();
    while !changes.is_closed() {
        let now = Some([stamp(path), stamp(&log)]);
        if now != stamps {
            stamps = now;
            written = Written::now();
        }
        if written.is_settling() {
            let row = taken.connection.row("PRAGMA data_version", Vec::new());
            let row = row.await?.ok_or(sqlx::Error::RowNotFound)?;
            let version = row.number("data_version")?;
            if version != seen {
                seen = version;
                written.seen = Seen::Yes;
                changes.send_modify(|count| *count = count.wrapping_add(1));
                sleep(REST).await;
            }
        }
        tokio::select! {
            () = changes.closed() => {}
            () = sleep(written.next_look()) => {}
            // Two writes may leave the same stamp.
            () = events.written() => written = Written::now(),
        }
    }
    Ok(())
}

/// The last write to a file.
struct Written {
    at: Instant,
    seen: Seen,
}

/// Whether a change was seen since a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    No,
    Yes,
}

impl Written {
    fn now() -> Self {
        Self {
            at: Instant::now(),
            seen: Seen::No,
        }
    }

    /// Whether what was written may still become visible.
    fn is_settling(&self) -> bool {
        self.at.elapsed() < SETTLING
    }

    fn next_look(&self) -> Duration {
        match self.seen {
            Seen::No if self.at.elapsed() < LOOK => SOON,
            _ => LOOK,
        }
    }
}

/// What tells a file from what it was before something was written: length and times.
fn stamp(path: &Path) -> Option<[i64; 5]> {
    let about = fs::metadata(path).ok()?;
    let length = i64::try_from(about.len()).unwrap_or(i64::MAX);
    Some([
        length,
        about.mtime(),
        about.mtime_nsec(),
        about.ctime(),
        about.ctime_nsec(),
    ])
}

async fn listen(url: &PostgresUrl, changes: &watch::Sender<u64>) -> Result<(), Fault> {
    let options = url.options().clone().disable_statement_logging();
    let pool = sqlx::postgres::PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(Duration::from_secs(10))
        .connect_lazy_with(options);
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen(CHANNEL).await?;
    // What has changed before that was told to nobody.
    changes.send_modify(|count| *count = count.wrapping_add(1));
    while !changes.is_closed() {
        tokio::select! {
            () = changes.closed() => {}
            told = listener.try_recv() => {
                if told?.is_none() {
                    return Ok(());
                }
                changes.send_modify(|count| *count = count.wrapping_add(1));
            }
        }
    }
    Ok(())
}
