//! The state that identifies a call which returned questions when it is repeated with the answers.

use codex_engine::command::{SessionId, TurnRef};
use codex_protocol::codex::ThreadId;

use super::code::Code;
use super::error::ToolError;

/// The turn to which the answers of a 2026-07-28 client belong. The client receives it with the
/// questions and returns it with the answers. It only names a session of ours, so there is nothing
/// in it worth forging.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestState {
    pub(super) turn: TurnRef,
    /// The thread, for the error if the session is gone: the client does not know it yet.
    pub(super) thread: ThreadId,
}

impl RequestState {
    pub(super) fn to_text(&self) -> String {
        let TurnRef { session, number } = &self.turn;
        format!("{session}.{number}.{}", self.thread)
    }

    pub(super) fn parse(text: &str) -> Result<Self, ToolError> {
        let mut parts = text.splitn(3, '.');
        let mut parsed = || {
            let session = SessionId::named(parts.next()?);
            let number = parts.next()?.parse().ok()?;
            let thread = ThreadId::parse(parts.next()?).ok()?;
            Some(Self {
                turn: TurnRef { session, number },
                thread,
            })
        };
        parsed().ok_or_else(|| {
            ToolError::new(
                Code::InvalidArgument,
                "the requestState is not one of codex-mcp's",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_state_survives_a_round_trip() {
        let state = RequestState {
            turn: TurnRef {
                session: SessionId::named("sess_0123456789ab"),
                number: 3,
            },
            thread: ThreadId::parse("0199a213-81c0-7800-8aa1-bbab2a035a53").unwrap(),
        };
        assert_eq!(RequestState::parse(&state.to_text()).unwrap(), state);
        for bad in ["", "sess_1", "sess_1.x", ".", "sess_1.1.thread"] {
            assert!(RequestState::parse(bad).is_err(), "{bad}");
        }
    }
}
