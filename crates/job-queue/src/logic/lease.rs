//! A lease by the clock of its worker.

use std::time::{Duration, Instant};

use super::{Attempt, AttemptPhase, JobState};

/// How long a worker may continue an attempt, measured by its own clock.
///
/// The database counts a lease from the moment of the statement, the worker from before it sends
/// the statement, so the worker's lease ends no later than the database's. Once the lease has
/// ended, other workers may take the job. If the job would then run again, the attempt must have
/// ended here before that, or the job would run twice at once. If the job would not run again, the
/// attempt continues: should another worker have taken the job nevertheless, this worker notices
/// when it reaches the store.
///
/// A machine that has slept is an exception, as the worker's clock does not count the sleep. A job
/// that was taken in the meantime continues here until the answer to its next renewal, or until the
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
