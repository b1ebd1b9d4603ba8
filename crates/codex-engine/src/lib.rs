//! Codex's app-server, driven: threads, turns, questions and events.
//!
//! The [`Engine`] takes plain [commands](command) and performs what the session machines in
//! [`logic`] decide. Below it:
//!
//! ```text
//! Engine ── sessions: one machine for each thread
//!    │
//!    └──── backend: the shared app-server, started when wanted
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
mod complaints;
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
mod pacing;
mod pause;
pub mod picture;
mod release;
pub mod rollouts;
mod sessions;
mod terminals;
pub mod thread_tools;
mod threads;
mod tool_calls;
pub mod tool_limit;
mod turns;
mod watching;
mod workspace;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use codex_protocol::codex::{Heard, InitializeResponse, Method, Release, ThreadId, ThreadParams};
use codex_protocol::rpc::code;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use supervise::exit::Death;
use tracing::Span;

use crate::logic::action::{self, ActionId, DecidedBy, Decision};
use crate::logic::progress::CurrentStep;
use crate::logic::session::{Patience, Session, State};
use app_server::AppServer;
use backend::Backend;
use command::{Alerted, Info, SessionId, TurnRef, View};
use connection::CallError;
use effects::perform;
use hub::Hub;
use mount_targets::{MountTargets, register_in};
use sessions::{Entry, OnAlert};

pub use app_server::StartError;
pub use backend::{Launch, LaunchError, Standing};
pub use connection::Delivered;
pub use error::{ApprovalOutOfBounds, EngineError};
pub use limits::{LimitReached, LimitsUnknown};
pub use mcp_server::{InstalledCodex, McpServer, NoMcpServer, Pipes};
pub use observer::{Act, EngineObserver, Given, Kind, Nobody};
pub use pause::{CommandMark, PauseError, Paused};
pub use release::{help, is_known, noted_release, release_of};
pub use thread_tools::{Called, Reply, ThreadTools};
pub use workspace::{GitGrant, Granted, Grants};

/// How long Codex may take to begin or resume a thread or a turn: a slow MCP
/// server of the user's is started with the thread.
const THREAD_PATIENCE: Duration = Duration::from_secs(90);

/// How long Codex may take for anything else.
const RPC_PATIENCE: Duration = Duration::from_secs(30);

/// How long each half of unloading a thread may take: some 5 ms, and 60 with 0.104.0.
const UNLOAD_PATIENCE: Duration = Duration::from_millis(500);

/// How often something is asked of a Codex that says that it has too much to do.
const ATTEMPTS: u32 = 6;

/// How long to wait before the second time; twice as long before each further.
const BACK_OFF: Duration = Duration::from_millis(100);

/// How long the end of everything may take.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(3);

/// How much of a session's id stands for it at least, in bytes.
const SHORTEST_PREFIX: usize = 8;

/// How many sessions are named that begin alike.
const NAMED: usize = 10;

/// What the engine is to work with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which Codex.
    pub launch: Launch,
    /// Codex's home directory, where its profiles lie.
    pub codex_home: PathBuf,
    /// How long a session waits for what, unless it is told otherwise.
    pub patience: Patience,
}

/// Owns Codex's processes and our sessions.
pub struct Engine {
    options: Options,
    backend: Backend,
    hub: Arc<Hub>,
    observer: Arc<dyn EngineObserver>,
    sandbox_bound: Option<String>,
    warn: Arc<Warn>,
    on_alert: Arc<OnAlert>,
    mount_targets: Mutex<MountTargets>,
    /// Codex's register of mount targets.
    register: PathBuf,
    /// The last question about the limits. Held while Codex is asked.
    asked: tokio::sync::Mutex<Option<limits::LastQuery>>,
}

/// Whether Codex has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// It has, with all that it had started.
    Complete,
    /// Something of it may still run.
    Unfinished,
}

/// Whether Codex has unloaded the thread of a session that was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// It has.
    Unloaded,
    /// It has not said so. Who resumes a loaded thread there gets it with its settings.
    MaybeLoaded,
}

/// Takes a warning for the user. The same one may come again.
type Warn = dyn Fn(String) + Send + Sync;

