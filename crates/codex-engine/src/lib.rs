//! Drives Codex's app-server: threads, turns, questions and events.
//!
//! The [`Engine`] takes plain [commands](command) and performs what the session machines in
//! [`logic`] decide. Below it:
//!
//! ```text
//! Engine ── sessions: one machine for each thread
//!    │
//!    └──── backend: the shared app-server, started on demand
//!             └── app_server: a process, introduced and supervised
//!                    ├── connection: requests, answers, news
//!                    └── spawn → guard → codex
//! ```
//!
//! One app-server serves all threads with the same Codex, `CODEX_HOME` and environment.
//! [`confinement`] adds to each thread what keeps a repository's programs from running;
//! [`rollouts`] reads Codex's own files of threads, [`picture`] the pictures of a prompt.
//! Apart from it, [`McpServer`] is an older Codex's own MCP server, for the proxy.
#![cfg_attr(
    test,
    expect(
        clippy::unwrap_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::disallowed_methods,
        reason = "a failed test panics, and a test opens the files that it wrote"
    )
)]

mod account;
mod app_server;
mod backend;
pub mod binary;
pub mod command;
pub mod confinement;
mod connection;
mod effects;
mod error;
mod hub;
#[doc(hidden)]
pub mod in_memory;
mod limits;
pub mod logic;
mod mcp_server;
mod mcp_servers;
mod mount_targets;
mod observer;
pub mod own_mcp_server;
mod pause;
pub mod picture;
mod polling;
mod release;
pub mod rollouts;
mod sessions;
mod shared;
mod stderr_log;
mod terminals;
pub mod thread_tools;
mod threads;
mod tool_calls;
pub mod tool_limit;
mod turns;
mod workspace;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use codex_protocol::codex::{
    InitializeResponse, Method, Release, ThreadId, ThreadNotification, ThreadParams,
};
use codex_protocol::rpc::code;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use supervise::exit::UnexpectedExit;
use tracing::Span;

use crate::logic::action::{self, ActionId, DecidedBy, Decision};
use crate::logic::progress::CurrentStep;
use crate::logic::session::{Session, State, Timeouts};
use app_server::AppServer;
use command::{SessionAlert, SessionId, SessionInfo, TurnRef, TurnView};
use connection::CallError;
use effects::perform;
use sessions::{Entry, Owner};
use shared::{CodexStart, Ownership, SharedCodex};

pub use app_server::StartError;
pub use backend::{AppServerStatus, Launch, LaunchError};
pub use connection::OnDelivered;
pub use error::{ApprovalOutOfBounds, EngineError};
pub use limits::{LimitReached, LimitsUnknown};
pub use mcp_server::{InstalledCodex, McpServer, NoMcpServer, Pipes};
pub use observer::{Act, EngineObserver, InputKind, NoObserver, PromptRecord};
pub use pause::{CommandMark, PauseError, Paused};
pub use release::{help, is_known, noted_release, release_of};
pub use shared::AppServers;
pub use thread_tools::{Reply, ThreadTools, ToolInvocation};
pub use workspace::{GitGrant, GrantedSettings, Grants};

/// How long Codex may take to begin or resume a thread or a turn: a slow MCP
/// server of the user's is started with the thread.
const THREAD_TIMEOUT: Duration = Duration::from_secs(90);

/// How long Codex may take for other requests.
const RPC_TIMEOUT: Duration = Duration::from_secs(30);

/// How long each half of unloading a thread may take. Codex takes about 5 ms, 0.104.0
/// about 60 ms.
const UNLOAD_TIMEOUT: Duration = Duration::from_millis(500);

/// The most attempts of a request while Codex reports that it is overloaded.
const ATTEMPTS: u32 = 6;

/// The pause before the second attempt; it doubles for each further one.
const BACK_OFF: Duration = Duration::from_millis(100);

/// How long shutting down may take.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// The shortest prefix of a session's ID that is resolved, in bytes.
const SHORTEST_PREFIX: usize = 8;

