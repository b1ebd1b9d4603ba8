//! What has to come by when.

use std::collections::BTreeSet;
use std::time::Instant;

use codex_protocol::rpc::RequestId;

/// What is late when its time has come.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// A call of one of Codex's tools.
    Call(RequestId),
    /// The turn of a call that nobody wants any more, which may yet begin.
    Turn(RequestId),
    /// Another request to the child.
    Request(RequestId),
    /// The client's answer to a question of the child's.
    Question(RequestId),
}

#[derive(Debug, Default)]
pub(super) struct Deadlines(BTreeSet<(Instant, Due)>);

impl Deadlines {
    pub(super) fn set(&mut self, deadline: Instant, due: Due) {
        self.0.insert((deadline, due));
    }

    pub(super) fn lift(&mut self, deadline: Instant, due: Due) {
        self.0.remove(&(deadline, due));
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.0.first().map(|(deadline, _)| *deadline)
    }

    /// Takes out the earliest of what is late.
    pub(super) fn take_late(&mut self, now: Instant) -> Option<Due> {
        let (deadline, _) = self.0.first()?;
        match *deadline <= now {
            true => self.0.pop_first().map(|(_, due)| due),
            false => None,
        }
    }
}
