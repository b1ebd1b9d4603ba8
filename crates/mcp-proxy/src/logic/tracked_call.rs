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
    /// The ID under which the child answers at an error of the turn. It then misses the end of the
    /// turn.
    pub(super) answered_at_error: Option<RequestId>,
    /// Why no call gets the child's next answer under the ID of this call; `None` if one does.
    pub(super) stray_answer: Option<StrayAnswer>,
    pub(super) stage: CallStage,
}

impl TrackedCall {
    /// Whether the call is over, and only its listener in the child is left.
    pub(super) fn is_left_behind(&self) -> bool {
        self.stage.is_stale() && self.turn == TurnState::Over
    }
}

/// The state of a call's turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TurnState {
    Awaited,
    Running,
    /// The turn is complete, and its answer will come under this ID.
    Completed(RequestId),
    /// The turn is over or its answer has come; the child still listens for the call.
    Over,
}

impl TurnState {
    pub(super) fn is_under_way(&self) -> bool {
        matches!(self, Self::Awaited | Self::Running)
    }
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

/// An answer of the child that no call may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StrayAnswer {
    /// The second answer of a turn, which the child has answered at its error.
    Second,
    /// The answer of a turn that was begun without a call, as by mail of a sub-agent.
    WithoutCall,
}
