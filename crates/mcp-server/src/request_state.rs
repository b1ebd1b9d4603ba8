//! What a call that came back with questions is known by when it comes again.

use codex_engine::command::{SessionId, TurnRef};
use codex_protocol::codex::ThreadId;

use super::code::Code;
use super::error::ToolError;

/// What a 2026-07-28 client hands back with its answers: which turn they are
/// for. It names a session of ours and carries nothing that could be forged.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestState {
    pub(super) turn: TurnRef,
    /// For the error should the session be gone: the client was not told before.
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
    fn the_request_state_comes_back_as_it_went() {
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
