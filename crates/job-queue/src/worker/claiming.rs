//! Taking jobs, and leaving.

use std::future::pending;
use std::rc::Rc;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::cancel_handle::CancelReason;
use super::slot::{Retaken, WorkerSlot};
use super::{PARTING, Worker, attempt};
use crate::logic::Idle;
use crate::store::{Claimed, Demand, StoreError};

/// Takes jobs until the worker is to end, and sees those through that run then.
pub(super) async fn work(
    worker: &Rc<Worker>,
    post: &mut impl WorkerSlot,
    closing: &CancellationToken,
    hurry: &CancellationToken,
) {
    let mut attempts = Attempts::new(worker);
    attempts.take(post, closing).await;
    // Jobs that are submitted from now on are another worker's.
    post.release();
    attempts.see_through(closing, hurry).await;
}

/// The jobs that run.
struct Attempts {
    worker: Rc<Worker>,
    tasks: JoinSet<()>,
}

/// A job, and when it was asked for.
struct Taken(Claimed, Instant);

/// Whether an idle worker leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    Stays,
    Leaves,
}

impl Attempts {
    fn new(worker: &Rc<Worker>) -> Self {
        Self {
            worker: Rc::clone(worker),
            tasks: JoinSet::new(),
        }
    }

    /// Takes jobs while there is room, until the worker is to end or leaves.
    async fn take(&mut self, post: &mut impl WorkerSlot, closing: &CancellationToken) {
        let mut changes = self.worker.store.watch();
        let mut idle = Idle::new(self.worker.options.idle, now());
        while !closing.is_cancelled() {
            if self.has_room() && self.take_one(closing).await {
                idle.worked(now());
                continue;
            }
            let (has_room, leave_at) = (self.has_room(), idle.leave_at(self.tasks.len()));
            tokio::select! {
                () = closing.cancelled() => {}
                Some(ended) = self.tasks.join_next() => {
                    told(ended);
                    idle.worked(now());
                }
                () = changes.changed(), if has_room => {}
                () = until(leave_at) => {
                    if self.leave(post).await == Leaving::Leaves {
                        return;
                    }
                    idle.worked(now());
                }
            }
        }
    }

    fn has_room(&self) -> bool {
        let most = usize::try_from(self.worker.options.concurrency.get());
        self.tasks.len() < most.unwrap_or(usize::MAX)
    }

    /// Whether there was a job.
    async fn take_one(&mut self, closing: &CancellationToken) -> bool {
        let worker = Rc::clone(&self.worker);
        let taken = async || claim(&worker).await;
        match worker.trouble.insist_until(closing, taken).await {
            Some(Some(taken)) => {
                self.begin(taken);
                true
            }
            Some(None) | None => false,
        }
    }

    fn begin(&mut self, Taken(claimed, asked): Taken) {
        let worker = Rc::clone(&self.worker);
        let attempt = async move { attempt::attempt(&worker, claimed, asked).await };
        self.tasks.spawn_local(attempt);
    }

    /// Lets go of the post and looks once more, see [`WorkerSlot`].
    async fn leave(&mut self, post: &mut impl WorkerSlot) -> Leaving {
        // A job of a worker that has died is still to be taken from it, and one whose account
        // is used up to be run when that is over.
        let host = &self.worker.options.host;
        let demand = self.worker.store.demand(host).await;
        if matches!(demand, Ok(Demand::Running | Demand::Waiting)) {
            return Leaving::Stays;
        }
        post.release();
        let seen = claim(&self.worker).await;
        if matches!(seen, Ok(None)) {
            tracing::info!("there is nothing to do, and the worker leaves");
            return Leaving::Leaves;
        }
        let retaken = post.retake();
        match seen {
            Ok(Some(taken)) => self.begin(taken),
            Ok(None) => {}
            // Nobody can tell whether there is a job.
            Err(error) => tracing::debug!("looking once more: {error}"),
        }
        match retaken {
            Retaken::Ours => Leaving::Stays,
            Retaken::Theirs => Leaving::Leaves,
        }
    }

    /// Waits for those that run, and ends them when they have had their time.
    async fn see_through(&mut self, closing: &CancellationToken, hurry: &CancellationToken) {
        tokio::select! {
            () = self.all_ended() => return,
            () = closing.cancelled() => {}
        }
        let grace = self.worker.options.grace;
        tracing::info!(
            "the worker ends: {} may go on for {}",
            jobs(self.tasks.len()),
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
        if timeout(PARTING, self.all_ended()).await.is_err() {
            let left = jobs(self.tasks.len());
            tracing::error!("{left} could not be written down, and will be found to be lost");
        }
        self.tasks.shutdown().await;
    }

    async fn all_ended(&mut self) {
        while let Some(ended) = self.tasks.join_next().await {
            told(ended);
        }
    }
}

async fn claim(worker: &Worker) -> Result<Option<Taken>, StoreError> {
    let asked = Instant::now();
    let (host, lease) = (&worker.options.host, worker.options.timing.lease);
    let claimed = worker.store.claim(worker.id(), host, lease).await?;
    Ok(claimed.map(|claimed| Taken(claimed, asked)))
}

fn told(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!("a job was left alone: {error}");
    }
}

pub(super) fn jobs(number: usize) -> String {
    match number {
        1 => "1 job".to_owned(),
        number => format!("{number} jobs"),
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
