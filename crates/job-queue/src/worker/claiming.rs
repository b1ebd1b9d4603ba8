//! Claims jobs, runs their attempts, and leaves when idle.

use std::future::pending;
use std::rc::Rc;

use common::text::counted;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::attempt::{self, HeldJob};
use super::cancel_handle::CancelReason;
use super::slot::{RetakeOutcome, WorkerSlot};
use super::{ClaimState, SHUTDOWN_TIMEOUT, Worker, takeover};
use crate::logic::{IdleTimer, JobId};
use crate::store::{ClaimedJob, Demand, StoreError};

/// Takes jobs until the worker is told to end or leaves, then waits for the running ones.
pub(super) async fn work(
    worker: &Rc<Worker>,
    slot: &mut impl WorkerSlot,
    closing: &CancellationToken,
    hurry: &CancellationToken,
) {
    let mut attempts = Attempts::new(worker);
    attempts.continue_left(closing);
    attempts.take(slot, closing).await;
    // Another worker takes jobs that are submitted from now on.
    slot.release();
    let put_back = hurry.run_until_cancelled(put_back_unknown(worker));
    tokio::join!(put_back, attempts.drain(closing, hurry));
}

/// Puts back a job whose claim is in doubt: its attempt would count as lost with this worker.
async fn put_back_unknown(worker: &Worker) {
    if worker.claims.get() == ClaimState::Known {
        return;
    }
    let put_back = async || {
        let known = known_jobs(worker);
        worker.store.put_back_unknown(worker.id(), &known).await
    };
    // The outage that has lost the answer may last.
    let put_back = worker.store_health.retry(put_back);
    match timeout(SHUTDOWN_TIMEOUT, put_back).await {
        Ok(Ok(())) => worker.claims.set(ClaimState::Known),
        Ok(Err(error)) => tracing::warn!("cannot put back a job that may be claimed: {error}"),
        Err(_) => tracing::warn!("cannot put back a job that may be claimed in time"),
    }
}

/// The running attempts.
struct Attempts {
    worker: Rc<Worker>,
    tasks: JoinSet<()>,
    /// The attempts of an earlier worker, a task for each of its app-servers.
    left: JoinSet<()>,
}

/// A claimed job, and when the claim was requested.
struct TimedClaim(ClaimedJob, Instant);

/// Whether an idle worker leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdleDecision {
    Stays,
    Leaves,
}

impl Attempts {
    fn new(worker: &Rc<Worker>) -> Self {
        Self {
            worker: Rc::clone(worker),
            tasks: JoinSet::new(),
            left: JoinSet::new(),
        }
    }

    /// Continues the jobs that an earlier worker has left, concurrently with the others.
    fn continue_left(&mut self, closing: &CancellationToken) {
        for socket in takeover::left_sockets(&self.worker) {
            let worker = Rc::clone(&self.worker);
            let closing = closing.clone();
            self.left.spawn_local(async move {
                takeover::continue_jobs(&worker, &socket, &closing).await;
            });
        }
    }

    /// Takes jobs while there is room, until the worker is told to end or leaves.
    async fn take(&mut self, slot: &mut impl WorkerSlot, closing: &CancellationToken) {
        let mut changes = self.worker.store.watch();
        let mut idle = IdleTimer::new(self.worker.options.idle, now());
        while !closing.is_cancelled() {
            if self.has_room() && self.take_one(closing).await {
                idle.worked(now());
                continue;
            }
            let at_work = self.tasks.len() + self.left.len();
            let (has_room, leave_at) = (self.has_room(), idle.leave_at(at_work));
            tokio::select! {
                () = closing.cancelled() => {}
                Some(ended) = self.tasks.join_next() => {
                    log_panic(ended);
                    idle.worked(now());
                }
                Some(ended) = self.left.join_next() => {
                    log_panic(ended);
                    idle.worked(now());
                }
                () = changes.changed(), if has_room => {}
                // A job of an earlier worker is no task of its own.
                () = self.worker.job_ended.notified(), if !has_room => {}
                () = until(leave_at) => {
                    if self.leave(slot).await == IdleDecision::Leaves {
                        return;
                    }
                    idle.worked(now());
                }
            }
        }
    }

    fn has_room(&self) -> bool {
        let most = usize::try_from(self.worker.options.concurrency.get());
        self.running() < most.unwrap_or(usize::MAX)
    }

    /// The number of running jobs, with those of an earlier worker.
    fn running(&self) -> usize {
        let held = self.worker.cancel_handles.borrow().len();
        held.max(self.tasks.len())
    }

