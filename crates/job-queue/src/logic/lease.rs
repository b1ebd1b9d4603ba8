//! A lease by the clock of its worker.

use std::time::{Duration, Instant};

use super::{Attempt, AttemptPhase, JobState};

/// How long a worker may continue an attempt, by its own clock.
///
/// The database counts a lease from the moment of the statement, the worker from before it
/// sends the statement: so the lease ends here no later than there. Once the lease has ended,
/// other workers may take the job. A job that would then run again must have ended here before,
/// or it would run twice at once. Any other job continues, as nobody else will run it; should
/// it have been taken nevertheless, its worker notices when it can reach the store.
///
/// A machine that has slept is the exception: the clock of the worker does not count the sleep, so
/// a job that was taken meanwhile continues here until the answer to its next renewal, or until the
/// lease ends by this clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    until: Instant,
    attempt: Attempt,
}

impl Lease {
    /// The lease of an attempt, requested at the moment `asked`.
    #[must_use]
    pub fn new(attempt: Attempt, asked: Instant, length: Duration) -> Self {
        Self {
            until: asked + length,
            attempt,
        }
    }

    /// The renewed lease; the renewal was requested at the moment `asked`.
    #[must_use]
    pub fn renewed(self, asked: Instant, length: Duration) -> Self {
        Self::new(self.attempt, asked, length)
    }

    /// The same lease once the store has the thread of the attempt, which is then no longer a
    /// [look](AttemptPhase::Look).
    #[must_use]
    pub fn with_thread(self) -> Self {
        let attempt = Attempt {
            phase: AttemptPhase::Turn,
            ..self.attempt
        };
        Self { attempt, ..self }
    }

    /// When the worker must start to end the attempt, which takes `ending`; `None` if the
    /// attempt may continue beyond the lease.
    #[must_use]
    pub fn release_at(self, ending: Duration) -> Option<Instant> {
        match self.attempt.lost() {
            JobState::Queued => Some(self.until.checked_sub(ending).unwrap_or(self.until)),
            _ => None,
        }
    }
}
