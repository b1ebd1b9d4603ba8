//! The state of one call of a tool of Codex.

use std::time::Instant;

use codex_protocol::rpc::RequestId;

use super::partial_text::PartialText;

/// A call that the child still listens for.
#[derive(Debug)]
pub(super) struct TrackedCall {
    pub(super) thread: Option<String>,
    /// The number of the call. The turns of a thread run in the order of these numbers.
    pub(super) number: u64,
    pub(super) turn: TurnState,
    /// The child's name of the turn, once the turn has begun.
    pub(super) turn_id: Option<String>,
    pub(super) reported: Reported,
    pub(super) listener: Listener,
    pub(super) stage: CallStage,
}

impl TrackedCall {
    /// Whether the call is over, and only its listener in the child is left.
    pub(super) fn is_left_behind(&self) -> bool {
        self.stage.is_stale() && self.turn == TurnState::Over
    }

    /// Whether nothing comes for the call or under its ID any more.
    pub(super) fn is_done(&self) -> bool {
        self.is_left_behind() && self.listener == Listener::Gone
    }

    /// Notes that a listener answers at the completion of the turn. Returns `false` if the call has
    /// another answer, or gets none.
    pub(super) fn complete(&mut self) -> bool {
        let is_only = self.turn.is_under_way();
        if is_only {
            self.turn = TurnState::Answering;
        }
        is_only
    }
}

/// The state of a call's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnState {
    Awaited,
    Running,
    /// The turn has completed, or had an error, and a listener answers for it.
    Answering,
    /// The turn is over or its answer has come; the child still listens for the call.
    Over,
}

impl TurnState {
    pub(super) fn is_under_way(&self) -> bool {
        matches!(self, Self::Awaited | Self::Running)
    }
}

/// The parts of a turn that the child has reported, in any order.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reported {
    pub(super) beginning: bool,
    /// Its completion or abortion. Until then, the child has yet to read the end.
    pub(super) end: bool,
}

/// The state of a call's listener in the child.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Listener {
    /// It reads the events of the thread.
    Listens,
    /// It has read the end of a turn or an error, and its answer is for this call, or for none.
    Answers(Option<RequestId>),
    /// It has answered.
    Gone,
}

/// Whether a client waits for a call.
#[derive(Debug)]
pub(super) enum CallStage {
    /// The client waits for its answer.
    InFlight {
        /// The deadline of the answer.
        deadline: Instant,
        /// The text that Codex has written so far.
        text: PartialText,
    },
    /// The call returned early, and its turn continues.
    Unattended {
        /// The deadline of the turn.
        deadline: Instant,
    },
    /// No client waits for the call: its turn is being ended, or is over.
    Stale,
}

impl CallStage {
    pub(super) fn is_stale(&self) -> bool {
        matches!(self, Self::Stale)
    }
}
