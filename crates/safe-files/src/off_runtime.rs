//! Blocking work on files that others may have written, off the runtime's thread.
//!
//! A file of a network file system can block a system call for ever. Each task has a thread
//! of its own, so that a blocked task delays no other, and a deadline, so that every caller
//! gets an answer. No process is started on such a thread, as a process ends with the
//! thread that started it.

use std::time::Duration;
use std::{io, thread};

use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

/// How long a task may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// How many tasks run at once, including blocked ones.
static SLOTS: Semaphore = Semaphore::const_new(16);

/// Why a task has no result.
#[derive(Debug, thiserror::Error)]
pub enum OffRuntimeError {
    /// The file system does not answer.
    #[error("the file system has not answered for {} s", DEADLINE.as_secs())]
    Late,
    /// The task has panicked.
    #[error("the thread that reads files has ended")]
    Ended,
    /// The thread cannot be spawned.
    #[error("cannot spawn a thread: {0}")]
    Thread(#[from] io::Error),
}

/// Runs a task on another thread. After the deadline it may still be running; nobody
/// waits for it then.
///
/// # Errors
///
/// [`OffRuntimeError`].
pub async fn run<T: Send + 'static>(
    task: impl FnOnce() -> T + Send + 'static,
) -> Result<T, OffRuntimeError> {
    let work = async {
        let slot = SLOTS.acquire().await.map_err(|_| OffRuntimeError::Ended)?;
        let (answer, answered) = oneshot::channel();
        thread::Builder::new()
            .name("file".to_owned())
            .spawn(move || {
                let result = task();
                drop(slot);
                // The caller may have stopped waiting.
                let _ = answer.send(result);
            })?;
        answered.await.map_err(|_| OffRuntimeError::Ended)
    };
    timeout(DEADLINE, work)
        .await
        .unwrap_or(Err(OffRuntimeError::Late))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn task_runs_on_another_thread() {
        let here = thread::current().id();
        let there = run(|| thread::current().id()).await.unwrap();
        assert_ne!(here, there);
    }

    #[tokio::test]
    async fn panic_is_an_error() {
        let panicked = run(|| panic!("on purpose")).await.unwrap_err();
        assert!(matches!(panicked, OffRuntimeError::Ended));
    }

    #[tokio::test(start_paused = true)]
    async fn task_that_hangs_is_given_up_at_the_deadline() {
        let (release, held) = mpsc::channel::<()>();
        let late = run(move || held.recv()).await.unwrap_err();
        assert!(matches!(late, OffRuntimeError::Late));
        drop(release);
    }
}
