//! JSON-RPC messages whose parameters stay raw.
//!
//! Reading a [`Message`] looks at the envelope only; `params`, `result` and `error.data`
//! keep their text. The `jsonrpc` member is ignored: the Codex app-server leaves it out,
//! MCP peers send it.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// JSON-RPC error codes that are used on either side.
pub mod code {
    /// The bytes were not JSON (JSON-RPC 2.0, section 5.1).
    pub const PARSE_ERROR: i64 = -32_700;
    /// JSON, but not a request (JSON-RPC 2.0). The Codex app-server answers
    /// unknown methods and refused parameters with this one too.
    pub const INVALID_REQUEST: i64 = -32_600;
    /// The method does not exist (JSON-RPC 2.0).
    pub const METHOD_NOT_FOUND: i64 = -32_601;
    /// The request could not be carried out (JSON-RPC 2.0).
    pub const INTERNAL_ERROR: i64 = -32_603;
    /// The Codex app-server is overloaded; a later attempt may succeed.
    pub const CODEX_OVERLOADED: i64 = -32_001;
}

/// The id of a request: a number or a string, as the sender wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RequestId {
    /// A whole number.
    Number(i64),
    /// Any text.
    Text(String),
}

impl RequestId {
    /// The ID as text, whether it is a text or a number.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Number(number) => Cow::Owned(number.to_string()),
            Self::Text(text) => Cow::Borrowed(text),
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// A JSON-RPC error object.
#[derive(Debug, Clone, Serialize, Deserialize, thiserror::Error)]
#[error("{message} (code {code})")]
pub struct ErrorObject {
    /// The kind of error; see [`code`].
    pub code: i64,
    /// What happened, for people.
    pub message: String,
    /// Further data, as the sender wrote them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

/// A message, borrowed from the line from which it was read.
#[derive(Debug)]
pub enum Message<'a> {
    /// A request, to be answered with the same ID.
    Request {
        /// The sender's ID of the request.
        id: RequestId,
        /// The method.
        method: Cow<'a, str>,
        /// The parameters.
        params: Option<&'a RawValue>,
    },
    /// A notification, which is not answered.
    Notification {
        /// The method.
        method: Cow<'a, str>,
        /// The parameters.
        params: Option<&'a RawValue>,
    },
    /// The response to a request of ours.
    Response {
        /// The ID that we gave to the request.
        id: RequestId,
        /// The result or the error.
        outcome: Result<&'a RawValue, ErrorObject>,
    },
}

/// Why a line is not a [`Message`].
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Not JSON, or an envelope member of the wrong type.
    #[error("not a JSON-RPC message: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON without `method`, `result` or `error`.
    #[error("not a JSON-RPC message: neither a method nor a result nor an error in it")]
    Shapeless,
    /// A request with the ID `null`, which could not be answered.
    #[error("the id of a request must be a number or a string, not null")]
    NullId,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    /// `None` if absent, `Some(None)` if null.
    #[serde(default, deserialize_with = "present")]
    id: Option<Option<RequestId>>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<ErrorObject>,
}

fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<RequestId>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// The kind of a message of which only the beginning is left.
#[derive(Debug, PartialEq, Eq)]
pub enum TruncatedMessage<'a> {
    /// A response to a request of ours.
    Response(RequestId),
    /// A request.
    Request {
        /// The sender's ID of the request.
        id: RequestId,
        /// The method.
        method: &'a str,
    },
    /// A notification.
    Notification {
        /// The method.
        method: &'a str,
        /// The thread that the notification is about.
        thread: Option<&'a str>,
    },
}

