//! Cancels an attempt, and keeps the reason.

use std::cell::Cell;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Why an attempt is cancelled. Of several reasons the last one in this order counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CancelReason {
    /// The worker ends, and the grace time is over.
    WorkerEnds,
    /// Somebody has cancelled the job.
    JobCancelled,
    /// The lease cannot be renewed, and another worker may take the job.
    LeaseOver,
    /// The worker no longer has the job, and must not write anything.
    Lost,
}

/// Cancels a running attempt.
#[derive(Debug, Default)]
pub(super) struct CancelHandle {
    /// Cancelled with the attempt.
    pub(super) token: CancellationToken,
    /// Woken when the store has instructions for it.
    pub(super) instructed: Notify,
    why: Cell<Option<CancelReason>>,
}

impl CancelHandle {
    /// Cancels the attempt.
    pub(super) fn cancel(&self, why: CancelReason) {
        self.why.set(self.why.get().max(Some(why)));
        self.token.cancel();
    }

    /// Why it was cancelled, if it was.
    pub(super) fn why(&self) -> Option<CancelReason> {
        self.why.get()
    }
}
