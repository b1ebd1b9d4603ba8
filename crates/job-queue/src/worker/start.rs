//! Starts a worker on demand.
//!
//! A process that submits a job then checks whether a worker holds the lock, and starts one if none
//! does. A worker that leaves first releases the lock, and then checks once more for jobs, so one
//! of the two notices the other.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::output;
use common::sync::lock;
use settings::store_location::Location;
use supervise::spawn::{DetachedProgram, spawn_detached};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::{Instant, timeout};

use super::lock::WorkerLock;
use crate::{files, machine};

/// How long a worker may take to announce itself: PostgreSQL may be far away.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// How long [`Starter::ensure_unless_failed_recently`] does not repeat a start that has failed.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The only line that a worker started on demand prints on stdout: this, [`TAKEN`], or the
/// reason why it cannot work.
pub const READY: &str = "ready";

/// The line of a worker that has found the lock taken, see [`READY`].
pub const TAKEN: &str = "taken";

/// Prints the line for the process that has started this worker on demand. A closed pipe counts as
/// success.
///
/// # Errors
///
/// If stdout cannot be written to.
pub fn announce(word: &str) -> io::Result<()> {
    let mut stdout = output::stdout();
    let line = word.lines().next().unwrap_or_default();
    let told = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    match told {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        told => told,
    }
}

/// An error of starting a worker on demand.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The lock cannot be checked.
    #[error("{}: {error}", path.display())]
    WorkerLock {
        /// The file of the lock.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// The worker's log cannot be opened.
    #[error("{}: {error}", path.display())]
    Log {
        /// The log.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// The process cannot be spawned.
    #[error("cannot start a worker: {0}")]
    Spawn(io::Error),
    /// The worker has reported why it cannot work.
    #[error("the worker cannot work: {0}")]
    Refused(String),
    /// The worker ended without a message.
    #[error("the worker ended at once; {} may have the reason", log.display())]
    Ended {
        /// Its log.
        log: PathBuf,
    },
    /// The worker has not announced itself in time.
    #[error(
        "the worker has not started within {} s; {} may have the reason",
        START_TIMEOUT.as_secs(),
        log.display()
    )]
    Silent {
        /// Its log.
        log: PathBuf,
    },
    /// A start has failed a moment ago, for this reason.
    #[error("{0}")]
    Recent(String),
}

/// Starts the worker of a store on this machine.
#[derive(Debug, Clone)]
pub struct Starter {
    store: Location,
    state: PathBuf,
    /// The present name of this machine, which may change while this process runs.
    machine: fn() -> String,
    codex: Option<PathBuf>,
}

/// A worker that this process may start: the file of its lock, and the chosen Codex.
type WorkerKey = (PathBuf, Option<PathBuf>);

/// The memory of the starts of each worker. It belongs to no client, as one may make a single call.
static STARTS: Mutex<BTreeMap<WorkerKey, Arc<StartMemory>>> = Mutex::new(BTreeMap::new());

/// The memory of the starts of a worker by this process.
#[derive(Debug, Default)]
struct StartMemory {
    /// When it could not be started, and why.
    failed: Mutex<Option<(Instant, String)>>,
    /// Held by a check that may start it, so that no other check starts it meanwhile.
    check: tokio::sync::Mutex<()>,
}

impl Starter {
    /// The starter for a store. `state` is the state directory of this machine, `codex` the chosen
    /// Codex for jobs that name none.
    #[must_use]
    pub fn new(store: Location, state: &Path, codex: Option<PathBuf>) -> Self {
        Self {
            store,
            state: state.to_owned(),
            machine: machine::name,
            codex,
        }
    }

