//! MCP on stdio: one JSON-RPC message a line.
//!
//! rmcp would do this too, but drops what it can't read without a word. Here
//! every line that is not a message is answered with a JSON-RPC error, so that
//! nobody waits for an answer that can't come. What rmcp gets to see:
//!
//! - requests and notifications that have the shape MCP gives them,
//! - no two open requests of one id: one of them would stay without an answer,
//! - no notification and no answer before the request that begins the service:
//!   there is nobody to hear it, and rmcp would give the connection up,
//! - answers to our own requests as they are, unknown members included.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use codex_mcp_protocol::lines::{Frame, LineDecoder};
use codex_mcp_protocol::rpc::{Message, RequestId, code};
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ClientResult, CustomResult, ErrorCode, ErrorData, GetMeta,
    NumberOrString, ProtocolVersion, ServerJsonRpcMessage,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::de::IgnoredAny;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long the last words may take to a client that doesn't read.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// Methods of MCP that rmcp knows by their parameters: with others it takes
/// them for a method of somebody's own (MCP 2024-11-05 to 2026-07-28).
const STANDARD_METHODS: [&str; 15] = [
    "initialize",
    "ping",
    "server/discover",
    "completion/complete",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "resources/templates/list",
    "subscriptions/listen",
    "tools/call",
    "tools/list",
    "logging/setLevel",
];

/// The server's end of a line-based connection.
pub struct LineTransport<R, W> {
    reader: R,
    decoder: LineDecoder,
    line_limit: usize,
    writer: Writer<W>,
    /// A refusal that is being written. No further line is looked at until it
    /// has been: a client that doesn't read is not listened to either.
    refusing: Option<JoinHandle<io::Result<()>>>,
    /// Requests that have not been answered.
    open: Arc<Mutex<HashSet<NumberOrString>>>,
    service: Service,
    input: Input,
    /// The end of the input, or our own, once nothing more is to be read.
    closing: CancellationToken,
}

/// Where answers go, one at a time; nowhere once the connection is closed.
type Writer<W> = Arc<tokio::sync::Mutex<Option<W>>>;

/// Whether rmcp serves already or still waits for a request to begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    Awaited,
    Begun,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Open,
    Ended,
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
            decoder: LineDecoder::new(line_limit),
            line_limit,
            writer: Arc::new(tokio::sync::Mutex::new(Some(writer))),
            refusing: None,
            open: Arc::default(),
            service: Service::Awaited,
            input: Input::Open,
            closing,
        }
    }

    /// The next message for rmcp that is already in the buffer, unless something
    /// has to be refused first.
    fn next_buffered(&mut self) -> Option<ClientJsonRpcMessage> {
        while self.refusing.is_none() {
            let read = match self.decoder.next_frame()? {
                Frame::Line(line) => read_line(line),
                Frame::TooLong { length, .. } => Line::Refused(refusal(
                    None,
                    code::INVALID_REQUEST,
                    format!(
                        "a line of {length} bytes is over the limit of {} bytes; \
                         `codex-mcp serve --max-line` sets another one",
                        self.line_limit
                    ),
                )),
            };
            if let Some(message) = self.admit(read) {
                return Some(message);
            }
        }
        None
    }

    /// Answers what can't be passed on.
    fn admit(&mut self, line: Line) -> Option<ClientJsonRpcMessage> {
        let message = match line {
            Line::Blank => return None,
            Line::Refused(refusal) => {
                self.refuse(*refusal);
                return None;
            }
            Line::Message(message) => *message,
        };
        if let ClientJsonRpcMessage::Request(request) = &message {
            // One that was cancelled stays open here: MCP forbids to use its id
            // again, and the new request might get the old one's answer.
            if !lock(&self.open).insert(request.id.clone()) {
                self.refuse(*already_open(&request.id));
                return None;
            }
            if begins_service(&request.request) {
                self.service = Service::Begun;
            }
            return Some(message);
        }
        (self.service == Service::Begun).then_some(message)
    }

    /// Writes on a task of its own: reading is dropped half-way whenever something
    /// else happens, and half a line must never stay.
    fn refuse(&mut self, refusal: ServerJsonRpcMessage) {
        let writing = write(Arc::clone(&self.writer), refusal);
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

    /// Takes in more of what the client says.
    async fn read(&mut self) {
        match self.reader.read(self.decoder.space()).await {
            Ok(count) if count > 0 => return self.decoder.filled(count),
            Ok(_) => {}
            Err(error) => tracing::error!("reading from the client failed: {error}"),
        }
        // A last line may lack its newline.
        if let Some(space) = self.decoder.space().first_mut() {
            *space = b'\n';
            self.decoder.filled(1);
        }
        self.input = Input::Ended;
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
        if let ServerJsonRpcMessage::Response(response) = &message {
            lock(&self.open).remove(&response.id);
        } else if let ServerJsonRpcMessage::Error(error) = &message
            && let Some(id) = &error.id
        {
            lock(&self.open).remove(id);
        }
        let writer = Arc::clone(&self.writer);
        let closing = self.closing.clone();
        async move {
            let written = write(writer, message).await;
            if written.is_err() {
                closing.cancel();
            }
            written
        }
    }

    /// Safe to drop half-way: what has been read stays in the decoder.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let closing = self.closing.clone();
        loop {
            if let Some(message) = self.next_buffered() {
                return Some(message);
            }
            let more = async {
                match (&self.refusing, self.input) {
                    (Some(_), _) => self.refused().await,
                    (None, Input::Open) => self.read().await,
                    (None, Input::Ended) => self.closing.cancel(),
                }
            };
            tokio::select! {
                biased;
                () = closing.cancelled() => return None,
                () = more => {}
            }
        }
    }

    /// A client that doesn't read may hold the writer for ever.
    async fn close(&mut self) -> io::Result<()> {
        match timeout(CLOSE_PATIENCE, self.writer.lock()).await {
            Ok(mut writer) => drop(writer.take()),
            Err(_) => tracing::warn!("the client does not read its last answers"),
        }
        Ok(())
    }
}

