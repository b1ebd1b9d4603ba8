//! The handle that cancels an attempt. It keeps the reason, and knows whether the store has the
//! thread and whether the attempt has ended.

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

/// Whether the store has the thread of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ThreadRecord {
    #[default]
    Absent,
    /// The store counts the attempt as a turn.
    Stored,
}

/// Cancels a running attempt.
#[derive(Debug, Default)]
pub(super) struct CancelHandle {
    /// The number of the attempt in its claim.
    pub(super) attempt: u32,
    /// Cancelled with the attempt.
    pub(super) token: CancellationToken,
    /// Cancelled once the attempt has ended.
    pub(super) ended: CancellationToken,
    /// Woken when the store has instructions for it.
    pub(super) instructed: Notify,
    why: Cell<Option<CancelReason>>,
    thread: Cell<ThreadRecord>,
}

impl CancelHandle {
    /// The handle of the attempt with this number.
    pub(super) fn of(attempt: u32) -> Self {
        Self {
            attempt,
            ..Self::default()
        }
    }

    /// Cancels the attempt.
    pub(super) fn cancel(&self, why: CancelReason) {
        self.why.set(self.why.get().max(Some(why)));
        self.token.cancel();
    }

    /// Why it was cancelled, if it was.
    pub(super) fn why(&self) -> Option<CancelReason> {
        self.why.get()
    }

    /// Notes that the store has the thread of the attempt.
    pub(super) fn note_thread(&self) {
        self.thread.set(ThreadRecord::Stored);
    }

    /// Whether the store has the thread of the attempt.
    pub(super) fn thread(&self) -> ThreadRecord {
        self.thread.get()
    }
}