    /// Starts a worker, unless there is one.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    pub async fn ensure(&self) -> Result<(), StartError> {
        let started = self.start().await;
        let failed = started.as_ref().err().map(ToString::to_string);
        *lock(&self.memory().failed) = failed.map(|why| (Instant::now(), why));
        started
    }

    /// Like [`Starter::ensure`], for callers that check each second. Each start adds to the worker's
    /// log, so one that has failed is not repeated for a while, not even for another client of this
    /// process.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    pub async fn ensure_unless_failed_recently(&self) -> Result<(), StartError> {
        let memory = self.memory();
        let _check = memory.check.lock().await;
        let failed = lock(&memory.failed).clone();
        match failed {
            Some((at, why)) if at.elapsed() < RETRY_AFTER => match self.has_worker() {
                Ok(true) => Ok(()),
                Ok(false) | Err(_) => Err(StartError::Recent(why)),
            },
            _ => self.ensure().await,
        }
    }

    fn memory(&self) -> Arc<StartMemory> {
        let key = (self.worker_lock().file().to_owned(), self.codex.clone());
        Arc::clone(lock(&STARTS).entry(key).or_default())
    }

    async fn start(&self) -> Result<(), StartError> {
        if self.has_worker()? {
            return Ok(());
        }
        let log = log_of(&self.state);
        let file = files::open_to_append(&log).map_err(|error| StartError::Log {
            path: log.clone(),
            error,
        })?;
        let stdout = spawn_detached(&self.program(), file).map_err(StartError::Spawn)?;
        let mut lines = BufReader::new(stdout).lines();
        match timeout(START_TIMEOUT, lines.next_line()).await {
            Err(_) => Err(StartError::Silent { log }),
            Ok(Ok(Some(line))) if line == READY || line == TAKEN => Ok(()),
            Ok(Ok(Some(why))) => Err(StartError::Refused(why)),
            Ok(Ok(None) | Err(_)) => Err(StartError::Ended { log }),
        }
    }

    fn worker_lock(&self) -> WorkerLock {
        WorkerLock::on(&(self.machine)(), &self.store, &self.state)
    }

    /// Whether there is a worker.
    fn has_worker(&self) -> Result<bool, StartError> {
        let lock = self.worker_lock();
        lock.is_taken().map_err(|error| StartError::WorkerLock {
            path: lock.file().to_owned(),
            error,
        })
    }

    /// The worker's command. The store is passed in a variable, as it may have a password, and
    /// every user can see command lines.
    fn program(&self) -> DetachedProgram {
        let mut env: Vec<(OsString, OsString)> =
            vec![("CODEX_MCP_STORE".into(), self.store.with_secrets())];
        if let Some(codex) = &self.codex {
            env.push(("CODEX_MCP_CODEX_BIN".into(), codex.into()));
        }
        DetachedProgram {
            args: vec!["worker".into(), "--on-demand".into()],
            env,
        }
    }
}

/// The log of the workers that are started on demand on this machine. They bound it themselves.
#[must_use]
pub fn log_of(state: &Path) -> PathBuf {
    state.join("worker.log")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    static IS_RENAMED: AtomicBool = AtomicBool::new(false);

    fn name() -> String {
        let name = match IS_RENAMED.load(Ordering::Relaxed) {
            true => "after",
            false => "before",
        };
        name.to_owned()
    }

    /// Otherwise each check would start a worker, which finds the lock of the new name taken.
    #[tokio::test]
    async fn lock_of_the_present_name_is_checked_after_the_machine_was_renamed() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        let store: Location = "postgres://me@db/jobs?sslmode=disable".parse().unwrap();
        let take = |machine| {
            let lock = WorkerLock::on(machine, &store, state);
            lock.try_take().unwrap().unwrap()
        };
        let starter = Starter {
            machine: name,
            ..Starter::new(store.clone(), state, None)
        };
        // While a directory is in the place of the log, no worker starts.
        std::fs::create_dir(log_of(state)).unwrap();
        let before = take("before");
        starter.ensure().await.unwrap();
        drop(before);
        IS_RENAMED.store(true, Ordering::Relaxed);
        let _after = take("after");
        starter.ensure().await.unwrap();
    }
}
