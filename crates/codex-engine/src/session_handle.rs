//! A handle on a session, for holders that need not be its client.

use std::fmt::{self, Debug, Formatter};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use codex_protocol::codex::ThreadId;
use tokio::sync::watch;

use super::adoption::restore_now;
use super::backend::FIRST_WITH_TOKENS;
use super::closing;
use super::command::{OpenQuestion, SessionId, TurnView};
use super::decisions;
use super::engine::{Engine, session_named};
use super::entry::{Entry, Repetition, open_questions};
use super::error::EngineError;
use super::hub::{self, Hub};
use super::observer::Act;
use super::shared::AppServers;
use super::turns;
use super::workspace;
use crate::logic::action::{ActionId, DecidedBy, Decision};
use crate::logic::events::{Event, FollowCursor, FollowedEvent};
use crate::logic::session::{SentPrompt, State};

/// The time limit for restoring a session and its sub-agents while a request about its questions
/// waits. It is longer than the session waits for its client, because sessions are restored one
/// after the other.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(8);

/// The time limit for Codex to repeat the questions afterwards. Codex does not repeat a question that
/// is closed, so only the first request waits for this time.
const REPEAT_TIMEOUT: Duration = Duration::from_millis(500);

/// A session, for holders other than its client: a person at a terminal, a task, or the client of
/// another engine. The bound of the client that opened the session applies to every holder, and
/// that client's observer keeps the record.
#[derive(Clone)]
pub struct SessionHandle {
    entry: Arc<Entry>,
    hub: Arc<Hub>,
    /// The setting that keeps commands in the sandbox for the holder of this handle, if there is
    /// one.
    bound: Option<String>,
}

/// The data with which Codex's own interactive program opens a session.
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
        // The token must not appear in logs.
        f.debug_struct("Attachment")
            .field("address", &self.address)
            .field("thread", &self.thread)
            .finish_non_exhaustive()
    }
}

/// Why no other program can be opened on a session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttachRefused {
    /// The session has a bound, and Codex's own program does not know our bounds.
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
    /// The directories of the thread cannot be used, for example because one was replaced.
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
    /// The events, oldest first, without the texts that may still grow.
    pub events: Vec<Event>,
    /// The number of the first event after them.
    pub next: u64,
}

impl AppServers {
    fn handles(&self) -> Vec<SessionHandle> {
        let all = self.entries().into_iter();
        all.map(|(hub, entry)| SessionHandle {
            entry,
            hub,
            bound: None,
        })
        .collect()
    }

    /// The session with this ID, or ID prefix of 8 characters or more; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`EngineError::AmbiguousSession`].
    pub fn session(&self, text: &str) -> Result<Option<SessionHandle>, EngineError> {
        let mut all = self.handles();
        let id = session_named(text, all.iter().map(SessionHandle::id))?;
        all.retain(|session| *session.id() == id);
        Ok(all.pop())
    }

    /// The session in which this task has begun the latest turn, and the number of that turn.
    #[must_use]
    pub fn turn_of_task(&self, task: &str) -> Option<(SessionHandle, u64)> {
        let origin = turns::named_task(task);
        self.handles().into_iter().find_map(|session| {
            let number = session.entry.turn_begun_by(&origin)?;
            Some((session, number))
        })
    }
}

impl Engine {
    /// A session, with the bound of this engine's client.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub fn handle(&self, session: &SessionId) -> Result<SessionHandle, EngineError> {
        Ok(SessionHandle {
            entry: self.entry(session)?,
            hub: Arc::clone(&self.codex.hub),
            bound: self.owner.sandbox_bound.clone(),
        })
    }
}

impl SessionHandle {
    /// The same session with another bound, for a holder that has its own.
    #[must_use]
    pub fn within(self, bound: Option<String>) -> Self {
        Self { bound, ..self }
    }

