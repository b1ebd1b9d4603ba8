//! A session in the hands of a person who is not its client.

use std::sync::Arc;

use super::closing;
use super::command::OpenQuestion;
use super::decisions;
use super::engine::session_named;
use super::entry::{Entry, open_questions};
use super::error::EngineError;
use super::shared::AppServers;
use super::turns;
use crate::logic::action::{ActionId, DecidedBy, Decision};
use crate::logic::events::Event;

/// A session of an [app-server](crate::AppServers) that several clients share, for a person at a
/// terminal. The bound of the client that has opened the session holds here too, and that client's
/// observer keeps the record.
pub struct SessionHandle(Arc<Entry>);

/// Events of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct EventPage {
    /// The events, oldest first. A text that may grow yet is not among them.
    pub events: Vec<Event>,
    /// The number of the first event after them.
    pub next: u64,
}

impl AppServers {
    /// The session with this ID, or ID prefix of 8 characters or more; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`EngineError::AmbiguousSession`].
    pub fn session(&self, text: &str) -> Result<Option<SessionHandle>, EngineError> {
        let all = self.entries();
        let id = session_named(text, all.iter().map(|entry| &entry.id))?;
        let found = all.into_iter().find(|entry| entry.id == id);
        Ok(found.map(SessionHandle))
    }
}

impl SessionHandle {
    /// Its ID.
    #[must_use]
    pub fn id(&self) -> String {
        self.0.id.to_string()
    }

    /// Whether a turn runs, also one that is being ended.
    #[must_use]
    pub fn has_turn(&self) -> bool {
        self.0.look(|machine, _| machine.has_turn())
    }

    /// The setting that keeps its commands in the sandbox, if there is one.
    #[must_use]
    pub fn sandbox_bound(&self) -> Option<String> {
        self.0.owner().sandbox_bound
    }

    /// The open questions. To look at them here does not count as showing them to the client.
    #[must_use]
    pub fn questions(&self) -> Vec<OpenQuestion> {
        self.0.look(|machine, _| open_questions(machine))
    }

    /// Answers a question; a note is written to the event log.
    ///
    /// # Errors
    ///
    /// [`EngineError::Cancelled`], [`EngineError::Decision`] and [`EngineError::OutOfBounds`].
    pub fn respond(
        &self,
        action: &ActionId,
        decision: &Decision,
        note: Option<&str>,
    ) -> Result<(), EngineError> {
        let bound = self.sandbox_bound();
        decisions::decide(
            &self.0,
            bound.as_ref(),
            DecidedBy::Terminal,
            action,
            decision,
            note,
        )
    }

    /// Adds text to the prompt of the running turn.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; the turn continues unchanged then.
    pub async fn steer(&self, text: &str) -> Result<(), EngineError> {
        turns::steer(&self.0, &*self.0.owner().observer, text).await
    }

    /// Cancels the session and interrupts its turn. Its thread can be resumed later.
    pub fn cancel(&self, why: &str) {
        closing::cancel(&self.0, &*self.0.owner().observer, why);
    }

    /// The events from number `cursor` on, `most` at most. To look at them here does not count as
    /// reading them: a client still gets each as unread.
    #[must_use]
    pub fn events(&self, cursor: u64, most: usize) -> EventPage {
        self.0.look(|machine, _| {
            let log = machine.log();
            let page = log.page(cursor, most);
            let end = match machine.has_turn() {
                true => log.settled_to(),
                false => log.next_id(),
            };
            let events = page.events.into_iter().filter(|event| event.id < end);
            let events: Vec<Event> = events.cloned().collect();
            let next = events.last().map_or(cursor, |event| event.id + 1);
            EventPage { events, next }
        })
    }
}