/// The most sessions that the error about an ambiguous prefix lists.
const NAMED: usize = 10;

/// The configuration of an engine.
#[derive(Debug, Clone)]
pub struct Options {
    /// The Codex to run.
    pub launch: Launch,
    /// Codex's home directory.
    pub codex_home: PathBuf,
    /// The default timeouts of sessions.
    pub timeouts: Timeouts,
}

/// Owns the Codex processes and the sessions.
pub struct Engine {
    options: Options,
    start: CodexStart,
    codex: Arc<SharedCodex>,
    ownership: Ownership,
    owner: Owner,
    warn: Arc<Warn>,
}

/// Whether Codex has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// It has, and so have all processes that it started.
    Complete,
    /// Some of its processes may still run.
    Unfinished,
}

/// Whether Codex has unloaded the thread of a closed session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnloadState {
    /// The thread is unloaded.
    Unloaded,
    /// Codex has not confirmed it. Resuming a loaded thread keeps its settings.
    MaybeLoaded,
}

/// Receives a warning for the user. The same warning may be repeated.
type Warn = dyn Fn(String) + Send + Sync;

impl Engine {
    /// Creates an engine without starting Codex. It must run in a tokio runtime whose
    /// tasks run on the thread that lives longest, see [`supervise::spawn`].
    #[must_use]
    pub fn new(options: Options) -> Self {
        let start = CodexStart {
            launch: options.launch.clone(),
            env: Vec::new(),
            directory: None,
        };
        Self {
            codex: Arc::new(SharedCodex::new(start.clone())),
            ownership: Ownership::Own,
            owner: Owner::default(),
            warn: Arc::new(|warning| tracing::warn!("{warning}")),
            start,
            options,
        }
    }

    /// The same engine, with an app-server of its own that is started as `start` says.
    fn rebuilt(self) -> Self {
        Self {
            codex: Arc::new(SharedCodex::new(self.start.clone())),
            ..self
        }
    }

