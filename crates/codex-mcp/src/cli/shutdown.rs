//! Shutdown on signals and at the end of the input.

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::exit;
use super::watchdog::{self, ENDING_SIGNALS, Pulse};

/// The longest graceful end of a server that answers calls and asks threads for their
/// summaries.
pub(super) const SERVER_LIMIT: Duration = Duration::from_secs(60);

/// The longest graceful end of a server for one Codex, which keeps nothing.
pub(super) const TOOL_LIMIT: Duration = Duration::from_secs(10);

/// The longest graceful end of a run: it interrupts its turn, tells its notifiers and cleans up.
pub(super) const RUN_LIMIT: Duration = Duration::from_secs(300);

/// The longest graceful end of a worker after its jobs have ended.
pub(super) const WORKER_LIMIT: Duration = Duration::from_secs(60);

/// Shutdown on signals and at the end of the input.
#[derive(Debug, Clone, Default)]
pub(super) struct Shutdown {
    /// Cancelled when the client has gone, or a signal has come.
    pub(super) closing: CancellationToken,
    /// Cancelled by a second signal: the process waits for nothing more.
    pub(super) hurry: CancellationToken,
    /// The signal that came first.
    signal: Arc<OnceLock<SignalKind>>,
}

impl Shutdown {
    /// Listens for SIGTERM, Ctrl-C and the closing of the terminal, each of which begins the
    /// shutdown. The end of the input has the same effect (FR-7.4).
    ///
    /// The watchdog ends the process after `limit` if the graceful end takes longer, and earlier if
    /// this thread is blocked.
    pub(super) fn on_signals(limit: Duration) -> Self {
        let shutdown = Self::default();
        let pulse = Pulse::default();
        match watchdog::start(pulse.clone(), limit) {
            Ok(()) => drop(tokio::spawn(pulse.beat_after(shutdown.closing.clone()))),
            Err(error) => tracing::warn!("cannot start the watchdog: {error}"),
        }
        for kind in ENDING_SIGNALS {
            match signal(kind) {
                Ok(mut signals) => {
                    let shutdown = shutdown.clone();
                    tokio::spawn(async move {
                        while signals.recv().await.is_some() {
                            shutdown.heed(kind);
                        }
                    });
                }
                Err(error) => tracing::warn!("cannot handle {kind:?}: {error}"),
            }
        }
        shutdown
    }

    fn heed(&self, kind: SignalKind) {
        if self.closing.is_cancelled() {
            return self.hurry.cancel();
        }
        // Two signals at once are handled one after the other, on one thread.
        let _ = self.signal.set(kind);
        self.closing.cancel();
    }

    /// The signal that asked for the end, if one did.
    pub(super) fn signal(&self) -> Option<SignalKind> {
        self.signal.get().copied()
    }

    /// The exit code of a server that ended gracefully. SIGTERM is the usual way to end one, so
    /// it counts as success.
    pub(super) fn exit_code(&self) -> ExitCode {
        match self.signal() {
            Some(kind) if kind == SignalKind::interrupt() => ExitCode::from(exit::INTERRUPTED),
            _ => ExitCode::SUCCESS,
        }
    }
}
