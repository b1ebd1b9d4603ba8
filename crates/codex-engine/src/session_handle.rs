//! A session in the hands of a person who is not its client.

use std::fmt::{self, Debug, Formatter};
use std::path::PathBuf;
use std::sync::Arc;

use codex_protocol::codex::ThreadId;

use super::backend::FIRST_WITH_TOKENS;
use super::closing;
use super::command::{OpenQuestion, SessionId};
use super::decisions;
use super::engine::session_named;
use super::entry::{Entry, open_questions};
use super::error::EngineError;
use super::shared::AppServers;
use super::turns;
use super::workspace;
use crate::logic::action::{ActionId, DecidedBy, Decision};
use crate::logic::events::Event;
use crate::logic::session::State;

/// A session of an [app-server](crate::AppServers) that several clients share, for a person at a
/// terminal. The bound of the client that has opened the session holds here too, and that client's
/// observer keeps the record.
pub struct SessionHandle(Arc<Entry>);

/// How Codex's own interactive program is opened on a session.
#[derive(Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The program.
    pub program: PathBuf,
    /// The address of the app-server, as the program takes it.
    pub address: String,
    /// The secret that the app-server demands of its clients. Anybody who knows it can have Codex
    /// do anything.
    pub token: String,
    /// The thread.
    pub thread: ThreadId,
    /// The working directory of the thread, if it is known.
    pub directory: Option<PathBuf>,
}

impl Debug for Attachment {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // No log may have the token.
        f.debug_struct("Attachment")
            .field("address", &self.address)
            .field("thread", &self.thread)
            .finish_non_exhaustive()
    }
}

/// Why no other program can be opened on a session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttachRefused {
    /// A program of Codex knows no bounds of ours.
    #[error(
        "the client of session {0} has a `max_sandbox`, and Codex's own program does not keep to it"
    )]
    Bounded(SessionId),
    /// The thread is not loaded.
    #[error(
        "session {session} is not loaded in Codex; continue its thread with `codex resume {thread}`"
    )]
    NotLoaded {
        /// The session.
        session: SessionId,
        /// Its thread.
        thread: ThreadId,
    },
    /// Its directories cannot be used, such as one that was replaced.
    #[error("{0}")]
    Workspace(String),
    /// The app-server has no port.
    #[error(
        "the Codex of session {session} serves no other program: that takes Linux and Codex \
         {FIRST_WITH_TOKENS} or newer. When its turn has ended, cancel it with `codex-mcp cancel \
         {session}`, and continue its thread with `codex resume {thread}`"
    )]
    NoPort {
        /// The session.
        session: SessionId,
        /// Its thread.
        thread: ThreadId,
    },
}

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

    /// Tells how Codex's own interactive program is opened on the session. Turns that are begun
    /// there count as turns of the session from now on.
    ///
    /// # Errors
    ///
    /// [`AttachRefused`].
    pub fn attach(&self) -> Result<Attachment, AttachRefused> {
        let entry = &self.0;
        let (session, thread) = (entry.id.clone(), entry.thread.clone());
        if self.sandbox_bound().is_some() {
            return Err(AttachRefused::Bounded(session));
        }
        let running = entry.server();
        let server = &running.0;
        let is_over = entry.state() == State::Cancelled;
        if is_over || !server.is_alive() || !entry.is_loaded_in(&running) {
            return Err(AttachRefused::NotLoaded { session, thread });
        }
        workspace::check(&entry.settings().thread)
            .map_err(|error| AttachRefused::Workspace(error.to_string()))?;
        let Some(access) = server.access() else {
            return Err(AttachRefused::NoPort { session, thread });
        };
        entry.change(|machine, _| machine.attach());
        Ok(Attachment {
            program: access.program.clone(),
            address: format!("ws://{}", access.address),
            token: access.token.reveal().to_owned(),
            thread,
            directory: entry.settings().thread.cwd,
        })
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
