//! The clock for a run's limits, which is paused while a person is asked.

use std::cell::Cell;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// The clock of a run, paused while a person is asked.
#[derive(Debug)]
pub(super) struct RunClock {
    began: Instant,
    /// The length of all pauses but the current one.
    paused_for: Cell<Duration>,
    paused_since: Cell<Option<Instant>>,
    resumed: Notify,
}

impl RunClock {
    pub(super) fn start() -> Self {
        Self::at(Duration::ZERO)
    }

    /// The clock of a run that has taken this long already.
    pub(super) fn at(elapsed: Duration) -> Self {
        let now = Instant::now();
        Self {
            began: now.checked_sub(elapsed).unwrap_or(now),
            paused_for: Cell::default(),
            paused_since: Cell::default(),
            resumed: Notify::new(),
        }
    }

    /// The time since the start, without pauses.
    pub(super) fn elapsed(&self) -> Duration {
        let until = self.paused_since.get().unwrap_or_else(Instant::now);
        until
            .saturating_duration_since(self.began)
            .saturating_sub(self.paused_for.get())
    }

    /// Pauses the clock, if it runs.
    pub(super) fn pause(&self) {
        if self.paused_since.get().is_none() {
            self.paused_since.set(Some(Instant::now()));
        }
    }

    /// Resumes the clock, if it is paused.
    pub(super) fn resume(&self) {
        if let Some(since) = self.paused_since.take() {
            let paused_for = self.paused_for.get().saturating_add(since.elapsed());
            self.paused_for.set(paused_for);
            self.resumed.notify_waiters();
        }
    }

    /// Waits until `moment`, a duration since the start.
    pub(super) async fn reaches(&self, moment: Duration) {
        loop {
            let resumed = self.resumed.notified();
            match self.paused_since.get() {
                Some(_) => resumed.await,
                None => match moment.saturating_sub(self.elapsed()) {
                    Duration::ZERO => return,
                    left => sleep(left).await,
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn paused_time_does_not_count() {
        let clock = RunClock::start();
        sleep(SECOND).await;
        clock.pause();
        clock.pause();
        sleep(SECOND * 60).await;
        assert_eq!(clock.elapsed(), SECOND);
        clock.resume();
        clock.resume();
        sleep(SECOND).await;
        assert_eq!(clock.elapsed(), SECOND * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn deadlines_move_by_the_pause() {
        let clock = RunClock::start();
        let began = Instant::now();
        let asks = async {
            sleep(SECOND).await;
            clock.pause();
            sleep(SECOND * 60).await;
            clock.resume();
        };
        tokio::join!(clock.reaches(SECOND * 5), asks);
        assert_eq!(began.elapsed(), SECOND * 65);
    }
}
