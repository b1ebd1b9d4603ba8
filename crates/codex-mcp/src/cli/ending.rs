//! When a server is to end.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// When a server is to end.
#[derive(Debug, Clone, Default)]
pub(super) struct Ending {
    /// Cancelled when the client has gone, or a signal has come.
    pub(super) closing: CancellationToken,
    /// Cancelled when a signal comes after that: nothing is to be waited for any more.
    pub(super) hurry: CancellationToken,
}

impl Ending {
    /// The end of the input and SIGTERM are the same to us (FR-7.4); Ctrl-C and a
    /// closed terminal too.
    pub(super) fn on_signals() -> Self {
        let ending = Self::default();
        for kind in [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::hangup(),
        ] {
            match signal(kind) {
                Ok(mut signals) => {
                    let ending = ending.clone();
                    tokio::spawn(async move {
                        while signals.recv().await.is_some() {
                            ending.heed();
                        }
                    });
                }
                Err(error) => tracing::warn!("{kind:?} is not heeded: {error}"),
            }
        }
        ending
    }

    fn heed(&self) {
        match self.closing.is_cancelled() {
            true => self.hurry.cancel(),
            false => self.closing.cancel(),
        }
    }
}
