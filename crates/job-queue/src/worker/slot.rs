//! The slot of the worker that others count on to be there.

use std::io;

use super::lock::{LockGuard, WorkerLock};
use super::start::{self, READY};

/// What a worker holds while it works, so that nobody starts a second one for the same
/// store and machine.
///
/// Whoever submits a job looks for the holder after the job is in the store. A worker
/// that has been idle for long lets go first, and then looks once more for a job: so
/// either the worker sees the job, or nobody holds the slot any more when whoever
/// submitted it looks.
pub trait WorkerSlot {
    /// Called once the store is open and the worker can be seen in it, before it takes
    /// its first job.
    ///
    /// # Errors
    ///
    /// If it can't work after all.
    fn ready(&mut self) -> io::Result<()>;

    /// Releases the slot.
    fn release(&mut self);

    /// Takes it again, if nobody else has. To be called only after it was let go of.
    fn retake(&mut self) -> Retaken;
}

/// The result of taking a slot again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retaken {
    /// It is ours again.
    Ours,
    /// Another worker has it.
    Theirs,
}

/// A slot that is a [lock](super::lock) on a file.
#[derive(Debug)]
pub struct LockedSlot {
    lock: WorkerLock,
    held: Option<LockGuard>,
    announcement: Announcement,
}

/// Who is told that the worker takes jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announcement {
    /// Whoever has started it on demand, see [`start`](super::start).
    OnStdout,
    /// Nobody.
    None,
}

impl LockedSlot {
    /// The slot of a worker that holds the lock, or works beside the one that does.
    #[must_use]
    pub fn new(lock: WorkerLock, held: Option<LockGuard>, announcement: Announcement) -> Self {
        Self {
            lock,
            held,
            announcement,
        }
    }
}

impl WorkerSlot for LockedSlot {
    fn ready(&mut self) -> io::Result<()> {
        match self.announcement {
            Announcement::OnStdout => start::announce(READY),
            Announcement::None => Ok(()),
        }
    }

    fn release(&mut self) {
        self.held = None;
    }

    fn retake(&mut self) -> Retaken {
        match self.lock.try_take() {
            Ok(Some(held)) => {
                self.held = Some(held);
                Retaken::Ours
            }
            // Somebody who only looks has seen it free, and starts another worker.
            Ok(None) => Retaken::Theirs,
            Err(error) => {
                tracing::warn!("{}: {error}", self.lock.file().display());
                Retaken::Theirs
            }
        }
    }
}
