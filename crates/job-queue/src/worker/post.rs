//! The post of a worker that others count on to be there.

use std::io;

use super::place::{Held, Place};
use super::start::{self, READY};

/// What a worker holds while it works, so that nobody starts a second one for the same
/// store and machine.
///
/// Whoever submits a job looks for the holder after the job is in the store. A worker
/// that has been idle for long lets go first, and then looks once more for a job: so
/// either the worker sees the job, or nobody holds the post any more when whoever
/// submitted it looks.
pub trait Post {
    /// Called once the store is open and the worker can be seen in it, before it takes
    /// its first job.
    ///
    /// # Errors
    ///
    /// If it can't work after all.
    fn ready(&mut self) -> io::Result<()>;

    /// Lets go of the post.
    fn release(&mut self);

    /// Takes it again, if nobody else has. To be called only after it was let go of.
    fn retake(&mut self) -> Retaken;
}

/// What has come of taking a post again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retaken {
    /// It is ours again.
    Ours,
    /// Another worker has it.
    Theirs,
}

/// The [place](super::place) of a worker.
#[derive(Debug)]
pub struct AtPlace {
    place: Place,
    held: Option<Held>,
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

impl AtPlace {
    /// The post of a worker that has taken its place, or works beside the one that has.
    #[must_use]
    pub fn new(place: Place, held: Option<Held>, announcement: Announcement) -> Self {
        Self {
            place,
            held,
            announcement,
        }
    }
}

impl Post for AtPlace {
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
        match self.place.try_take() {
            Ok(Some(held)) => {
                self.held = Some(held);
                Retaken::Ours
            }
            // Somebody who only looks has seen it free, and starts another worker.
            Ok(None) => Retaken::Theirs,
            Err(error) => {
                tracing::warn!("{}: {error}", self.place.file().display());
                Retaken::Theirs
            }
        }
    }
}
