//! The runtime of the verbs.

use std::io;

/// Runs a future to its end on this thread. There is one thread alone: processes are
/// tied to the thread that starts them.
///
/// # Errors
///
/// When the system cannot create a runtime.
pub(super) fn block_on<F: Future>(future: F) -> io::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let output = runtime.block_on(future);
    // A read from a terminal on stdin cannot be cancelled.
    runtime.shutdown_background();
    Ok(output)
}
