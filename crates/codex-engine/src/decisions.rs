//! Answers to Codex's questions.

use std::sync::Arc;

use super::command::SessionId;
use super::effects::perform;
use super::engine::Engine;
use super::entry::Entry;
use super::error::{ApprovalOutOfBounds, EngineError};
use crate::logic::action::{self, ActionId, DecidedBy, Decision};
use crate::logic::session::State;

impl Engine {
    /// Answers a question of Codex's by the client's decision in a tool call; a note is
    /// written to the event log.
    ///
    /// # Errors
    ///
    /// As [`Engine::respond_as`].
    pub fn respond(
        &self,
        session: &SessionId,
        action: &ActionId,
        decision: &Decision,
        note: Option<&str>,
    ) -> Result<(), EngineError> {
        self.respond_as(DecidedBy::Client, session, action, decision, note)
    }

    /// Answers a question of Codex's; a note is written to the event log.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`], [`EngineError::Cancelled`], [`EngineError::Decision`] and
    /// [`EngineError::OutOfBounds`].
    pub fn respond_as(
        &self,
        by: DecidedBy,
        session: &SessionId,
        action: &ActionId,
        decision: &Decision,
        note: Option<&str>,
    ) -> Result<(), EngineError> {
        let entry = self.entry(session)?;
        // Neither the client that decides nor the one that began the session leaves its bound.
        let bound = self.owner.sandbox_bound.clone();
        let bound = bound.or_else(|| entry.owner().sandbox_bound);
        decide(&entry, bound.as_ref(), by, action, decision, note)
    }

    /// Leaves a question that the client's user dismissed to the readers of the session.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub fn dismiss(&self, session: &SessionId, action: &ActionId) -> Result<(), EngineError> {
        let entry = self.entry(session)?;
        entry.change(|machine, now| machine.dismiss(action, now));
        Ok(())
    }
}

/// Answers a question of a session. `bound` refuses an approval by which a command would leave its
/// sandbox: Codex runs approved commands without one.
///
/// # Errors
///
/// As [`Engine::respond_as`].
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
    Ok(())
}

fn leaves_the_sandbox(entry: &Entry, action: &ActionId, decision: &Decision) -> bool {
    entry.look(|machine, _| {
        let open = machine.actions().iter().find(|open| open.id == *action);
        open.is_some_and(|open| action::leaves_the_sandbox(&open.ask, decision))
    })
}
