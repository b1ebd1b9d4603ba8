//! The calls of the turns that ended last.

use std::collections::{HashMap, VecDeque};

use codex_protocol::rpc::RequestId;

/// The most turns that are remembered. Late events come within milliseconds of the end.
const LIMIT: usize = 1000;

/// The call of each of the turns that ended last. A late event of such a turn belongs to its call,
/// and to no later one.
#[derive(Debug, Default)]
pub(super) struct EndedTurns {
    /// The call of each turn, by the names of its thread and of itself.
    calls: HashMap<(String, String), RequestId>,
    /// The turns, oldest first.
    order: VecDeque<(String, String)>,
}

impl EndedTurns {
    /// Remembers the call of a turn, and forgets the oldest turn if there are too many.
    pub(super) fn insert(&mut self, thread: &str, turn_id: &str, call: &RequestId) {
        let turn = (thread.to_owned(), turn_id.to_owned());
        if self.calls.insert(turn.clone(), call.clone()).is_some() {
            return;
        }
        self.order.push_back(turn);
        if self.order.len() > LIMIT
            && let Some(oldest) = self.order.pop_front()
        {
            self.calls.remove(&oldest);
        }
    }

    /// The call of a turn.
    pub(super) fn call(&self, thread: &str, turn_id: &str) -> Option<&RequestId> {
        self.calls.get(&(thread.to_owned(), turn_id.to_owned()))
    }
}