    /// Its ID.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.entry.id
    }

    /// Its thread.
    #[must_use]
    pub fn thread(&self) -> &ThreadId {
        &self.entry.thread
    }

    /// Its state. Its questions count as shown to the client.
    #[must_use]
    pub fn view(&self) -> TurnView {
        self.entry.view()
    }

    /// Waits until it has a later revision than `seen`.
    pub async fn changed(&self, seen: u64) {
        let mut revision = self.entry.watch();
        // Fails only without the entry, which this holds.
        let _ = revision.wait_for(|revision| *revision > seen).await;
    }

    /// All text of Codex in the running turn.
    #[must_use]
    pub fn partial_text(&self) -> String {
        self.entry.access(|machine, _| machine.partial_text())
    }

    /// Interrupts this turn, if it still runs. The [view](Self::view) has its outcome a moment
    /// later.
    pub fn interrupt(&self, turn: u64) {
        let entry = &self.entry;
        if entry.access(|machine, _| machine.has_turn() && machine.turns() == turn) {
            let observer = entry.owner().observer;
            observer.acted(&entry.thread, Act::Interrupted);
            hub::interrupt(entry, turn);
        }
    }

    /// Whether a turn runs, also one that is being ended.
    #[must_use]
    pub fn has_turn(&self) -> bool {
        self.entry.access(|machine, _| machine.has_turn())
    }

    /// The setting that keeps commands of the session in the sandbox, if there is one. It applies
    /// if either this handle's holder or the client that opened the session has a bound.
    #[must_use]
    pub fn sandbox_bound(&self) -> Option<String> {
        let own = self.bound.clone();
        own.or_else(|| self.entry.owner().sandbox_bound)
    }

    /// Restores the session now, if it comes from an earlier host and waits for its client. Call this
    /// before any command to the session: until then, its state is not known, and the next host would
    /// not learn of the command.
    pub async fn restore(&self) {
        restore_now(&self.hub, &self.entry).await;
    }

    /// Waits, for a short time, until the questions that an earlier host has shown are open in this
    /// one.
    pub async fn questions_restored(&self) {
        let entry = &self.entry;
        let awaits = || entry.access(|machine, _| machine.awaits_questions());
        let awaits_while = |repetition: Repetition| awaits() && entry.repetition() == repetition;
        let is_pending = || awaits_while(Repetition::Pending);
        entry.wait_while(RESTORE_TIMEOUT, is_pending).await;
        let is_due = || awaits_while(Repetition::Due);
        entry.wait_while(REPEAT_TIMEOUT, is_due).await;
        if is_due() {
            entry.set_repetition(Repetition::Over);
        }
    }

    /// The open questions. Reading them here does not count as showing them to the client.
    #[must_use]
    pub fn questions(&self) -> Vec<OpenQuestion> {
        self.entry.access(|machine, _| open_questions(machine))
    }

    /// The words for how a question was closed; `None` if the event log does not have that.
    #[must_use]
    pub fn closing_of(&self, action: &ActionId) -> Option<String> {
        self.entry
            .access(|machine, _| machine.log().closing_of(&action.0))
    }

    /// Answers a question; a note is written to the event log.
    ///
    /// # Errors
    ///
    /// [`EngineError::Cancelled`], [`EngineError::Decision`] and [`EngineError::OutOfBounds`].
    pub fn respond(
        &self,
        by: DecidedBy,
        action: &ActionId,
        decision: &Decision,
        note: Option<&str>,
    ) -> Result<(), EngineError> {
        let bound = self.sandbox_bound();
        decisions::decide(&self.entry, bound.as_ref(), by, action, decision, note)
    }

    /// Leaves a question that the client's user has dismissed to the readers of the session.
    pub fn dismiss(&self, action: &ActionId) {
        self.entry
            .change(|machine, now| machine.dismiss(action, now));
    }

    /// Adds text to the prompt of the running turn.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; the turn continues unchanged then.
    pub async fn steer(&self, text: &str) -> Result<(), EngineError> {
        turns::steer(&self.entry, &*self.entry.owner().observer, text).await
    }

    /// Cancels the session, as [`Engine::cancel`] does.
    pub async fn cancel(&self, why: &str) {
        closing::cancel(&self.hub, &self.entry, &*self.entry.owner().observer, why).await;
    }

    /// Returns the data with which Codex's own interactive program opens the session. From then on,
    /// turns that are begun in that program count as turns of the session.
    ///
    /// # Errors
    ///
    /// [`AttachRefused`].
    pub fn attach(&self) -> Result<Attachment, AttachRefused> {
        let entry = &self.entry;
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

    /// The news for a follower of the event log: additions to texts, and `most` new events at most.
    /// Advances the cursor. As with [`events`](Self::events), the events still count as unread for
    /// the client.
    #[must_use]
    pub fn follow(&self, cursor: &mut FollowCursor, most: usize) -> Vec<FollowedEvent> {
        self.entry
            .access(|machine, _| machine.log().follow(cursor, most))
    }

    /// Its latest prompts, from number `from` on.
    #[must_use]
    pub fn prompts(&self, from: u64) -> Vec<SentPrompt> {
        self.entry.access(|machine, _| machine.prompts(from))
    }

    /// All changes of files by the running turn, or else the last one, as a unified diff; `None` if
    /// that is `known`.
    #[must_use]
    pub fn changed_diff(&self, known: &str) -> Option<String> {
        self.entry.access(|machine, _| {
            let diff = machine.diff();
            (diff != known).then(|| diff.to_owned())
        })
    }

    /// The number of the first event in the history of the log. A session taken over from an
    /// earlier host has a log that begins at a new number.
    #[must_use]
    pub fn first_event(&self) -> u64 {
        self.entry.access(|machine, _| machine.log().first_id())
    }

    /// A watch that changes with every write to the event log and every change of the session.
    #[must_use]
    pub fn watch_news(&self) -> watch::Receiver<u64> {
        self.entry.watch_news()
    }

    /// The events from number `cursor` on, `most` at most, with the ends of earlier turns. They still
    /// count as unread for the client.
    #[must_use]
    pub fn events(&self, cursor: u64, most: usize) -> EventPage {
        self.entry.access(|machine, _| {
            let log = machine.log();
            let end = match machine.has_turn() {
                true => log.settled_to(),
                false => log.next_id(),
            };
            let events = log.history(cursor, most).into_iter();
            let events = events.filter(|event| event.id < end);
            let events: Vec<Event> = events.cloned().collect();
            let next = events.last().map_or(cursor, |event| event.id + 1);
            EventPage { events, next }
        })
    }
}
