//! The conversation of a run: opens or resumes it, checks the permissions of its sandbox, and sends
//! the prompt of a turn.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use codex_engine::command::{
    OpenThread, Prompt, ReportDenied, ResumeThread, SessionId, StartThread, TurnRef, TurnView,
};
use codex_engine::logic::progress::CurrentStep;
use codex_engine::{EngineError, GrantedSettings};
use codex_protocol::codex::{Release, SandboxMode};
use git_probe::Git;
use safe_files::directory;
use tokio::time::{sleep, timeout};

use super::Driver;
use crate::caller::Caller;
use crate::error::RunError;
use crate::logic::machine::{Run, TurnEnd, TurnPrompt};
use crate::turn::TurnDeadline;
use crate::watcher::{RunEvent, Watcher, WriteConsent};

/// How long a turn that is to be interrupted may take to begin (5 s).
const BEGIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval at which a thread is checked for the end of its last turn.
const ENDING_PAUSE: Duration = Duration::from_millis(100);

/// The prompt of a turn that is about to begin.
pub(super) struct NextPrompt {
    pub(super) text: String,
    pub(super) wanted: TurnPrompt,
    /// The machine of the run, which waits for the end of this turn.
    pub(super) run: Run,
}

/// The outcome of starting a turn.
pub(super) enum TurnStart {
    /// The turn began. The step is the session's before it.
    Turn(TurnRef, CurrentStep),
    /// The turn was to be interrupted, for this reason, before it had begun.
    TooLate(TurnEnd),
}

/// The warning that Codex may write nothing, where no criterion needs it to.
fn read_only_warning(caller: Caller) -> String {
    format!(
        "Codex's sandbox is read-only here, so it can read and answer, and change nothing. If the \
         task is to change files, use {}",
        caller.workspace_write()
    )
}

