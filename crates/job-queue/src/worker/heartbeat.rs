//! Heartbeat, lost-worker recovery, and polling for cancellations and instructions.

use std::collections::HashMap;
use std::future::pending;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::Worker;
use super::cancel_handle::CancelReason;
use super::claiming::jobs;
use super::engines::Login;
use crate::logic::JobId;
use crate::store::{StoreError, Written};

/// How many leases long a worker may be silent before it is forgotten.
const FORGOTTEN_AFTER: u32 = 4;

/// The least pause between two looks for cancellations and instructions: events change the
/// store all the time.
const PAUSE: Duration = Duration::from_millis(100);

impl Worker {
    /// Does all of it beside the jobs. Never returns.
    pub(super) async fn run_heartbeat(&self) {
        tokio::join!(
            self.show_that_it_is_there(),
            self.heed_others(),
            self.watch_logins()
        );
    }

    /// Waits until the store has been unusable for the idle time, while no job was worked
    /// on. A worker that has no idle time waits without end.
    pub(super) async fn until_the_store_is_given_up(&self) {
        let Some(limit) = self.options.idle else {
            return pending().await;
        };
        loop {
            let failing_for = self.trouble.failing_for();
            let wasted = failing_for.min(self.work.idle_for());
            match limit.saturating_sub(wasted) {
                Duration::ZERO if !failing_for.is_zero() => break,
                left => sleep(left.max(PAUSE)).await,
            }
        }
        let location = self.store.location();
        let limit = humantime::format_duration(limit);
        let unwritten = match self.cancel_handles.borrow().len() {
            0 => String::new(),
            number => format!(
                "; {} that it could not write down will be found to be lost",
                jobs(number)
            ),
        };
        tracing::error!(
            "cannot use the job store {location} for {limit}, and no job is worked on: the worker \
             leaves{unwritten}. Submitting a job starts another"
        );
    }

    async fn show_that_it_is_there(&self) {
        let mut beats = interval(self.options.timing.heartbeat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut clocks = Clocks::now();
        loop {
            beats.tick().await;
            if clocks.have_parted() {
                self.trouble.was_away();
            }
            self.trouble.insist(async || self.beat().await).await;
        }
    }

    async fn beat(&self) -> Result<(), StoreError> {
        if self.store.heartbeat(self.id()).await? == Written::Lost {
            self.store.register(&self.about).await?;
        }
        // When the store or this machine has been away, the leases that have ended
        // meanwhile are renewed first.
        if self.trouble.well_for() < self.options.timing.heartbeat {
            return Ok(());
        }
        loop {
            let reaped = self.store.reap().await?;
            for lost in &reaped {
                let (job, state) = (&lost.job, lost.state);
                tracing::warn!("job {job} has lost its worker and is {state}");
            }
            if reaped.is_empty() {
                break;
            }
        }
        let silent_for = self.options.timing.lease * FORGOTTEN_AFTER;
        self.store.forget_workers(silent_for).await?;
        Ok(())
    }

    async fn watch_logins(&self) {
        loop {
            sleep(self.options.timing.heartbeat).await;
            let look = async || self.look_at_new_logins().await;
            self.trouble.insist(look).await;
        }
    }

    /// Has the jobs looked at that wait for a usage limit of a login that was replaced.
    async fn look_at_new_logins(&self) -> Result<(), StoreError> {
        let logins = self.logins.borrow().clone();
        if logins.is_empty() {
            return Ok(());
        }
        let waiting = self.store.waiting().await?;
        let (logins, others): (HashMap<_, _>, HashMap<_, _>) = logins
            .into_iter()
            .partition(|(job, _)| waiting.contains(job));
        self.forget_logins(others.keys());
        let changed = match Login::changed(&logins).await {
            Ok(changed) => changed,
            // Once is enough: the jobs are looked at each hour all the same.
            Err(error) => {
                tracing::warn!("the logins of jobs that wait are not watched: {error}");
                self.forget_logins(logins.keys());
                return Ok(());
            }
        };
        for job in &changed {
            self.store.look_now(job).await?;
        }
        self.forget_logins(&changed);
        Ok(())
    }

    fn forget_logins<'a>(&self, jobs: impl IntoIterator<Item = &'a JobId>) {
        let mut logins = self.logins.borrow_mut();
        for job in jobs {
            logins.remove(job);
        }
    }

    async fn heed_others(&self) {
        let mut watch = self.store.watch();
        loop {
            watch.changed().await;
            if self.cancel_handles.borrow().is_empty() {
                continue;
            }
            match self.store.unwanted(self.id()).await {
                Ok(jobs) => {
                    let cancel_handles = self.cancel_handles.borrow();
                    let unwanted = jobs.iter().filter_map(|job| cancel_handles.get(job));
                    unwanted.for_each(|cancel| cancel.cancel(CancelReason::Unwanted));
                }
                // Whoever writes tells of it.
                Err(error) => tracing::debug!("looking for cancellations: {error}"),
            }
            match self.store.instructed(self.id()).await {
                Ok(jobs) => {
                    let cancel_handles = self.cancel_handles.borrow();
                    let instructed = jobs.iter().filter_map(|job| cancel_handles.get(job));
                    instructed.for_each(|cancel| cancel.instructed.notify_one());
                }
                Err(error) => tracing::debug!("looking for instructions: {error}"),
            }
            sleep(PAUSE).await;
        }
    }
}

/// Two clocks, of which one stands still while the machine sleeps.
#[derive(Debug, Clone, Copy)]
struct Clocks {
    awake: Instant,
    always: SystemTime,
}

/// How far they may part by being set.
const TOLERANCE: Duration = Duration::from_secs(2);

impl Clocks {
    fn now() -> Self {
        Self {
            awake: Instant::now(),
            always: SystemTime::now(),
        }
    }

    /// Whether the machine has slept since this was asked last.
    fn have_parted(&mut self) -> bool {
        let now = Self::now();
        let parted = now.part(self);
        *self = now;
        parted
    }

    fn part(&self, before: &Self) -> bool {
        let awake = self.awake.duration_since(before.awake);
        let always = self.always.duration_since(before.always);
        always.is_ok_and(|always| always > awake + TOLERANCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_is_noticed() {
        let before = Clocks::now();
        let after = |awake, always| {
            let clocks = Clocks {
                awake: before.awake + Duration::from_secs(awake),
                always: before.always + Duration::from_secs(always),
            };
            clocks.part(&before)
        };
        assert!(!after(10, 11));
        assert!(after(10, 3600));
        assert!(!after(10, 0));
    }
}
