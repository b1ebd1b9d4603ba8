//! Retries calls of the store, and knows for how long it has been unusable.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::store::StoreError;

/// The pause after the first failed attempt, and the longest pause.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How often a call is tried whose data the database refuses, or that reads a malformed row.
const TRIES: u32 = 5;

/// The health of the store. Trouble is logged once when the first call fails, and once when no
/// call fails any more, however many calls are retried in between.
#[derive(Debug)]
pub(super) struct StoreHealth {
    failing: Cell<usize>,
    failing_since: Cell<Instant>,
    healthy_since: Cell<Instant>,
}

impl StoreHealth {
    pub(super) fn new() -> Self {
        Self {
            failing: Cell::new(0),
            failing_since: Cell::new(Instant::now()),
            healthy_since: Cell::new(Instant::now()),
        }
    }

    /// How long no call has failed; zero while a failed call waits for its retry, which may be
    /// the renewal of a lease.
    pub(super) fn healthy_for(&self) -> Duration {
        match self.failing.get() {
            0 => self.healthy_since.get().elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// How long the store has been unusable; zero if no call fails.
    pub(super) fn failing_for(&self) -> Duration {
        match self.failing.get() {
            0 => Duration::ZERO,
            _ => self.failing_since.get().elapsed(),
        }
    }

    /// Records an outage that has ended now, in which no call has failed: this machine or the store
    /// was asleep, or the store's clock was set forward.
    pub(super) fn record_outage(&self) {
        self.healthy_since.set(Instant::now());
    }

    /// Retries a call until it succeeds. The call must not fail because of a malformed row, or it
    /// would be retried forever.
    pub(super) async fn retry_forever<T>(
        &self,
        mut ask: impl AsyncFnMut() -> Result<T, StoreError>,
    ) -> T {
        let mut trial = RetryLoop::new(self);
        loop {
            match ask().await {
                Ok(answer) => {
                    trial.succeeded();
                    return answer;
                }
                Err(error) => trial.failed(&error).await,
            }
        }
    }

    /// Retries a call until it succeeds or `cancel` is cancelled. Waits for a call that is under
    /// way.
    pub(super) async fn retry_until_cancelled<T>(
        &self,
        cancel: &CancellationToken,
        mut ask: impl AsyncFnMut() -> Result<T, StoreError>,
    ) -> Option<T> {
        let mut trial = RetryLoop::new(self);
        loop {
            match ask().await {
                Ok(answer) => {
                    trial.succeeded();
                    return Some(answer);
                }
                Err(error) => cancel.run_until_cancelled(trial.failed(&error)).await?,
            }
        }
    }

    /// Retries a call until it succeeds, or a retry is hopeless.
    ///
    /// # Errors
    ///
    /// The error against which no retry helps.
    pub(super) async fn retry<T>(
        &self,
        mut ask: impl AsyncFnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut trial = RetryLoop::new(self);
        loop {
            match ask().await {
                Ok(answer) => {
                    trial.succeeded();
                    return Ok(answer);
                }
                Err(error) if trial.is_hopeless(&error) => return Err(error),
                Err(error) => trial.failed(&error).await,
            }
        }
    }
}

/// The retries of one call.
struct RetryLoop<'a> {
    store_health: &'a StoreHealth,
    failures: u32,
    pause: Duration,
}

impl<'a> RetryLoop<'a> {
    fn new(store_health: &'a StoreHealth) -> Self {
        Self {
            store_health,
            failures: 0,
            pause: FIRST_PAUSE,
        }
    }

    /// Whether the call fails because of its own data or a malformed row. All other failures may
    /// pass.
    fn is_hopeless(&self, error: &StoreError) -> bool {
        match error {
            StoreError::TooLong { .. } => true,
            StoreError::Rejected { .. } | StoreError::Unreadable { .. } => {
                self.failures + 1 >= TRIES
            }
            _ => false,
        }
    }

    /// Logs the first failure, and waits before the next attempt.
    async fn failed(&mut self, error: &StoreError) {
        self.store_health.healthy_since.set(Instant::now());
        self.failures = self.failures.saturating_add(1);
        if self.failures == 1 {
            self.store_health.record_failure(error);
        }
        sleep(self.pause).await;
        self.pause = LONGEST_PAUSE.min(self.pause * 2);
    }

