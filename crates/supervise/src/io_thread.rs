//! A separate thread for work with locked files, so that no other request waits for the lock.
//!
//! No process must be started on this thread: the process would end with the thread.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, mem, thread};

use common::sync::lock;
use tokio::sync::oneshot;

type Task = Box<dyn FnOnce() + Send>;

/// How long the thread stays without a task. A host has one thread for each client that has a
/// session, including clients that have gone.
const IDLE: Duration = Duration::from_secs(5);

/// Runs tasks one after the other, in the order in which they were submitted.
#[derive(Debug, Clone)]
pub struct IoThread {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Wakes the thread.
    submitted: Condvar,
    /// Runs when the thread has had no task for a while.
    on_idle: Option<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    is_running: bool,
    /// Whether a task has panicked.
    has_ended: bool,
}

/// The thread has ended because a task panicked.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the thread that works with files has ended")]
pub struct ThreadEnded;

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

impl IoThread {
    /// Starts the thread. It ends when it has had no task for a while, and is started again for the
    /// next one.
    ///
    /// # Errors
    ///
    /// If the thread cannot be spawned.
    pub fn start() -> io::Result<Self> {
        Self::start_shared(Shared::default())
    }

    /// Starts the thread like [`start`](Self::start). `on_idle` runs whenever the thread is about
    /// to end for lack of tasks, to drop memory that is kept for the next task.
    ///
    /// # Errors
    ///
    /// If the thread cannot be spawned.
    pub fn start_with(on_idle: impl Fn() + Send + Sync + 'static) -> io::Result<Self> {
        Self::start_shared(Shared {
            on_idle: Some(Box::new(on_idle)),
            ..Shared::default()
        })
    }

    fn start_shared(shared: Shared) -> io::Result<Self> {
        let shared = Arc::new(shared);
        let mut state = lock(&shared.state);
        spawn(&shared, &mut state)?;
        drop(state);
        Ok(Self { shared })
    }

    /// Submits a task without waiting for it.
    pub fn submit(&self, task: impl FnOnce() + Send + 'static) {
        let mut state = lock(&self.shared.state);
        if state.has_ended {
            tracing::error!("{ThreadEnded}");
            return;
        }
        state.tasks.push_back(Box::new(task));
        if state.is_running {
            self.shared.submitted.notify_one();
        } else if let Err(error) = spawn(&self.shared, &mut state) {
            drop_tasks(state);
            tracing::error!("cannot spawn the thread that works with files: {error}");
        }
    }

    /// Submits a task and waits for its result. The task runs even if this future is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`ThreadEnded`].
    pub async fn run<T: Send + 'static>(
        &self,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ThreadEnded> {
        let (answer, answered) = oneshot::channel();
        self.submit(move || {
            // The caller may have stopped waiting.
            let _ = answer.send(task());
        });
        answered.await.map_err(|_| ThreadEnded)
    }

    /// Waits until all tasks submitted before have run.
    pub async fn flush(&self) {
        if let Err(error) = self.run(|| ()).await {
            tracing::error!("{error}");
        }
    }
}

/// Drops the tasks that wait. This wakes their callers, which would otherwise wait forever.
///
/// The lock is released first: a task can own a value that submits another task when it is dropped.
fn drop_tasks(mut state: MutexGuard<'_, State>) {
    let tasks = mem::take(&mut state.tasks);
    drop(state);
    drop(tasks);
}

fn spawn(shared: &Arc<Shared>, state: &mut State) -> io::Result<()> {
    let own = Arc::clone(shared);
    thread::Builder::new()
        .name("files".to_owned())
        .spawn(move || {
            let _end = EndOnPanic(&own);
            while let Some(task) = own.next() {
                task();
            }
            if let Some(on_idle) = &own.on_idle {
                on_idle();
            }
        })?;
    state.is_running = true;
    Ok(())
}

impl Shared {
    /// The next task; `None` if there was none for a while. Then the thread counts as ended.
    fn next(&self) -> Option<Task> {
        let waiting = self
            .submitted
            .wait_timeout_while(lock(&self.state), IDLE, |state| state.tasks.is_empty());
        let (mut state, _) = waiting.unwrap_or_else(PoisonError::into_inner);
        let task = state.tasks.pop_front();
        state.is_running = task.is_some();
        task
    }
}

/// Informs all callers that a task has panicked.
struct EndOnPanic<'a>(&'a Shared);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let mut state = lock(&self.0.state);
            state.has_ended = true;
            drop_tasks(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_run_in_order() {
        let io_thread = IoThread::start().unwrap();
        let done = Arc::new(Mutex::new(Vec::new()));
        for number in 0..100 {
            let done = Arc::clone(&done);
            io_thread.submit(move || done.lock().unwrap().push(number));
        }
        io_thread.flush().await;
        assert_eq!(*done.lock().unwrap(), (0..100).collect::<Vec<_>>());
        assert_eq!(io_thread.run(|| 7).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn panicked_task_is_reported_to_callers() {
        let io_thread = IoThread::start().unwrap();
        assert!(io_thread.run(|| panic!("on purpose")).await.is_err());
        assert!(io_thread.run(|| ()).await.is_err());
    }

    #[test]
    fn task_dropped_after_a_panic_can_submit_another_one() {
        struct SubmitsOnDrop(IoThread, std::sync::mpsc::Sender<()>);
        impl Drop for SubmitsOnDrop {
            fn drop(&mut self) {
                self.0.submit(|| ());
                self.1.send(()).unwrap();
            }
        }
        let io_thread = IoThread::start().unwrap();
        let (panic_now, panics) = std::sync::mpsc::channel();
        let (submitted, has_submitted) = std::sync::mpsc::channel();
        io_thread.submit(move || {
            panics.recv().unwrap();
            panic!("on purpose");
        });
        let owned = SubmitsOnDrop(io_thread.clone(), submitted);
        io_thread.submit(move || drop(owned));
        panic_now.send(()).unwrap();
        has_submitted.recv_timeout(IDLE).unwrap();
    }

    #[tokio::test]
    async fn idle_thread_ends_and_is_started_again() {
        let (idle, has_been_idle) = std::sync::mpsc::channel();
        let io_thread = IoThread::start_with(move || idle.send(()).unwrap()).unwrap();
        let first = io_thread.run(|| thread::current().id()).await.unwrap();
        has_been_idle.recv_timeout(4 * IDLE).unwrap();
        let second = io_thread.run(|| thread::current().id()).await.unwrap();
        assert_ne!(first, second);
    }
}
