//! The idle timer of a worker.

use std::time::{Duration, Instant};

/// Measures how long a worker has had no work, and decides when it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleTimer {
    limit: Option<Duration>,
    since: Instant,
}

impl IdleTimer {
    /// The timer of a worker that starts now and leaves after `limit` without work; never, if
    /// that is `None`.
    #[must_use]
    pub fn new(limit: Option<Duration>, now: Instant) -> Self {
        Self { limit, since: now }
    }

    /// Resets the timer: there was work until now.
    pub fn worked(&mut self, now: Instant) {
        self.since = now;
    }

    /// When the worker leaves while it runs `running` jobs; `None` if it stays.
    #[must_use]
    pub fn leave_at(self, running: usize) -> Option<Instant> {
        match (running, self.limit) {
            (0, Some(limit)) => self.since.checked_add(limit),
            _ => None,
        }
    }
}
