//! Ends a process that was told to end but cannot, because its thread is blocked.
//!
//! A system call on a file of a network file system, or a write to a pipe that nobody
//! reads, can block the runtime's thread for ever, and with it everything that would
//! heed a signal. The watchdog listens for the same signals on a thread of its own. It
//! interferes only where the graceful way makes no progress, or takes longer than the
//! verb allows. The guards then end Codex: their owner has gone. Only if a host has not even been
//! able to tell its guards that it ends do they keep Codex for the next host.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The signals that end a process.
pub(super) const ENDING_SIGNALS: [SignalKind; 3] = [
    SignalKind::terminate(),
    SignalKind::interrupt(),
    SignalKind::hangup(),
];

/// The number of successive checks after a signal that may find no pulse: 5 s of checks.
const MAX_SILENT_CHECKS: u32 = 20;

/// The longest time for the end after a second signal.
const HURRY: Duration = Duration::from_secs(15);

/// How often the pulse is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// A counter that increases as long as the runtime's thread gets to its tasks.
#[derive(Debug, Clone, Default)]
pub(super) struct Pulse(Arc<AtomicU64>);

impl Pulse {
    /// Beats from the time when `closing` is cancelled until the runtime ends.
    pub(super) async fn beat_after(self, closing: CancellationToken) {
        closing.cancelled().await;
        loop {
            self.0.fetch_add(1, Ordering::Relaxed);
            sleep(CHECK_INTERVAL).await;
        }
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Starts the watchdog. `limit` is the longest graceful end.
///
/// # Errors
///
/// When no thread can be spawned, or no signal handler installed.
pub(super) fn start(pulse: Pulse, limit: Duration) -> io::Result<()> {
    // This thread has a separate runtime, which gets the signals even while the other one is
    // blocked.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (ready, started) = std::sync::mpsc::sync_channel(1);
    thread::Builder::new()
        .name("watchdog".to_owned())
        .spawn(move || {
            let code = runtime.block_on(async {
                let signals = Signals::listen(&ready)?;
                Some(signals.until_stuck(&pulse, limit).await)
            });
            if let Some(code) = code {
                // A terminal that takes no output blocks `top`, and is to be usable afterwards.
                let _ = terminal_view::reset_modes();
                process::exit(code);
            }
        })?;
    started.recv().unwrap_or(Ok(()))
}

/// The signals in the order of their arrival.
struct Signals {
    arrivals: tokio::sync::mpsc::UnboundedReceiver<SignalKind>,
}

impl Signals {
    /// Installs the handlers and reports the outcome to `ready`; `None` if that failed.
    fn listen(ready: &std::sync::mpsc::SyncSender<io::Result<()>>) -> Option<Self> {
        let (arrived, arrivals) = tokio::sync::mpsc::unbounded_channel();
        for kind in ENDING_SIGNALS {
            let mut signals = match signal(kind) {
                Ok(signals) => signals,
                Err(error) => {
                    // `start` waits for this.
                    let _ = ready.send(Err(error));
                    return None;
                }
            };
            let arrived = arrived.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    // The receiver lives as long as the process.
                    let _ = arrived.send(kind);
                }
            });
        }
        let _ = ready.send(Ok(()));
        Some(Self { arrivals })
    }

    /// The exit code, once a signal has come and the process does not end by itself.
    async fn until_stuck(mut self, pulse: &Pulse, limit: Duration) -> i32 {
        let Some(first) = self.arrivals.recv().await else {
            return std::future::pending().await;
        };
        // A time limit beyond the range of `Instant` has no effect.
        let mut deadline = Instant::now().checked_add(limit);
        let (mut count, mut silent) = (pulse.count(), 0);
        // Checks are counted rather than time, as a process that was stopped is not blocked.
        while silent < MAX_SILENT_CHECKS
            && deadline.is_none_or(|deadline| Instant::now() < deadline)
        {
            sleep(CHECK_INTERVAL).await;
            if self.arrivals.try_recv().is_ok() {
                let hurry = Instant::now() + HURRY;
                deadline = Some(deadline.map_or(hurry, |deadline| deadline.min(hurry)));
            }
            let counted = pulse.count();
            silent = if counted == count { silent + 1 } else { 0 };
            count = counted;
        }
        128 + first.as_raw_value()
    }
}
