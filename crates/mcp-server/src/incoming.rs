//! Parses the lines of a client: each is passed on, or refused with an answer.

use codex_protocol::json_values;
use codex_protocol::rpc::{ErrorObject, Message, ReadError, RequestId, TruncatedMessage, code};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ClientResult, CustomResult, ErrorCode, ErrorData, GetMeta,
    NumberOrString, ProtocolVersion, ServerJsonRpcMessage,
};
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

/// Methods of MCP that rmcp recognises by their parameters: with wrong parameters, it takes them
/// for custom methods (MCP 2024-11-05 to 2026-07-28).
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

/// The most JSON values that a message may hold. rmcp copies parameters several times while parsing
/// them, so a message of this many objects with one member each takes about 100 MB for a moment.
const MAX_VALUES: usize = 50_000;

/// A parsed line.
pub(super) enum IncomingLine {
    Blank,
    Message(Box<ClientJsonRpcMessage>),
    /// The line is not passed to rmcp; this is the answer.
    Refused(Box<ServerJsonRpcMessage>),
}

pub(super) fn read_line(line: &[u8]) -> IncomingLine {
    let line = line.trim_ascii();
    if line.is_empty() {
        return IncomingLine::Blank;
    }
    match Message::read(line) {
        Ok(message) => match check_values(line) {
            Ok(()) => read_message(line, message),
            Err(text) => refuse_values(message, text),
        },
        Err(error) => {
            let (code, text) = unreadable(line, &error);
            IncomingLine::Refused(refusal(None, code, text))
        }
    }
}

fn read_message(line: &[u8], message: Message<'_>) -> IncomingLine {
    match message {
        Message::Response { id, outcome } => response(id, outcome),
        Message::Request { id, method, .. } => typed(line, Some((id, &method))),
        Message::Notification { .. } => typed(line, None),
    }
}

/// Checks that a message may be parsed.
///
/// # Errors
///
/// If it holds too many JSON values; in words.
pub fn check_values(line: &[u8]) -> Result<(), String> {
    match json_values::exceed(line, MAX_VALUES) {
        true => Err(format!(
            "the message holds more than {MAX_VALUES} JSON values; put data of this size into a \
             file and name the file"
        )),
        false => Ok(()),
    }
}

/// Handles a message with too many values: refuses a request, turns an answer into an error, and
/// drops a notification.
fn refuse_values(message: Message<'_>, text: String) -> IncomingLine {
    let code = code::INVALID_REQUEST;
    match message {
        Message::Request { id, .. } => IncomingLine::Refused(refusal(Some(id), code, text)),
        Message::Response { id, .. } => {
            let error = ClientJsonRpcMessage::error(error_data(code, text), Some(rmcp_id(id)));
            IncomingLine::Message(Box::new(error))
        }
        Message::Notification { method, .. } => {
            tracing::warn!("the notification {method} is dropped: {text}");
            IncomingLine::Blank
        }
    }
}

/// Passes answers to our own requests on raw: rmcp's types would drop members that Codex's clients
/// use.
fn response(id: RequestId, outcome: Result<&RawValue, ErrorObject>) -> IncomingLine {
    let id = rmcp_id(id);
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
    IncomingLine::Message(Box::new(message))
}

/// Whether a method that rmcp takes for a custom one is a method of MCP with wrong parameters.
#[must_use]
pub fn is_standard(method: &str) -> bool {
    STANDARD_METHODS.contains(&method)
}

/// The error text for wrong parameters of a method of MCP.
#[must_use]
pub fn wrong_parameters(method: &str) -> String {
    format!("the parameters of {method} do not match MCP's schema")
}

fn typed(line: &[u8], request: Option<(RequestId, &str)>) -> IncomingLine {
    let message = serde_json::from_slice::<ClientJsonRpcMessage>(line);
    let Some((id, method)) = request else {
        return match message {
            Ok(message) => IncomingLine::Message(Box::new(message)),
            Err(error) => {
                tracing::debug!("cannot parse a notification: {error}");
                IncomingLine::Blank
            }
        };
    };
    let misfit = |error: &str| {
        let text = format!("{}{error}", wrong_parameters(method));
        IncomingLine::Refused(refusal(Some(id), ErrorCode::INVALID_PARAMS.0.into(), text))
    };
    match message {
        Ok(ClientJsonRpcMessage::Request(request)) => match request.request {
            ClientRequest::CustomRequest(_) if is_standard(method) => misfit(""),
            _ => IncomingLine::Message(Box::new(ClientJsonRpcMessage::Request(request))),
        },
        Ok(_) => misfit(""),
        Err(error) => misfit(&format!(": {error}")),
    }
}

