//! What waits to be written to one side.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mcp_server::deliveries::Then;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

/// How much may wait before others do, in bytes: about what a pipe holds.
const COMFORTABLE: usize = 64 * 1024;

/// Where messages for one side are put. Putting never waits, so that one side that
/// doesn't read never keeps the other from being heard.
pub(super) struct Outbox {
    messages: mpsc::UnboundedSender<Message>,
    shared: Arc<Shared>,
    limit: usize,
}

/// The other end, for whoever writes.
pub(super) struct Outgoing {
    messages: mpsc::UnboundedReceiver<Message>,
    shared: Arc<Shared>,
}

struct Message {
    bytes: Vec<u8>,
    /// What is to be done once it has been written.
    then: Option<Then>,
}

#[derive(Default)]
struct Shared {
    /// How many bytes wait.
    waiting: AtomicUsize,
    /// Woken when there are fewer, or when nobody writes any more.
    fewer: Notify,
}

impl Outbox {
    /// An outbox that is full with `limit` bytes.
    pub(super) fn new(limit: usize) -> (Self, Outgoing) {
        let (sender, messages) = mpsc::unbounded_channel();
        let shared = Arc::<Shared>::default();
        let outgoing = Outgoing {
            messages,
            shared: Arc::clone(&shared),
        };
        let outbox = Self {
            messages: sender,
            shared,
            limit,
        };
        (outbox, outgoing)
    }

    /// Whether more waits than should; what is put in all the same is kept.
    pub(super) fn is_full(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) >= self.limit
    }

    /// Puts a message in. One for a side that has gone is dropped.
    pub(super) fn put(&self, bytes: Vec<u8>) {
        self.put_and(bytes, None);
    }

    /// The same, with what is to be done once it has been written and flushed.
    pub(super) fn put_and(&self, bytes: Vec<u8>, then: Option<Then>) {
        let length = bytes.len();
        self.shared.waiting.fetch_add(length, Ordering::Relaxed);
        if self.messages.send(Message { bytes, then }).is_err() {
            self.shared.waiting.fetch_sub(length, Ordering::Relaxed);
        }
    }

    /// Waits until little waits, for those who can make others wait.
    pub(super) async fn settle(&self) {
        loop {
            let fewer = self.shared.fewer.notified();
            let waiting = self.shared.waiting.load(Ordering::Relaxed);
            if waiting <= COMFORTABLE || self.messages.is_closed() {
                return;
            }
            fewer.await;
        }
    }
}

impl Outgoing {
    /// Writes what comes, until `hang_up` is cancelled; what waits by then is still
    /// written, and then the writer shut down.
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
            self.shared.fewer.notify_one();
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.messages.close();
        self.shared.fewer.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use crate::outbox::*;

    #[tokio::test]
    async fn what_waits_is_written_before_the_end() {
        let (outbox, outgoing) = Outbox::new(10);
        for text in ["a", "b"] {
            outbox.put(text.as_bytes().to_vec());
        }
        let hang_up = CancellationToken::new();
        hang_up.cancel();
        let mut written = Vec::new();
        outgoing.write(&mut written, hang_up).await.unwrap();
        assert_eq!(written, b"ab");
        outbox.put(vec![0; 100]);
        assert!(!outbox.is_full());
    }

    #[tokio::test(start_paused = true)]
    async fn who_can_wait_waits_for_a_side_that_does_not_read() {
        let (outbox, outgoing) = Outbox::new(2 * COMFORTABLE);
        outbox.put(vec![0; COMFORTABLE]);
        outbox.settle().await;
        outbox.put(vec![0; COMFORTABLE]);
        assert!(outbox.is_full());
        let patience = Duration::from_secs(60);
        assert!(timeout(patience, outbox.settle()).await.is_err());
        drop(outgoing);
        outbox.settle().await;
    }
}
