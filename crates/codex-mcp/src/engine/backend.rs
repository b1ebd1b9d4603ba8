//! The shared app-server of one launch configuration.
//!
//! ```text
//!   Absent ── wanted ──► Starting ── answered ──► Ready ── ended ──► Absent
//!     ▲                      │
//!     └────── failed ────────┘
//! ```
//!
//! It is started in the background when the program starts, and again only
//! when somebody wants work done. Whoever asks while it starts waits for the
//! same start.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

use super::app_server::{AppServer, StartError};
use super::binary::{self, NoCodex, Source};
use super::connection::Listener;
use super::exit::Exit;
use super::spawn::Program;

/// What decides which app-server a thread runs in. Everything else is set for
/// each thread. CODEX_HOME is part of our environment, which Codex inherits.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The Codex that was chosen, and where; else the first on PATH.
    pub codex: Option<(PathBuf, Source)>,
    /// The longest line that is taken from Codex, in bytes.
    pub line_limit: usize,
}

/// Why there is no app-server.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// There is no Codex.
    #[error(transparent)]
    NoCodex(#[from] NoCodex),
    /// It doesn't start.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Which of the app-servers, one after the other, that a backend has had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Generation(u64);

/// What hears of the app-server's threads and of its end.
pub(crate) trait Supervisor: Listener {
    /// An app-server has ended, and with it every thread that it had loaded.
    fn gone(&self, generation: Generation, exit: Exit);
}

/// An app-server and which one it is.
pub(crate) type Running = (Arc<AppServer>, Generation);

/// The shared app-server.
pub(crate) struct Backend {
    launch: Launch,
    running: Mutex<Option<Running>>,
    generations: AtomicU64,
}

impl Backend {
    pub(crate) fn new(launch: Launch) -> Self {
        Self {
            launch,
            running: Mutex::new(None),
            generations: AtomicU64::new(0),
        }
    }

    /// The app-server, started if there is none.
    pub(crate) async fn ready<S: Supervisor + 'static>(
        &self,
        supervisor: &Arc<S>,
    ) -> Result<Running, LaunchError> {
        let mut running = self.running.lock().await;
        if let Some(running) = running.as_ref().filter(|(server, _)| server.is_alive()) {
            return Ok(running.clone());
        }
        *running = None;
        let generation = Generation(self.generations.fetch_add(1, Ordering::Relaxed));
        let server = self.start(Arc::clone(supervisor), generation).await?;
        Ok(running.insert((Arc::new(server), generation)).clone())
    }

    /// Ends the app-server, if there is one, and waits until it is gone.
    pub(crate) async fn end(&self) {
        if let Some((server, _)) = self.running.lock().await.take() {
            server.end().await;
        }
    }

    async fn start<S: Supervisor + 'static>(
        &self,
        supervisor: Arc<S>,
        generation: Generation,
    ) -> Result<AppServer, LaunchError> {
        let codex = binary::find(self.launch.codex.clone())?;
        let mut program = Program::new(&codex.native, ["app-server"]);
        program.env = codex.env();
        let listener: Arc<dyn Listener> = supervisor.clone();
        let gone = move |exit| supervisor.gone(generation, exit);
        let server = AppServer::start(&program, self.launch.line_limit, listener, gone).await?;
        tracing::info!(
            "Codex {} is ready ({})",
            server.about.codex_version().unwrap_or("of unknown version"),
            codex.native.display()
        );
        Ok(server)
    }
}
