//! Work with files that others lock too, on a thread of its own: nobody else's
//! request waits while a lock is waited for.
//!
//! No process is started there: a process ends with the thread that started it.

use std::sync::mpsc;
use std::{io, thread};

use tokio::sync::oneshot;

type Task = Box<dyn FnOnce() + Send>;

/// Does one task after the other, in the order in which they were given.
#[derive(Debug, Clone)]
pub struct IoThread {
    tasks: mpsc::Sender<Task>,
}

/// The thread has ended, because a task has panicked.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the thread that works with files has ended")]
pub struct Ended;

impl IoThread {
    /// Starts the thread. It ends when the last clone is dropped.
    ///
    /// # Errors
    ///
    /// When the system has no thread to give.
    pub fn start() -> io::Result<Self> {
        let (tasks, given) = mpsc::channel::<Task>();
        thread::Builder::new()
            .name("files".to_owned())
            .spawn(move || given.into_iter().for_each(|task| task()))?;
        Ok(Self { tasks })
    }

    /// Gives it a task, and doesn't wait.
    pub fn give(&self, task: impl FnOnce() + Send + 'static) {
        if self.tasks.send(Box::new(task)).is_err() {
            tracing::error!("{Ended}");
        }
    }

    /// Gives it a task and waits for what comes of it. Dropped half-way, the task is
    /// done all the same.
    ///
    /// # Errors
    ///
    /// [`Ended`].
    pub async fn ask<T: Send + 'static>(
        &self,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Ended> {
        let (answer, answered) = oneshot::channel();
        self.give(move || {
            // Whoever asked may have gone.
            let _ = answer.send(task());
        });
        answered.await.map_err(|_| Ended)
    }

    /// Waits until all that was given before is done.
    pub async fn settle(&self) {
        if let Err(error) = self.ask(|| ()).await {
            tracing::error!("{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[tokio::test]
    async fn tasks_are_done_in_their_order() {
        let io_thread = IoThread::start().unwrap();
        let done = Arc::new(Mutex::new(Vec::new()));
        for number in 0..100 {
            let done = Arc::clone(&done);
            io_thread.give(move || done.lock().unwrap().push(number));
        }
        io_thread.settle().await;
        assert_eq!(*done.lock().unwrap(), (0..100).collect::<Vec<_>>());
        assert_eq!(io_thread.ask(|| 7).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_panic_is_told_to_those_who_ask() {
        let io_thread = IoThread::start().unwrap();
        assert!(io_thread.ask(|| panic!("on purpose")).await.is_err());
        assert!(io_thread.ask(|| ()).await.is_err());
    }
}
