//! Ends turns, sessions, and an app-server that does not do what it is asked.

use std::sync::Arc;
use std::time::Duration;

use codex_protocol::codex::{Method, Persistence, ThreadId, ThreadParams};
use safe_files::directory;
use serde_json::Value;

use super::command::{ResumeThread, SessionId, Settings, TurnRef};
use super::connection::CallError;
use super::engine::Engine;
use super::entry::Entry;
use super::error::EngineError;
use super::hub;
use super::observer::{Act, EngineObserver};
use super::requests::call;
use crate::logic::session::{PromptRefused, State};

/// The time limit of each half of unloading a thread. Codex takes about 5 ms, 0.104.0 about 60 ms,
/// and on a busy machine more than 500 ms. Between the halves, no process finds the thread.
const UNLOAD_TIMEOUT: Duration = Duration::from_secs(3);

/// Whether Codex has unloaded the thread of a closed session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnloadState {
    /// The thread is unloaded.
    Unloaded,
    /// Codex has not confirmed it. Resuming a loaded thread keeps its settings.
    MaybeLoaded,
}

/// Whether a thread was released for another process.
#[derive(Debug, Clone, PartialEq)]
pub enum ReleaseOutcome {
    /// No session of this engine has the thread. These are its settings, with its directory.
    Released(Box<Settings>),
    /// Only this engine can continue the thread, or its directory is not known or was replaced.
    Kept,
}

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
    pub fn interrupt_session(&self, session: &SessionId) -> Result<(), EngineError> {
        let entry = self.entry(session)?;
        let (state, turn) = entry.look(|machine, _| (machine.state(), machine.turns()));
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

    /// Cancels a session and interrupts its turn. Its thread can be resumed later. A
    /// session that was cancelled before is not changed.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub fn cancel(&self, session: &SessionId, why: &str) -> Result<(), EngineError> {
        cancel(&self.entry(session)?, &*self.owner.observer, why);
        Ok(())
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

    /// Cancels a session like [`cancel`](Self::cancel), has Codex unload its thread, and
    /// forgets the thread's settings: a caller that resumes it later, in any Codex, sets
    /// them anew.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub async fn close(&self, session: &SessionId, why: &str) -> Result<UnloadState, EngineError> {
        self.cancel(session, why)?;
        let entry = self.entry(session)?;
        let closed = unload(&entry).await;
        self.codex.hub.sessions.erase(&entry);
        Ok(closed)
    }

    /// Releases a thread for another process, which may then resume it: cancels its session, and
    /// has Codex unload the thread. `resume` is what this engine would resume the thread with.
    /// The settings of the thread stay remembered.
    ///
    /// A thread stays here if another process could not continue it: one without a rollout, and
    /// one with commands that run on, which would be ended with its session.
    ///
    /// # Errors
    ///
    /// [`EngineError::Busy`] or [`EngineError::StillEnding`] if a turn runs, and the errors of
    /// reading the thread's directory.
    pub async fn release_thread(
        &self,
        resume: ResumeThread,
        why: &str,
    ) -> Result<ReleaseOutcome, EngineError> {
        let ResumeThread { thread, start } = resume;
        let before = self.earlier_settings(&thread).settings;
        if before.persistence == Persistence::Ephemeral {
            return Ok(ReleaseOutcome::Kept);
        }
        let mut settings = start.settings.over(before);
        if settings.thread.cwd.is_none() {
            settings.thread.cwd = self.start_directory(&thread).await?;
        }
        match &settings.thread.cwd {
            Some(cwd) if directory::check(cwd).is_ok() => {}
            // The refusal to resume the thread says what is wrong.
            _ => return Ok(ReleaseOutcome::Kept),
        }
        let released = ReleaseOutcome::Released(Box::new(settings));
        let Some(entry) = self.codex.hub.sessions.by_thread(thread.as_str()) else {
            return Ok(released);
        };
        if !self.is_releasable(&entry).await? {
            return Ok(ReleaseOutcome::Kept);
        }
        self.cancel(&entry.id, why)?;
        match unload(&entry).await {
            UnloadState::Unloaded => {
                self.codex.hub.sessions.forget(&entry);
                Ok(released)
            }
            UnloadState::MaybeLoaded => Ok(ReleaseOutcome::Kept),
        }
    }

    /// Whether the session of a thread can be closed without a loss.
    async fn is_releasable(&self, entry: &Entry) -> Result<bool, EngineError> {
        let has_commands = match entry.state() {
            State::Running => return Err(EngineError::Busy(PromptRefused::Running)),
            State::WaitingApproval => return Err(EngineError::Busy(PromptRefused::Waiting)),
            State::Cancelled if entry.look(|machine, _| machine.has_turn()) => {
                return Err(EngineError::StillEnding(entry.thread.clone()));
            }
            State::Cancelled => false,
            State::Idle | State::Error => match self.terminals(&entry.id).await {
                Ok(terminals) => !terminals.is_empty(),
                // 0.104.0 cannot say whose commands run.
                Err(EngineError::UnknownMethod(_)) => self.has_processes().await,
                Err(_) => true,
            },
        };
        // The thread may have got a prompt meanwhile.
        let has_turn = entry.look(|machine, _| machine.has_turn());
        let is_empty = entry.look(|machine, _| machine.turns() == 0);
        Ok(!has_commands && !has_turn && (!is_empty || entry.was_there_before()))
    }

    /// Restores an archived thread, such as one whose unloading was interrupted.
    ///
    /// # Errors
    ///
    /// [`EngineError`].
    pub async fn unarchive(&self, thread: &ThreadId) -> Result<(), EngineError> {
        let (server, _) = self.codex.backend.ready(&self.codex.hub).await?;
        let params = ThreadParams { thread_id: thread };
        let _: Value = call(&server, Method::ThreadUnarchive, &params).await?;
        Ok(())
    }

    /// Ends an app-server that no longer does what it is asked, with all processes that
    /// it started. The next call that needs one starts another.
    pub fn give_up_codex(&self) {
        if let Some((server, _)) = self.codex.backend.running() {
            server.connection().close();
        }
    }
}

/// Cancels a session and interrupts its turn.
pub(super) fn cancel(entry: &Arc<Entry>, observer: &dyn EngineObserver, why: &str) {
    if entry.state() != State::Cancelled {
        observer.acted(&entry.thread, Act::Cancelled(why));
    }
    hub::cancel(entry, why);
}

/// Makes Codex unload a thread at once, by archiving and restoring it. A thread without
/// subscribers stays loaded, and closed to other processes, for 30 minutes (0.153.4 and
/// 0.169.0) or for good (0.104.0); an archived one is unloaded at once.
async fn unload(entry: &Entry) -> UnloadState {
    let (server, _) = entry.server();
    let params = ThreadParams {
        thread_id: &entry.thread,
    };
    let unloading = async {
        let _: Value = server
            .call(Method::ThreadArchive, &params, UNLOAD_TIMEOUT)
            .await?;
        let _: Value = server
            .call(Method::ThreadUnarchive, &params, UNLOAD_TIMEOUT)
            .await?;
        Ok::<(), CallError>(())
    };
    match unloading.await {
        Ok(()) => UnloadState::Unloaded,
        Err(error) => {
            // The thread is empty, Codex is gone, or it is slow.
            tracing::debug!("the thread is not unloaded: {error}");
            server.connection().cast(Method::ThreadUnarchive, &params);
            UnloadState::MaybeLoaded
        }
    }
}