    /// Sets the observer, which keeps a record.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn EngineObserver>) -> Self {
        self.owner.observer = observer;
        self
    }

    /// Sets the receiver of warnings for the user.
    #[must_use]
    pub fn with_warnings(self, warn: impl Fn(String) + Send + Sync + 'static) -> Self {
        let warn = Arc::new(warn);
        Self { warn, ..self }
    }

    /// Sets the receiver of alerts: one for each open question and each stalled turn. The
    /// engine waits for it, so it must not take long.
    #[must_use]
    pub fn with_alerts(mut self, on_alert: impl Fn(SessionAlert) + Send + Sync + 'static) -> Self {
        self.owner.on_alert = Arc::new(on_alert);
        self
    }

    /// Refuses decisions by which a command leaves a sandbox that a setting bounds;
    /// `sandbox_bound` names that setting.
    #[must_use]
    pub fn with_sandbox_bound(mut self, sandbox_bound: Option<String>) -> Self {
        self.owner.sandbox_bound = sandbox_bound;
        self
    }

    /// Adds variables to Codex's environment.
    #[must_use]
    pub fn with_env(mut self, env: Vec<(OsString, OsString)>) -> Self {
        self.start.env = env;
        self.rebuilt()
    }

    /// Sets the directory in which threads work that name none, and at which relative paths
    /// start. By default, it is the working directory of this process.
    #[must_use]
    pub fn with_directory(mut self, directory: PathBuf) -> Self {
        self.start.directory = Some(directory);
        self.rebuilt()
    }

    /// The directory in which threads work that name none.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoCurrentDirectory`].
    pub fn directory(&self) -> Result<PathBuf, EngineError> {
        match &self.start.directory {
            Some(directory) => Ok(directory.clone()),
            None => std::env::current_dir().map_err(EngineError::NoCurrentDirectory),
        }
    }

    /// Sets the tools of the threads that this engine begins.
    #[must_use]
    pub fn with_tools(mut self, tools: Arc<dyn ThreadTools>) -> Self {
        self.owner.tools = tools;
        self
    }

    /// Starts cancelling and forgetting sessions that have not been used for long. For shared
    /// app-servers, this has been started with them.
    pub fn keep_tidy(&self) {
        if self.ownership == Ownership::Own {
            tokio::spawn(hub::sweep(Arc::downgrade(&self.codex.hub)));
        }
    }

    /// Starts the app-server, so that the first call need not wait for it. A failure is
    /// only logged: the call that needs the app-server reports it.
    pub async fn warm_up(&self) {
        match self
            .codex
            .backend
            .ready(&self.codex.hub)
            .await
            .err()
            .as_deref()
        {
            None | Some(LaunchError::Ending) => {}
            Some(error) => tracing::warn!("{error}. `codex-mcp doctor` tells more."),
        }
    }

    /// Starts the app-server, if none runs, and returns its response to `initialize`.
    ///
    /// # Errors
    ///
    /// [`LaunchError`]; no app-server runs then.
    pub async fn introduce(&self) -> Result<InitializeResponse, Arc<LaunchError>> {
        let (server, _) = self.codex.backend.ready(&self.codex.hub).await?;
        Ok(server.about.clone())
    }

    /// The version of the running app-server; `None` if none runs or its version is not
    /// known.
    #[must_use]
    pub fn codex_version(&self) -> Option<String> {
        let (server, _) = self.codex.backend.running()?;
        server.about.codex_version().map(str::to_owned)
    }

    /// The release of the running app-server; `None` as for
    /// [`codex_version`](Self::codex_version).
    pub fn release(&self) -> Option<Release> {
        self.codex_version().as_deref().and_then(Release::parse)
    }

    /// The last exit of Codex that we did not request.
    #[must_use]
    pub fn last_unexpected_exit(&self) -> Option<UnexpectedExit> {
        self.codex.hub.last_unexpected_exit()
    }

    /// The last unexpected exit, if this has not returned it before.
    #[must_use]
    pub fn unreported_exit(&self) -> Option<UnexpectedExit> {
        self.codex.hub.unreported_exit()
    }

    /// The state of the app-server.
    #[must_use]
    pub fn app_server_status(&self) -> AppServerStatus {
        self.codex.backend.app_server_status()
    }

    /// The number of sessions with a running turn, and the number of all open questions.
    #[must_use]
    pub fn under_way(&self) -> (usize, usize) {
        let counts = self.codex.hub.sessions.all();
        let counts = counts.iter().map(|entry| {
            entry.look(|machine, _| (usize::from(machine.has_turn()), machine.actions().len()))
        });
        counts.fold((0, 0), |(turns, questions), (turn, asked)| {
            (turns + turn, questions + asked)
        })
    }

    /// The number of sessions that were not cancelled.
    #[must_use]
    pub fn active_sessions(&self) -> usize {
        let all = self.codex.hub.sessions.all();
        let active = all.iter().filter(|entry| entry.state() != State::Cancelled);
        active.count()
    }

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
        let entry = self.entry(session)?;
        if entry.state() != State::Cancelled {
            self.owner
                .observer
                .acted(&entry.thread, Act::Cancelled(why));
        }
        hub::cancel(&entry, why);
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

    /// Passes all notifications about a session's thread to a callback as they arrive.
    /// The engine waits for it, so it must not take long.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`], and [`EngineError::ThreadInUse`] if there is a
    /// callback already.
    pub fn set_on_notification(
        &self,
        session: &SessionId,
        on_notification: impl Fn(&ThreadNotification<'_>) + Send + Sync + 'static,
    ) -> Result<(), EngineError> {
        let entry = self.entry(session)?;
        match entry.set_on_notification(Box::new(on_notification)) {
            true => Ok(()),
            false => Err(EngineError::ThreadInUse(entry.thread.clone())),
        }
    }

    /// Ends an app-server that no longer does what it is asked, with all processes that
    /// it started. The next call that needs one starts another.
    pub fn give_up_codex(&self) {
        if let Some((server, _)) = self.codex.backend.running() {
            server.connection().close();
        }
    }

    /// The tracing span of a session's log lines.
    #[must_use]
    pub fn span(&self, session: &SessionId) -> Span {
        self.entry(session)
            .map_or_else(|_| Span::none(), |entry| entry.span.clone())
    }

    /// The state of a session.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub fn inspect(&self, session: &SessionId) -> Result<TurnView, EngineError> {
        Ok(self.entry(session)?.view())
    }

    /// The current step of a session's turn; `None` without a turn. This does not count
    /// as a use of the session.
    #[must_use]
    pub fn current_step(&self, session: &SessionId) -> Option<CurrentStep> {
        let entry = self.entry(session).ok()?;
        entry.look(|machine, now| machine.has_turn().then(|| machine.progress(now.instant)))
    }

    /// A session with its settings.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub fn get(&self, session: &SessionId) -> Result<SessionInfo, EngineError> {
        let entry = self.entry(session)?;
        entry.show_questions();
        let info = entry.info();
        entry.look(Session::used);
        Ok(info)
    }

    /// All sessions, in the order of their beginning.
    #[must_use]
    pub fn list(&self) -> Vec<SessionInfo> {
        let all = self.codex.hub.sessions.all();
        let shown = all.iter().map(|entry| {
            entry.show_questions();
            entry.info()
        });
        shown.collect()
    }

    /// The sessions that this engine has opened, in the order of their beginning.
    #[must_use]
    pub fn list_own(&self) -> Vec<SessionInfo> {
        let own = self.own_sessions();
        own.iter().map(|entry| entry.info()).collect()
    }

    fn own_sessions(&self) -> Vec<Arc<Entry>> {
        let mut all = self.codex.hub.sessions.all();
        all.retain(|entry| entry.owner.is(&self.owner));
        all
    }

    /// Completes when no session that this engine has opened has a turn.
    pub async fn own_turns_end(&self) {
        loop {
            let own = self.own_sessions();
            let has_turn = |entry: &Arc<Entry>| entry.look(|machine, _| machine.has_turn());
            let Some(busy) = own.into_iter().find(has_turn) else {
                return;
            };
            let mut revision = busy.watch();
            if has_turn(&busy) {
                // Fails only without the session, which this holds.
                let _ = revision.changed().await;
            }
        }
    }

    /// The idle sessions of this engine that have not been used for at least this long.
    #[must_use]
    pub fn unused_for(&self, long: Duration) -> Vec<SessionInfo> {
        let own = self.own_sessions();
        let unused = own.iter().filter(|entry| {
            entry.look(|machine, now| {
                machine.state() == State::Idle && machine.unused_for(now) >= long
            })
        });
        unused.map(|entry| entry.info()).collect()
    }

    /// All text of Codex in the running turn of a session.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub fn partial_text(&self, session: &SessionId) -> Result<String, EngineError> {
        let entry = self.entry(session)?;
        Ok(entry.look(|machine, _| machine.partial_text()))
    }

    /// Interrupts all turns, ends Codex and waits for its exit, a few seconds at most. An
    /// engine that has [joined](Self::joining) others leaves Codex to them.
    pub async fn shut_down(&self) -> Shutdown {
        match self.ownership {
            Ownership::Own => self.codex.shut_down().await,
            Ownership::Shared => Shutdown::Complete,
        }
    }

    /// Removes the mount targets that killed sandboxes have left, unless one still runs.
    pub async fn remove_mount_targets(&self) {
        self.codex.remove_mount_targets().await;
    }

    /// Resolves a session by its ID, or by an ID prefix of 8 characters or more. A text
    /// that matches none is returned as an ID.
    ///
    /// # Errors
    ///
    /// [`EngineError::AmbiguousSession`].
    pub fn session_named(&self, text: &str) -> Result<SessionId, EngineError> {
        let named = SessionId::named(text);
        if self.entry(&named).is_ok() {
            return Ok(named);
        }
        let all = self.codex.hub.sessions.all();
        session_named(text, all.iter().map(|entry| &entry.id))
    }

    /// The threads of all sessions.
    #[must_use]
    pub fn threads(&self) -> Vec<ThreadId> {
        let all = self.codex.hub.sessions.all();
        all.iter().map(|entry| entry.thread.clone()).collect()
    }

    /// Codex's home directory.
    #[must_use]
    pub fn codex_home(&self) -> &Path {
        &self.options.codex_home
    }

    fn entry(&self, session: &SessionId) -> Result<Arc<Entry>, EngineError> {
        self.codex
            .hub
            .sessions
            .by_id(session)
            .ok_or_else(|| EngineError::NoSession(session.clone()))
    }
}

