//! Codex's processes and our sessions in them.
//!
//! The [`Engine`] takes plain [commands](command) and performs what the
//! session machines of `codex-mcp-core` decide. Below it:
//!
//! ```text
//! Engine ── sessions: one machine for each thread
//!    │
//!    └──── backend: the shared app-server, started when wanted
//!             └── app_server: a process, introduced and supervised
//!                    ├── connection: requests, answers, news
//!                    └── spawn → guard → codex
//! ```

mod app_server;
mod backend;
pub mod binary;
pub mod command;
mod connection;
mod descendants;
mod error;
mod exit;
pub mod guard;
mod hub;
#[doc(hidden)]
pub mod in_memory;
pub mod profile;
pub mod run;
mod sessions;
pub mod spawn;

pub use app_server::StartError;
pub use backend::{Launch, LaunchError};
pub use error::EngineError;
pub use exit::Exit;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use codex_mcp_core::action::{ActionId, Decision};
use codex_mcp_core::session::Session;
use codex_mcp_protocol::codex::{
    InitializeResponse, Method, ThreadId, ThreadResponse, ThreadResumeParams, ThreadSettings,
    ThreadStartParams, TurnResponse, TurnStartParams, UserInput,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use app_server::AppServer;
use backend::{Backend, Running};
use command::{Opened, SessionId, Start, TurnRef, View};
use connection::CallError;
use hub::{Hub, perform};
use sessions::Entry;

/// How long Codex may take to begin or resume a thread or a turn: a slow MCP
/// server of the user's is started with the thread.
const THREAD_PATIENCE: Duration = Duration::from_secs(90);

/// How long the end of everything may take.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(3);

/// What the engine is to work with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which Codex.
    pub launch: Launch,
    /// Codex's home folder, where its profiles lie.
    pub codex_home: PathBuf,
    /// How long a question of Codex's stays open before it is declined.
    pub approval_timeout: Duration,
}

/// Owns Codex's processes and our sessions.
pub struct Engine {
    options: Options,
    backend: Backend,
    hub: Arc<Hub>,
}

impl Engine {
    /// An engine; nothing is started yet. Must live in a tokio runtime whose
    /// tasks run on the thread that lives longest, see [`spawn`].
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            backend: Backend::new(options.launch.clone()),
            hub: Arc::default(),
            options,
        }
    }

    /// Puts sessions to rest that nobody has used for long, from now on.
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

    /// Begins a thread.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; there is no thread then.
    pub async fn start(&self, start: Start) -> Result<Opened, EngineError> {
        let settings = self.complete(start.settings, start.profile.as_ref())?;
        let running = self.backend.ready(&self.hub).await?;
        let params = ThreadStartParams {
            settings: &settings,
        };
        let begun: ThreadResponse = call(&running.0, Method::ThreadStart, &params).await?;
        Ok(opened(&self.enter(begun.thread.id, settings, &running)))
    }

    /// Takes up a thread: one of ours, or any other that Codex can resume.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; the thread is as it was then.
    pub async fn resume(&self, thread: &ThreadId) -> Result<Opened, EngineError> {
        let running = self.backend.ready(&self.hub).await?;
        if let Some(entry) = self.hub.sessions.by_thread(thread.as_str()) {
            if !entry.is_loaded_in(&running) {
                load(&entry, running).await?;
            }
            return Ok(opened(&entry));
        }
        let settings = ThreadSettings::default();
        let thread = resume(&running.0, thread, &settings).await?;
        Ok(opened(&self.enter(thread, settings, &running)))
    }

    /// Gives a thread its next prompt.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; no turn has been started then.
    pub async fn prompt(&self, session: &SessionId, text: &str) -> Result<TurnRef, EngineError> {
        let entry = self.entry(session)?;
        match prompt(&entry, text).await {
            // Codex may have unloaded a thread that was at rest for long.
            Err(EngineError::NoThread(_)) => {
                load(&entry, self.backend.ready(&self.hub).await?).await?;
                prompt(&entry, text).await
            }
            prompted => prompted,
        }
    }

    /// Answers a question of Codex's.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`] and [`EngineError::Decision`].
    pub fn respond(
        &self,
        session: &SessionId,
        action: &ActionId,
        decision: &Decision,
    ) -> Result<(), EngineError> {
        let entry = self.entry(session)?;
        let effects = entry.change(|machine| machine.decide(action, decision))?;
        perform(&entry, effects);
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

    /// How a session stands.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub fn inspect(&self, session: &SessionId) -> Result<View, EngineError> {
        Ok(self.entry(session)?.view())
    }

    /// All that Codex has said in the running turn of a session.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub fn partial_text(&self, session: &SessionId) -> Result<String, EngineError> {
        let entry = self.entry(session)?;
        Ok(entry.change_quietly(|machine| machine.partial_text()))
    }

    /// Waits until a session has changed since the revision `seen`.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub async fn changed(&self, session: &SessionId, seen: u64) -> Result<(), EngineError> {
        let mut revision = self.entry(session)?.watch();
        // Fails only if the entry is dropped, which is a change as well.
        let _ = revision.wait_for(|revision| *revision > seen).await;
        Ok(())
    }

    /// Interrupts what runs, ends Codex and waits until it is gone, a few
    /// seconds at most.
    pub async fn shut_down(&self) {
        for entry in self.hub.sessions.all() {
            let effects = entry.change(Session::interrupt);
            perform(&entry, effects);
        }
        if tokio::time::timeout(SHUTDOWN_PATIENCE, self.backend.end())
            .await
            .is_err()
        {
            tracing::warn!("Codex takes long to end; its guard sees to it");
        }
    }

    /// Codex runs happily in a folder that isn't there, and every command in it
    /// fails; so it is checked here.
    fn complete(
        &self,
        mut settings: ThreadSettings,
        profile: Option<&profile::ProfileName>,
    ) -> Result<ThreadSettings, EngineError> {
        let here = std::env::current_dir().map_err(EngineError::NoCurrentFolder)?;
        let cwd = here.join(settings.cwd.take().unwrap_or_default());
        if !cwd.is_dir() {
            return Err(EngineError::NoFolder(cwd));
        }
        settings.cwd = Some(cwd);
        if let Some(profile) = profile {
            let mut config = profile::overrides(&self.options.codex_home, profile)?;
            profile::lay_over(&mut config, std::mem::take(&mut settings.config));
            settings.config = config;
        }
        Ok(settings)
    }

    fn enter(&self, thread: ThreadId, settings: ThreadSettings, running: &Running) -> Arc<Entry> {
        let timeout = self.options.approval_timeout;
        let entry = Entry::new(thread, settings, running.clone(), timeout);
        self.hub.sessions.add(entry)
    }

    fn entry(&self, session: &SessionId) -> Result<Arc<Entry>, EngineError> {
        self.hub
            .sessions
            .by_id(session)
            .ok_or_else(|| EngineError::NoSession(session.clone()))
    }
}

