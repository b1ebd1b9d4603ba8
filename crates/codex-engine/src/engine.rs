//! The engine: its configuration, its sessions, and the state of its app-server.
//!
//! Other modules implement its commands for threads and turns, each in an `impl Engine`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use codex_protocol::codex::{InitializeResponse, Release, ThreadId, ThreadNotification};
use supervise::exit::UnexpectedExit;
use tracing::Span;

use super::backend::{AppServerStatus, Launch, LaunchError};
use super::command::{SessionAlert, SessionId, SessionInfo, TurnView};
use super::entry::{Entry, Owner};
use super::error::EngineError;
use super::observer::EngineObserver;
use super::shared::{AppServers, CodexStart, Ownership, Predecessor, SharedCodex, Shutdown};
use super::thread_tools::ThreadTools;
use super::unloading;
use crate::logic::progress::CurrentStep;
use crate::logic::session::{Session, State, Timeouts};

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
    pub(super) options: Options,
    pub(super) start: CodexStart,
    pub(super) codex: Arc<SharedCodex>,
    ownership: Ownership,
    pub(super) owner: Owner,
    pub(super) warn: Arc<Warn>,
    /// The number of unexpected exits of Codex at the last report.
    reported_exits: AtomicU64,
}

/// Receives a warning for the user. The same warning may be repeated.
type Warn = dyn Fn(String) + Send + Sync;

impl Engine {
    /// Creates an engine without starting Codex. Call this in a tokio runtime whose tasks run on
    /// the thread that lives longest, see [`supervise::spawn`].
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
            reported_exits: AtomicU64::default(),
            start,
            options,
        }
    }

    /// The same engine with an app-server that it does not share, started as `start` says.
    fn rebuilt(self) -> Self {
        let codex = SharedCodex::new(self.start.clone());
        self.with_codex(codex)
    }

    /// The same engine with this app-server.
    pub(super) fn with_codex(self, codex: SharedCodex) -> Self {
        Self {
            codex: Arc::new(codex),
            ..self
        }
    }

    /// Another engine with an app-server that it does not share, started in the same way.
    pub(super) fn another(&self) -> Self {
        let another = Self {
            start: self.start.clone(),
            ..Self::new(self.options.clone())
        };
        another.rebuilt()
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

    /// Sets the receiver of alerts: one for each open question, each stalled turn and each end
    /// of a turn. The engine waits for it, so it must not take long.
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

    /// Sets the directory for threads that name none. Relative paths are resolved from it, too. By
    /// default, it is the working directory of this process.
    #[must_use]
    pub fn with_directory(mut self, directory: PathBuf) -> Self {
        self.start.directory = Some(directory);
        self.rebuilt()
    }

    /// Shares an app-server, with its sessions, with all engines that have the same [`Launch`],
    /// search paths and `terms`. [`shut_down`](Self::shut_down) leaves the app-server running. An
    /// engine [with a client](Self::with_client) joins the app-server that has earlier sessions of
    /// that client, even if Codex was updated since.
    #[must_use]
    pub fn joining(self, servers: &AppServers, terms: String) -> Self {
        let codex = servers.of(&self.start, terms, self.owner.client.as_deref());
        Self {
            reported_exits: codex.hub.unexpected_exits().count.into(),
            codex,
            ownership: Ownership::Shared,
            ..self
        }
    }

    /// The working directory of threads that name none.
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

    /// Names the client, so that the sessions that it opens are given back to it by
    /// [`take_back`](Self::take_back) if this process is killed.
    #[must_use]
    pub fn with_client(mut self, client: String) -> Self {
        self.owner.client = Some(client);
        self
    }

    /// Sets the tools of the threads that this engine begins.
    #[must_use]
    pub fn with_tools(mut self, tools: Arc<dyn ThreadTools>) -> Self {
        self.owner.tools = tools;
        self
    }

    /// Starts the task that cancels and forgets sessions that have not been used for long. Shared
    /// app-servers start with such a task, so this does nothing for them.
    pub fn keep_tidy(&self) {
        if self.ownership == Ownership::Own {
            tokio::spawn(unloading::sweep(Arc::downgrade(&self.codex.hub)));
        }
    }

    /// Starts the app-server, so that the first call need not wait for it. A failure is
    /// only logged: the call that needs the app-server reports it.
    pub async fn warm_up(&self) {
        let started = self.codex.backend.ready(&self.codex.hub).await;
        match started.err().as_deref() {
            None | Some(LaunchError::Ending) => {}
            Some(error) => tracing::warn!("{error}. `codex-mcp doctor` reports more."),
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
        self.codex.hub.unexpected_exits().last
    }

    /// The last unexpected exit, if it happened after this engine was created and this method has
    /// not returned it before.
    #[must_use]
    pub fn unreported_exit(&self) -> Option<UnexpectedExit> {
        let exits = self.codex.hub.unexpected_exits();
        let reported = self.reported_exits.swap(exits.count, Ordering::Relaxed);
        exits.last.filter(|_| reported < exits.count)
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
            entry.access(|machine, _| (usize::from(machine.has_turn()), machine.actions().len()))
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
        entry.access(|machine, now| machine.has_turn().then(|| machine.progress(now.instant)))
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
        entry.access(Session::used);
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

    /// The IDs of all sessions, in the order of their beginning. Unlike [`list`](Self::list), this
    /// does not count as showing their questions.
    #[must_use]
    pub fn session_ids(&self) -> Vec<SessionId> {
        let all = self.codex.hub.sessions.all();
        all.iter().map(|entry| entry.info().session).collect()
    }

    /// The sessions that this engine has opened, in the order of their beginning.
    #[must_use]
    pub fn list_own(&self) -> Vec<SessionInfo> {
        let own = self.own_sessions();
        own.iter().map(|entry| entry.info()).collect()
    }

    pub(super) fn own_sessions(&self) -> Vec<Arc<Entry>> {
        let mut all = self.codex.hub.sessions.all();
        all.retain(|entry| entry.owner().is(&self.owner));
        all
    }

    /// Completes when no session that this engine has opened has a turn.
    pub async fn own_turns_end(&self) {
        loop {
            let own = self.own_sessions();
            let has_turn = |entry: &Arc<Entry>| entry.access(|machine, _| machine.has_turn());
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
            entry.access(|machine, now| {
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
        Ok(entry.access(|machine, _| machine.partial_text()))
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

    pub(super) fn entry(&self, session: &SessionId) -> Result<Arc<Entry>, EngineError> {
        let sessions = &self.codex.hub.sessions;
        sessions.by_id(session).ok_or_else(|| {
            let is_of_this_host = sessions.was_listed(session);
            match self.codex.predecessor {
                Predecessor::Killed if !is_of_this_host => {
                    EngineError::SessionLost(session.clone())
                }
                _ => EngineError::NoSession(session.clone()),
            }
        })
    }
}

/// Resolves an ID prefix among these sessions; a text that matches none is returned as an
/// ID.
pub(super) fn session_named<'a>(
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
            "several sessions begin with sess_abc: sess_abc1, sess_abc2; give more characters of \
             the ID"
        );
    }
}
