//! A thread for work with locked files, so that no other request waits for the lock.
//!
//! No process is started there: a process would end with the thread that started it.

use std::sync::mpsc;
use std::{io, thread};

use tokio::sync::oneshot;

type Task = Box<dyn FnOnce() + Send>;

/// Runs tasks one after the other, in the order in which they were submitted.
#[derive(Debug, Clone)]
pub struct IoThread {
    tasks: mpsc::Sender<Task>,
}

/// The thread has ended because a task panicked.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the thread that works with files has ended")]
pub struct ThreadEnded;

impl IoThread {
    /// Starts the thread. It ends when the last clone is dropped.
    ///
    /// # Errors
    ///
    /// If the thread cannot be spawned.
    pub fn start() -> io::Result<Self> {
        let (tasks, received) = mpsc::channel::<Task>();
        thread::Builder::new()
            .name("files".to_owned())
            .spawn(move || received.into_iter().for_each(|task| task()))?;
        Ok(Self { tasks })
    }

    /// Submits a task without waiting for it.
    pub fn submit(&self, task: impl FnOnce() + Send + 'static) {
        if self.tasks.send(Box::new(task)).is_err() {
            tracing::error!("{ThreadEnded}");
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

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
}
