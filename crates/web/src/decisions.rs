//! The `decision` of an answer, in which clients of `codex mcp-server` say what they decide. rmcp's type
//! of such answers has no such member, so that it would be lost beside an `action`. It passes rmcp in
//! `_meta`.

use std::error::Error;
use std::{io, iter};

use axum::body::{self, Body, Bytes};
use axum::extract::Request;
use mcp_server::incoming;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::refusal::Refusal;

/// The members of an answer.
const ACTION: &str = "action";
const DECISION: &str = "decision";
const META: &str = "_meta";

/// The member of `_meta` that has the decision meanwhile.
const KEPT: &str = "codex-mcp/decision";

/// An answer, which a request is not.
#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "result")]
    _result: IgnoredAny,
}

/// The same request, whose message is an answer that keeps its decision.
///
/// # Errors
///
/// When the message is longer than `limit` bytes, holds too many JSON values, or does not arrive.
pub(crate) async fn keep(request: Request, limit: usize) -> Result<Request, Refusal> {
    let (head, body) = request.into_parts();
    let message = body::to_bytes(body, limit).await;
    let message = message.map_err(|error| unread(&error, limit))?;
    incoming::check_values(&message).map_err(Refusal::Wrong)?;
    let message = with_kept(&message).map_or(message, Bytes::from);
    Ok(Request::from_parts(head, Body::from(message)))
}

/// Why a message cannot be read. What a connection fails with is an I/O error.
fn unread(error: &axum::Error, limit: usize) -> Refusal {
    let first: &(dyn Error + 'static) = error;
    let mut causes = iter::successors(Some(first), |&error| error.source());
    match causes.any(|cause| cause.is::<io::Error>()) {
        true => Refusal::Wrong(format!("cannot read the request: {error}")),
        false => Refusal::TooLong(limit),
    }
}

/// The message with its decision in `_meta`; `None` if it is no answer that would lose one.
fn with_kept(message: &[u8]) -> Option<Vec<u8>> {
    let Answer { .. } = serde_json::from_slice(message).ok()?;
    let mut message: Value = serde_json::from_slice(message).ok()?;
    let result = message.get_mut("result")?.as_object_mut()?;
    if !result.contains_key(ACTION) {
        return None;
    }
    let decision = result.remove(DECISION)?;
    let meta = result.entry(META).or_insert(Value::Null);
    if meta.is_null() {
        *meta = json!({});
    }
    meta.as_object_mut()?.insert(KEPT.to_owned(), decision);
    Some(message.to_string().into_bytes())
}

/// The answer as the client has given it.
pub(crate) fn restored(mut answer: Value) -> Value {
    let meta = answer.get_mut(META).and_then(Value::as_object_mut);
    let decision = meta.and_then(|meta| meta.remove(KEPT));
    if let (Some(decision), Some(answer)) = (decision, answer.as_object_mut()) {
        answer.insert(DECISION.to_owned(), decision);
    }
    answer
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use rmcp::model::ClientJsonRpcMessage;

    use super::*;

    /// The result of an answer as it comes out of rmcp.
    fn passed(result: &Value) -> Value {
        let message = json!({ "jsonrpc": "2.0", "id": 0, "result": result }).to_string();
        let kept = with_kept(message.as_bytes()).unwrap_or_else(|| message.clone().into_bytes());
        let ClientJsonRpcMessage::Response(response) = serde_json::from_slice(&kept).unwrap()
        else {
            unreachable!("{message} is an answer");
        };
        restored(json!(response.result))
    }

    #[test]
    fn decision_of_an_answer_passes_rmcp() {
        for (answer, decision) in [
            (
                json!({ "action": "accept", "decision": "denied" }),
                "denied",
            ),
            (
                json!({ "decision": "approved_for_session" }),
                "approved_for_session",
            ),
            (
                json!({ "action": "accept", "decision": "abort", "_meta": { "a": 1 } }),
                "abort",
            ),
            (
                json!({ "action": "accept", "decision": "denied", "_meta": null }),
                "denied",
            ),
        ] {
            let passed = passed(&answer);
            assert_eq!(passed["decision"], decision, "{passed}");
            assert_eq!(passed["action"], answer["action"], "{passed}");
        }
        let content = json!({ "action": "accept", "content": { "decision": "decline" } });
        assert_eq!(passed(&content), content);
    }

    #[tokio::test]
    async fn message_that_breaks_off_is_not_called_too_long() {
        let parts = [
            Ok(Bytes::from_static(b"{")),
            Err(io::Error::from(io::ErrorKind::TimedOut)),
        ];
        let broken = Request::new(Body::from_stream(stream::iter(parts)));
        let refused = keep(broken, 10).await.unwrap_err();
        assert!(matches!(refused, Refusal::Wrong(_)), "{refused}");
        let long = Request::new(Body::from("more than ten bytes"));
        let refused = keep(long, 10).await.unwrap_err();
        assert!(matches!(refused, Refusal::TooLong(10)), "{refused}");
    }

    #[tokio::test]
    async fn message_of_too_many_values_is_refused() {
        let message = format!("[{}]", vec!["{}"; 60_000].join(","));
        let limit = message.len();
        let refused = keep(Request::new(Body::from(message)), limit).await;
        let refused = refused.unwrap_err();
        assert!(matches!(refused, Refusal::Wrong(_)), "{refused}");
    }

    #[test]
    fn request_stays_as_it_is() {
        let request = json!({ "jsonrpc": "2.0", "id": 0, "method": "tools/call",
            "params": { "action": "accept", "decision": "denied" } });
        assert_eq!(with_kept(request.to_string().as_bytes()), None);
        assert_eq!(with_kept(b"no JSON"), None);
    }
}
