//! The calls of turns that are over.

use std::collections::{HashMap, VecDeque};

use codex_protocol::rpc::RequestId;

/// The most turns that are remembered.
const LIMIT: usize = 1000;

/// The longest name of a thread, turn or call that is remembered, in bytes. Codex's own are shorter.
const NAME_LIMIT: usize = 256;

/// The calls of the latest turns that are no longer tracked. A late event of such a turn, as of a
/// command that it has left running, belongs to its call and to no later one.
#[derive(Debug, Default)]
pub(super) struct EndedTurns {
    /// The turns, by name.
    turns: HashMap<String, EndedTurn>,
    /// The names of the turns in the order in which they were remembered.
    order: VecDeque<String>,
}

#[derive(Debug)]
struct EndedTurn {
    thread: String,
    /// `None` if the turn was begun without a call.
    call: Option<RequestId>,
}

impl EndedTurns {
    /// Remembers the call of a turn, and forgets the oldest turn if there are too many.
    pub(super) fn insert(&mut self, thread: &str, turn_id: &str, call: Option<&RequestId>) {
        let call_name = call.map_or(0, |call| match call {
            RequestId::Number(_) => 0,
            RequestId::Text(text) => text.len(),
        });
        if [thread.len(), turn_id.len(), call_name].into_iter().max() > Some(NAME_LIMIT) {
            return;
        }
        let turn = EndedTurn {
            thread: thread.to_owned(),
            call: call.cloned(),
        };
        if self.turns.insert(turn_id.to_owned(), turn).is_none() {
            self.order.push_back(turn_id.to_owned());
        }
        if self.order.len() > LIMIT
            && let Some(oldest) = self.order.pop_front()
        {
            self.turns.remove(&oldest);
        }
    }

    /// Forgets a turn, as its name is used again.
    pub(super) fn remove(&mut self, thread: &str, turn_id: &str) {
        if self.get(thread, turn_id).is_some() {
            self.turns.remove(turn_id);
            self.order.retain(|name| name != turn_id);
        }
    }

    /// The call of a turn, if the turn is remembered; within it `None` if the turn had no call.
    pub(super) fn get(&self, thread: &str, turn_id: &str) -> Option<Option<&RequestId>> {
        let turn = self.turns.get(turn_id)?;
        (turn.thread == thread).then_some(turn.call.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_not_remembered() {
        let long = "n".repeat(NAME_LIMIT + 1);
        let call = RequestId::Text(long.clone());
        let mut turns = EndedTurns::default();
        turns.insert(&long, "a", None);
        turns.insert("t", &long, None);
        turns.insert("t", "a", Some(&call));
        assert!(turns.turns.is_empty() && turns.order.is_empty());
    }

    #[test]
    fn oldest_turn_is_forgotten() {
        let mut turns = EndedTurns::default();
        for number in 0..=LIMIT {
            turns.insert("t", &number.to_string(), Some(&RequestId::Number(1)));
        }
        assert_eq!(turns.get("t", "0"), None);
        assert_eq!(turns.get("t", "1"), Some(Some(&RequestId::Number(1))));
        assert_eq!(turns.get("u", "1"), None);
        assert_eq!((turns.turns.len(), turns.order.len()), (LIMIT, LIMIT));
    }
}
