//! MCP on stdio: one JSON-RPC message per line, or with a `Content-Length` header. Answers use the
//! client's framing.
//!
//! rmcp has such a transport too, but silently drops lines that it can't read. This transport
//! answers every line that is not a message with a JSON-RPC error, so that no client waits for an
//! answer that can't come. It passes to rmcp:
//!
//! - requests and notifications that have the shape MCP gives them,
//! - no two open requests of the same ID: one of them would stay without an answer,
//! - no notification and no answer before the request that begins the service: no service would
//!   receive it, and rmcp would close the connection,
//! - answers to our own requests as they are, unknown members included.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use codex_protocol::lines::{Frame, Framing, LineDecoder};
use codex_protocol::rpc::code;
use common::sync::lock;
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, NumberOrString, ServerJsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::incoming::{
    IncomingLine, already_open, begins_service, id_of, read_line, refusal, too_long,
};
use crate::deliveries::Deliveries;
use crate::tasks::TaskSubscriptions;

/// The longest wait for a client that does not read the last answers.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The most bytes of answers that may wait for a client to read them. Beyond this limit, nothing is
/// read from the client, so the end of its input is noticed only after the client reads again.
const UNWRITTEN_LIMIT: usize = 16 << 20;

/// The server's end of a line-based connection.
pub struct LineTransport<R, W> {
    reader: R,
    decoder: LineDecoder,
    line_limit: usize,
    writer: Writer<W>,
    /// A refusal that is being written. No further line is read until it is written, so a client
    /// that does not read is not read from either.
    refusing: Option<JoinHandle<io::Result<()>>>,
    unwritten: Arc<Unwritten>,
    /// The framing that the client uses; answers to it use the same.
    framing: Arc<Mutex<Framing>>,
    /// Requests that have not been answered.
    open: Arc<Mutex<HashSet<NumberOrString>>>,
    deliveries: Deliveries,
    /// The tasks that subscriptions name, if the service has tasks.
    task_subscriptions: Option<TaskSubscriptions>,
    service: Service,
    has_input_ended: bool,
    /// Cancelled at the end of the input, and when the server ends.
    closing: CancellationToken,
}

/// The bytes of the answers that wait to be written.
#[derive(Default)]
struct Unwritten {
    bytes: AtomicUsize,
    fewer: Notify,
}

impl Unwritten {
    /// Counts an answer until the returned value is dropped.
    fn add(self: &Arc<Self>, bytes: usize) -> UnwrittenAnswer {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        UnwrittenAnswer {
            of: Arc::clone(self),
            bytes,
        }
    }

    fn are_too_many(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > UNWRITTEN_LIMIT
    }

    /// Waits until an answer is written or given up.
    async fn fewer(&self) {
        self.fewer.notified().await;
    }
}

struct UnwrittenAnswer {
    of: Arc<Unwritten>,
    bytes: usize,
}

impl Drop for UnwrittenAnswer {
    fn drop(&mut self) {
        self.of.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        // If nobody waits, the notification is kept for the next wait.
        self.of.fewer.notify_one();
    }
}

/// The writer of answers, one at a time; `None` once the connection is closed.
type Writer<W> = Arc<tokio::sync::Mutex<Option<W>>>;

/// Whether rmcp serves already, or still waits for the request that begins the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    Awaited,
    Begun,
}

