//! What ends an attempt before its time, and for what.

use std::cell::Cell;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Why an attempt is ended. Of several reasons the last one in this order counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    /// The worker ends, and the grace time is over.
    WorkerEnds,
    /// Somebody has called the job off.
    Unwanted,
    /// The lease can't be renewed, and another worker may take the job.
    LeaseOver,
    /// The job is not ours any more: nothing is to be written.
    Lost,
}

/// Holds a running attempt.
#[derive(Debug, Default)]
pub(super) struct Leash {
    /// Cancelled when it is to end.
    pub(super) pulled: CancellationToken,
    /// Woken when the store has instructions for it.
    pub(super) called: Notify,
    why: Cell<Option<End>>,
}

impl Leash {
    /// Ends the attempt.
    pub(super) fn pull(&self, why: End) {
        self.why.set(self.why.get().max(Some(why)));
        self.pulled.cancel();
    }

    /// What it was ended for, if it was.
    pub(super) fn why(&self) -> Option<End> {
        self.why.get()
    }
}