impl<W: Watcher> Driver<'_, W> {
    /// Begins the turn. A turn can be interrupted only after it has begun, so one that is to be
    /// interrupted meanwhile gets [`BEGIN_TIMEOUT`] to begin.
    pub(super) async fn start_turn(
        &mut self,
        next: NextPrompt,
        deadline: &mut TurnDeadline<'_>,
    ) -> Result<TurnStart, RunError> {
        let engine = self.context.engine;
        let late = {
            let mut begin = pin!(self.prompt_codex(next));
            let why = tokio::select! {
                begun = &mut begin => return begun,
                why = deadline.expired() => why,
            };
            match timeout(BEGIN_TIMEOUT, begin).await {
                Ok(begun) => {
                    let begun = begun?;
                    if let TurnStart::Turn(turn, _) = &begun {
                        engine.interrupt(turn)?;
                    }
                    return Ok(begun);
                }
                Err(_) => why,
            }
        };
        // The state of the session is unknown, so the next turn resumes the thread.
        if let Some(session) = self.session.take() {
            engine
                .cancel(&session, "its turn did not begin in time")
                .await?;
        }
        Ok(TurnStart::TooLate(late))
    }

    /// Opens the conversation before the first turn, so that a person learns early if the sandbox
    /// does not allow the run, or if Codex or its login is missing. Other failures are reported by
    /// the first turn.
    pub(super) async fn open_first(&mut self) -> Result<(), RunError> {
        let (stop, limit) = (self.context.stop, self.spec.limits.turn());
        let clock = Rc::clone(&self.clock);
        let opened = tokio::select! {
            opened = self.open() => opened,
            () = stop.cancelled() => return Ok(()),
            () = clock.reaches(limit) => return Ok(()),
        };
        match opened {
            Err(RunError::Engine(EngineError::NoLogin | EngineError::BadConfiguration(_))) => {
                opened.map(drop)
            }
            Err(RunError::Engine(error)) => {
                self.open_error = Some(error);
                Ok(())
            }
            opened => opened.map(drop),
        }
    }

    /// Sends the prompt, after opening the conversation if there is none.
    async fn prompt_codex(&mut self, next: NextPrompt) -> Result<TurnStart, RunError> {
        let session = match self.session.clone() {
            Some(session) => session,
            None => match self.open_error.take() {
                None => self.open().await?,
                Some(error) => return Err(error.into()),
            },
        };
        let engine = self.context.engine;
        // A Codex that has ended must run again to keep the record. The turn tells why it cannot be started.
        let _ = engine.introduce().await;
        let TurnView { turn, progress, .. } = engine.inspect(&session)?;
        self.keep_record(&next, &session, turn + 1).await;
        let mut prompt = Prompt::text(next.text);
        prompt.task = Some(self.spec.task.clone());
        prompt.overrides.sandbox = self.sandbox_to_reapply.take();
        let turn = engine.prompt(&session, prompt).await?;
        Ok(TurnStart::Turn(turn, progress))
    }

    async fn open(&mut self) -> Result<SessionId, RunError> {
        let opened = self.open_session().await?;
        self.context.warn(opened.warning());
        let opened = match opened.sandbox {
            Some(SandboxMode::ReadOnly) => self.ensure_write_access(opened).await?,
            _ => opened,
        };
        if let Err(error) = self.check_protection(opened.sandbox) {
            self.close_unused(&opened).await?;
            return Err(error);
        }
        self.state.sandbox = opened.sandbox;
        // Newer releases remember the permissions that a thread had before.
        self.sandbox_to_reapply = opened.sandbox.filter(|_| self.state.thread.is_some());
        let watcher = self.context.watcher;
        watcher.on_event(RunEvent::Thread {
            thread: &opened.thread,
            sandbox: opened.sandbox,
            grants: &self.grants,
        });
        self.state.thread = Some(opened.thread);
        self.session = Some(opened.session.clone());
        Ok(opened.session)
    }

    /// Replaces a read-only conversation where the criteria need writing: asks for consent
    /// to the sandbox `workspace-write`, and refuses the run without it. Other runs only get
    /// a warning.
    async fn ensure_write_access(&mut self, opened: OpenThread) -> Result<OpenThread, RunError> {
        match (self.spec.needs_to_write(), self.spec.is_read_only()) {
            (true, true) => {
                self.close_unused(&opened).await?;
                return Err(RunError::ReadOnly);
            }
            (false, true) => return Ok(opened),
            (false, false) => {
                let caller = self.context.watcher.caller();
                self.context.warn([read_only_warning(caller)]);
                return Ok(opened);
            }
            (true, false) => {}
        }
        self.clock.pause();
        let consent = self.context.watcher.allows_writing().await;
        self.clock.resume();
        self.close_unused(&opened).await?;
        if consent == WriteConsent::Refused {
            return Err(RunError::ReadOnly);
        }
        self.granted.settings.thread.sandbox = Some(SandboxMode::WorkspaceWrite);
        self.open_session().await.map_err(RunError::from)
    }

    /// Ends a conversation in which Codex got no prompt. A thread that was begun for this
    /// run is discarded, so that no list offers to resume it.
    async fn close_unused(&self, opened: &OpenThread) -> Result<(), RunError> {
        let engine = self.context.engine;
        match self.state.thread {
            None => engine.discard(&opened.session)?,
            Some(_) => {
                engine
                    .cancel(&opened.session, "the run did not begin")
                    .await?;
            }
        }
        Ok(())
    }

    /// Checks that the sandbox protects the repository's own git directory and the state
    /// directory.
    fn check_protection(&self, sandbox: Option<SandboxMode>) -> Result<(), RunError> {
        if sandbox == Some(SandboxMode::WorkspaceWrite) {
            self.check_state_directory()?;
        }
        let version = self.context.engine.codex_version();
        let release = version.as_deref().and_then(Release::parse);
        match (sandbox, release) {
            (Some(SandboxMode::WorkspaceWrite), Some(release))
                if self.private.is_some() && release < Release::FIRST_WITH_PROTECTED_GIT =>
            {
                Err(RunError::UnprotectedGit { release })
            }
            _ => Ok(()),
        }
    }

    /// The program's git reads settings in the state directory, outside of the sandbox.
    fn check_state_directory(&self) -> Result<(), RunError> {
        let state = self.inspector.git().and_then(Git::state_directory);
        let Some(state) = state.as_deref().map(directory::resolved) else {
            return Ok(());
        };
        let GrantedSettings {
            directories,
            temporary,
            ..
        } = &self.granted;
        let mut writable = directories.iter().chain(temporary);
        match writable.find(|path| state.starts_with(directory::resolved(path))) {
            Some(writable) => Err(RunError::StateInWorkspace {
                writable: writable.clone(),
                state,
            }),
            None => Ok(()),
        }
    }

    async fn open_session(&self) -> Result<OpenThread, EngineError> {
        loop {
            match self.try_open_session().await {
                Err(EngineError::StillEnding(_)) => sleep(ENDING_PAUSE).await,
                opened => return opened,
            }
        }
    }

    async fn try_open_session(&self) -> Result<OpenThread, EngineError> {
        self.granted.check()?;
        let GrantedSettings {
            settings,
            directories,
            ..
        } = self.granted.clone();
        let start = StartThread {
            settings,
            report_denied: ReportDenied::On,
            directories: Some(directories),
            ..StartThread::default()
        };
        match self.state.thread.clone() {
            Some(thread) => {
                self.context
                    .engine
                    .resume(ResumeThread { thread, start })
                    .await
            }
            None => self.context.engine.start(start).await,
        }
    }
}
