//! What a client sends, read: passed on, or refused with an answer.

use codex_protocol::json_values;
use codex_protocol::rpc::{Beheaded, ErrorObject, Message, ReadError, RequestId, code};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ClientResult, CustomResult, ErrorCode, ErrorData, GetMeta,
    NumberOrString, ProtocolVersion, ServerJsonRpcMessage,
};
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

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

/// How many values a message may hold. rmcp copies parameters several times while it
/// reads them, so that this many objects of one member take about 100 MB for a moment.
const MAX_VALUES: usize = 50_000;

/// What a line turned out to be.
pub(super) enum Line {
    Blank,
    Message(Box<ClientJsonRpcMessage>),
    /// Not for rmcp; this is the answer.
    Refused(Box<ServerJsonRpcMessage>),
}

pub(super) fn read_line(line: &[u8]) -> Line {
    let line = line.trim_ascii();
    if line.is_empty() {
        return Line::Blank;
    }
    match Message::read(line) {
        Ok(message) if json_values::exceed(line, MAX_VALUES) => too_many_values(message),
        Ok(Message::Response { id, outcome }) => response(id, outcome),
        Ok(Message::Request { id, method, .. }) => typed(line, Some((id, &method))),
        Ok(Message::Notification { .. }) => typed(line, None),
        Err(error) => {
            let (code, text) = unreadable(line, &error);
            Line::Refused(refusal(None, code, text))
        }
    }
}

/// Refuses a request, makes an error of an answer, and drops a notification.
fn too_many_values(message: Message<'_>) -> Line {
    let text = format!(
        "the message holds more than {MAX_VALUES} JSON values; put data of this size into a \
         file and name the file"
    );
    let code = code::INVALID_REQUEST;
    match message {
        Message::Request { id, .. } => Line::Refused(refusal(Some(id), code, text)),
        Message::Response { id, .. } => {
            let error = ClientJsonRpcMessage::error(error_data(code, text), Some(ours(id)));
            Line::Message(Box::new(error))
        }
        Message::Notification { method, .. } => {
            tracing::warn!("the notification {method} is dropped: {text}");
            Line::Blank
        }
    }
}

/// Answers to our own requests are passed on raw: rmcp's types would drop
/// members that Codex's clients use.
fn response(id: RequestId, outcome: Result<&RawValue, ErrorObject>) -> Line {
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

/// Why a line is not a message: a JSON-RPC error code, and in words.
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

/// The id of a request of which only the beginning is left, if it stands there.
pub fn id_of(head: &[u8]) -> Option<RequestId> {
    match Beheaded::guess(head)? {
        Beheaded::Request { id, .. } => Some(id),
        Beheaded::Response(_) | Beheaded::Notification { .. } => None,
    }
}

/// What is said to a message over the limit, both in bytes.
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

/// Whether rmcp begins to serve with this request (as in its
/// `serve_server_with_ct`): with the handshake of MCP up to 2025-11-25, or with the
/// first request that describes itself, as from 2026-07-28 on. It answers others
/// and waits on.
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

/// Names no id: the client would take it for the answer to the first request.
pub(super) fn already_open(id: &NumberOrString) -> Box<ServerJsonRpcMessage> {
    refusal(
        None,
        code::INVALID_REQUEST,
        format!("a request with the id {id} is still open; give each request an id of its own"),
    )
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
    fn messages_of_too_many_values_are_refused_by_id() {
        let line = |kind: &str, values: usize| {
            let list = vec!["0"; values].join(",");
            format!("{{\"jsonrpc\":\"2.0\",\"id\":5,{kind}:{{\"a\":[{list}]}}}}").into_bytes()
        };
        let request = "\"method\":\"made/up\",\"params\"";
        assert!(matches!(
            read_line(&line(request, MAX_VALUES / 2)),
            Line::Message(_)
        ));
        let answer = refused(&line(request, MAX_VALUES + 1));
        assert_eq!(answer["id"], 5);
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
        let Line::Message(message) = read_line(&line("\"result\"", MAX_VALUES + 1)) else {
            panic!("an error");
        };
        assert!(matches!(*message, ClientJsonRpcMessage::Error(_)));
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
