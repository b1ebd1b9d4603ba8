//! Heartbeat, lost-worker recovery, and polling for cancellations and instructions.

use std::cell::Cell;
use std::collections::HashMap;
use std::future::pending;
use std::time::{Duration, SystemTime};

use common::text::counted;
use futures::future::join_all;
use goal_run::notify::Timeouts;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::cancel_handle::CancelReason;
use super::engines::Login;
use super::{SHUTDOWN_TIMEOUT, Worker, notifications};
use crate::logic::JobId;
use crate::store::{ReapedJob, StoreError};

/// After how many leases of silence a worker is forgotten.
const FORGOTTEN_AFTER: u32 = 4;

/// How often old jobs are looked for, unless they are kept for less than four times as long.
const OLD_JOBS_EVERY: Duration = Duration::from_secs(60 * 60);

/// How many ends of lost jobs are notified of at once.
const NOTICES: usize = 4;

/// The shortest pause between two polls for cancellations and instructions: events change the
/// store all the time.
const PAUSE: Duration = Duration::from_millis(100);

impl Worker {
    /// Runs all of it concurrently with the jobs. Never returns.
    pub(super) async fn run_heartbeat(&self) {
        tokio::join!(
            self.send_heartbeats(),
            self.poll_requests(),
            self.watch_logins(),
            self.remove_old_jobs()
        );
    }

    /// Waits until the store has been unusable for the idle time, while no job was worked
    /// on. A worker that has no idle time waits without end.
    pub(super) async fn until_store_is_given_up(&self) {
        let Some(limit) = self.options.idle else {
            return pending().await;
        };
        loop {
            let failing_for = self.store_health.failing_for();
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
                "; other workers recover {} whose outcome could not be stored",
                counted(number, "job")
            ),
        };
        tracing::error!(
            "cannot use the job store {location} for {limit}, and no job is worked on: the worker \
             exits{unwritten}. Submitting a job starts another"
        );
    }

    async fn send_heartbeats(&self) {
        let mut beats = interval(self.options.timing.heartbeat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut clocks = Clocks::now();
        let last_reading = Cell::new(None);
        loop {
            beats.tick().await;
            if clocks.detect_sleep() {
                self.store_health.record_outage();
            }
            self.store_health
                .retry_forever(async || self.beat(&last_reading).await)
                .await;
        }
    }

    /// `last_reading` is that of the store's clock in the last heartbeat.
    async fn beat(&self, last_reading: &Cell<Option<ClockReading>>) -> Result<(), StoreError> {
        let asked = Instant::now();
        match self.store.heartbeat(self.id()).await? {
            Some(store_time) => {
                let reading = ClockReading::answered_now(asked, store_time);
                let before = last_reading.replace(Some(reading));
                let is_late = reading.waited() > self.options.timing.heartbeat.max(TOLERANCE);
                if is_late || before.is_some_and(|before| reading.was_set_forward(&before)) {
                    self.store_health.record_outage();
                }
            }
            None => self.store.register(&self.about).await?,
        }
        // After an outage of the store or of this machine, other workers must first be able to
        // renew leases that have ended meanwhile.
        if self.store_health.healthy_for() < self.options.timing.heartbeat {
            return Ok(());
        }
        loop {
            let held: Vec<JobId> = self.cancel_handles.borrow().keys().cloned().collect();
            let reaped = self.store.reap(&held).await?;
            for lost in &reaped {
                let (job, state) = (&lost.job, lost.state);
                tracing::warn!("job {job} has lost its worker and is {state}");
            }
            if reaped.is_empty() {
                break;
            }
            self.notify_of_lost(reaped);
        }
        let silent_for = self.options.timing.lease * FORGOTTEN_AFTER;
        self.store.forget_workers(silent_for).await?;
        Ok(())
    }

    /// Notifies of the lost jobs that have ended, concurrently with the heartbeat.
    fn notify_of_lost(&self, reaped: Vec<ReapedJob>) {
        let ended = reaped.into_iter().filter_map(|lost| lost.ended);
        let ended: Vec<_> = ended.collect();
        if ended.is_empty() {
            return;
        }
        let options = self.options.clone();
        let mut notices = self.notices.borrow_mut();
        // Forget those that have ended.
        while notices.try_join_next().is_some() {}
        notices.spawn_local(async move {
            for some in ended.chunks(NOTICES) {
                let timeouts = Timeouts::default();
                let all = some
                    .iter()
                    .map(|job| notifications::of_lost(job, &options, timeouts));
                join_all(all).await;
            }
        });
    }

    /// Waits for the notifications of lost jobs when the worker ends.
    pub(super) async fn finish_notices(&self) {
        let mut notices = self.notices.take();
        let all = async { while notices.join_next().await.is_some() {} };
        if timeout(SHUTDOWN_TIMEOUT, all).await.is_err() {
            tracing::warn!("the worker ends before it has notified of all lost jobs");
        }
    }

    async fn remove_old_jobs(&self) {
        let pause = (self.options.keep_jobs / 4).min(OLD_JOBS_EVERY);
        loop {
            self.remove_old_jobs_once(pause).await;
            sleep(pause).await;
        }
    }

    /// Removes old jobs once. `pause` is the time until the next removal, for the log.
    async fn remove_old_jobs_once(&self, pause: Duration) {
        let kept = self.options.keep_jobs;
        match self.store.remove_old(kept).await {
            Ok(0) => {}
            Ok(number) => tracing::info!(
                "removed {} that had ended more than {} ago",
                counted(number, "job"),
                humantime::format_duration(kept)
            ),
            // This is no outage of the store, during which no lost job is recovered.
            Err(error) => tracing::warn!(
                "cannot remove old jobs: {error}. The worker tries again in {}",
                humantime::format_duration(pause)
            ),
        }
    }

    async fn watch_logins(&self) {
        loop {
            sleep(self.options.timing.heartbeat).await;
            let look = async || self.look_at_new_logins().await;
            self.store_health.retry_forever(look).await;
        }
    }

    /// Lets jobs that wait for a usage limit be checked again if their login was replaced.
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
            // Warn once and stop watching: the jobs are checked each hour anyway.
            Err(error) => {
                tracing::warn!("the logins of jobs that wait are not watched: {error}");
                self.forget_logins(logins.keys());
                return Ok(());
            }
        };
        for job in &changed {
            self.store.recheck_now(job).await?;
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

    async fn poll_requests(&self) {
        let mut watch = self.store.watch();
        loop {
            watch.changed().await;
            if self.cancel_handles.borrow().is_empty() {
                continue;
            }
            match self.store.jobs_to_cancel(self.id()).await {
                Ok(jobs) => {
                    let cancel_handles = self.cancel_handles.borrow();
                    let jobs_to_cancel = jobs.iter().filter_map(|job| cancel_handles.get(job));
                    jobs_to_cancel.for_each(|cancel| cancel.cancel(CancelReason::JobCancelled));
                }
                // Writing to the store reports the trouble.
                Err(error) => tracing::debug!("cannot check for cancellations: {error}"),
            }
            match self.store.jobs_with_instructions(self.id()).await {
                Ok(jobs) => {
                    let cancel_handles = self.cancel_handles.borrow();
                    let instructed = jobs.iter().filter_map(|job| cancel_handles.get(job));
                    instructed.for_each(|cancel| cancel.instructed.notify_one());
                }
                Err(error) => tracing::debug!("cannot check for instructions: {error}"),
            }
            sleep(PAUSE).await;
        }
    }
}

