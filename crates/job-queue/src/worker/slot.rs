//! The slot of a worker: at most one worker for each store and machine holds it.

use std::io;

use super::lock::{LockGuard, WorkerLock};
use super::start::{self, READY};

/// A worker holds its slot while it takes jobs, so that no second worker is started for the same
/// store and machine.
///
/// A process that submits a job checks the slot after the job is in the store. An idle worker first
/// releases the slot, and then checks once more for a job. So either the worker sees the job, or
/// the submitter sees that the slot is free.
pub trait WorkerSlot {
    /// Called once the store is open and the worker can be seen in it, before it takes
    /// its first job.
    ///
    /// # Errors
    ///
    /// If the worker cannot start after all.
    fn ready(&mut self) -> io::Result<()>;

    /// Whether this worker holds the slot. Others work in parallel with it.
    fn is_held(&self) -> bool;

    /// Releases the slot.
    fn release(&mut self);

    /// Takes the slot again, if it is still free. Must be called only after
    /// [`WorkerSlot::release`].
    fn retake(&mut self) -> RetakeOutcome;
}

/// The result of taking a slot again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetakeOutcome {
    /// This worker has the slot again.
    Ours,
    /// Another worker has the slot.
    Theirs,
}

/// A slot that is a [lock](super::lock) on a file.
#[derive(Debug)]
pub struct LockedSlot {
    lock: WorkerLock,
    held: Option<LockGuard>,
    announcement: Announcement,
}

/// The way in which a worker announces that it takes jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announcement {
    /// On stdout, for the process that has started it on demand, see [`start`](super::start).
    OnStdout,
    /// Not at all.
    None,
}

impl LockedSlot {
    /// The slot of a worker that holds the lock, or that works in parallel with the holder of the
    /// lock (`held` is `None`).
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

    fn is_held(&self) -> bool {
        self.held.is_some()
    }

    fn release(&mut self) {
        self.held = None;
    }

    fn retake(&mut self) -> RetakeOutcome {
        match self.lock.try_take() {
            Ok(Some(held)) => {
                self.held = Some(held);
                RetakeOutcome::Ours
            }
            // A process that checks the lock has seen it free, and starts another worker.
            Ok(None) => RetakeOutcome::Theirs,
            Err(error) => {
                tracing::warn!("{}: {error}", self.lock.file().display());
                RetakeOutcome::Theirs
            }
        }
    }
}
