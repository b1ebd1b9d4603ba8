//! Polls the job store until jobs have ended.

use std::time::Duration;

use job_queue::service::Jobs;
use job_queue::store::{JobStore, StoreError, Watch};
use tokio::time::{Instant, sleep};

use super::failure::Failure;
use crate::cli::progress::ProgressLine;

/// The pause between two reads: people don't read faster.
const POLL_PAUSE: Duration = Duration::from_millis(100);

/// How often the presence of a worker is checked.
const WORKER_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How long an unreachable store is retried.
const STORE_TIMEOUT: Duration = Duration::from_secs(60);

/// Watches the store for changes of jobs.
pub(super) struct JobWatcher<'a> {
    jobs: &'a Jobs,
    store: &'a JobStore,
    watch: Watch,
    look_after: Instant,
    /// The last printed reason why there is no worker.
    last_warning: Option<String>,
    /// Since when the store cannot be reached.
    unreachable_since: Option<Instant>,
}

impl<'a> JobWatcher<'a> {
    /// # Errors
    ///
    /// [`Failure`], if the store cannot be opened.
    pub(super) async fn begin(jobs: &'a Jobs) -> Result<Self, Failure> {
        let store = jobs.store().await?;
        Ok(Self {
            jobs,
            store,
            watch: store.watch(),
            look_after: Instant::now(),
            last_warning: None,
            unreachable_since: None,
        })
    }

    /// The store that is watched.
    pub(super) fn store(&self) -> &'a JobStore {
        self.store
    }

    /// Waits until something may have changed.
    pub(super) async fn changed(&mut self) {
        sleep(POLL_PAUSE).await;
        self.watch.changed().await;
    }

    /// Starts a worker from time to time if there is none; prints a warning if that fails.
    pub(super) async fn look_after(&mut self, progress: &mut ProgressLine) {
        if Instant::now() < self.look_after {
            return;
        }
        let no_worker = self.jobs.ensure_worker().await;
        self.look_after = Instant::now() + WORKER_CHECK_INTERVAL;
        let why = no_worker.map(|error| error.to_string());
        if let Some(why) = &why
            && self.last_warning.as_ref() != Some(why)
        {
            progress.say(&format!("warning: {}", no_worker_warning(why)));
        }
        self.last_warning = why;
    }

    /// The answer of the store; `None` while the store cannot be reached.
    ///
    /// # Errors
    ///
    /// When the store has been unreachable for too long, or a retry is of no use.
    pub(super) fn answer<T>(
        &mut self,
        answer: Result<T, StoreError>,
        progress: &mut ProgressLine,
    ) -> Result<Option<T>, Failure> {
        let error = match answer {
            Ok(answer) => {
                self.unreachable_since = None;
                return Ok(Some(answer));
            }
            Err(error) => error,
        };
        let now = Instant::now();
        match (error.is_retryable(), self.unreachable_since) {
            (true, None) => {
                self.unreachable_since = Some(now);
                let time_limit = STORE_TIMEOUT.as_secs();
                progress.say(&format!(
                    "warning: {error}; asking again for {time_limit} s"
                ));
                Ok(None)
            }
            (true, Some(since)) if now < since + STORE_TIMEOUT => Ok(None),
            _ => Err(error.into()),
        }
    }
}

/// The warning that a job waits for a worker, with the remedy.
pub(super) fn no_worker_warning(why: &str) -> String {
    format!("no worker could be started, so the job waits: {why}; `codex-mcp worker` runs one")
}
