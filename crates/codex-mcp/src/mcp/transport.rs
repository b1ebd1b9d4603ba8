//! MCP on stdio: one JSON-RPC message a line.
//!
//! rmcp would do this too, but drops what it can't read without a word. Here
//! every line that is not a message is answered with a JSON-RPC error, so that
//! nobody waits for an answer that can't come. What rmcp gets to see:
//!
//! - requests and notifications that have the shape MCP gives them,
//! - no notification before the first request: there is nobody to hear it, and
//!   rmcp would give the connection up,
//! - answers to our own requests as they are, unknown members included.

use std::io;
use std::sync::Arc;

use codex_mcp_protocol::lines::{Frame, LineDecoder};
use codex_mcp_protocol::rpc::{Message, RequestId, code};
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ClientResult, CustomResult, ErrorCode, ErrorData,
    NumberOrString, ServerJsonRpcMessage,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// Methods of MCP that rmcp knows by their parameters: with others it takes
/// them for a method of somebody's own (MCP 2024-11-05 to 2026-07-28).
const STANDARD_METHODS: [&str; 14] = [
    "initialize",
    "ping",
    "server/discover",
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
    writer: Arc<Mutex<Option<W>>>,
    /// Whether a request has been passed on.
    opened: bool,
    /// The end of the input, or our own, once nothing more is to be read.
    closing: CancellationToken,
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
            writer: Arc::new(Mutex::new(Some(writer))),
            opened: false,
            closing,
        }
    }

    /// The next message for rmcp that is already in the buffer.
    async fn next_buffered(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            let read = match self.decoder.next_frame()? {
                Frame::Line(line) => read_line(line),
                Frame::TooLong { length } => Line::Refused(refusal(
                    None,
                    code::INVALID_REQUEST,
                    format!(
                        "a line of {length} bytes is over the limit of {} bytes; \
                         `codex-mcp serve --max-line` sets another one",
                        self.line_limit
                    ),
                )),
            };
            if let Some(message) = self.admit(read).await {
                return Some(message);
            }
        }
    }

    /// Answers what can't be passed on.
    async fn admit(&mut self, line: Line) -> Option<ClientJsonRpcMessage> {
        match line {
            Line::Blank => None,
            Line::Refused(refusal) => {
                self.write(*refusal).await;
                None
            }
            Line::Message(message) => {
                self.opened |= matches!(*message, ClientJsonRpcMessage::Request(_));
                self.opened.then_some(*message)
            }
        }
    }

    async fn write(&mut self, message: ServerJsonRpcMessage) {
        if let Err(error) = write(Arc::clone(&self.writer), message).await {
            tracing::debug!("the client no longer listens: {error}");
            self.closing.cancel();
        }
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
        loop {
            if let Some(message) = self.next_buffered().await {
                return Some(message);
            }
            let read = tokio::select! {
                biased;
                () = self.closing.cancelled() => return None,
                read = self.reader.read(self.decoder.space()) => read,
            };
            match read {
                Ok(count) if count > 0 => self.decoder.filled(count),
                ended => {
                    if let Err(error) = ended {
                        tracing::error!("reading from the client failed: {error}");
                    }
                    // A last message may lack its newline.
                    let last = read_line(self.decoder.unfinished());
                    self.decoder = LineDecoder::new(self.line_limit);
                    let last = self.admit(last).await;
                    self.closing.cancel();
                    return last;
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.writer.lock().await.take();
        Ok(())
    }
}

async fn write<W: AsyncWrite + Unpin>(
    writer: Arc<Mutex<Option<W>>>,
    message: ServerJsonRpcMessage,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(&message)?;
    line.push(b'\n');
    let mut writer = writer.lock().await;
    let writer = writer.as_mut().ok_or(io::ErrorKind::NotConnected)?;
    writer.write_all(&line).await?;
    writer.flush().await
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
    match serde_json::from_slice::<Value>(line) {
        Err(error) => refusal(
            None,
            code::PARSE_ERROR,
            format!("not JSON: {error}. Send one JSON-RPC message a line."),
        ),
        Ok(Value::Array(_)) => refusal(
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
