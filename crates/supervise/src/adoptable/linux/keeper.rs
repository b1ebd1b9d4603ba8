//! Stores values in a guard for the next owner.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::UnixStream;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::oneshot;

use super::messages::{KeptValue, OwnerMessage, to_line};

/// The most messages that may wait to be written. The guard reads at once, so only an uninterrupted
/// flood of messages reaches this limit.
const QUEUE: usize = 10_000;

/// Stores values in the guard for the next owner: up to 64 MiB, keys included. A value that does
/// not fit is dropped, together with the value that it was to replace. Clones share the queue; the
/// order of calls is kept.
#[derive(Debug, Clone)]
pub struct Keeper {
    queue: Sender<Queued>,
    /// Whether a message was dropped.
    has_overflowed: Arc<AtomicBool>,
}

/// An item of the queue of the writer.
#[derive(Debug)]
pub(super) enum Queued {
    Line(Vec<u8>),
    /// Notifies the sender that all earlier items have been written.
    Flush(oneshot::Sender<()>),
}

impl Keeper {
    /// A keeper, and the queue of its messages for the writer.
    pub(super) fn new() -> (Self, Receiver<Queued>) {
        let (sender, queue) = mpsc::channel(QUEUE);
        let keeper = Self {
            queue: sender,
            has_overflowed: Arc::default(),
        };
        (keeper, queue)
    }

    /// Waits until all earlier messages have been written, or cannot be written any more.
    pub async fn flush(&self) {
        let (written, flushed) = oneshot::channel();
        if self.queue.send(Queued::Flush(written)).await.is_ok() {
            // Fails if the guard has ended.
            let _ = flushed.await;
        }
    }

    /// Stores a value, replacing an earlier one of this key. Never waits. Has no effect once the
    /// process has ended.
    pub fn keep(&self, key: &str, value: String) {
        self.send(&OwnerMessage::Keep(KeptValue {
            key: key.to_owned(),
            value,
        }));
    }

    /// Removes the value of this key, if there is one. Never waits.
    pub fn forget(&self, key: &str) {
        self.send(&OwnerMessage::Forget(key.to_owned()));
    }

    /// Makes the guard end the program when this process ends, even if this process is killed.
    /// Never waits.
    pub fn be_last(&self) {
        self.send(&OwnerMessage::Last);
    }

    fn send(&self, message: &OwnerMessage) {
        let line = match to_line(message) {
            Ok(line) => line,
            Err(error) => return tracing::error!("cannot keep a value: {error}"),
        };
        match self.queue.try_send(Queued::Line(line)) {
            Ok(()) | Err(TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(_)) => {
                if !self.has_overflowed.swap(true, Ordering::Relaxed) {
                    tracing::error!(
                        "the guard does not read, and misses values for the next owner"
                    );
                }
            }
        }
    }
}

/// Writes the lines of the keepers until the guard has ended.
pub(super) async fn write_lines(stream: Arc<UnixStream>, mut queue: Receiver<Queued>) {
    while let Some(queued) = queue.recv().await {
        let line = match queued {
            Queued::Line(line) => line,
            Queued::Flush(written) => {
                // Nobody may wait any more.
                let _ = written.send(());
                continue;
            }
        };
        if let Err(error) = write_all(&stream, &line).await {
            tracing::debug!("cannot write to the guard: {error}");
            return;
        }
    }
}

/// Writes to a stream that is shared with its reader.
pub(super) async fn write_all(stream: &UnixStream, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        stream.writable().await?;
        match stream.try_write(rest) {
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn messages_are_written_in_order() {
        let (owner, mut guard) = UnixStream::pair().unwrap();
        let (keeper, queue) = Keeper::new();
        keeper.keep("a", "1".to_owned());
        keeper.clone().forget("a");
        let flushing = async move { keeper.flush().await };
        tokio::join!(write_lines(Arc::new(owner), queue), flushing);
        let mut written = String::new();
        guard.read_to_string(&mut written).await.unwrap();
        assert_eq!(
            written,
            "{\"keep\":{\"key\":\"a\",\"value\":\"1\"}}\n{\"forget\":\"a\"}\n"
        );
    }

    #[test]
    fn full_queue_drops_messages() {
        let (keeper, queue) = Keeper::new();
        for _ in 0..=QUEUE {
            keeper.forget("a");
        }
        assert!(keeper.has_overflowed.load(Ordering::Relaxed));
        assert_eq!(queue.len(), QUEUE);
    }
}
