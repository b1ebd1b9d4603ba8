//! The demo's end of the connection to `codex-mcp serve`, which also passes on each line for
//! display.
//!
//! The demo shows the lines themselves, in the order in which they pass. rmcp's types would lack
//! the members that Codex adds to those of MCP.

use std::io;
use std::sync::Arc;

use codex_protocol::lines::{DEFAULT_LINE_LIMIT, Frame, LineDecoder};
use rmcp::RoleClient;
use rmcp::model::ServerJsonRpcMessage;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, mpsc};

/// How many messages may wait to be shown before the connection waits.
const TAP_CAPACITY: usize = 64;

/// The direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Sent,
    Received,
}

/// A message as it passed the connection.
#[derive(Debug, PartialEq)]
pub(super) struct TappedMessage {
    pub(super) direction: Direction,
    pub(super) message: Value,
}

/// The client's end of a line-based connection.
pub(super) struct Wire<R, W> {
    reader: R,
    decoder: LineDecoder,
    writer: Arc<Mutex<Option<W>>>,
    tap: mpsc::Sender<TappedMessage>,
}

impl<R, W> Wire<R, W> {
    /// A connection, and the messages that pass on it.
    pub(super) fn new(reader: R, writer: W) -> (Self, mpsc::Receiver<TappedMessage>) {
        let (tap, passed) = mpsc::channel(TAP_CAPACITY);
        let wire = Self {
            reader,
            decoder: LineDecoder::new(DEFAULT_LINE_LIMIT),
            writer: Arc::new(Mutex::new(Some(writer))),
            tap,
        };
        (wire, passed)
    }
}

impl<R, W> Transport<RoleClient> for Wire<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let writer = Arc::clone(&self.writer);
        let tap = self.tap.clone();
        async move {
            let message = serde_json::to_value(&message)?;
            let line = format!("{message}\n");
            let passed = TappedMessage {
                direction: Direction::Sent,
                message,
            };
            // The receiver is gone once the demo is over.
            let _ = tap.send(passed).await;
            let mut writer = writer.lock().await;
            let writer = writer.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            writer.write_all(line.as_bytes()).await?;
            writer.flush().await
        }
    }

    /// Safe to cancel: capacity at the tap is reserved before a line is read.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let place = self.tap.reserve().await;
            let message = next_message(&mut self.reader, &mut self.decoder).await?;
            if let Ok(place) = place {
                place.send(TappedMessage {
                    direction: Direction::Received,
                    message: message.clone(),
                });
            }
            if let Ok(message) = serde_json::from_value::<ServerJsonRpcMessage>(message) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.writer.lock().await.take();
        Ok(())
    }
}

/// The next message; `None` at the end, or for a line that is not JSON, which our own server
/// never writes.
async fn next_message(
    reader: &mut (impl AsyncRead + Unpin),
    decoder: &mut LineDecoder,
) -> Option<Value> {
    loop {
        match decoder.next_frame() {
            Some(Frame::Line(line)) => return serde_json::from_slice(line).ok(),
            Some(Frame::TooLong { .. }) => return None,
            None => {}
        }
        match reader.read(decoder.space()).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => decoder.filled(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{ClientJsonRpcMessage, ClientNotification, InitializedNotification};
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn messages_are_tapped_unchanged_and_in_order() {
        let (ours, theirs) = tokio::io::duplex(4096);
        let (reader, writer) = tokio::io::split(ours);
        let (mut wire, mut seen) = Wire::new(reader, writer);
        let asked = json!({
            "jsonrpc": "2.0", "id": 0, "method": "elicitation/create",
            "params": {"message": "May I?", "requestedSchema": {"type": "object", "properties": {}}, "codex_command": ["touch", "a"]},
        });
        let initialized = ClientJsonRpcMessage::notification(
            ClientNotification::InitializedNotification(InitializedNotification::default()),
        );

        wire.send(initialized).await.unwrap();
        let (_, mut their_writer) = tokio::io::split(theirs);
        their_writer
            .write_all(format!("{asked}\n").as_bytes())
            .await
            .unwrap();
        assert!(matches!(
            wire.receive().await,
            Some(ServerJsonRpcMessage::Request(_))
        ));

        let first = seen.recv().await.unwrap();
        assert_eq!(first.direction, Direction::Sent);
        assert_eq!(
            first.message.get("method"),
            Some(&json!("notifications/initialized"))
        );
        let second = TappedMessage {
            direction: Direction::Received,
            message: asked,
        };
        assert_eq!(seen.recv().await.unwrap(), second);
    }
}