/// Two clocks, one of which stops while the machine sleeps.
#[derive(Debug, Clone, Copy)]
struct Clocks {
    awake: Instant,
    always: SystemTime,
}

/// How far two clocks may differ because one was set or is read late.
const TOLERANCE: Duration = Duration::from_secs(2);

impl Clocks {
    fn now() -> Self {
        Self {
            awake: Instant::now(),
            always: SystemTime::now(),
        }
    }

    /// Whether the machine has slept since the last call.
    fn detect_sleep(&mut self) -> bool {
        let now = Self::now();
        let slept = now.slept_since(self);
        *self = now;
        slept
    }

    fn slept_since(&self, before: &Self) -> bool {
        let awake = self.awake.duration_since(before.awake);
        let always = self.always.duration_since(before.always);
        always.is_ok_and(|always| always > awake + TOLERANCE)
    }
}

/// A reading of the store's clock, between two moments of this machine's.
#[derive(Debug, Clone, Copy)]
struct ClockReading {
    asked: Instant,
    store_time: SystemTime,
    answered: Instant,
}

impl ClockReading {
    fn answered_now(asked: Instant, store_time: SystemTime) -> Self {
        Self {
            asked,
            store_time,
            answered: Instant::now(),
        }
    }

    /// How long the store took to answer.
    fn waited(&self) -> Duration {
        self.answered.duration_since(self.asked)
    }

