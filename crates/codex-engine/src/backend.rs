//! The shared app-server of one launch configuration.
//!
//! ```text
//!   Absent ── wanted ──► Starting ── answered ──► Ready ── ended ──► Absent
//!     ▲                      │
//!     └────── failed ────────┘
//! ```
//!
//! It is started in the background when the program starts, and again only when a request
//! needs it. Requests that arrive during a start wait for the same start.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{self, Arc};
use std::time::Duration;

use codex_protocol::codex::Release;
use common::sync::lock;
use git_probe::ELSEWHERE;
use serde::{Deserialize, Serialize};
use supervise::adoptable;
use supervise::exit::{Exit, ExitCause};
use supervise::search_path::warn_of_replaceable;
use supervise::spawn::Program;
use tokio::sync::{Mutex, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::access_token::AccessToken;
use super::app_server::{AppServer, AppServerSetup, StartError, exit_of};
use super::binary::{self, CodexBinary, NoCodex, Source};
use super::confinement::NO_GIT;
use super::connection::Listener;
use super::kept::AGREEMENT;
use super::release::{has_command, release_of};

/// The number of attempts to start a Codex that exits before it answers. Two processes that create
/// the files of a new CODEX_HOME at the same time get in each other's way: one exits with code 1
/// (seen with 0.153.4).
const STARTS: usize = 3;

/// The pause before the next attempt.
const RESTART_PAUSE: Duration = Duration::from_millis(500);

/// The first release known to demand a token from its clients, and to repeat its open questions to
/// the next client.
pub(super) const FIRST_WITH_TOKENS: Release = Release::new(0, 130, 0);

/// The listening address that lets the system choose the port.
const ANY_PORT: &str = "ws://127.0.0.1:0";

/// The configuration that selects the app-server of a thread. All other settings belong
/// to the thread. CODEX_HOME comes from our environment, which Codex inherits, or from
/// the variables added to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The chosen Codex and the source of the choice; `None` for the first one on PATH.
    pub codex: Option<(PathBuf, Source)>,
    /// The longest line that is accepted from Codex, in bytes.
    pub line_limit: usize,
}

impl Launch {
    /// The same configuration with the Codex that a client in this directory would find. A process
    /// that serves several clients runs in another directory, where it might find another Codex.
    pub(super) fn found_for(&self, directory: Option<&Path>) -> Self {
        let found = binary::find_for(self.codex.clone(), directory).ok();
        let found = found.map(|found| (found.chosen, found.source));
        Self {
            codex: found.or_else(|| self.codex.clone()),
            ..self.clone()
        }
    }
}

/// Why no app-server is available.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// There is no Codex.
    #[error(transparent)]
    NoCodex(#[from] NoCodex),
    /// It cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It is too old.
    #[error(
        "Codex {release} is too old for its app-server, which is understood from {} on. Update it \
         with `npm install -g @openai/codex`, or serve with `--backend mcp-server`",
        Release::FIRST_APP_SERVER
    )]
    TooOld {
        /// Its release.
        release: Release,
    },
    /// It has no app-server, and its release is not known.
    #[error(
        "this Codex has no app-server. Update it with `npm install -g @openai/codex`, or serve \
         with `--backend mcp-server`"
    )]
    NoAppServer,
    /// We are about to end.
    #[error("codex-mcp is shutting down")]
    Ending,
}

/// The number of an app-server among those that a backend has started one after the
/// other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Generation(u64);

/// Receives the app-server's messages and its exit.
pub(crate) trait Supervisor: Listener {
    /// An app-server has ended, and with it every thread that it had loaded. Not called
    /// for one that never answered: its start has failed.
    fn on_exit(&self, generation: Generation, exit: Exit, cause: ExitCause);
}

/// An app-server and its number.
pub(crate) type Running = (Arc<AppServer>, Generation);

/// The state of the app-server.
#[derive(Debug, Clone)]
pub enum AppServerStatus {
    /// It is being started.
    Starting,
    /// It is ready. Holds its version if it reports one.
    Ready(Option<String>),
    /// No app-server runs. Holds the error if the last start failed.
    Absent(Option<Arc<LaunchError>>),
}

/// The running app-server and the last error.
#[derive(Default)]
struct Slot {
    running: Option<Running>,
    /// Why the last start failed, unless it succeeded.
    failure: Option<Arc<LaunchError>>,
}

/// The shared app-server.
pub(crate) struct Backend {
    launch: Launch,
    /// Variables on top of our environment.
    env: Vec<(OsString, OsString)>,
    /// The directory of the process; ours by default.
    directory: Option<PathBuf>,
    slot: Mutex<Slot>,
    /// How many starts have been tried.
    starts: AtomicU64,
    /// Receivers of the exits of all processes that may still run, including those whose start no
    /// caller waits for any more.
    exits: sync::Mutex<Vec<watch::Receiver<Option<Exit>>>>,
    /// Cancelled when no app-server may be started any more.
    ending: CancellationToken,
    /// Set if another process can adopt the app-server when this one was killed.
    adoptable: Option<Adoptable>,
}

