//! When a server is to end.

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::exit;
use super::watchdog::{self, ENDING_SIGNALS, Pulse};

/// The longest graceful end of a server that answers calls and asks threads for their
/// summaries.
pub(super) const OF_A_SERVER: Duration = Duration::from_secs(60);

/// The longest graceful end of a server for one Codex, which keeps nothing.
pub(super) const OF_A_TOOL: Duration = Duration::from_secs(10);

/// How long a run may take to interrupt its turn, tell its notifiers and tidy up.
pub(super) const OF_A_RUN: Duration = Duration::from_secs(300);

/// How long a worker may take after its jobs have ended.
pub(super) const OF_A_WORKER: Duration = Duration::from_secs(60);

/// When a server is to end.
#[derive(Debug, Clone, Default)]
pub(super) struct Ending {
    /// Cancelled when the client has gone, or a signal has come.
    pub(super) closing: CancellationToken,
    /// Cancelled when a signal comes after that: nothing is to be waited for any more.
    pub(super) hurry: CancellationToken,
    /// The signal that came first.
    signal: Arc<OnceLock<SignalKind>>,
}

impl Ending {
    /// The end of the input and SIGTERM are the same to us (FR-7.4); Ctrl-C and a
    /// closed terminal too.
    ///
    /// The process ends after `limit` also where the graceful end does not come, and soon
    /// where this thread is blocked.
    pub(super) fn on_signals(limit: Duration) -> Self {
        let ending = Self::default();
        let pulse = Pulse::default();
        match watchdog::start(pulse.clone(), limit) {
            Ok(()) => drop(tokio::spawn(pulse.beat_after(ending.closing.clone()))),
            Err(error) => tracing::warn!("cannot watch over the end of this process: {error}"),
        }
        for kind in ENDING_SIGNALS {
            match signal(kind) {
                Ok(mut signals) => {
                    let ending = ending.clone();
                    tokio::spawn(async move {
                        while signals.recv().await.is_some() {
                            ending.heed(kind);
                        }
                    });
                }
                Err(error) => tracing::warn!("{kind:?} is not heeded: {error}"),
            }
        }
        ending
    }

    fn heed(&self, kind: SignalKind) {
        if self.closing.is_cancelled() {
            return self.hurry.cancel();
        }
        // Two signals that come at once are heeded one after the other, on one thread.
        let _ = self.signal.set(kind);
        self.closing.cancel();
    }

    /// The signal that asked for the end, if one did.
    pub(super) fn signal(&self) -> Option<SignalKind> {
        self.signal.get().copied()
    }

    /// The exit code of a server that has ended as it should. SIGTERM is the usual way to
    /// end one.
    pub(super) fn exit_code(&self) -> ExitCode {
        match self.signal() {
            Some(kind) if kind == SignalKind::interrupt() => ExitCode::from(exit::INTERRUPTED),
            _ => ExitCode::SUCCESS,
        }
    }
}
