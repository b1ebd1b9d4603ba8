//! A value that is read anew each time, and the last one for when it cannot be read.

use std::fmt::Display;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::sync::lock;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

/// How long a read of files is waited for. As `off_runtime` waits for longer, a file system that does
/// not answer is waited for once.
pub(crate) const FILES_TIMEOUT: Duration = Duration::from_secs(8);

/// The last value that could be read.
#[derive(Debug)]
pub(crate) struct Latest<T> {
    /// How long a read is waited for.
    timeout: Duration,
    /// The value, and when its read began.
    last: Arc<Mutex<(T, Option<Instant>)>>,
    reading: tokio::sync::Mutex<Option<PendingRead<T>>>,
}

/// A read that was begun. It is not given up when nobody waits for it any longer: else a store that
/// takes a little longer than that could never be read.
#[derive(Debug)]
struct PendingRead<T> {
    task: JoinHandle<Result<T, String>>,
    /// When it takes too long.
    overdue: Instant,
}

impl<T: Clone + Default + Send + 'static> Latest<T> {
    /// No value yet. A read is waited for at most for `timeout`.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            last: Arc::default(),
            reading: tokio::sync::Mutex::default(),
        }
    }

    /// The value that is read now; if that fails or takes too long, the last one, and the reason. While
    /// a read takes too long, no other one is begun or waited for.
    pub(crate) async fn read<E: Display>(
        &self,
        read: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> (T, Option<String>) {
        let failure = match self.read_anew(read).await {
            Some(Ok(value)) => return (value, None),
            Some(Err(error)) => error,
            None => format!("no answer within {} s", self.timeout.as_secs()),
        };
        (lock(&self.last).0.clone(), Some(failure))
    }

    /// Reads the value; `None` if this or an earlier read takes too long. Those who wait for another
    /// read at the same time share the next one.
    async fn read_anew<E: Display>(
        &self,
        read: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Option<Result<T, String>> {
        let asked = Instant::now();
        let mut reading = self.reading.lock().await;
        let (value, begun) = lock(&self.last).clone();
        if begun.is_some_and(|begun| begun >= asked) {
            return Some(Ok(value));
        }
        if let Some(earlier) = reading.as_mut() {
            // Its value may lack the latest changes.
            let _ = timeout_at(earlier.overdue, &mut earlier.task).await.ok()?;
            *reading = None;
        }
        let last = Arc::clone(&self.last);
        let task = tokio::spawn(async move {
            let begun = Instant::now();
            let value = read.await.map_err(|error| error.to_string())?;
            *lock(&last) = (value.clone(), Some(begun));
            Ok::<T, String>(value)
        });
        let overdue = Instant::now() + self.timeout;
        let begun = reading.insert(PendingRead { task, overdue });
        let value = timeout_at(overdue, &mut begun.task).await.ok()?;
        *reading = None;
        Some(value.unwrap_or_else(|error| Err(error.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::future::join_all;
    use tokio::sync::oneshot;
    use tokio::time::{sleep, timeout};

    use super::*;

    const READ_TIMEOUT: Duration = Duration::from_secs(2);

    const SLOW: &str = "no answer within 2 s";

    fn value(value: u32) -> impl Future<Output = Result<u32, String>> {
        ready(Ok(value))
    }

    fn slow(read: (u32, Option<String>)) -> u32 {
        let (value, failure) = read;
        assert_eq!(failure.as_deref(), Some(SLOW));
        value
    }

    #[tokio::test]
    async fn last_value_stays_when_a_read_fails() {
        let latest = Latest::new(READ_TIMEOUT);
        assert_eq!(latest.read(value(1)).await, (1, None));
        let failed = latest.read(ready(Err("broken"))).await;
        assert_eq!(failed, (1, Some("broken".to_owned())));
        assert_eq!(latest.read(value(2)).await, (2, None));
    }

    #[tokio::test(start_paused = true)]
    async fn silent_store_is_waited_for_once() {
        let latest = Latest::new(READ_TIMEOUT);
        latest.read(value(1)).await;
        // A read that begins at the same instant is shared.
        sleep(Duration::from_millis(1)).await;
        let begun = Instant::now();
        let silent = latest.read(pending::<Result<u32, String>>()).await;
        assert_eq!(slow(silent), 1);
        assert_eq!(begun.elapsed(), READ_TIMEOUT);
        assert_eq!(slow(latest.read(value(2)).await), 1);
        assert_eq!(begun.elapsed(), READ_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn late_value_is_kept_and_then_read_anew() {
        let latest = Latest::new(READ_TIMEOUT);
        let (sender, receiver) = oneshot::channel();
        assert_eq!(slow(latest.read(receiver).await), 0);
        sender.send(1).unwrap();
        // The task has taken it.
        sleep(READ_TIMEOUT).await;
        assert_eq!(lock(&latest.last).0, 1);
        assert_eq!(latest.read(value(2)).await, (2, None));
    }

    #[tokio::test(start_paused = true)]
    async fn readers_at_the_same_time_share_reads() {
        let latest = Latest::new(READ_TIMEOUT);
        let begun = Instant::now();
        let all = join_all((0..10).map(async |number| {
            sleep(READ_TIMEOUT * number / 20).await;
            let late = async {
                sleep(READ_TIMEOUT * 3 / 4).await;
                Ok::<u32, String>(1)
            };
            latest.read(late).await
        }));
        assert_eq!(all.await, vec![(1, None); 10]);
        assert!(begun.elapsed() < READ_TIMEOUT * 2, "{:?}", begun.elapsed());
    }

    /// A reader that leaves has begun a read: the next one waits for that, and does not report a slow
    /// store.
    #[tokio::test(start_paused = true)]
    async fn reader_that_leaves_does_not_fail_the_next_one() {
        let latest = Latest::new(READ_TIMEOUT);
        let late = async {
            sleep(READ_TIMEOUT / 2).await;
            Ok::<u32, String>(1)
        };
        let left = timeout(READ_TIMEOUT / 4, latest.read(late)).await;
        assert!(left.is_err());
        assert_eq!(latest.read(value(2)).await, (2, None));
    }
}