/// Returns the path of the adoption socket of one more app-server.
pub(super) type NewAdoptionSocket = dyn Fn() -> PathBuf + Send + Sync;

/// The settings of adoptable app-servers.
struct Adoptable {
    new_socket: Arc<NewAdoptionSocket>,
    /// How long an app-server continues to run after its owner was killed.
    wait: Duration,
    /// The agreement of those who share the app-server.
    agreement: String,
}

impl Backend {
    pub(crate) fn new(
        launch: Launch,
        env: Vec<(OsString, OsString)>,
        directory: Option<PathBuf>,
    ) -> Self {
        Self {
            launch,
            env,
            directory,
            slot: Mutex::default(),
            starts: AtomicU64::new(0),
            exits: sync::Mutex::default(),
            ending: CancellationToken::new(),
            adoptable: None,
        }
    }

    /// Starts app-servers that another process can adopt, where Codex supports it.
    pub(super) fn make_adoptable(
        &mut self,
        new_socket: Arc<NewAdoptionSocket>,
        wait: Duration,
        agreement: String,
    ) {
        self.adoptable = Some(Adoptable {
            new_socket,
            wait,
            agreement,
        });
    }

    /// The path of the adoption socket of this Codex, if it is adoptable, and how long the app-server
    /// runs without an owner.
    async fn adoption_socket(&self, codex: &CodexBinary) -> Option<(PathBuf, Duration)> {
        let adoptable = self.adoptable.as_ref()?;
        if !adoptable::is_supported() {
            return None;
        }
        let release = release_of(codex).await?;
        (release >= FIRST_WITH_TOKENS).then(|| ((adoptable.new_socket)(), adoptable.wait))
    }

