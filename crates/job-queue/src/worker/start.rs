//! A worker, started when there is work for it.
//!
//! Whoever submits a job looks afterwards whether a worker has its place, and starts
//! one if none has. A worker that leaves gives the place up first, and then looks for
//! jobs once more: so one of the two sees the other.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::output;
use settings::store_location::Location;
use supervise::spawn::{Detached, spawn_detached};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::timeout;

use super::lock::WorkerLock;
use crate::files;

/// How long a worker may take to say that it is there: PostgreSQL may be far away.
const PATIENCE: Duration = Duration::from_secs(20);

/// From which size on the log of workers is begun anew, in bytes. One older log is
/// kept.
const LOG_LIMIT: u64 = 1 << 20;

/// What a worker that was started on demand says on its stdout, one line in all:
/// this, or else why it can't work.
pub const READY: &str = "ready";

/// The same when another worker has the place.
pub const TAKEN: &str = "taken";

/// Tells whoever has started this worker on demand how it stands; said once. That nobody
/// listens any more is no error.
///
/// # Errors
///
/// When stdout can't be written to.
pub fn announce(word: &str) -> io::Result<()> {
    let mut stdout = output::stdout();
    let line = word.lines().next().unwrap_or_default();
    let told = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    match told {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        told => told,
    }
}

/// Why no worker could be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Nobody can tell whether there is one.
    #[error("{}: {error}", path.display())]
    WorkerLock {
        /// The file that a worker has locked.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Its log can't be written.
    #[error("{}: {error}", path.display())]
    Log {
        /// The log.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The system refuses to start it.
    #[error("a worker can't be started: {0}")]
    Spawn(io::Error),
    /// It says why it can't work.
    #[error("the worker can't work: {0}")]
    Refused(String),
    /// It ended without a word.
    #[error("the worker ended at once; {} may tell why", log.display())]
    Ended {
        /// Its log.
        log: PathBuf,
    },
    /// It takes too long.
    #[error(
        "the worker has not begun within {} s; {} may tell why", PATIENCE.as_secs(), log.display()
    )]
    Silent {
        /// Its log.
        log: PathBuf,
    },
}

/// What starts the worker of a store on this machine.
#[derive(Debug, Clone)]
pub struct Starter {
    store: Location,
    place: WorkerLock,
    log: PathBuf,
    codex: Option<PathBuf>,
}

impl Starter {
    /// For this store, with `state` the directory of what is kept of this machine, and
    /// the Codex that was chosen for jobs that name none.
    #[must_use]
    pub fn new(store: Location, state: &Path, codex: Option<PathBuf>) -> Self {
        Self {
            place: WorkerLock::of(&store, state),
            store,
            log: state.join("worker.log"),
            codex,
        }
    }

    /// Sees to it that there is a worker.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    pub async fn ensure(&self) -> Result<(), StartError> {
        let is_taken = self.place.is_taken();
        let is_taken = is_taken.map_err(|error| StartError::WorkerLock {
            path: self.place.file().to_owned(),
            error,
        })?;
        if is_taken {
            return Ok(());
        }
        let log = open_log(&self.log).map_err(|error| StartError::Log {
            path: self.log.clone(),
            error,
        })?;
        let stdout = spawn_detached(&self.program(), log).map_err(StartError::Spawn)?;
        let mut lines = BufReader::new(stdout).lines();
        let log = self.log.clone();
        match timeout(PATIENCE, lines.next_line()).await {
            Err(_) => Err(StartError::Silent { log }),
            Ok(Ok(Some(line))) if line == READY || line == TAKEN => Ok(()),
            Ok(Ok(Some(why))) => Err(StartError::Refused(why)),
            Ok(Ok(None) | Err(_)) => Err(StartError::Ended { log }),
        }
    }

    /// The store is told by a variable: it may hold a password, and everybody sees a
    /// command line.
    fn program(&self) -> Detached {
        let mut env: Vec<(OsString, OsString)> =
            vec![("CODEX_MCP_STORE".into(), self.store.with_secrets())];
        if let Some(codex) = &self.codex {
            env.push(("CODEX_MCP_CODEX_BIN".into(), codex.into()));
        }
        Detached {
            args: vec!["worker".into(), "--on-demand".into()],
            env,
        }
    }
}

fn open_log(path: &Path) -> io::Result<File> {
    if fs::symlink_metadata(path).is_ok_and(|about| about.len() > LOG_LIMIT) {
        fs::rename(path, path.with_extension("log.1"))?;
    }
    files::open_to_append(path)
}
