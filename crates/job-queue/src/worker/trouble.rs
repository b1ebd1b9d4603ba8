//! A store that can't be used for a while.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::store::StoreError;

/// The pause after the first try that has failed, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How often something is tried that the database itself fails at, where that may have
/// its cause in what is written.
const TRIES: u32 = 5;

/// What is known of the store's troubles. They are told when the first thing fails, and
/// when nothing does any more, however many things are tried meanwhile.
#[derive(Debug)]
pub(super) struct Trouble {
    failing: Cell<usize>,
    began: Cell<Instant>,
    well_since: Cell<Instant>,
}

impl Trouble {
    pub(super) fn new() -> Self {
        Self {
            failing: Cell::new(0),
            began: Cell::new(Instant::now()),
            well_since: Cell::new(Instant::now()),
        }
    }

    /// For how long nothing has failed. What has, and has not been tried again since, may
    /// be the renewal of a lease.
    pub(super) fn well_for(&self) -> Duration {
        match self.failing.get() {
            0 => self.well_since.get().elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// For how long the store has been unusable; zero if nothing fails.
    pub(super) fn failing_for(&self) -> Duration {
        match self.failing.get() {
            0 => Duration::ZERO,
            _ => self.began.get().elapsed(),
        }
    }

    /// Something was not as it should be until now, although nothing has failed.
    pub(super) fn was_away(&self) {
        self.well_since.set(Instant::now());
    }

    /// Asks the store until it answers.
    pub(super) async fn insist<T>(&self, mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> T {
        let mut trial = Trial::new(self);
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

    /// The same, but asks no more once `enough` is cancelled. An answer that is under
    /// way is waited for.
    pub(super) async fn insist_until<T>(
        &self,
        enough: &CancellationToken,
        mut ask: impl AsyncFnMut() -> Result<T, StoreError>,
    ) -> Option<T> {
        let mut trial = Trial::new(self);
        loop {
            match ask().await {
                Ok(answer) => {
                    trial.succeeded();
                    return Some(answer);
                }
                Err(error) => enough.run_until_cancelled(trial.failed(&error)).await?,
            }
        }
    }

    /// Asks the store until it answers, or can't do anything with what it is given.
    ///
    /// # Errors
    ///
    /// What asking again doesn't help against.
    pub(super) async fn attempt<T>(
        &self,
        mut ask: impl AsyncFnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut trial = Trial::new(self);
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

/// Something that is tried.
struct Trial<'a> {
    trouble: &'a Trouble,
    failures: u32,
    pause: Duration,
}

impl<'a> Trial<'a> {
    fn new(trouble: &'a Trouble) -> Self {
        Self {
            trouble,
            failures: 0,
            pause: FIRST_PAUSE,
        }
    }

    /// Whether it fails for what is asked.
    fn is_hopeless(&self, error: &StoreError) -> bool {
        match error {
            StoreError::TooLong { .. } => true,
            StoreError::Database { .. } => self.failures + 1 >= TRIES,
            _ => false,
        }
    }

    /// Tells it if it is the first thing, and waits before the next try.
    async fn failed(&mut self, error: &StoreError) {
        self.trouble.well_since.set(Instant::now());
        self.failures = self.failures.saturating_add(1);
        if self.failures == 1 {
            self.trouble.begins(error);
        }
        sleep(self.pause).await;
        self.pause = LONGEST_PAUSE.min(self.pause * 2);
    }

    fn succeeded(&self) {
        if self.failures > 0 && self.trouble.failing.get() == 1 {
            let seconds = self.trouble.began.get().elapsed().as_secs_f64();
            tracing::info!("the worker can use the job store again, after {seconds:.1} s");
        }
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if self.failures > 0 {
            let left = self.trouble.failing.get().saturating_sub(1);
            self.trouble.failing.set(left);
        }
    }
}

impl Trouble {
    fn begins(&self, error: &StoreError) {
        match self.failing.replace(self.failing.get() + 1) {
            0 => {
                self.began.set(Instant::now());
                tracing::error!("{error}. The worker goes on trying");
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

    /// Gives these one after the other.
    fn answers(
        answers: impl IntoIterator<Item = Result<u32, StoreError>>,
    ) -> impl AsyncFnMut() -> Result<u32, StoreError> {
        let mut answers = answers.into_iter();
        async move || answers.next().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_for_a_while_succeeds_in_the_end() {
        let trouble = Trouble::new();
        let failures = (0..9).map(|_| Err(away())).chain([Err(broken()), Ok(7)]);
        assert_eq!(trouble.insist(answers(failures)).await, 7);
        assert_eq!(trouble.failing.get(), 0);
        assert!(trouble.well_for() <= LONGEST_PAUSE);
        assert_eq!(
            trouble
                .attempt(answers([Err(away()), Ok(8)]))
                .await
                .unwrap(),
            8
        );
    }

    #[tokio::test(start_paused = true)]
    async fn all_is_well_when_all_that_failed_has_been_tried_again() {
        let trouble = Trouble::new();
        let slow = async {
            let failures = (0..9).map(|_| Err(away())).chain([Ok(7)]);
            trouble.insist(answers(failures)).await
        };
        let quick = async {
            while trouble.failing.get() == 0 {
                tokio::task::yield_now().await;
            }
            trouble.insist(answers([Ok(8)])).await;
            sleep(FIRST_PAUSE / 2).await;
            assert_eq!(trouble.well_for(), Duration::ZERO);
            assert!(trouble.failing_for() >= FIRST_PAUSE / 2);
        };
        tokio::join!(slow, quick);
        sleep(FIRST_PAUSE).await;
        assert!(trouble.well_for() >= FIRST_PAUSE);
        assert_eq!(trouble.failing_for(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn what_can_not_be_written_is_given_up() {
        let trouble = Trouble::new();
        let always = (0..100).map(|_| Err(broken()));
        trouble.attempt(answers(always)).await.unwrap_err();
        assert_eq!(trouble.failing.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_ends_asks_no_more() {
        let trouble = Trouble::new();
        let enough = CancellationToken::new();
        enough.cancel();
        let asked = trouble.insist_until(&enough, answers([Err(away())]));
        assert_eq!(asked.await, None);
        assert_eq!(trouble.failing.get(), 0);
    }
}
