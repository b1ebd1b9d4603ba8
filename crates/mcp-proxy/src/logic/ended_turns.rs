//! The calls of turns that are over, and turns that have none.

use std::collections::VecDeque;

use codex_protocol::rpc::RequestId;

use super::tracked_call::Reported;

/// The most turns that are remembered.
const LIMIT: usize = 1000;

/// The longest name of a thread, turn or call that is remembered, in bytes. Codex's own are shorter.
const NAME_LIMIT: usize = 256;

/// The latest turns whose calls are no longer tracked, or that were begun without a call, the latest
/// last. A late event of such a turn, as of a command that it has left running, belongs to its call
/// and to no later one.
#[derive(Debug, Default)]
pub(super) struct EndedTurns(VecDeque<EndedTurn>);

#[derive(Debug)]
struct EndedTurn {
    thread: String,
    /// The child's name of the turn. Turns of several threads can have the same.
    name: String,
    /// `None` if the turn was begun without a call.
    call: Option<RequestId>,
    reported: Reported,
}

impl EndedTurn {
    fn is(&self, thread: &str, turn_id: &str) -> bool {
        self.name == turn_id && self.thread == thread
    }
}

impl EndedTurns {
    /// Remembers the call of a turn, and forgets the oldest turn if there are too many.
    pub(super) fn insert(
        &mut self,
        thread: &str,
        turn_id: &str,
        call: Option<&RequestId>,
        reported: Reported,
    ) {
        let call_name = call.map_or(0, |call| match call {
            RequestId::Number(_) => 0,
            RequestId::Text(text) => text.len(),
        });
        if [thread.len(), turn_id.len(), call_name].into_iter().max() > Some(NAME_LIMIT) {
            return;
        }
        self.remove(thread, turn_id);
        if self.0.len() >= LIMIT {
            self.0.pop_front();
        }
        self.0.push_back(EndedTurn {
            thread: thread.to_owned(),
            name: turn_id.to_owned(),
            call: call.cloned(),
            reported,
        });
    }

    /// Notes that the beginning of a turn was reported. Returns `true` if the turn is remembered and
    /// its beginning had not been reported.
    pub(super) fn note_beginning(&mut self, thread: &str, turn_id: &str) -> bool {
        let turn = self.find_mut(thread, turn_id);
        turn.is_some_and(|turn| !std::mem::replace(&mut turn.reported.beginning, true))
    }

    /// Notes that the end of a turn was reported. A turn that is not remembered has no call, and its
    /// beginning may be reported later.
    pub(super) fn note_end(&mut self, thread: &str, turn_id: &str) {
        if let Some(turn) = self.find_mut(thread, turn_id) {
            turn.reported.end = true;
            return;
        }
        let reported = Reported {
            beginning: false,
            end: true,
        };
        self.insert(thread, turn_id, None, reported);
    }

    /// Whether a turn that was begun without a call runs in a thread.
    pub(super) fn runs_without_call(&self, thread: &str) -> bool {
        let runs = |turn: &EndedTurn| turn.call.is_none() && !turn.reported.end;
        self.0
            .iter()
            .any(|turn| turn.thread == thread && runs(turn))
    }

    /// Forgets a turn, as its name is used again.
    pub(super) fn remove(&mut self, thread: &str, turn_id: &str) {
        self.0.retain(|turn| !turn.is(thread, turn_id));
    }

    /// The call of a turn, if the turn is remembered; within it `None` if the turn had no call.
    pub(super) fn get(&self, thread: &str, turn_id: &str) -> Option<Option<&RequestId>> {
        let turn = self.0.iter().find(|turn| turn.is(thread, turn_id))?;
        Some(turn.call.as_ref())
    }

    fn find_mut(&mut self, thread: &str, turn_id: &str) -> Option<&mut EndedTurn> {
        self.0.iter_mut().find(|turn| turn.is(thread, turn_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Reported = Reported {
        beginning: true,
        end: true,
    };

    #[test]
    fn long_names_are_not_remembered() {
        let long = "n".repeat(NAME_LIMIT + 1);
        let call = RequestId::Text(long.clone());
        let mut turns = EndedTurns::default();
        turns.insert(&long, "a", None, ALL);
        turns.insert("t", &long, None, ALL);
        turns.insert("t", "a", Some(&call), ALL);
        assert!(turns.0.is_empty());
    }

    #[test]
    fn oldest_turn_is_forgotten() {
        let call = RequestId::Number(1);
        let mut turns = EndedTurns::default();
        for number in 0..LIMIT {
            turns.insert("t", &number.to_string(), Some(&call), ALL);
        }
        // Now that is the latest turn.
        turns.insert("t", "0", Some(&call), ALL);
        turns.insert("t", "new", Some(&call), ALL);
        assert_eq!(turns.get("t", "1"), None);
        assert_eq!(turns.get("t", "0"), Some(Some(&call)));
        assert_eq!(turns.get("t", "2"), Some(Some(&call)));
        assert_eq!(turns.0.len(), LIMIT);
    }

    #[test]
    fn turn_names_are_scoped_to_threads() {
        let (first, second) = (RequestId::Number(5), RequestId::Number(9));
        let mut turns = EndedTurns::default();
        turns.insert("t", "1", Some(&first), ALL);
        turns.insert("u", "1", Some(&second), ALL);
        assert_eq!(turns.get("t", "1"), Some(Some(&first)));
        assert_eq!(turns.get("u", "1"), Some(Some(&second)));
        assert_eq!(turns.get("v", "1"), None);
    }
}
