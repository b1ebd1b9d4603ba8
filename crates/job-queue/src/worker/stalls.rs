//! Alerts of stalled jobs, which report no event for too long.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::time::Duration;

use codex_engine::logic::progress::Activity;
use codex_engine::logic::session::Alert;
use codex_engine::logic::work::activity;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::call::CallUpdate;

/// Watches one job for silence.
pub(super) struct StallWatch<'a> {
    limit: Duration,
    alert: &'a dyn Fn(&Alert),
    activity: RefCell<Activity<Instant>>,
    heard: Cell<Instant>,
    /// Whether Codex waits for an answer.
    is_waiting: Cell<bool>,
    news: Notify,
}

impl<'a> StallWatch<'a> {
    /// Calls `alert` once for each silence of `limit`.
    pub(super) fn new(limit: Duration, alert: &'a dyn Fn(&Alert)) -> Self {
        let now = Instant::now();
        Self {
            limit,
            alert,
            activity: RefCell::new(Activity::new(now)),
            heard: Cell::new(now),
            is_waiting: Cell::new(false),
            news: Notify::new(),
        }
    }

    /// Handles an update of the call.
    pub(super) fn handle_update(&self, news: &CallUpdate<'_>) {
        let now = Instant::now();
        self.heard.set(now);
        match news {
            CallUpdate::Event(event, _) => {
                activity::take(&mut self.activity.borrow_mut(), event, now);
            }
            CallUpdate::Questions(open) => self.is_waiting.set(!open.is_empty()),
            CallUpdate::Session(_)
            | CallUpdate::Lost(_)
            | CallUpdate::Followed(_)
            | CallUpdate::Record(_) => {}
        }
        self.news.notify_one();
    }

    /// Watches for as long as it is polled.
    pub(super) async fn watch(&self) -> Infallible {
        loop {
            let heard = self.heard.get();
            sleep_until(heard + self.limit).await;
            if self.heard.get() != heard {
                continue;
            }
            if self.is_waiting.get() {
                self.news.notified().await;
                continue;
            }
            (self.alert)(&Alert::Stalled {
                silent: heard.elapsed(),
                doing: self.activity.borrow().words().to_owned(),
            });
            while self.heard.get() == heard {
                self.news.notified().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use codex_engine::logic::work::event::WorkEvent;
    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_is_reported_once_until_codex_is_heard_again() {
        let alerts = RefCell::new(Vec::new());
        let alert = |alert: &Alert| alerts.borrow_mut().push(alert.clone());
        let watch = StallWatch::new(Duration::from_secs(10), &alert);
        let talk = async {
            for _ in 0..5 {
                sleep(Duration::from_secs(9)).await;
                watch.handle_update(&CallUpdate::Event(&WorkEvent::TurnStarted, ""));
            }
            assert_eq!(alerts.borrow().len(), 0);
            sleep(Duration::from_secs(100)).await;
            assert_eq!(alerts.borrow().len(), 1);
            watch.handle_update(&CallUpdate::Event(&WorkEvent::TurnStarted, ""));
            sleep(Duration::from_secs(100)).await;
        };
        tokio::select! {
            never = watch.watch() => match never {},
            done = timeout(Duration::from_secs(1000), talk) => done.unwrap(),
        }
        let stalled = Alert::Stalled {
            silent: Duration::from_secs(10),
            doing: "thinking".to_owned(),
        };
        assert_eq!(*alerts.borrow(), [stalled.clone(), stalled]);
    }
}