    /// Whether the store's clock was set forward after an earlier reading.
    fn was_set_forward(&self, before: &Self) -> bool {
        let most = self.answered.duration_since(before.asked);
        let passed = self.store_time.duration_since(before.store_time);
        passed.is_ok_and(|passed| passed > most + TOLERANCE)
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use sqlx::ConnectOptions;
    use sqlx::sqlite::SqliteConnectOptions;

    use super::*;
    use crate::logic::JobState;
    use crate::store::{JobStore, NewJob, Request, new_worker_id};
    use crate::worker::attempt_spec::tests::TestHost;
    use crate::worker::cancel_handle::CancelHandle;
    use crate::worker::{Options, Timing};

    /// Longer than a test takes.
    const HEARTBEAT: Duration = Duration::from_secs(60 * 60);

    /// How long a call may take.
    const TIME_LIMIT: Duration = Duration::from_secs(60);

    /// Lets the time between two heartbeats pass at once, by this machine's clock.
    async fn pass_heartbeat() {
        tokio::time::pause();
        tokio::time::advance(HEARTBEAT).await;
        tokio::time::resume();
    }

    /// Runs statements on the store of a host.
    async fn run_sql(options: &Options, sql: &'static str) {
        let database = SqliteConnectOptions::new().filename(options.location.path().unwrap());
        let mut database = database.connect().await.unwrap();
        sqlx::raw_sql(sql).execute(&mut database).await.unwrap();
    }

    /// A registered worker that has found the store healthy since its last heartbeat, and a job of
    /// another one whose lease has ended.
    async fn worker_and_lost_job(host: &TestHost) -> (Worker, JobId) {
        let timing = Timing {
            heartbeat: HEARTBEAT,
            ..Timing::default()
        };
        let options = Options {
            timing,
            ..host.options()
        };
        let store = JobStore::open(&options.location, &options.access())
            .await
            .unwrap();
        let mut job = NewJob::new(Request::new("p", "/missing"));
        job.request.retry = 1;
        store.submit(&job).await.unwrap();
        let claimed = store.claim(&new_worker_id(), "there", Duration::ZERO).await;
        assert!(claimed.unwrap().is_some());
        run_sql(&options, "UPDATE codex_jobs SET lease_until = 1").await;
        let worker = Worker::new(store, options);
        worker.store.register(&worker.about).await.unwrap();
        pass_heartbeat().await;
        (worker, job.id)
    }

    async fn state(worker: &Worker, job: &JobId) -> JobState {
        worker.store.summary(job).await.unwrap().unwrap().state
    }

    /// The control is the next heartbeat.
    #[tokio::test]
    async fn job_is_not_recovered_just_after_the_clock_of_the_store_was_set_forward() {
        let host = TestHost::new();
        let (worker, job) = worker_and_lost_job(&host).await;
        let before = SystemTime::now() - Duration::from_secs(60);
        let last_reading = Cell::new(Some(ClockReading::answered_now(Instant::now(), before)));
        worker.beat(&last_reading).await.unwrap();
        assert_eq!(state(&worker, &job).await, JobState::Running);
        pass_heartbeat().await;
        worker.beat(&last_reading).await.unwrap();
        assert_eq!(state(&worker, &job).await, JobState::Queued);
    }

    /// The control is the heartbeat after the end of the attempt.
    #[tokio::test]
    async fn job_is_not_recovered_while_this_worker_works_on_it() {
        let host = TestHost::new();
        let (worker, job) = worker_and_lost_job(&host).await;
        let cancel = Rc::new(CancelHandle::default());
        worker
            .cancel_handles
            .borrow_mut()
            .insert(job.clone(), cancel);
        let last_reading = Cell::new(None);
        worker.beat(&last_reading).await.unwrap();
        assert_eq!(state(&worker, &job).await, JobState::Running);
        worker.cancel_handles.borrow_mut().clear();
        worker.beat(&last_reading).await.unwrap();
        assert_eq!(state(&worker, &job).await, JobState::Queued);
    }

    #[test]
    fn forward_jump_of_the_store_clock_is_detected() {
        let (here, there) = (Instant::now(), SystemTime::now());
        let seconds = Duration::from_secs;
        let reading = |asked, answered, store_time| ClockReading {
            asked: here + seconds(asked),
            store_time: there + seconds(store_time),
            answered: here + seconds(answered),
        };
        let before = reading(0, 1, 0);
        assert!(!reading(10, 11, 10).was_set_forward(&before));
        assert!(reading(10, 11, 40).was_set_forward(&before));
        // The answer came late.
        assert!(!reading(10, 30, 29).was_set_forward(&before));
        assert!(!before.was_set_forward(&reading(0, 1, 60)));
    }

    /// The control is the removal once the database admits it.
    #[tokio::test]
    async fn failed_removal_of_old_jobs_is_no_outage_of_the_store() {
        let host = TestHost::new();
        let options = Options {
            keep_jobs: Duration::ZERO,
            ..host.options()
        };
        let store = JobStore::open(&options.location, &options.access())
            .await
            .unwrap();
        let job = NewJob::new(Request::new("p", "/missing"));
        store.submit(&job).await.unwrap();
        store.request_cancel(&job.id).await.unwrap();
        let refuse = "CREATE TRIGGER refuse BEFORE DELETE ON codex_jobs \
                      BEGIN SELECT RAISE(ABORT, 'refused'); END";
        run_sql(&options, refuse).await;
        let worker = Worker::new(store, options);
        let before = Instant::now();
        let remove = async || {
            let removal = worker.remove_old_jobs_once(Duration::ZERO);
            timeout(TIME_LIMIT, removal).await.unwrap();
            worker.store.get(&job.id).await.unwrap()
        };
        assert!(remove().await.is_some());
        let passed = before.elapsed();
        assert!(worker.store_health.healthy_for() >= passed);
        run_sql(&worker.options, "DROP TRIGGER refuse").await;
        assert!(remove().await.is_none());
    }

    #[test]
    fn sleep_of_the_machine_is_detected() {
        let before = Clocks::now();
        let after = |awake, always| {
            let clocks = Clocks {
                awake: before.awake + Duration::from_secs(awake),
                always: before.always + Duration::from_secs(always),
            };
            clocks.slept_since(&before)
        };
        assert!(!after(10, 11));
        assert!(after(10, 3600));
        assert!(!after(10, 0));
    }
}
