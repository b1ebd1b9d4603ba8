//! Looking at jobs until they have ended.

use std::time::Duration;

use job_queue::service::Jobs;
use job_queue::store::{JobStore, StoreError, Watch};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

use super::failure::Failure;
use crate::cli::teller::Teller;

/// The pause between two looks: people don't read faster.
const BREATH: Duration = Duration::from_millis(100);

/// How often it is looked whether there is a worker.
const LOOK_AFTER: Duration = Duration::from_secs(5);

/// For how long a store that can't be reached is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Looks again and again.
pub(super) struct Watching<'a> {
    jobs: &'a Jobs,
    store: &'a JobStore,
    watch: Watch,
    look_after: Instant,
    /// Why there is no worker, as it was told last.
    told: Option<String>,
    /// Since when the store can't be reached.
    away: Option<Instant>,
}

impl<'a> Watching<'a> {
    /// # Errors
    ///
    /// [`Failure`], if the store can't be opened.
    pub(super) async fn begin(jobs: &'a Jobs) -> Result<Self, Failure> {
        let store = jobs.store().await?;
        Ok(Self {
            jobs,
            store,
            watch: store.watch(),
            look_after: Instant::now(),
            told: None,
            away: None,
        })
    }

    /// What is looked into.
    pub(super) fn store(&self) -> &'a JobStore {
        self.store
    }

    /// Waits until something may have changed.
    pub(super) async fn changed(&mut self) {
        sleep(BREATH).await;
        self.watch.changed().await;
    }

    /// Sees to it, now and then, that somebody works on the jobs; tells if nobody does.
    pub(super) async fn look_after(&mut self, teller: &mut Teller) {
        if Instant::now() < self.look_after {
            return;
        }
        let no_worker = self.jobs.look_after().await;
        self.look_after = Instant::now() + LOOK_AFTER;
        let why = no_worker.map(|error| error.to_string());
        if let Some(why) = &why
            && self.told.as_ref() != Some(why)
        {
            teller.say(&format!("warning: {}", nobody_works(why)));
        }
        self.told = why;
    }

    /// What the store has answered; nothing while it can't be reached.
    ///
    /// # Errors
    ///
    /// When it has been away for too long, or it is of no use to ask again.
    pub(super) fn answer<T>(
        &mut self,
        answer: Result<T, StoreError>,
        teller: &mut Teller,
    ) -> Result<Option<T>, Failure> {
        let error = match answer {
            Ok(answer) => {
                self.away = None;
                return Ok(Some(answer));
            }
            Err(error) => error,
        };
        let now = Instant::now();
        match (error.is_retryable(), self.away) {
            (true, None) => {
                self.away = Some(now);
                let patience = PATIENCE.as_secs();
                teller.say(&format!("warning: {error}; asking again for {patience} s"));
                Ok(None)
            }
            (true, Some(since)) if now < since + PATIENCE => Ok(None),
            _ => Err(error.into()),
        }
    }
}

/// That a job waits for a worker, and what to do.
pub(super) fn nobody_works(why: &str) -> String {
    format!("no worker could be started, so the job waits: {why}; `codex-mcp worker` runs one")
}

/// Does something until it is done, or Ctrl-C is pressed: then there is nothing.
///
/// # Errors
///
/// Those of what is done.
pub(super) async fn unless_interrupted<T>(
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<Option<T>, Failure> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::Runtime)?;
    tokio::select! {
        done = work => done.map(Some),
        _ = interrupt.recv() => Ok(None),
    }
}
