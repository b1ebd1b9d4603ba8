//! Ends turns, sessions, and an app-server that does not do what it is asked.

use std::sync::Arc;
use std::time::Duration;

use codex_protocol::codex::{Method, ThreadId, ThreadParams};
use serde_json::Value;
use tokio::time::timeout;

use super::app_server::AppServer;
use super::command::{SessionId, TurnRef};
use super::connection::Closing;
use super::engine::Engine;
use super::entry::Entry;
use super::error::EngineError;
use super::hub::{self, Hub};
use super::observer::{Act, EngineObserver};
use super::requests::call;
use super::unloading::{UnloadState, is_written, unload, unload_when_ended};
use crate::logic::session::{Session, State};

/// How long cancelling a session waits until its turn has ended and its thread is unloaded. Codex
/// ends most turns within 50 ms; slower turns, and their threads, end in the background.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

impl Engine {
    /// Interrupts a turn, if it still runs. [`inspect`](Self::inspect) returns its
    /// outcome a moment later.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub fn interrupt(&self, turn: &TurnRef) -> Result<(), EngineError> {
        hub::interrupt(&self.entry(&turn.session)?, turn.number);
        Ok(())
    }

    /// Interrupts the running turn of a session.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotRunning`] if no turn runs.
    pub async fn interrupt_session(&self, session: &SessionId) -> Result<(), EngineError> {
        let entry = self.restored(session).await?;
        let (state, turn) = entry.access(|machine, _| (machine.state(), machine.turns()));
        match state {
            State::Running | State::WaitingApproval => {
                self.owner.observer.acted(&entry.thread, Act::Interrupted);
                hub::interrupt(&entry, turn);
            }
            State::Cancelled => return Err(entry.cancelled()),
            State::Idle | State::Error => return Err(EngineError::NotRunning(session.clone())),
        }
        Ok(())
    }

    /// Cancels a session and interrupts its turn. Once the turn has ended, has Codex unload the
    /// thread, so that any process can resume it, unless the thread's sub-agents may still use it.
    /// A session that was cancelled before is not changed.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub async fn cancel(&self, session: &SessionId, why: &str) -> Result<(), EngineError> {
        let entry = self.restored(session).await?;
        cancel(&self.codex.hub, &entry, &*self.owner.observer, why).await;
        Ok(())
    }

    /// Cancels a session like [`cancel`](Self::cancel), unless a turn has begun after `turn`, and does
    /// not wait until its thread is unloaded. Returns whether the session is cancelled.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub fn cancel_after(&self, turn: &TurnRef, why: &str) -> Result<bool, EngineError> {
        let entry = self.entry(&turn.session)?;
        let is_last = entry.access(|machine, _| machine.turns() == turn.number);
        if is_last {
            // No turn can begin in between, as nothing is awaited.
            cancel_turn(&entry, &*self.owner.observer, why);
            tokio::spawn(unload_when_ended(Arc::clone(&self.codex.hub), entry));
        }
        Ok(is_last)
    }

    /// Cancels a session that was not used. Its empty thread is forgotten.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub fn discard(&self, session: &SessionId) -> Result<(), EngineError> {
        let entry = self.entry(session)?;
        hub::cancel(&entry, "it was not used");
        self.owner.observer.discarded(&entry.thread);
        Ok(())
    }

    /// Cancels a session like [`cancel`](Self::cancel), has Codex unload its thread, and forgets
    /// the thread's settings: a caller that resumes it later, in any Codex, has to set them again.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub async fn close(&self, session: &SessionId, why: &str) -> Result<UnloadState, EngineError> {
        let entry = self.entry(session)?;
        cancel_turn(&entry, &*self.owner.observer, why);
        let closed = unload(&self.codex.hub, &entry).await;
        self.codex.hub.sessions.erase(&entry);
        Ok(closed)
    }

    /// Has Codex unload the threads of this engine's idle sessions, so that other processes can
    /// resume them. The sessions remain, and load their threads again when needed. A thread stays
    /// loaded while it has a turn, running commands or sub-agents, while it is open in Codex's own
    /// program, and if unloading would lose it.
    ///
    /// Stops before the next thread once `ends` returns `true`. Dropping the future could leave a
    /// thread archived.
    pub async fn unload_idle(&self, ends: impl Fn() -> bool) {
        for entry in self.own_sessions() {
            let is_unloadable = self.is_unloadable(&entry).await;
            if ends() {
                return;
            }
            let hub = &self.codex.hub;
            let turns = || entry.access(|machine, _| machine.turns());
            let before = turns();
            let is_unloaded = is_unloadable && unload(hub, &entry).await == UnloadState::Unloaded;
            // A turn that has begun meanwhile loads the thread again.
            if is_unloaded && turns() == before {
                entry.mark_unloaded();
            }
        }
    }

    async fn is_unloadable(&self, entry: &Arc<Entry>) -> bool {
        let running = self.codex.backend.running();
        let is_loaded = running.is_some_and(|running| entry.is_loaded_in(&running));
        if !is_written(entry) || !is_loaded || self.is_used(entry) {
            return false;
        }
        let has_commands = match self.terminals_of(entry).await {
            Ok(terminals) => !terminals.is_empty(),
            // 0.104.0 cannot tell to which thread a running command belongs.
            Err(EngineError::UnknownMethod(_)) => self.has_processes().await,
            Err(_) => true,
        };
        // Checked again: the session may have been used in the meantime.
        !has_commands && !self.is_used(entry)
    }

    fn is_used(&self, entry: &Arc<Entry>) -> bool {
        let sessions = &self.codex.hub.sessions;
        // Archiving a thread archives its sub-agents too, and ends them.
        let has_children = !sessions.children(entry).is_empty();
        let is_busy = |machine: &Session| machine.has_turn() || machine.is_attached();
        // A cancelled session may have a successor, which has the thread now.
        !sessions.is_current(entry) || has_children || entry.access(|machine, _| is_busy(machine))
    }

    /// Ends an app-server that no longer responds to requests, with all processes that it started.
    /// The next call that needs an app-server starts another.
    pub fn give_up_codex(&self) {
        if let Some((server, _)) = self.codex.backend.running() {
            server.connection().close(Closing::Abrupt);
        }
    }
}

/// Cancels a session, interrupts its turn, and has Codex unload its thread.
pub(super) async fn cancel(
    hub: &Arc<Hub>,
    entry: &Arc<Entry>,
    observer: &dyn EngineObserver,
    why: &str,
) {
    cancel_turn(entry, observer, why);
    // Dropping the future could leave the thread archived.
    let unloading = tokio::spawn(unload_when_ended(Arc::clone(hub), Arc::clone(entry)));
    let _ = timeout(CANCEL_TIMEOUT, unloading).await;
}

fn cancel_turn(entry: &Arc<Entry>, observer: &dyn EngineObserver, why: &str) {
    if entry.state() != State::Cancelled {
        observer.acted(&entry.thread, Act::Cancelled(why));
    }
    hub::cancel(entry, why);
}

/// Restores an archived thread.
pub(super) async fn unarchive(server: &AppServer, thread: &ThreadId) -> Result<(), EngineError> {
    let params = ThreadParams { thread_id: thread };
    let _: Value = call(server, Method::ThreadUnarchive, &params).await?;
    Ok(())
}
