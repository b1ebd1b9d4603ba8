//! A lease, as its worker counts it.

use std::time::{Duration, Instant};

use super::{Attempt, JobState};

/// How long a worker may go on with an attempt, by its own clock.
///
/// The database counts a lease from when it is asked for one, the worker from before
/// it asks: so it ends here no later than there. Once it has ended, others may take
/// the job. One that would then run again has to be gone by that time, or it would
/// run twice at once. Any other goes on, as nobody else will do it: should it have
/// been taken all the same, its worker hears of that when it can reach the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    until: Instant,
    attempt: Attempt,
}

impl Lease {
    /// The lease of an attempt, that was asked for at this moment.
    #[must_use]
    pub fn new(attempt: Attempt, asked: Instant, length: Duration) -> Self {
        Self {
            until: asked + length,
            attempt,
        }
    }

    /// It, when it was renewed, which was asked for at this moment.
    #[must_use]
    pub fn renewed(self, asked: Instant, length: Duration) -> Self {
        Self::new(self.attempt, asked, length)
    }

    /// When the attempt has to be ended, which takes so long; `None` if it may go on.
    #[must_use]
    pub fn let_go_at(self, ending: Duration) -> Option<Instant> {
        match self.attempt.lost() {
            JobState::Queued => Some(self.until.checked_sub(ending).unwrap_or(self.until)),
            _ => None,
        }
    }
}