impl<R, W> LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    /// A transport for lines of at most `line_limit` bytes. Cancelling
    /// `closing` ends the input; the transport cancels it itself when the
    /// client has gone.
    pub fn new(reader: R, writer: W, line_limit: usize, closing: CancellationToken) -> Self {
        Self {
            reader,
            decoder: LineDecoder::with_headers(line_limit),
            line_limit,
            framing: Arc::default(),
            writer: Arc::new(tokio::sync::Mutex::new(Some(writer))),
            refusing: None,
            unwritten: Arc::default(),
            open: Arc::default(),
            deliveries: Deliveries::default(),
            task_subscriptions: None,
            service: Service::Awaited,
            has_input_ended: false,
            closing,
        }
    }

    /// The same transport, which runs the actions of delivered answers.
    #[must_use]
    pub fn with_deliveries(self, deliveries: Deliveries) -> Self {
        Self { deliveries, ..self }
    }

    /// The same transport, which notes the tasks that subscriptions name.
    #[must_use]
    pub fn with_task_subscriptions(self, subscriptions: Option<TaskSubscriptions>) -> Self {
        Self {
            task_subscriptions: subscriptions,
            ..self
        }
    }

    /// The next message for rmcp that is already in the buffer, unless something
    /// has to be refused first.
    fn next_buffered(&mut self) -> Option<ClientJsonRpcMessage> {
        while self.refusing.is_none() && !self.unwritten.are_too_many() {
            let read = match self.decoder.next_frame()? {
                Frame::Line(line) => {
                    let read = read_line(line);
                    if let (Some(subscriptions), IncomingLine::Message(message)) =
                        (&self.task_subscriptions, &read)
                        && let ClientJsonRpcMessage::Request(request) = &**message
                        && !lock(&self.open).contains(&request.id)
                    {
                        subscriptions.note(request, line);
                    }
                    read
                }
                Frame::TooLong { length, head } => IncomingLine::Refused(refusal(
                    id_of(head),
                    code::INVALID_REQUEST,
                    too_long(length, self.line_limit),
                )),
            };
            *lock(&self.framing) = self.decoder.framing();
            if let Some(message) = self.admit(read) {
                return Some(message);
            }
        }
        None
    }

    /// Passes a message on, or answers a line that can't be passed on.
    fn admit(&mut self, line: IncomingLine) -> Option<ClientJsonRpcMessage> {
        let message = match line {
            IncomingLine::Blank => return None,
            IncomingLine::Refused(refusal) => {
                self.refuse(*refusal);
                return None;
            }
            IncomingLine::Message(message) => *message,
        };
        if let ClientJsonRpcMessage::Request(request) = &message {
            // A cancelled request stays open here: MCP forbids reusing its ID, and the new request
            // might get the old one's answer.
            if !lock(&self.open).insert(request.id.clone()) {
                // It names no ID, or the client would take it for the answer to the earlier request.
                self.refuse(ServerJsonRpcMessage::error(already_open(&request.id), None));
                return None;
            }
            if begins_service(&request.request) {
                self.service = Service::Begun;
            }
            return Some(message);
        }
        (self.service == Service::Begun).then_some(message)
    }

    /// Writes a refusal on a separate task: `receive` can be dropped half-way, and half a line must
    /// never be written.
    fn refuse(&mut self, refusal: ServerJsonRpcMessage) {
        let framing = *lock(&self.framing);
        let framed = framed(framing, &refusal);
        let writer = Arc::clone(&self.writer);
        let writing = async move { write(writer, &framed?).await };
        self.refusing = Some(tokio::spawn(writing));
    }

    /// Waits until a refusal has been written. Safe to drop half-way.
    async fn refused(&mut self) {
        let Some(writing) = &mut self.refusing else {
            return;
        };
        let written = writing.await;
        self.refusing = None;
        if let Ok(Err(error)) = written {
            tracing::debug!("the client no longer listens: {error}");
            self.closing.cancel();
        }
    }

    /// Reads more bytes of the client.
    async fn read(&mut self) {
        match self.reader.read(self.decoder.space()).await {
            Ok(count) if count > 0 => return self.decoder.filled(count),
            Ok(_) => {}
            Err(error) => tracing::error!("reading from the client failed: {error}"),
        }
        self.decoder.end_line();
        self.has_input_ended = true;
    }
}

impl<R, W> Transport<RoleServer> for LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let mut delivered = None;
        if let ServerJsonRpcMessage::Response(response) = &message {
            lock(&self.open).remove(&response.id);
            delivered = self.deliveries.take(&response.id);
        } else if let ServerJsonRpcMessage::Error(error) = &message
            && let Some(id) = &error.id
        {
            lock(&self.open).remove(id);
            if let Some(subscriptions) = &self.task_subscriptions {
                // A refused subscription does not begin.
                subscriptions.take(id);
            }
        }
        let message = match &self.task_subscriptions {
            Some(subscriptions) => subscriptions.acknowledged(message),
            None => message,
        };
        let writer = Arc::clone(&self.writer);
        let framed = framed(*lock(&self.framing), &message);
        let waiting = self.unwritten.add(framed.as_ref().map_or(0, Vec::len));
        let closing = self.closing.clone();
        async move {
            let written = match framed {
                Ok(framed) => write(writer, &framed).await,
                Err(error) => Err(error),
            };
            drop(waiting);
            match (&written, delivered) {
                (Ok(()), Some(then)) => then(),
                (Ok(()), None) => {}
                (Err(_), _) => closing.cancel(),
            }
            written
        }
    }

    /// Safe to drop half-way: the bytes that were read stay in the decoder.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let closing = self.closing.clone();
        loop {
            if let Some(message) = self.next_buffered() {
                return Some(message);
            }
            let more = async {
                match &self.refusing {
                    Some(_) => self.refused().await,
                    None if self.unwritten.are_too_many() => self.unwritten.fewer().await,
                    None if self.has_input_ended => self.closing.cancel(),
                    None => self.read().await,
                }
            };
            tokio::select! {
                biased;
                () = closing.cancelled() => return None,
                () = more => {}
            }
        }
    }

    /// A client that does not read could hold the writer for ever, so the wait for it is limited.
    async fn close(&mut self) -> io::Result<()> {
        match timeout(CLOSE_TIMEOUT, self.writer.lock()).await {
            Ok(mut writer) => drop(writer.take()),
            Err(_) => tracing::warn!("the client does not read its last answers"),
        }
        Ok(())
    }
}

