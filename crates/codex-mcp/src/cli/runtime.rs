//! The runtime of the verbs.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Runs a future to its end on this thread. The runtime has only this thread, because child
/// processes are tied to the thread that starts them.
///
/// # Errors
///
/// If the system cannot create a runtime.
pub(super) fn block_on<F: Future>(future: F) -> io::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let output = runtime.block_on(future);
    // A read from a terminal on stdin cannot be cancelled.
    runtime.shutdown_background();
    Ok(output)
}

/// Completes `work`; returns `None` if Ctrl-C is pressed first.
///
/// # Errors
///
/// If no handler for the signal can be installed.
pub(super) async fn unless_interrupted<T>(work: impl Future<Output = T>) -> io::Result<Option<T>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        done = work => Ok(Some(done)),
        _ = interrupt.recv() => Ok(None),
    }
}