async fn write<W: AsyncWrite + Unpin>(
    writer: Writer<W>,
    message: ServerJsonRpcMessage,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(&message)?;
    line.push(b'\n');
    let mut writer = writer.lock().await;
    let writer = writer.as_mut().ok_or(io::ErrorKind::NotConnected)?;
    writer.write_all(&line).await?;
    writer.flush().await
}

/// Whether rmcp begins to serve with this request (as in its
/// `serve_server_with_ct`): with the handshake of MCP up to 2025-11-25, or with the
/// first request that describes itself, as from 2026-07-28 on. It answers others
/// and waits on.
fn begins_service(request: &ClientRequest) -> bool {
    match request {
        ClientRequest::InitializeRequest(_) => true,
        ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => false,
        request => {
            let meta = request.get_meta();
            let missing = meta.missing_required_keys(&ProtocolVersion::V_2026_07_28);
            let version = meta.protocol_version();
            missing.is_empty()
                && version.is_some_and(|version| ProtocolVersion::KNOWN_VERSIONS.contains(&version))
        }
    }
}

/// Names no id: the client would take it for the answer to the first request.
fn already_open(id: &NumberOrString) -> Box<ServerJsonRpcMessage> {
    refusal(
        None,
        code::INVALID_REQUEST,
        format!("a request with the id {id} is still open; give each request an id of its own"),
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while holding it, and a set is valid at every point.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a line turned out to be.
enum Line {
    Blank,
    Message(Box<ClientJsonRpcMessage>),
    /// Not for rmcp; this is the answer.
    Refused(Box<ServerJsonRpcMessage>),
}

fn read_line(line: &[u8]) -> Line {
    let line = line.trim_ascii();
    if line.is_empty() {
        return Line::Blank;
    }
    match Message::read(line) {
        Ok(Message::Response { id, outcome }) => response(id, outcome),
        Ok(Message::Request { id, method, .. }) => typed(line, Some((id, &method))),
        Ok(Message::Notification { .. }) => typed(line, None),
        Err(error) => Line::Refused(unreadable(line, &error)),
    }
}

/// Answers to our own requests are passed on raw: rmcp's types would drop
/// members that Codex's clients use.
fn response(
    id: RequestId,
    outcome: Result<&serde_json::value::RawValue, codex_mcp_protocol::rpc::ErrorObject>,
) -> Line {
    let id = ours(id);
    let message = match outcome {
        Ok(result) => {
            let result = serde_json::from_str(result.get()).unwrap_or(Value::Null);
            ClientJsonRpcMessage::response(
                ClientResult::CustomResult(CustomResult::new(result)),
                id,
            )
        }
        Err(error) => ClientJsonRpcMessage::error(error_data(error.code, error.message), Some(id)),
    };
    Line::Message(Box::new(message))
}

fn typed(line: &[u8], request: Option<(RequestId, &str)>) -> Line {
    let message = serde_json::from_slice::<ClientJsonRpcMessage>(line);
    let Some((id, method)) = request else {
        return match message {
            Ok(message) => Line::Message(Box::new(message)),
            Err(error) => {
                tracing::debug!("a notification that is not understood: {error}");
                Line::Blank
            }
        };
    };
    let misfit = |error: &str| {
        let text =
            format!("the parameters of {method} don't have the shape that MCP gives them{error}");
        Line::Refused(refusal(Some(id), ErrorCode::INVALID_PARAMS.0.into(), text))
    };
    match message {
        Ok(ClientJsonRpcMessage::Request(request)) => match request.request {
            ClientRequest::CustomRequest(_) if STANDARD_METHODS.contains(&method) => misfit(""),
            _ => Line::Message(Box::new(ClientJsonRpcMessage::Request(request))),
        },
        Ok(_) => misfit(""),
        Err(error) => misfit(&format!(": {error}")),
    }
}

fn unreadable(line: &[u8], error: &dyn std::fmt::Display) -> Box<ServerJsonRpcMessage> {
    match serde_json::from_slice::<IgnoredAny>(line) {
        Err(error) => refusal(
            None,
            code::PARSE_ERROR,
            format!("not JSON: {error}. Send one JSON-RPC message a line."),
        ),
        Ok(_) if line.first() == Some(&b'[') => refusal(
            None,
            code::INVALID_REQUEST,
            "batches are not supported; send one JSON-RPC message a line".to_owned(),
        ),
        Ok(_) => refusal(None, code::INVALID_REQUEST, error.to_string()),
    }
}

fn refusal(id: Option<RequestId>, code: i64, message: String) -> Box<ServerJsonRpcMessage> {
    Box::new(ServerJsonRpcMessage::error(
        error_data(code, message),
        id.map(ours),
    ))
}

fn error_data(code: i64, message: String) -> ErrorData {
    let code = i32::try_from(code).unwrap_or(ErrorCode::INTERNAL_ERROR.0);
    ErrorData::new(ErrorCode(code), message, None)
}

fn ours(id: RequestId) -> NumberOrString {
    match id {
        RequestId::Number(number) => NumberOrString::Number(number),
        RequestId::Text(text) => NumberOrString::String(text.into()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncBufReadExt;

    use super::*;

    fn refused(line: &[u8]) -> Value {
        match read_line(line) {
            Line::Refused(message) => serde_json::to_value(message).unwrap(),
            _ => panic!("not refused: {}", line.escape_ascii()),
        }
    }

    #[test]
    fn what_is_no_message_is_answered() {
        for (line, id, code) in [
            (&b"garbage"[..], Value::Null, -32700),
            (b"{\"half\":", Value::Null, -32700),
            (b"\xff\xfe", Value::Null, -32700),
            (b"[]", Value::Null, -32600),
            (b"{}", Value::Null, -32600),
            (
                b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"tools/call\",\"params\":{\"name\":7}}",
                5.into(),
                -32602,
            ),
            (
                b"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"initialize\",\"params\":[]}",
                "a".into(),
                -32602,
            ),
            (b"{\"id\":6,\"method\":\"tools/list\"}", 6.into(), -32602),
        ] {
            let answer = refused(line);
            assert_eq!(
                answer.get("id").cloned().unwrap_or(Value::Null),
                id,
                "{answer}"
            );
            assert_eq!(answer["error"]["code"], code, "{answer}");
        }
    }

    #[tokio::test]
    async fn a_refusal_is_written_whole_also_when_reading_is_dropped_half_way() {
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

    #[test]
    fn methods_of_others_are_left_to_the_service() {
        let line = br#"{"jsonrpc":"2.0","id":1,"method":"made/up","params":{}}"#;
        assert!(matches!(read_line(line), Line::Message(_)));
    }

    #[test]
    fn an_answer_keeps_members_that_mcp_does_not_know() {
        let line =
            br#"{"jsonrpc":"2.0","id":1,"result":{"action":"accept","decision":"approved"}}"#;
        let Line::Message(message) = read_line(line) else {
            panic!("a message");
        };
        let ClientJsonRpcMessage::Response(response) = *message else {
            panic!("a response");
        };
        let ClientResult::CustomResult(result) = response.result else {
            panic!("raw");
        };
        assert_eq!(result.0["decision"], "approved");
    }
}
