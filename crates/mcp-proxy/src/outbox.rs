//! The queue of messages to be written to one side.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mcp_server::deliveries::AfterDelivery;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

/// The size in bytes below which [`Outbox::wait_until_low`] returns: about the capacity of a pipe.
const LOW_WATER_MARK: usize = 64 * 1024;

/// The queue of messages for one side. Adding a message never waits, so a side that does not read
/// cannot block the other side.
pub(super) struct Outbox {
    messages: mpsc::UnboundedSender<Message>,
    shared: Arc<Shared>,
    limit: usize,
}

/// Writes the messages of an [`Outbox`].
pub(super) struct OutboxWriter {
    messages: mpsc::UnboundedReceiver<Message>,
    shared: Arc<Shared>,
}

struct Message {
    bytes: Vec<u8>,
    /// Run once the message has been written.
    then: Option<AfterDelivery>,
}

#[derive(Default)]
struct Shared {
    /// The number of bytes in the queue.
    waiting: AtomicUsize,
    /// Woken when a message was written, or the writer has ended.
    drained: Notify,
}

impl Outbox {
    /// Creates an outbox that counts as full once `limit` bytes are queued.
    pub(super) fn new(limit: usize) -> (Self, OutboxWriter) {
        let (sender, messages) = mpsc::unbounded_channel();
        let shared = Arc::<Shared>::default();
        let writer = OutboxWriter {
            messages,
            shared: Arc::clone(&shared),
        };
        let outbox = Self {
            messages: sender,
            shared,
            limit,
        };
        (outbox, writer)
    }

    /// Whether the queue has reached its limit. Messages that are added after that are still
    /// queued.
    pub(super) fn is_full(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) >= self.limit
    }

    /// Adds a message. A message for a side that has gone is dropped.
    pub(super) fn put(&self, bytes: Vec<u8>) {
        self.put_then(bytes, None);
    }

    /// Adds a message, and runs `then` once it has been written and flushed.
    pub(super) fn put_then(&self, bytes: Vec<u8>, then: Option<AfterDelivery>) {
        let length = bytes.len();
        self.shared.waiting.fetch_add(length, Ordering::Relaxed);
        if self.messages.send(Message { bytes, then }).is_err() {
            self.shared.waiting.fetch_sub(length, Ordering::Relaxed);
        }
    }

    /// Waits until the queue is short, or the writer has ended.
    pub(super) async fn wait_until_low(&self) {
        loop {
            let drained = self.shared.drained.notified();
            let waiting = self.shared.waiting.load(Ordering::Relaxed);
            if waiting <= LOW_WATER_MARK || self.messages.is_closed() {
                return;
            }
            drained.await;
        }
    }
}

impl OutboxWriter {
    /// Writes messages until `hang_up` is cancelled, then writes the messages that are still
    /// queued, and shuts the writer down.
    pub(super) async fn write(
        mut self,
        mut writer: impl AsyncWrite + Unpin,
        hang_up: CancellationToken,
    ) -> std::io::Result<()> {
        loop {
            let message = tokio::select! {
                biased;
                message = self.messages.recv() => message,
                () = hang_up.cancelled(), if !self.messages.is_closed() => {
                    self.messages.close();
                    continue;
                }
            };
            let Some(Message { bytes, then }) = message else {
                return writer.shutdown().await;
            };
            writer.write_all(&bytes).await?;
            writer.flush().await?;
            if let Some(then) = then {
                then();
            }
            self.shared
                .waiting
                .fetch_sub(bytes.len(), Ordering::Relaxed);
            self.shared.drained.notify_one();
        }
    }
}

impl Drop for OutboxWriter {
    fn drop(&mut self) {
        self.messages.close();
        self.shared.drained.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use crate::outbox::*;

    #[tokio::test]
    async fn queued_messages_are_written_before_the_end() {
        let (outbox, writer) = Outbox::new(10);
        for text in ["a", "b"] {
            outbox.put(text.as_bytes().to_vec());
        }
        let hang_up = CancellationToken::new();
        hang_up.cancel();
        let mut written = Vec::new();
        writer.write(&mut written, hang_up).await.unwrap();
        assert_eq!(written, b"ab");
        outbox.put(vec![0; 100]);
        assert!(!outbox.is_full());
    }

    #[tokio::test(start_paused = true)]
    async fn sender_waits_until_the_queue_is_low() {
        let (outbox, writer) = Outbox::new(2 * LOW_WATER_MARK);
        outbox.put(vec![0; LOW_WATER_MARK]);
        outbox.wait_until_low().await;
        outbox.put(vec![0; LOW_WATER_MARK]);
        assert!(outbox.is_full());
        let limit = Duration::from_secs(60);
        assert!(timeout(limit, outbox.wait_until_low()).await.is_err());
        drop(writer);
        outbox.wait_until_low().await;
    }
}
