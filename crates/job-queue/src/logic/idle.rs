//! How long a worker stays without work.

use std::time::{Duration, Instant};

/// How long a worker has had nothing to do, and when it has waited enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idle {
    limit: Option<Duration>,
    since: Instant,
}

impl Idle {
    /// A worker that has just begun, and leaves after so long without work; `None`
    /// is never.
    #[must_use]
    pub fn new(limit: Option<Duration>, now: Instant) -> Self {
        Self { limit, since: now }
    }

    /// There was something to do until now.
    pub fn worked(&mut self, now: Instant) {
        self.since = now;
    }

    /// When it leaves, with so many jobs under way; `None` if it doesn't.
    #[must_use]
    pub fn leave_at(self, running: usize) -> Option<Instant> {
        match (running, self.limit) {
            (0, Some(limit)) => self.since.checked_add(limit),
            _ => None,
        }
    }
}