impl<'a> TruncatedMessage<'a> {
    /// Identifies a message by its beginning. Both of Codex's servers write the envelope
    /// before its content. In the app-server's requests the method comes before the id,
    /// in those of `codex mcp-server` after it (0.104.0 to 0.169.0).
    #[must_use]
    pub fn guess(head: &'a [u8]) -> Option<Self> {
        let text = head.utf8_chunks().next()?.valid();
        let text = text.strip_prefix('{')?;
        let text = text.strip_prefix("\"jsonrpc\":\"2.0\",").unwrap_or(text);
        if let Some((id, rest)) = leading_id(text) {
            let rest = rest.strip_prefix(",\"jsonrpc\":\"2.0\"").unwrap_or(rest);
            let method = rest.strip_prefix(",\"method\":\"");
            return Some(match method.and_then(|rest| rest.split_once('"')) {
                Some((method, _)) => Self::Request { id, method },
                None => Self::Response(id),
            });
        }
        let (_, text) = text.split_once("\"method\":\"")?;
        let (method, rest) = text.split_once('"')?;
        let id = rest.strip_prefix(',').and_then(leading_id);
        if let Some((id, _)) = id {
            return Some(Self::Request { id, method });
        }
        let thread = rest
            .split_once("\"threadId\":\"")
            .and_then(|(_, rest)| rest.split_once('"'))
            .map(|(thread, _)| thread);
        Some(Self::Notification { method, thread })
    }
}

/// The ID at the beginning of a text, and the rest of the text.
fn leading_id(text: &str) -> Option<(RequestId, &str)> {
    let text = text.strip_prefix("\"id\":")?;
    let mut ids = serde_json::Deserializer::from_str(text).into_iter();
    let id = ids.next()?.ok()?;
    Some((id, text.get(ids.byte_offset()..)?))
}

impl<'a> Message<'a> {
    /// Reads one line.
    ///
    /// # Errors
    ///
    /// [`ReadError`] when the line is not JSON or not a JSON-RPC message.
    pub fn read(line: &'a [u8]) -> Result<Self, ReadError> {
        let envelope: Envelope<'a> = serde_json::from_slice(line)?;
        // serde takes an array for a struct whose members it lists.
        if line.trim_ascii_start().first() != Some(&b'{') {
            return Err(ReadError::Shapeless);
        }
        match envelope {
            Envelope {
                id: Some(Some(id)),
                method: Some(method),
                params,
                ..
            } => Ok(Self::Request { id, method, params }),
            Envelope {
                id: Some(None),
                method: Some(_),
                ..
            } => Err(ReadError::NullId),
            Envelope {
                method: Some(method),
                params,
                ..
            } => Ok(Self::Notification { method, params }),
            Envelope {
                id: Some(Some(id)),
                error: Some(error),
                ..
            } => Ok(Self::Response {
                id,
                outcome: Err(error),
            }),
            Envelope {
                id: Some(Some(id)),
                result,
                ..
            } => Ok(Self::Response {
                id,
                outcome: Ok(result.unwrap_or(RawValue::NULL)),
            }),
            _ => Err(ReadError::Shapeless),
        }
    }
}

#[derive(Serialize)]
struct Outgoing<'a, P, R> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RequestId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<P>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<R>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a ErrorObject>,
}

fn line<P: Serialize, R: Serialize>(
    message: &Outgoing<'_, P, R>,
) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// A request as a line with its newline, in the Codex dialect (no `jsonrpc`).
///
/// # Errors
///
/// If the parameters cannot be written as JSON.
pub fn request_line(
    id: &RequestId,
    method: &str,
    params: &impl Serialize,
) -> Result<Vec<u8>, serde_json::Error> {
    line(&Outgoing::<_, ()> {
        id: Some(id),
        method: Some(method),
        params: Some(params),
        result: None,
        error: None,
    })
}

/// A notification without parameters as a line, in the Codex dialect.
///
/// # Errors
///
/// If it cannot be written as JSON.
pub fn notification_line(method: &str) -> Result<Vec<u8>, serde_json::Error> {
    line(&Outgoing::<(), ()> {
        id: None,
        method: Some(method),
        params: None,
        result: None,
        error: None,
    })
}

