//! An app-server with its sessions, which several engines may share.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use safe_files::off_runtime;
use supervise::search_path::protected_in;

use super::backend::{Backend, Launch};
use super::command::SessionInfo;
use super::engine::session_named;
use super::error::EngineError;
use super::hub::Hub;
use super::known_limits::LastQuery;
use super::mount_targets::{MountTargets, register_in};
use super::session_handle::SessionHandle;
use crate::logic::session::Session;

/// How long shutting down may take.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// Whether Codex has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// It has, and so have all processes that it started.
    Complete,
    /// Some of its processes may still run.
    Unfinished,
}

/// An app-server, started on demand, with its sessions.
pub(super) struct SharedCodex {
    /// What those who share it agree in.
    agreement: Agreement,
    pub(super) backend: Backend,
    pub(super) hub: Arc<Hub>,
    mount_targets: Mutex<MountTargets>,
    /// Codex's register of mount targets.
    register: PathBuf,
    /// The last query of the limits. Locked while Codex is asked.
    pub(super) last_query: tokio::sync::Mutex<Option<LastQuery>>,
}

/// What engines agree in that share an app-server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Agreement {
    launch: Option<Launch>,
    /// The search paths of the process: Codex's commands can write in the directory of a client,
    /// and Codex must find no program there.
    search_paths: Vec<(OsString, OsString)>,
    /// What else must be equal.
    terms: String,
}

/// How an app-server is started.
#[derive(Debug, Clone)]
pub(super) struct CodexStart {
    pub(super) launch: Launch,
    /// Variables on top of our environment.
    pub(super) env: Vec<(OsString, OsString)>,
    /// The directory of the process; ours by default.
    pub(super) directory: Option<PathBuf>,
}

impl SharedCodex {
    pub(super) fn new(start: CodexStart) -> Self {
        let CodexStart {
            launch,
            env,
            directory,
        } = start;
        let temporary = env.iter().rfind(|(name, _)| name == "TMPDIR");
        let temporary = temporary.map(|(_, path)| PathBuf::from(path));
        Self {
            register: register_in(&temporary.unwrap_or_else(std::env::temp_dir)),
            backend: Backend::new(launch, env, directory),
            agreement: Agreement::default(),
            hub: Arc::default(),
            mount_targets: Mutex::default(),
            last_query: tokio::sync::Mutex::default(),
        }
    }

    /// Interrupts all turns, ends Codex and waits for its exit, a few seconds at most.
    pub(super) async fn shut_down(&self) -> Shutdown {
        for entry in self.hub.sessions.all() {
            let effects = entry.change(Session::interrupt);
            super::effects::perform(&entry, effects);
        }
        match tokio::time::timeout(SHUTDOWN_TIMEOUT, self.backend.end()).await {
            Ok(()) => {
                self.remove_mount_targets().await;
                Shutdown::Complete
            }
            Err(_) => {
                tracing::warn!("Codex has not ended in time; its guard will end it");
                Shutdown::Unfinished
            }
        }
    }

    /// Notes the mount targets that are missing in a directory which commands may write to.
    pub(super) fn note_mount_targets(&self, directory: &Path) {
        let targets = self.mount_targets.lock();
        let mut targets = targets.unwrap_or_else(PoisonError::into_inner);
        targets.note_missing_in(directory);
    }

    /// Removes the mount targets that killed sandboxes have left, unless one still runs.
    pub(super) async fn remove_mount_targets(&self) {
        let targets = self.mount_targets.lock();
        let targets = targets.unwrap_or_else(PoisonError::into_inner).clone();
        let register = self.register.clone();
        if let Err(error) = off_runtime::run(move || targets.remove(&register)).await {
            tracing::warn!("mount targets of Codex's sandbox may be left: {error}");
        }
    }
}

/// The app-servers of a process that serves several clients, one for each [`Launch`]. Engines
/// [join](crate::Engine::joining) one; it runs on when they have gone.
#[derive(Default)]
pub struct AppServers(Mutex<Vec<Arc<SharedCodex>>>);

impl AppServers {
    /// The app-server of those who agree with this client in everything that counts.
    pub(super) fn of(&self, client: &CodexStart, terms: String) -> Arc<SharedCodex> {
        let agreement = Agreement {
            launch: Some(client.launch.clone()),
            search_paths: protected_in(client.directory.as_deref()),
            terms,
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = all.iter().find(|codex| codex.agreement == agreement) {
            return Arc::clone(found);
        }
        let start = CodexStart {
            launch: client.launch.clone(),
            env: [agreement.search_paths.as_slice(), &client.env].concat(),
            // No client's: that directory may be removed while others still work.
            directory: Some(PathBuf::from("/")),
        };
        let codex = Arc::new(SharedCodex {
            agreement,
            ..SharedCodex::new(start)
        });
        tokio::spawn(super::hub::sweep(Arc::downgrade(&codex.hub)));
        all.push(Arc::clone(&codex));
        codex
    }

    /// All sessions, those of one app-server after those of another. This does not count as a
    /// use of them.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = all.iter().flat_map(|codex| codex.hub.sessions.all());
        entries.map(|entry| entry.info()).collect()
    }

    /// The session with this ID, or ID prefix of 8 characters or more; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`EngineError::AmbiguousSession`].
    pub fn session(&self, text: &str) -> Result<Option<SessionHandle>, EngineError> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<_> = all
            .iter()
            .flat_map(|codex| codex.hub.sessions.all())
            .collect();
        let id = session_named(text, all.iter().map(|entry| &entry.id))?;
        let found = all.into_iter().find(|entry| entry.id == id);
        Ok(found.map(SessionHandle::of))
    }

    /// Interrupts all turns, ends all app-servers and waits for their exits, a few seconds at
    /// most.
    pub async fn shut_down(&self) -> Shutdown {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let ended = futures::future::join_all(all.iter().map(|codex| codex.shut_down())).await;
        match ended.contains(&Shutdown::Unfinished) {
            true => Shutdown::Unfinished,
            false => Shutdown::Complete,
        }
    }
}

/// Who ends the app-server of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ownership {
    /// The engine itself.
    Own,
    /// The process, when it ends.
    Shared,
}