    fn succeeded(&self) {
        if self.failures > 0 && self.store_health.failing.get() == 1 {
            let seconds = self
                .store_health
                .failing_since
                .get()
                .elapsed()
                .as_secs_f64();
            tracing::info!("the worker can use the job store again, after {seconds:.1} s");
        }
    }
}

impl Drop for RetryLoop<'_> {
    fn drop(&mut self) {
        if self.failures > 0 {
            let left = self.store_health.failing.get().saturating_sub(1);
            self.store_health.failing.set(left);
        }
    }
}

impl StoreHealth {
    fn record_failure(&self, error: &StoreError) {
        match self.failing.replace(self.failing.get() + 1) {
            0 => {
                self.failing_since.set(Instant::now());
                tracing::error!("{error}. The worker keeps retrying");
            }
            _ => tracing::debug!("{error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away() -> StoreError {
        StoreError::Unreachable {
            store: "a".to_owned(),
            error: "b".to_owned(),
        }
    }

    fn broken() -> StoreError {
        StoreError::Database {
            store: "a".to_owned(),
            error: "b".to_owned(),
        }
    }

    /// A call that returns these results one after the other.
    fn answers(
        answers: impl IntoIterator<Item = Result<u32, StoreError>>,
    ) -> impl AsyncFnMut() -> Result<u32, StoreError> {
        let mut answers = answers.into_iter();
        async move || answers.next().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn retry_succeeds_after_failures() {
        let store_health = StoreHealth::new();
        let failures = (0..9).map(|_| Err(away())).chain([Err(broken()), Ok(7)]);
        assert_eq!(store_health.retry_forever(answers(failures)).await, 7);
        assert_eq!(store_health.failing.get(), 0);
        assert!(store_health.healthy_for() <= LONGEST_PAUSE);
        assert_eq!(
            store_health
                .retry(answers([Err(away()), Ok(8)]))
                .await
                .unwrap(),
            8
        );
    }

    #[tokio::test(start_paused = true)]
    async fn store_is_healthy_once_every_failure_was_retried() {
        let store_health = StoreHealth::new();
        let slow = async {
            let failures = (0..9).map(|_| Err(away())).chain([Ok(7)]);
            store_health.retry_forever(answers(failures)).await
        };
        let quick = async {
            while store_health.failing.get() == 0 {
                tokio::task::yield_now().await;
            }
            store_health.retry_forever(answers([Ok(8)])).await;
            sleep(FIRST_PAUSE / 2).await;
            assert_eq!(store_health.healthy_for(), Duration::ZERO);
            assert!(store_health.failing_for() >= FIRST_PAUSE / 2);
        };
        tokio::join!(slow, quick);
        sleep(FIRST_PAUSE).await;
        assert!(store_health.healthy_for() >= FIRST_PAUSE);
        assert_eq!(store_health.failing_for(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn write_of_refused_data_is_given_up() {
        let store_health = StoreHealth::new();
        let refused = || StoreError::Rejected {
            store: "a".to_owned(),
            error: "b".to_owned(),
        };
        let always = (0..100).map(|_| Err(refused()));
        store_health.retry(answers(always)).await.unwrap_err();
        assert_eq!(store_health.failing.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn read_of_a_malformed_row_is_given_up() {
        let store_health = StoreHealth::new();
        let malformed = || StoreError::Unreadable {
            store: "a".to_owned(),
            error: "b".to_owned(),
        };
        let always = (0..100).map(|_| Err(malformed()));
        store_health.retry(answers(always)).await.unwrap_err();
        assert_eq!(store_health.failing.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn write_to_a_failing_database_is_not_given_up() {
        let store_health = StoreHealth::new();
        let failures = (0..100).map(|_| Err(broken())).chain([Ok(7)]);
        assert_eq!(store_health.retry(answers(failures)).await.unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_retry_stops() {
        let store_health = StoreHealth::new();
        let cancel = CancellationToken::new();
        cancel.cancel();
        let asked = store_health.retry_until_cancelled(&cancel, answers([Err(away())]));
        assert_eq!(asked.await, None);
        assert_eq!(store_health.failing.get(), 0);
    }
}