fn framed(framing: Framing, message: &ServerJsonRpcMessage) -> io::Result<Vec<u8>> {
    Ok(framing.frame(serde_json::to_vec(message)?))
}

async fn write<W: AsyncWrite + Unpin>(writer: Writer<W>, framed: &[u8]) -> io::Result<()> {
    let mut writer = writer.lock().await;
    let writer = writer.as_mut().ok_or(io::ErrorKind::NotConnected)?;
    writer.write_all(framed).await?;
    writer.flush().await
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tokio::io::AsyncBufReadExt;

    use super::*;

    #[tokio::test]
    async fn refusal_is_written_whole_when_reading_is_dropped() {
        let (mut client, reader) = tokio::io::duplex(64);
        // A refusal doesn't fit in at once.
        let (writer, client_reads) = tokio::io::duplex(16);
        let closing = CancellationToken::new();
        let mut transport = LineTransport::new(reader, writer, 1000, closing);
        client.write_all(b"garbage\n").await.unwrap();
        let dropped = timeout(Duration::from_millis(50), transport.receive()).await;
        assert!(dropped.is_err());
        tokio::spawn(transport.send(*refusal(None, 1, "something else".to_owned())));

        let mut lines = tokio::io::BufReader::new(client_reads).lines();
        for expected in ["not JSON", "something else"] {
            let line = lines.next_line().await.unwrap().unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            let text = message["error"]["message"].as_str().unwrap();
            assert!(text.starts_with(expected), "{text}");
        }
    }

    #[tokio::test]
    async fn client_that_does_not_read_is_not_listened_to() {
        let (mut client, reader) = tokio::io::duplex(1000);
        let (writer, mut client_reads) = tokio::io::duplex(1000);
        let closing = CancellationToken::new();
        let mut transport = LineTransport::new(reader, writer, 1000, closing);
        let megabyte = "x".repeat(1 << 20);
        let answers: Vec<_> = (0..=16)
            .map(|_| tokio::spawn(transport.send(*refusal(None, 1, megabyte.clone()))))
            .collect();
        let request = format!(
            "{}\n",
            serde_json::json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })
        );
        client.write_all(request.as_bytes()).await.unwrap();
        let received = timeout(Duration::from_millis(50), transport.receive()).await;
        assert!(received.is_err(), "more answers would have to wait");

        let reading = tokio::spawn(async move {
            tokio::io::copy(&mut client_reads, &mut tokio::io::sink()).await
        });
        let received = timeout(Duration::from_secs(30), transport.receive()).await;
        assert!(received.unwrap().is_some());
        for answer in answers {
            answer.await.unwrap().unwrap();
        }
        reading.abort();
    }

    /// Answers use the framing of the client's messages, also when the next message has been read
    /// in part.
    async fn next_with_header(client: &mut (impl AsyncRead + Unpin)) -> Value {
        let mut header = Vec::new();
        while !header.ends_with(b"\r\n\r\n") {
            header.push(client.read_u8().await.unwrap());
        }
        let header = String::from_utf8(header).unwrap();
        let length = header.strip_prefix("Content-Length: ").unwrap();
        let mut body = vec![0; length.trim().parse().unwrap()];
        client.read_exact(&mut body).await.unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    #[tokio::test]
    async fn answers_use_the_framing_of_the_client() {
        let (ours, mut client) = tokio::io::duplex(4096);
        let (reader, writer) = tokio::io::split(ours);
        let mut transport = LineTransport::new(reader, writer, 1000, CancellationToken::new());
        let initialize = br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":
            {"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}"#;
        let framed = Framing::Headers.frame(initialize.to_vec());
        // In two pieces, and with a piece of the next message behind it.
        let (first, second) = framed.split_at(30);
        client.write_all(first).await.unwrap();
        client.write_all(second).await.unwrap();
        client.write_all(b"Content-Le").await.unwrap();
        let message = transport.receive().await.unwrap();
        assert!(matches!(message, ClientJsonRpcMessage::Request(_)));
        transport
            .send(*refusal(None, 1, "no".to_owned()))
            .await
            .unwrap();
        let answer = next_with_header(&mut client).await;
        assert_eq!(answer["error"]["message"], "no");

        client
            .write_all(b"ngth: 7\r\n\r\ngarbage{\"a\":1}\n")
            .await
            .unwrap();
        let reading = tokio::spawn(async move { transport.receive().await });
        let refused = next_with_header(&mut client).await;
        let text = refused["error"]["message"].as_str().unwrap();
        assert!(text.starts_with("not JSON"), "{text}");
        // A line is answered with a line.
        let mut lines = tokio::io::BufReader::new(&mut client).lines();
        let line = lines.next_line().await.unwrap().unwrap();
        assert!(line.starts_with('{'), "{line}");
        reading.abort();
    }
}