    /// Claims and starts a job. Returns whether there was one.
    async fn take_one(&mut self, closing: &CancellationToken) -> bool {
        let worker = Rc::clone(&self.worker);
        let taken = async || claim(&worker).await;
        match worker
            .store_health
            .retry_until_cancelled(closing, taken)
            .await
        {
            Some(Some(taken)) => {
                self.begin(taken);
                true
            }
            Some(None) | None => false,
        }
    }

    fn begin(&mut self, TimedClaim(claimed, asked): TimedClaim) {
        let Some(held) = HeldJob::new(&self.worker, &claimed.claim) else {
            let job = &claimed.claim.job;
            tracing::warn!("the job store had lost the claim to job {job}, which continues");
            return;
        };
        self.tasks
            .spawn_local(attempt::attempt(held, claimed, asked, None));
    }

    /// Releases the slot and checks once more for a job, see [`WorkerSlot`].
    async fn leave(&mut self, slot: &mut impl WorkerSlot) -> IdleDecision {
        // A dead worker's job must be recovered when its lease ends, and a waiting job must run
        // when its wait is over.
        let host = &self.worker.options.host;
        let demand = self.worker.store.demand(host).await;
        if matches!(demand, Ok(Demand::Running | Demand::Waiting)) {
            return IdleDecision::Stays;
        }
        slot.release();
        let seen = claim(&self.worker).await;
        if matches!(seen, Ok(None)) {
            tracing::info!("the worker exits: it has no work");
            return IdleDecision::Leaves;
        }
        let retaken = slot.retake();
        match seen {
            Ok(Some(taken)) => self.begin(taken),
            Ok(None) => {}
            // It is unknown whether there is a job.
            Err(error) => tracing::debug!("cannot check for jobs before leaving: {error}"),
        }
        match retaken {
            RetakeOutcome::Ours => IdleDecision::Stays,
            RetakeOutcome::Theirs => IdleDecision::Leaves,
        }
    }

    /// Waits for the running attempts, and cancels them after the grace time.
    async fn drain(&mut self, closing: &CancellationToken, hurry: &CancellationToken) {
        tokio::select! {
            () = self.all_ended() => return,
            () = closing.cancelled() => {}
        }
        let grace = self.worker.options.grace;
        tracing::info!(
            "the worker ends: {} may continue for {}",
            counted(self.running(), "job"),
            humantime::format_duration(grace)
        );
        tokio::select! {
            () = self.all_ended() => return,
            () = sleep(grace) => {}
            () = hurry.cancelled() => {}
        }
        for cancel in self.worker.cancel_handles.borrow().values() {
            cancel.cancel(CancelReason::WorkerEnds);
        }
        if timeout(SHUTDOWN_TIMEOUT, self.all_ended()).await.is_err() {
            let left = counted(self.running(), "job");
            tracing::error!(
                "the outcome of {left} could not be stored; other workers recover them"
            );
        }
        self.tasks.shutdown().await;
        self.left.shutdown().await;
    }

    async fn all_ended(&mut self) {
        while let Some(ended) = self.tasks.join_next().await {
            log_panic(ended);
        }
        while let Some(ended) = self.left.join_next().await {
            log_panic(ended);
        }
    }
}

/// Claims a job. After an error, a job may have been claimed although the worker does not know
/// it: it is taken first.
async fn claim(worker: &Worker) -> Result<Option<TimedClaim>, StoreError> {
    let asked = Instant::now();
    let (host, lease) = (&worker.options.host, worker.options.timing.lease);
    if worker.claims.get() == ClaimState::InDoubt {
        let known = known_jobs(worker);
        let reclaimed = worker.store.reclaim(worker.id(), &known, lease).await?;
        if reclaimed.is_some() {
            return Ok(reclaimed.map(|claimed| TimedClaim(claimed, asked)));
        }
    }
    worker.claims.set(ClaimState::InDoubt);
    let claimed = worker.store.claim(worker.id(), host, lease).await?;
    worker.claims.set(ClaimState::Known);
    Ok(claimed.map(|claimed| TimedClaim(claimed, asked)))
}

/// The jobs that the worker has begun and that the store may still assign to it.
fn known_jobs(worker: &Worker) -> Vec<JobId> {
    let running = worker.cancel_handles.borrow();
    let unsettled = worker.unsettled.borrow();
    running.keys().chain(unsettled.iter()).cloned().collect()
}

fn log_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!("the task of a job has panicked: {error}");
    }
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