/// Why a line is not a message: a JSON-RPC error code and a text.
pub fn unreadable(line: &[u8], error: &ReadError) -> (i64, String) {
    match serde_json::from_slice::<IgnoredAny>(line) {
        Err(error) => (
            code::PARSE_ERROR,
            format!("not JSON: {error}. Send one JSON-RPC message a line."),
        ),
        Ok(_) if line.first() == Some(&b'[') => (
            code::INVALID_REQUEST,
            "batches are not supported; send one JSON-RPC message a line".to_owned(),
        ),
        Ok(_) => (code::INVALID_REQUEST, error.to_string()),
    }
}

/// The ID of a request of which only the beginning `head` is known, if the beginning contains it.
pub fn id_of(head: &[u8]) -> Option<RequestId> {
    match TruncatedMessage::guess(head)? {
        TruncatedMessage::Request { id, .. } => Some(id),
        TruncatedMessage::Response(_) | TruncatedMessage::Notification { .. } => None,
    }
}

/// The error text for a message over the limit. Both numbers are in bytes.
pub fn too_long(length: u64, limit: usize) -> String {
    format!(
        "a line of {length} bytes is over the limit of {limit} bytes; \
         `codex-mcp serve --max-line` sets another one"
    )
}

pub(super) fn refusal(
    id: Option<RequestId>,
    code: i64,
    message: String,
) -> Box<ServerJsonRpcMessage> {
    Box::new(ServerJsonRpcMessage::error(
        error_data(code, message),
        id.map(rmcp_id),
    ))
}

fn error_data(code: i64, message: String) -> ErrorData {
    let code = i32::try_from(code).unwrap_or(ErrorCode::INTERNAL_ERROR.0);
    ErrorData::new(ErrorCode(code), message, None)
}

fn rmcp_id(id: RequestId) -> NumberOrString {
    match id {
        RequestId::Number(number) => NumberOrString::Number(number),
        RequestId::Text(text) => NumberOrString::String(text.into()),
    }
}

/// Whether rmcp begins its service with this request (as in its `serve_server_with_ct`). Up to MCP
/// 2025-11-25, the handshake begins it; from 2026-07-28 on, the first request with its own metadata
/// does. rmcp answers other requests and keeps waiting.
pub(super) fn begins_service(request: &ClientRequest) -> bool {
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

/// The error for a request whose ID is in use.
pub fn already_open(id: &NumberOrString) -> ErrorData {
    let text = format!(
        "a request with the id {id} is still open, or its answer was not read; give each request an \
         id of its own"
    );
    ErrorData::invalid_request(text, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &[u8]) -> Value {
        match read_line(line) {
            IncomingLine::Refused(message) => serde_json::to_value(message).unwrap(),
            _ => panic!("not refused: {}", line.escape_ascii()),
        }
    }

    #[test]
    fn malformed_lines_are_answered_with_an_error() {
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
    fn messages_of_too_many_values_are_refused_by_id() {
        let line = |kind: &str, values: usize| {
            let list = vec!["0"; values].join(",");
            format!("{{\"jsonrpc\":\"2.0\",\"id\":5,{kind}:{{\"a\":[{list}]}}}}").into_bytes()
        };
        let request = "\"method\":\"made/up\",\"params\"";
        assert!(matches!(
            read_line(&line(request, MAX_VALUES / 2)),
            IncomingLine::Message(_)
        ));
        let answer = refused(&line(request, MAX_VALUES + 1));
        assert_eq!(answer["id"], 5);
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
        let IncomingLine::Message(message) = read_line(&line("\"result\"", MAX_VALUES + 1)) else {
            panic!("an error");
        };
        assert!(matches!(*message, ClientJsonRpcMessage::Error(_)));
    }

    #[test]
    fn unknown_methods_are_passed_to_the_service() {
        let line = br#"{"jsonrpc":"2.0","id":1,"method":"made/up","params":{}}"#;
        assert!(matches!(read_line(line), IncomingLine::Message(_)));
    }

    #[test]
    fn answer_keeps_members_unknown_to_mcp() {
        let line =
            br#"{"jsonrpc":"2.0","id":1,"result":{"action":"accept","decision":"approved"}}"#;
        let IncomingLine::Message(message) = read_line(line) else {
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