impl Engine {
    /// An engine; nothing is started yet. Must live in a tokio runtime whose
    /// tasks run on the thread that lives longest, see [`supervise::spawn`].
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            backend: Backend::new(options.launch.clone()),
            hub: Arc::default(),
            observer: Arc::new(Nobody),
            sandbox_bound: None,
            warn: Arc::new(|warning| tracing::warn!("{warning}")),
            on_alert: Arc::new(drop),
            mount_targets: Mutex::default(),
            register: register_in(&std::env::temp_dir()),
            asked: tokio::sync::Mutex::default(),
            options,
        }
    }

    /// The same engine, with somebody who keeps a record.
    #[must_use]
    pub fn with_witness(self, observer: Arc<dyn EngineObserver>) -> Self {
        Self { observer, ..self }
    }

    /// The same engine, with somebody who tells the user what was left out, and why.
    #[must_use]
    pub fn with_warnings(self, warn: impl Fn(String) + Send + Sync + 'static) -> Self {
        let warn = Arc::new(warn);
        Self { warn, ..self }
    }

    /// The same engine, with somebody who hears, once for each, of open questions and of
    /// turns that have stalled. The engine waits for it, so it must not take long.
    #[must_use]
    pub fn with_alerts(self, on_alert: impl Fn(Alerted) + Send + Sync + 'static) -> Self {
        let on_alert = Arc::new(on_alert);
        Self { on_alert, ..self }
    }

    /// The same engine, which takes no decision by which a command leaves a sandbox that a
    /// setting bounds; `sandbox_bound` names that setting.
    #[must_use]
    pub fn with_sandbox_bound(self, sandbox_bound: Option<String>) -> Self {
        Self {
            sandbox_bound,
            ..self
        }
    }

    /// The same engine, whose Codex gets these variables on top of our environment.
    #[must_use]
    pub fn with_env(self, env: Vec<(OsString, OsString)>) -> Self {
        let temporary = env.iter().rfind(|(name, _)| name == "TMPDIR");
        Self {
            register: temporary.map_or(self.register, |(_, path)| register_in(Path::new(path))),
            backend: self.backend.with_env(env),
            ..self
        }
    }

    /// The same engine, whose threads get these tools. Those of the first call count.
    #[must_use]
    pub fn with_tools(self, tools: Arc<dyn ThreadTools>) -> Self {
        self.hub.give(tools);
        self
    }

    /// Cancels and forgets sessions that nobody has used for long, from now on.
    pub fn keep_tidy(&self) {
        tokio::spawn(hub::sweep(Arc::downgrade(&self.hub)));
    }

    /// Starts the app-server, so that the first call needn't wait for it. A
    /// failure is only logged: the call that needs it tells.
    pub async fn warm_up(&self) {
        match self.backend.ready(&self.hub).await.err().as_deref() {
            None | Some(LaunchError::Ending) => {}
            Some(error) => tracing::warn!("{error}. `codex-mcp doctor` tells more."),
        }
    }

    /// Starts the app-server, if none runs, and tells what it said of itself.
    ///
    /// # Errors
    ///
    /// [`LaunchError`]; no app-server runs then.
    pub async fn introduce(&self) -> Result<InitializeResponse, Arc<LaunchError>> {
        let (server, _) = self.backend.ready(&self.hub).await?;
        Ok(server.about.clone())
    }

    /// The version of the app-server that runs; `None` if there is none (yet), or
    /// it doesn't say.
    #[must_use]
    pub fn codex_version(&self) -> Option<String> {
        let (server, _) = self.backend.running()?;
        server.about.codex_version().map(str::to_owned)
    }

    /// The same as a release.
    pub fn release(&self) -> Option<Release> {
        self.codex_version().as_deref().and_then(Release::parse)
    }

    /// The last end of a Codex that nobody had asked to end.
    #[must_use]
    pub fn last_death(&self) -> Option<Death> {
        self.hub.last_death()
    }

    /// The same, if this has not been asked since that Codex died.
    #[must_use]
    pub fn unreported_death(&self) -> Option<Death> {
        self.hub.unreported_death()
    }

    /// How the app-server stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.backend.standing()
    }

    /// How many sessions have a turn that is under way, and how many of Codex's
    /// questions are open in all.
    #[must_use]
    pub fn under_way(&self) -> (usize, usize) {
        let counts = self.hub.sessions.all();
        let counts = counts.iter().map(|entry| {
            entry.look(|machine, _| (usize::from(machine.has_turn()), machine.actions().len()))
        });
        counts.fold((0, 0), |(turns, questions), (turn, asked)| {
            (turns + turn, questions + asked)
        })
    }

    /// How many sessions there are that were not cancelled.
    #[must_use]
    pub fn active_sessions(&self) -> usize {
        let all = self.hub.sessions.all();
        let active = all.iter().filter(|entry| entry.state() != State::Cancelled);
        active.count()
    }

    /// Answers a question of Codex's as a client wants it by a call of a tool; a note is
    /// written to the log.
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

    /// Answers a question of Codex's; a note is written to the log.
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

    /// Refuses a yes by which a command would leave a sandbox that is bounded: Codex runs
    /// what it has asked about without one.
    fn check_decision(
        &self,
        entry: &Entry,
        action: &ActionId,
        decision: &Decision,
    ) -> Result<(), ApprovalOutOfBounds> {
        let Some(bound) = &self.sandbox_bound else {
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

    /// Leaves a question that the client's user has dismissed to whoever looks into
    /// the session.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub fn dismiss(&self, session: &SessionId, action: &ActionId) -> Result<(), EngineError> {
        let entry = self.entry(session)?;
        entry.change(|machine, now| machine.dismiss(action, now));
        Ok(())
    }

    /// Ends a turn, if it still runs. How it ended shows in
    /// [`inspect`](Self::inspect) a moment later.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub fn interrupt(&self, turn: &TurnRef) -> Result<(), EngineError> {
        hub::interrupt(&self.entry(&turn.session)?, turn.number);
        Ok(())
    }

    /// Ends the turn that a session is at.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotRunning`] if it is at none.
    pub fn interrupt_session(&self, session: &SessionId) -> Result<(), EngineError> {
        let entry = self.entry(session)?;
        let (state, turn) = entry.look(|machine, _| (machine.state(), machine.turns()));
        match state {
            State::Running | State::WaitingApproval => {
                self.observer.acted(&entry.thread, Act::Interrupted);
                hub::interrupt(&entry, turn);
            }
            State::Cancelled => return Err(entry.cancelled()),
            State::Idle | State::Error => return Err(EngineError::NotRunning(session.clone())),
        }
        Ok(())
    }

    /// Ends a session, and the turn that it is at. Its thread can be resumed
    /// later. One that was cancelled before stays as it is.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub fn cancel(&self, session: &SessionId, why: &str) -> Result<(), EngineError> {
        let entry = self.entry(session)?;
        if entry.state() != State::Cancelled {
            self.observer.acted(&entry.thread, Act::Cancelled(why));
        }
        hub::cancel(&entry, why);
        Ok(())
    }

    /// Ends a session that was begun for nothing. Its thread is forgotten, as nothing was
    /// said in it.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub fn discard(&self, session: &SessionId) -> Result<(), EngineError> {
        let entry = self.entry(session)?;
        hub::cancel(&entry, "nothing was asked in it");
        self.observer.discarded(&entry.thread);
        Ok(())
    }

    /// Ends a session like [`cancel`](Self::cancel), has Codex unload its thread, and
    /// forgets how the thread was set: whoever takes it up later, in whatever Codex, sets it
    /// anew.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub async fn close(&self, session: &SessionId, why: &str) -> Result<Closed, EngineError> {
        self.cancel(session, why)?;
        let entry = self.entry(session)?;
        let closed = unload(&entry).await;
        self.hub.sessions.erase(&entry);
        Ok(closed)
    }

    /// Brings back a thread that was archived, as one is whose unloading was interrupted.
    ///
    /// # Errors
    ///
    /// [`EngineError`].
    pub async fn unarchive(&self, thread: &ThreadId) -> Result<(), EngineError> {
        let (server, _) = self.backend.ready(&self.hub).await?;
        let params = ThreadParams { thread_id: thread };
        let _: Value = call(&server, Method::ThreadUnarchive, &params).await?;
        Ok(())
    }

    /// Has somebody hear all that Codex says of a session's thread, as it comes. The
    /// engine waits for it, so it must not take long.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`], and [`EngineError::ThreadInUse`] if somebody hears it
    /// already.
    pub fn hear(
        &self,
        session: &SessionId,
        on_news: impl Fn(&Heard<'_>) + Send + Sync + 'static,
    ) -> Result<(), EngineError> {
        let entry = self.entry(session)?;
        match entry.tell_news_to(Box::new(on_news)) {
            true => Ok(()),
            false => Err(EngineError::ThreadInUse(entry.thread.clone())),
        }
    }

    /// Has the app-server end, if one runs, with all that it has started: it does not do
    /// what it is asked. The next call for work starts another.
    pub fn give_up_codex(&self) {
        if let Some((server, _)) = self.backend.running() {
            server.connection().close();
        }
    }

    /// What marks the lines of the log that are about a session.
    #[must_use]
    pub fn span(&self, session: &SessionId) -> Span {
        self.entry(session)
            .map_or_else(|_| Span::none(), |entry| entry.span.clone())
    }

    /// How a session stands.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub fn inspect(&self, session: &SessionId) -> Result<View, EngineError> {
        Ok(self.entry(session)?.view())
    }

    /// The step that a session's turn is at; `None` without a turn. Nobody counts as
    /// having used the session by that.
    #[must_use]
    pub fn current_step(&self, session: &SessionId) -> Option<CurrentStep> {
        let entry = self.entry(session).ok()?;
        entry.look(|machine, now| machine.has_turn().then(|| machine.progress(now.instant)))
    }

    /// A session, its settings included.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub fn get(&self, session: &SessionId) -> Result<Info, EngineError> {
        let entry = self.entry(session)?;
        entry.show_questions();
        let info = entry.info();
        entry.look(Session::used);
        Ok(info)
    }

    /// All sessions, in the order in which they began.
    #[must_use]
    pub fn list(&self) -> Vec<Info> {
        let all = self.hub.sessions.all();
        let shown = all.iter().map(|entry| {
            entry.show_questions();
            entry.info()
        });
        shown.collect()
    }

    /// The idle sessions that nobody has used for this long.
    #[must_use]
    pub fn unused_for(&self, long: Duration) -> Vec<Info> {
        let all = self.hub.sessions.all();
        let unused = all.iter().filter(|entry| {
            entry.look(|machine, now| {
                machine.state() == State::Idle && machine.unused_for(now) >= long
            })
        });
        unused.map(|entry| entry.info()).collect()
    }

    /// All that Codex has said in the running turn of a session.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub fn partial_text(&self, session: &SessionId) -> Result<String, EngineError> {
        let entry = self.entry(session)?;
        Ok(entry.look(|machine, _| machine.partial_text()))
    }

    /// Interrupts what runs, ends Codex and waits until it is gone, a few
    /// seconds at most.
    pub async fn shut_down(&self) -> Shutdown {
        for entry in self.hub.sessions.all() {
            let effects = entry.change(Session::interrupt);
            perform(&entry, effects);
        }
        match tokio::time::timeout(SHUTDOWN_PATIENCE, self.backend.end()).await {
            Ok(()) => {
                self.remove_mount_targets().await;
                Shutdown::Complete
            }
            Err(_) => {
                tracing::warn!("Codex takes long to end; its guard sees to it");
                Shutdown::Unfinished
            }
        }
    }

    /// The session that a text names: by its id, or by the beginning of it, 8 characters
    /// or more. One that names none is taken as it is.
    ///
    /// # Errors
    ///
    /// [`EngineError::AmbiguousSession`].
    pub fn session_named(&self, text: &str) -> Result<SessionId, EngineError> {
        let named = SessionId::named(text);
        if self.entry(&named).is_ok() {
            return Ok(named);
        }
        let all = self.hub.sessions.all();
        session_named(text, all.iter().map(|entry| &entry.id))
    }

    /// The threads of all sessions.
    #[must_use]
    pub fn threads(&self) -> Vec<ThreadId> {
        let all = self.hub.sessions.all();
        all.iter().map(|entry| entry.thread.clone()).collect()
    }

    /// Codex's home directory.
    #[must_use]
    pub fn codex_home(&self) -> &Path {
        &self.options.codex_home
    }

    fn entry(&self, session: &SessionId) -> Result<Arc<Entry>, EngineError> {
        self.hub
            .sessions
            .by_id(session)
            .ok_or_else(|| EngineError::NoSession(session.clone()))
    }
}