/// Resolves an ID prefix among these sessions; a text that matches none is returned as an
/// ID.
fn session_named<'a>(
    text: &str,
    all: impl Iterator<Item = &'a SessionId>,
) -> Result<SessionId, EngineError> {
    let is_prefix = text.len() >= SHORTEST_PREFIX;
    let fitting = all.filter(|id| is_prefix && id.to_string().starts_with(text));
    match fitting.collect::<Vec<_>>().as_slice() {
        [] => Ok(SessionId::named(text)),
        [only] => Ok((*only).clone()),
        several => {
            let known = several.iter().take(NAMED).map(ToString::to_string);
            Err(EngineError::AmbiguousSession {
                prefix: text.to_owned(),
                known: known.collect::<Vec<_>>().join(", "),
            })
        }
    }
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

async fn call<T: DeserializeOwned>(
    server: &AppServer,
    method: Method,
    params: &impl Serialize,
) -> Result<T, EngineError> {
    let mut pause = BACK_OFF;
    for _ in 1..ATTEMPTS {
        match call_once(server, method, params).await {
            Err(EngineError::Refused { refusal, .. }) if refusal.code == code::CODEX_OVERLOADED => {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            answered => return answered,
        }
    }
    call_once(server, method, params).await
}

async fn call_once<T: DeserializeOwned>(
    server: &AppServer,
    method: Method,
    params: &impl Serialize,
) -> Result<T, EngineError> {
    let timeout = match method {
        Method::TurnSteer
        | Method::BackgroundTerminalsClean
        | Method::BackgroundTerminalsList
        | Method::BackgroundTerminalsTerminate => RPC_TIMEOUT,
        _ => THREAD_TIMEOUT,
    };
    match server.call(method, params, timeout).await {
        Ok(result) => Ok(result),
        Err(CallError::Closed(_)) => Err(EngineError::Gone(server.exit().await)),
        Err(CallError::Refused(refusal)) => Err(EngineError::Refused { method, refusal }),
        Err(CallError::TimedOut { method, after }) => Err(EngineError::Silent { method, after }),
        Err(CallError::Unreadable { method, error }) => {
            Err(EngineError::Unreadable { method, error })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_prefix_is_resolved_or_its_candidates_are_named() {
        let all = ["sess_abc1", "sess_abc2", "sess_def1"].map(SessionId::named);
        let named = |text: &str| {
            let found = session_named(text, all.iter());
            found
                .map(|id| id.to_string())
                .map_err(|error| error.to_string())
        };
        assert_eq!(named("sess_def").unwrap(), "sess_def1");
        for unknown in ["sess_123", "sess_de", ""] {
            assert_eq!(named(unknown).unwrap(), unknown);
        }
        assert_eq!(
            named("sess_abc").unwrap_err(),
            "several sessions begin with sess_abc: sess_abc1, sess_abc2; give more of the id"
        );
    }
}
