//! Pending deadlines.

use std::collections::BTreeSet;
use std::time::Instant;

use codex_protocol::rpc::RequestId;

/// The subject of a deadline.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Expiry {
    /// A call of one of Codex's tools.
    Call(RequestId),
    /// The turn of a stale call, which may yet begin.
    Turn(RequestId),
    /// Another request to the child.
    Request(RequestId),
    /// The client's answer to a question of the child's.
    Question(RequestId),
}

#[derive(Debug, Default)]
pub(super) struct Deadlines(BTreeSet<(Instant, Expiry)>);

impl Deadlines {
    pub(super) fn set(&mut self, deadline: Instant, due: Expiry) {
        self.0.insert((deadline, due));
    }

    pub(super) fn lift(&mut self, deadline: Instant, due: Expiry) {
        self.0.remove(&(deadline, due));
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.0.first().map(|(deadline, _)| *deadline)
    }

    /// Removes the earliest deadline that has passed.
    pub(super) fn take_late(&mut self, now: Instant) -> Option<Expiry> {
        let (deadline, _) = self.0.first()?;
        match *deadline <= now {
            true => self.0.pop_first().map(|(_, due)| due),
            false => None,
        }
    }
}
