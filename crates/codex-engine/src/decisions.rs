//! Answers to Codex's questions.

use std::sync::Arc;

use super::command::SessionId;
use super::effects::perform;
use super::engine::Engine;
use super::entry::Entry;
use super::error::{ApprovalOutOfBounds, EngineError};
use super::hub;
use crate::logic::action::{self, ActionId, DecidedBy, Decision};
use crate::logic::session::State;

impl Engine {
    /// Answers a question of Codex's by the client's decision in a tool call; a note is
    /// written to the event log.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`], and those of [`SessionHandle::respond`](crate::SessionHandle::respond).
    pub fn respond(
        &self,
        session: &SessionId,
        action: &ActionId,
        decision: &Decision,
        note: Option<&str>,
    ) -> Result<(), EngineError> {
        let session = self.handle(session)?;
        session.respond(DecidedBy::Client, action, decision, note)
    }
}

/// Answers a question of a session. `bound` refuses an approval by which a command would leave its
/// sandbox: Codex runs approved commands without one.
///
/// # Errors
///
/// As [`SessionHandle::respond`](crate::SessionHandle::respond).
pub(super) fn decide(
    entry: &Arc<Entry>,
    bound: Option<&String>,
    by: DecidedBy,
    action: &ActionId,
    decision: &Decision,
    note: Option<&str>,
) -> Result<(), EngineError> {
    if entry.state() == State::Cancelled {
        return Err(entry.cancelled());
    }
    if let Some(bound) = bound
        && leaves_the_sandbox(entry, action, decision)
    {
        return Err(ApprovalOutOfBounds(bound.clone()).into());
    }
    let effects =
        entry.change(|machine, now| machine.decide_as(by, action, decision, note, now))?;
    perform(entry, effects);
    // Some questions have no answer that ends the turn. Then the turn has to be interrupted.
    hub::ensure_end(entry);
    Ok(())
}

fn leaves_the_sandbox(entry: &Entry, action: &ActionId, decision: &Decision) -> bool {
    entry.access(|machine, _| {
        let open = machine.actions().iter().find(|open| open.id == *action);
        open.is_some_and(|open| action::leaves_the_sandbox(&open.ask, decision))
    })
}
