//! The time that counts for a run's limits: all but that in which a person was asked.

use std::cell::Cell;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// The clock of a run. It stands still while a person is asked.
#[derive(Debug)]
pub(super) struct RunClock {
    began: Instant,
    /// For how long it has stood still, all pauses together but for the running one.
    paused_for: Cell<Duration>,
    paused_since: Cell<Option<Instant>>,
    resumed: Notify,
}

impl RunClock {
    pub(super) fn start() -> Self {
        Self {
            began: Instant::now(),
            paused_for: Cell::default(),
            paused_since: Cell::default(),
            resumed: Notify::new(),
        }
    }

    /// How much time has counted since the start.
    pub(super) fn elapsed(&self) -> Duration {
        let until = self.paused_since.get().unwrap_or_else(Instant::now);
        until
            .saturating_duration_since(self.began)
            .saturating_sub(self.paused_for.get())
    }

    /// Stops the clock, if it runs.
    pub(super) fn pause(&self) {
        if self.paused_since.get().is_none() {
            self.paused_since.set(Some(Instant::now()));
        }
    }

    /// Has the clock go on, if it stands still.
    pub(super) fn resume(&self) {
        if let Some(since) = self.paused_since.take() {
            let paused_for = self.paused_for.get().saturating_add(since.elapsed());
            self.paused_for.set(paused_for);
            self.resumed.notify_waiters();
        }
    }

    /// Waits until `moment`, counted from the start.
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
