//! Answers to Codex's questions.

use super::command::SessionId;
use super::effects::perform;
use super::engine::Engine;
use super::error::{ApprovalOutOfBounds, EngineError};
use super::sessions::Entry;
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
        if entry.state() == State::Cancelled {
            return Err(entry.cancelled());
        }
        self.check_decision(&entry, action, decision)?;
        let effects =
            entry.change(|machine, now| machine.decide_as(by, action, decision, note, now))?;
        perform(&entry, effects);
        Ok(())
    }

    /// Refuses an approval by which a command would leave a bounded sandbox: Codex runs
    /// approved commands without one.
    fn check_decision(
        &self,
        entry: &Entry,
        action: &ActionId,
        decision: &Decision,
    ) -> Result<(), ApprovalOutOfBounds> {
        // Neither the client that decides nor the one that began the session leaves its bound.
        let bounds = [&self.owner.sandbox_bound, &entry.owner.sandbox_bound];
        let Some(bound) = bounds.into_iter().flatten().next() else {
            return Ok(());
        };
        let leaves = entry.look(|machine, _| {
            let open = machine.actions().iter().find(|open| open.id == *action);
            open.is_some_and(|open| action::leaves_the_sandbox(&open.ask, decision))
        });
        match leaves {
            true => Err(ApprovalOutOfBounds(bound.clone())),
            false => Ok(()),
        }
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
