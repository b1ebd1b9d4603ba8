//! Waits for changes of a store by any process.
//!
//! While anybody waits, a task watches the store on a separate connection. SQLite's `data_version`
//! rises whenever another connection has changed the file. The task reads it when the status of the
//! file, or of its log (`-wal`), has changed, and for a while after that, as a commit becomes
//! visible only after it was written. Checking the status first is cheap: it takes some µs, a
//! statement 50 times as long. Where the system reports writes, the task reads `data_version` at
//! once. PostgreSQL sends notifications. A notification may be lost, two changes may leave the same
//! time stamp, and a pooler forwards no notifications, so each wait also ends after a while without
//! any change.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::sync::lock;
use safe_files::state_file;
use settings::store_location::{Location, PostgresUrl};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::JobStore;
use super::error::Fault;
use super::file_events::FileEvents;
use super::pool::{Pool, Purpose};
use super::postgres;

/// How often the status of a file is checked.
const LOOK: Duration = Duration::from_millis(10);

/// How often it is checked while a write is not visible yet: this takes mostly less than a
/// millisecond, and some where the writer waits for the disk.
const SOON: Duration = Duration::from_millis(1);

/// The pause after a change, as each change makes idle workers look for a job.
const REST: Duration = Duration::from_millis(2);

/// How long after a write each check reads `data_version`, as a disk may be slow.
const SETTLING: Duration = Duration::from_millis(200);

/// How long a wait lasts without any change.
const FALLBACK: Duration = Duration::from_millis(500);

/// How long a server may be silent before it is asked whether it is there.
const PROBE: Duration = Duration::from_secs(30);

/// The statement that notifies the waiting processes, and its channel.
pub(super) const NOTIFY: &str = "NOTIFY codex_jobs";
const CHANNEL: &str = "codex_jobs";

/// Waits for changes of a store.
#[derive(Debug)]
pub struct Watch(watch::Receiver<u64>);

impl Watch {
    /// Waits until the store may have changed since the last call, or since this was created.
    /// Returns at least every 500 ms, even without a change.
    pub async fn changed(&mut self) {
        // The channel is closed when the store is dropped.
        if let Ok(Err(_)) = timeout(FALLBACK, self.0.changed()).await {
            sleep(FALLBACK).await;
        }
    }
}

/// Watches a store while anybody waits.
pub(super) struct Watcher {
    location: Location,
    shared: Arc<Shared>,
}

struct Shared {
    changes: watch::Sender<u64>,
    task: Mutex<WatchTask>,
}

/// Whether there is a task that watches the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchTask {
    Absent,
    Present,
}

impl Watcher {
    pub(super) fn new(location: &Location) -> Self {
        Self {
            location: location.clone(),
            shared: Arc::new(Shared {
                changes: watch::Sender::new(0),
                task: Mutex::new(WatchTask::Absent),
            }),
        }
    }
}

impl JobStore {
    /// Watches for changes from now on. Must be called on the runtime.
    #[must_use]
    pub fn watch(&self) -> Watch {
        let Watcher { location, shared } = &self.watch;
        let mut task = lock(&shared.task);
        let receiver = shared.changes.subscribe();
        if *task == WatchTask::Absent {
            *task = WatchTask::Present;
            tokio::spawn(watch_store(location.clone(), Arc::clone(shared)));
        }
        Watch(receiver)
    }
}

impl Shared {
    /// Whether the task should continue. Checked under the lock: a new waiter is either seen
    /// here, or finds no task and spawns one.
    fn is_wanted(&self) -> bool {
        let mut task = lock(&self.task);
        if self.changes.is_closed() {
            *task = WatchTask::Absent;
        }
        *task == WatchTask::Present
    }
}

/// Watches the store until nobody waits any more.
async fn watch_store(location: Location, shared: Arc<Shared>) {
    let changes = &shared.changes;
    while shared.is_wanted() {
        let watched = match &location {
            Location::Sqlite(path) => watch_file(&location, path, changes).await,
            Location::Postgres(url) => listen(url, changes).await,
        };
        if let Err(fault) = watched {
            tracing::debug!("watching the job store: {fault}");
            sleep(FALLBACK).await;
        }
    }
}

async fn watch_file(
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
    let mut written = LastWrite::now();
    while !changes.is_closed() {
        let now = Some([stamp(path), stamp(&log)]);
        if now != stamps {
            stamps = now;
            written = LastWrite::now();
        }
        if written.is_settling() {
            let row = taken.connection.row("PRAGMA data_version", Vec::new());
            let row = row.await?.ok_or(sqlx::Error::RowNotFound)?;
            let version = row.number("data_version")?;
            if version != seen {
                seen = version;
                written.is_seen = true;
                changes.send_modify(|count| *count = count.wrapping_add(1));
                sleep(REST).await;
            }
        }
        tokio::select! {
            () = changes.closed() => {}
            () = sleep(written.next_look()) => {}
            // Two writes may leave the same status.
            () = events.written() => written = LastWrite::now(),
        }
    }
    Ok(())
}

/// The last write to a file.
struct LastWrite {
    at: Instant,
    /// Whether a change was seen since the write.
    is_seen: bool,
}

impl LastWrite {
    fn now() -> Self {
        Self {
            at: Instant::now(),
            is_seen: false,
        }
    }

    /// Whether the write may still become visible.
    fn is_settling(&self) -> bool {
        self.at.elapsed() < SETTLING
    }

    fn next_look(&self) -> Duration {
        match self.is_seen {
            false if self.at.elapsed() < LOOK => SOON,
            _ => LOOK,
        }
    }
}

/// The part of a file's status that changes with a write: length and times.
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
    let Some(mut listener) = postgres::listener(url, CHANNEL).await? else {
        tracing::info!("a pooler keeps the notifications of the job store: changes are seen later");
        changes.closed().await;
        return Ok(());
    };
    // An earlier change may have gone unnoticed.
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
            () = sleep(PROBE) => postgres::check_alive(&mut listener).await?,
        }
    }
    Ok(())
}