/// The one of these sessions whose id begins so, or the text as it is.
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

/// Has Codex unload a thread at once. One that nobody is subscribed to stays loaded, and is
/// closed to other processes, for 30 minutes (0.153.4 and 0.169.0), or for good (0.104.0);
/// one that is archived does not, and can be brought back at once.
async fn unload(entry: &Entry) -> Closed {
    let (server, _) = entry.server();
    let params = ThreadParams {
        thread_id: &entry.thread,
    };
    let unloading = async {
        let _: Value = server
            .call(Method::ThreadArchive, &params, UNLOAD_PATIENCE)
            .await?;
        let _: Value = server
            .call(Method::ThreadUnarchive, &params, UNLOAD_PATIENCE)
            .await?;
        Ok::<(), CallError>(())
    };
    match unloading.await {
        Ok(()) => Closed::Unloaded,
        Err(error) => {
            // Nothing was said in it, Codex is gone, or it takes long.
            tracing::debug!("the thread is not unloaded: {error}");
            server.connection().cast(Method::ThreadUnarchive, &params);
            Closed::MaybeLoaded
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
    let patience = match method {
        Method::TurnSteer
        | Method::BackgroundTerminalsClean
        | Method::BackgroundTerminalsList
        | Method::BackgroundTerminalsTerminate => RPC_PATIENCE,
        _ => THREAD_PATIENCE,
    };
    match server.call(method, params, patience).await {
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