fn opened(entry: &Entry) -> Opened {
    Opened {
        session: entry.id.clone(),
        thread: entry.thread.clone(),
    }
}

async fn prompt(entry: &Arc<Entry>, text: &str) -> Result<TurnRef, EngineError> {
    let number = entry.change(|machine| machine.prompt().map(|()| machine.turns()))?;
    let turn = TurnRef {
        session: entry.id.clone(),
        number,
    };
    let params = TurnStartParams {
        thread_id: &entry.thread,
        input: vec![UserInput::Text { text }],
    };
    let (server, _) = entry.server();
    match call::<TurnResponse>(&server, Method::TurnStart, &params).await {
        Ok(response) => {
            perform(
                entry,
                entry.change(|machine| machine.accepted(response.turn.id)),
            );
            Ok(turn)
        }
        Err(error @ (EngineError::Refused { .. } | EngineError::Gone(_))) => {
            perform(entry, entry.change(Session::refused));
            Err(error.about(&entry.thread))
        }
        // Codex may have taken the prompt all the same.
        Err(error) => {
            hub::interrupt(entry, number);
            Err(error)
        }
    }
}

/// Loads the thread of a session that we know in an app-server.
async fn load(entry: &Entry, running: Running) -> Result<(), EngineError> {
    resume(&running.0, &entry.thread, &entry.settings).await?;
    entry.now_loaded_in(running);
    Ok(())
}

async fn resume(
    server: &AppServer,
    thread: &ThreadId,
    settings: &ThreadSettings,
) -> Result<ThreadId, EngineError> {
    let params = ThreadResumeParams {
        thread_id: thread,
        exclude_turns: true,
        settings,
    };
    let resumed: ThreadResponse = call(server, Method::ThreadResume, &params)
        .await
        .map_err(|error| error.about(thread))?;
    Ok(resumed.thread.id)
}

async fn call<T: DeserializeOwned>(
    server: &AppServer,
    method: Method,
    params: &impl Serialize,
) -> Result<T, EngineError> {
    match server.call(method, params, THREAD_PATIENCE).await {
        Ok(result) => Ok(result),
        Err(CallError::Closed(_)) => Err(EngineError::Gone(server.exit().await)),
        Err(CallError::Refused(refusal)) => Err(EngineError::Refused { method, refusal }),
        Err(CallError::TimedOut { method, after }) => Err(EngineError::Silent { method, after }),
        Err(CallError::Unreadable { method, error }) => {
            Err(EngineError::Unreadable { method, error })
        }
    }
}