/// An answer as a line, in the Codex dialect.
///
/// # Errors
///
/// If the result cannot be written as JSON.
pub fn response_line(
    id: &RequestId,
    outcome: Result<&impl Serialize, &ErrorObject>,
) -> Result<Vec<u8>, serde_json::Error> {
    line(&Outgoing::<(), _> {
        id: Some(id),
        method: None,
        params: None,
        result: outcome.ok(),
        error: outcome.err(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_keep_their_bytes() {
        let line =
            br#"{"id":0,"method":"turn/start","params":{"b":1.0,"a":10000000000000000000000}}"#;
        let Message::Request { id, method, params } = Message::read(line).unwrap() else {
            panic!("a request");
        };
        assert_eq!((id, method.as_ref()), (RequestId::Number(0), "turn/start"));
        assert_eq!(
            params.unwrap().get(),
            r#"{"b":1.0,"a":10000000000000000000000}"#
        );
    }

    #[test]
    fn array_is_no_message() {
        for json in [
            &br#"[1,"ping",null,null,null]"#[..],
            br#" [null,"initialized",{},null,null]"#,
            br#"[{"id":1,"method":"ping"}]"#,
        ] {
            assert!(Message::read(json).is_err(), "{}", json.escape_ascii());
        }
        assert!(Message::read(b" \n{\"method\":\"m\"}").is_ok());
    }

    #[test]
    fn null_result_is_a_result() {
        let message = Message::read(br#"{"id":"x","result":null}"#).unwrap();
        assert!(
            matches!(message, Message::Response { outcome: Ok(raw), .. } if raw.get() == "null")
        );
    }

    #[test]
    fn errors_keep_code_message_and_data() {
        let message =
            Message::read(br#"{"id":3,"error":{"code":-32600,"message":"no","data":{"k":1}}}"#)
                .unwrap();
        let Message::Response {
            outcome: Err(error),
            ..
        } = message
        else {
            panic!("an error");
        };
        assert_eq!(error.to_string(), "no (code -32600)");
        assert_eq!(error.data.unwrap().get(), r#"{"k":1}"#);
    }

    #[test]
    fn malformed_message_is_refused() {
        for line in [
            &b"garbage"[..],
            b"[]",
            b"{}",
            b"{\"id\":1.5,\"method\":\"x\"}",
            b"\xff",
            b"{\"id\":null,\"method\":\"x\"}",
        ] {
            assert!(Message::read(line).is_err());
        }
    }

    #[test]
    fn truncated_message_is_classified_by_its_beginning() {
        let ended = |thread| TruncatedMessage::Notification {
            method: "turn/completed",
            thread,
        };
        for (head, guess) in [
            (
                &b"{\"id\":12,\"result\":{\"thread\":"[..],
                Some(TruncatedMessage::Response(RequestId::Number(12))),
            ),
            (
                b"{\"jsonrpc\":\"2.0\",\"id\":\"a,\\\"b\",\"result\":{\"thread\":",
                Some(TruncatedMessage::Response(RequestId::Text("a,\"b".into()))),
            ),
            (
                b"{\"id\":7,\"jsonrpc\":\"2.0\",\"result\":{",
                Some(TruncatedMessage::Response(RequestId::Number(7))),
            ),
            (
                b"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"elicitation/create\",\"params\":{",
                Some(TruncatedMessage::Request {
                    id: RequestId::Number(0),
                    method: "elicitation/create",
                }),
            ),
            (b"{\"id\":\"never end", None),
            (
                b"{\"method\":\"turn/completed\",\"params\":{\"threadId\":\"t\",\xff",
                Some(ended(Some("t"))),
            ),
            (
                b"{\"method\":\"turn/completed\",\"params\":{\"turn\"",
                Some(ended(None)),
            ),
            (
                b"{\"method\":\"x\",\"id\":0,\"params\":{",
                Some(TruncatedMessage::Request {
                    id: RequestId::Number(0),
                    method: "x",
                }),
            ),
            (b"garbage", None),
            (b"", None),
        ] {
            assert_eq!(TruncatedMessage::guess(head), guess);
        }
    }

    #[test]
    fn lines_end_with_one_newline_and_have_no_null_members() {
        let id = RequestId::Number(7);
        assert_eq!(
            request_line(&id, "m", &serde_json::json!({"a": 1})).unwrap(),
            b"{\"id\":7,\"method\":\"m\",\"params\":{\"a\":1}}\n"
        );
        assert_eq!(
            response_line(&id, Ok(&serde_json::json!({}))).unwrap(),
            b"{\"id\":7,\"result\":{}}\n"
        );
        assert_eq!(
            notification_line("initialized").unwrap(),
            b"{\"method\":\"initialized\"}\n"
        );
    }
}