async fn until(moment: Option<std::time::Instant>) {
    match moment {
        Some(moment) => sleep_until(moment.into()).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use settings::store_location::Location;
    use sqlx::ConnectOptions;
    use sqlx::sqlite::SqliteConnectOptions;
    use tokio::task::LocalSet;

    use super::*;
    use crate::logic::JobState;
    use crate::store::{JobStore, NewJob, Request};
    use crate::worker::attempt_spec::tests::TestHost;

    /// A worker that has claimed a job, with an answer that came at the second try.
    async fn worker_with_claim(host: &TestHost) -> (Attempts, TimedClaim) {
        let options = host.options();
        let store = JobStore::open(&options.location, &options.access())
            .await
            .unwrap();
        store
            .submit(&NewJob::new(Request::new("p", "/missing")))
            .await
            .unwrap();
        let worker = Rc::new(Worker::new(store, options));
        let lost = claim(&worker).await.unwrap();
        assert!(lost.is_some(), "the answer that is lost");
        worker.claims.set(ClaimState::InDoubt);
        let found = claim(&worker).await.unwrap();
        assert_eq!(worker.claims.get(), ClaimState::InDoubt);
        (Attempts::new(&worker), found.unwrap())
    }

    #[tokio::test]
    async fn job_whose_claim_was_found_again_is_begun_once() {
        let host = TestHost::new();
        let test = async {
            let (mut attempts, found) = worker_with_claim(&host).await;
            attempts.begin(found);
            let again = claim(&attempts.worker).await.unwrap();
            assert!(again.is_none(), "a second attempt at the same job");
            attempts.tasks.shutdown().await;
        };
        LocalSet::new().run_until(test).await;
    }

    /// Puts the row of the job back as a failover does to a server that had not received the claim.
    async fn lose_claim(worker: &Worker) {
        let Location::Sqlite(path) = &worker.options.location else {
            panic!("the store is no file");
        };
        let options = SqliteConnectOptions::new().filename(path);
        let mut connection = options.connect().await.unwrap();
        let sql = "UPDATE codex_jobs SET state = 'queued', attempts = 0, worker = NULL, \
                   worker_host = NULL, started_at = NULL, lease_until = NULL";
        sqlx::query(sql).execute(&mut connection).await.unwrap();
    }

    #[tokio::test]
    async fn job_whose_claim_the_store_has_lost_is_begun_once() {
        let host = TestHost::new();
        let test = async {
            let (mut attempts, found) = worker_with_claim(&host).await;
            lose_claim(&attempts.worker).await;
            let again = claim(&attempts.worker).await.unwrap().unwrap();
            assert_eq!(again.0.claim, found.0.claim);
            attempts.begin(found);
            attempts.begin(again);
            assert_eq!(attempts.tasks.len(), 1, "a second attempt at the same job");
            attempts.tasks.shutdown().await;
        };
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test]
    async fn job_whose_claim_is_in_doubt_is_put_back_when_its_worker_ends() {
        let host = TestHost::new();
        let (attempts, found) = worker_with_claim(&host).await;
        let worker = &attempts.worker;
        put_back_unknown(worker).await;
        let job = worker.store.get(&found.0.claim.job).await.unwrap().unwrap();
        assert_eq!(job.summary.state, JobState::Queued);
        assert_eq!((job.attempts, job.waits), (1, 1), "an attempt that counts");
        assert_eq!(job.worker, None);
    }

    #[tokio::test]
    async fn job_whose_claim_is_in_doubt_is_put_back_once_the_store_works_again() {
        let host = TestHost::new();
        let (attempts, found) = worker_with_claim(&host).await;
        let worker = &attempts.worker;
        let Location::Sqlite(path) = &worker.options.location else {
            panic!("the store is no file");
        };
        let options = SqliteConnectOptions::new().filename(path);
        let mut connection = options.connect().await.unwrap();
        let broken = "ALTER TABLE codex_jobs RENAME TO away";
        sqlx::query(broken).execute(&mut connection).await.unwrap();
        let mended = async {
            while worker.store_health.failing_for().is_zero() {
                tokio::task::yield_now().await;
            }
            let mended = "ALTER TABLE away RENAME TO codex_jobs";
            sqlx::query(mended).execute(&mut connection).await.unwrap();
        };
        let mended = timeout(SHUTDOWN_TIMEOUT, mended);
        let ((), mended) = tokio::join!(put_back_unknown(worker), mended);
        mended.unwrap();
        let job = worker.store.get(&found.0.claim.job).await.unwrap().unwrap();
        assert_eq!(job.summary.state, JobState::Queued);
    }

    #[tokio::test]
    async fn job_whose_outcome_is_not_stored_is_not_begun_again() {
        let host = TestHost::new();
        let test = async {
            let (mut attempts, found) = worker_with_claim(&host).await;
            attempts.begin(found);
            // Its task ends as after a panic, and the store says that the job runs.
            attempts.tasks.shutdown().await;
            attempts.worker.claims.set(ClaimState::InDoubt);
            let again = claim(&attempts.worker).await.unwrap();
            assert!(again.is_none(), "the attempt may have executed something");
        };
        LocalSet::new().run_until(test).await;
    }
}
