//! The runtime that the verbs work in.

use std::io;

/// Runs a future to its end on this thread. There is one thread alone: processes are
/// tied to the thread that starts them.
///
/// # Errors
///
/// When the system has no means for a runtime.
pub(super) fn block_on<F: Future>(future: F) -> io::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let output = runtime.block_on(future);
    // A read of stdin that is a terminal can't be called off.
    runtime.shutdown_background();
    Ok(output)
}