    /// The app-server, which is started if none runs. Callers that wait for a start share its
    /// failure instead of each starting again.
    pub(crate) async fn ready<S: Supervisor + 'static>(
        &self,
        supervisor: &Arc<S>,
    ) -> Result<Running, Arc<LaunchError>> {
        let waited = self.slot.try_lock().is_err();
        let mut slot = self.slot.lock().await;
        if let Some(running) = slot
            .running
            .as_ref()
            .filter(|(server, _)| server.is_alive())
        {
            return Ok(running.clone());
        }
        if let Some(failure) = slot.failure.as_ref().filter(|_| waited) {
            return Err(Arc::clone(failure));
        }
        let before = std::mem::take(&mut *slot).running;
        let generation = Generation(self.starts.fetch_add(1, Ordering::Relaxed));
        let start = async {
            if let Some((dead, _)) = before {
                // The dead app-server holds its threads until it has exited. Processes that it
                // started may outlive it.
                dead.exit().await;
            }
            self.start_again_if_it_ends(supervisor, generation).await
        };
        let started = tokio::select! {
            biased;
            () = self.ending.cancelled() => Err(LaunchError::Ending),
            started = start => started,
        };
        match started {
            Ok(server) => Ok(slot.running.insert((Arc::new(server), generation)).clone()),
            Err(error) => Err(Arc::clone(slot.failure.insert(Arc::new(error)))),
        }
    }

    /// The app-server, if one runs. Does not wait for an app-server that is being started.
    pub(crate) fn running(&self) -> Option<Running> {
        let slot = self.slot.try_lock().ok()?;
        let running = slot.running.clone();
        running.filter(|(server, _)| server.is_alive())
    }

    /// The app-server, if one runs. Waits for an app-server that is being started, and starts none.
    pub(crate) async fn current(&self) -> Option<Running> {
        let running = self.slot.lock().await.running.clone();
        running.filter(|(server, _)| server.is_alive())
    }

    /// Whether an app-server is being started.
    pub(crate) fn is_starting(&self) -> bool {
        self.slot.try_lock().is_err()
    }

    /// Holds the app-server as its start does.
    #[cfg(test)]
    pub(crate) async fn hold(&self) -> impl Sized {
        self.slot.lock().await
    }

    #[cfg(test)]
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_cancelled()
    }

    /// The state of the app-server.
    pub(crate) fn app_server_status(&self) -> AppServerStatus {
        let Ok(slot) = self.slot.try_lock() else {
            return AppServerStatus::Starting;
        };
        match &slot.running {
            Some((server, _)) if server.is_alive() => {
                AppServerStatus::Ready(server.about.codex_version().map(str::to_owned))
            }
            _ => AppServerStatus::Absent(slot.failure.clone()),
        }
    }

    /// Assigns a number to an app-server that is not started here; `ended` later receives its exit.
    pub(super) fn next_generation(&self, ended: watch::Receiver<Option<Exit>>) -> Generation {
        self.note_process(ended);
        Generation(self.starts.fetch_add(1, Ordering::Relaxed))
    }

    /// Notes a process that [`end`](Self::end) waits for; `ended` later receives its exit.
    fn note_process(&self, ended: watch::Receiver<Option<Exit>>) {
        let mut exits = lock(&self.exits);
        // The sender of an exit is dropped after it was sent.
        exits.retain(|exit| exit.has_changed().is_ok());
        exits.push(ended);
    }

    /// Takes over an app-server that was started elsewhere.
    pub(super) async fn adopt(&self, server: AppServer, generation: Generation) -> Running {
        let running = (Arc::new(server), generation);
        self.keep_agreement(&running.0);
        self.slot.lock().await.running = Some(running.clone());
        running
    }

    fn keep_agreement(&self, server: &AppServer) {
        if let (Some(keeper), Some(next)) = (server.keeper(), &self.adoptable) {
            keeper.keep(AGREEMENT, next.agreement.clone());
        }
    }

    /// Ends the app-server, if one runs, and waits until it, all earlier ones and all processes
    /// that they started have exited. No further app-server is started.
    pub(crate) async fn end(&self) {
        self.ending.cancel();
        if let Some((server, _)) = self.slot.lock().await.running.take() {
            server.end().await;
        }
        let exits = lock(&self.exits).clone();
        for mut exit in exits {
            exit_of(&mut exit).await;
        }
    }

    /// Starts the app-server; tries again if it exits before it answers.
    async fn start_again_if_it_ends<S: Supervisor + 'static>(
        &self,
        supervisor: &Arc<S>,
        generation: Generation,
    ) -> Result<AppServer, LaunchError> {
        for _ in 1..STARTS {
            match self.start(Arc::clone(supervisor), generation).await {
                Err(LaunchError::Start(error @ StartError::Ended { .. })) => {
                    tracing::info!("Codex is started again: {error}");
                    sleep(RESTART_PAUSE).await;
                }
                started => return started,
            }
        }
        self.start(Arc::clone(supervisor), generation).await
    }

    async fn start<S: Supervisor + 'static>(
        &self,
        supervisor: Arc<S>,
        generation: Generation,
    ) -> Result<AppServer, LaunchError> {
        let codex = binary::find(self.launch.codex.clone())?;
        // A shared app-server was checked for the client for which it was first started.
        if self.directory.is_none() {
            warn_of_replaceable(&codex.native, None);
        }
        let adoption = match self.adoption_socket(&codex).await {
            Some((socket, wait)) => {
                let token = AccessToken::random().map_err(StartError::Spawn)?;
                Some((socket, wait, token))
            }
            None => None,
        };
        let program = self.program(&codex, adoption.as_ref().map(|(_, _, token)| token));
        let listener: Arc<dyn Listener> = supervisor.clone();
        let answered = Arc::new(AtomicBool::new(false));
        let has_answered = Arc::clone(&answered);
        let on_exit = move |exit, cause| {
            if has_answered.load(Ordering::Relaxed) {
                supervisor.on_exit(generation, exit, cause);
            }
        };
        let (ending, ended) = watch::channel(None);
        self.note_process(ended);
        let line_limit = self.launch.line_limit;
        let setup = AppServerSetup {
            line_limit,
            listener,
            ending,
        };
        let started = match adoption {
            Some((socket, wait, token)) => {
                let adoption = (socket.as_path(), wait, token);
                AppServer::start_adoptable(&program, adoption, setup, on_exit).await
            }
            None => AppServer::start(&program, setup, on_exit).await,
        };
        let server = match started {
            Ok(server) => server,
            Err(error) => return Err(reason_of(error, &codex).await),
        };
        answered.store(true, Ordering::Relaxed);
        self.keep_agreement(&server);
        if let Some(release) = server.about.codex_version().and_then(too_old) {
            server.end().await;
            return Err(LaunchError::TooOld { release });
        }
        tracing::info!(
            "Codex {} is ready ({})",
            server.about.codex_version().unwrap_or("of unknown version"),
            codex.native.display()
        );
        Ok(server)
    }

    /// The app-server of this Codex as a program. With a token it listens at a port, and demands
    /// the token from its clients; otherwise its client is on its standard streams.
    fn program(&self, codex: &CodexBinary, token: Option<&AccessToken>) -> Program {
        let mut program = Program::new(&codex.native, ["app-server"]);
        if let Some(token) = token {
            let listen = ["--listen", ANY_PORT].map(OsString::from);
            program.args.extend(listen);
            program.args.extend(token.codex_args().map(OsString::from));
        }
        program.cwd = self.directory.clone();
        program.env = codex.env();
        program.env.extend(self.env.iter().cloned());
        program.env.push((NO_GIT.0.into(), NO_GIT.1.into()));
        // Variables such as GIT_DIR would lead a thread away from the repository around its
        // directory.
        program.without = ELSEWHERE;
        program
    }
}

/// The release of this version, if its app-server is not understood.
fn too_old(version: &str) -> Option<Release> {
    Release::parse(version).filter(|release| *release < Release::FIRST_APP_SERVER)
}

/// Why a start failed: a Codex that ended before it answered may have no app-server that
/// we understand.
async fn reason_of(error: StartError, codex: &CodexBinary) -> LaunchError {
    if !matches!(error, StartError::Ended { .. }) {
        return error.into();
    }
    let (release, has_server) = tokio::join!(release_of(codex), has_command(codex, "app-server"));
    match (release, has_server) {
        (Some(release), _) if release < Release::FIRST_APP_SERVER => {
            LaunchError::TooOld { release }
        }
        (None, Some(false)) => LaunchError::NoAppServer,
        _ => error.into(),
    }
}
