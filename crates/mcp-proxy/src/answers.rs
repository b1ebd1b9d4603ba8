//! Writes the answers that the proxy itself gives, as messages to the client.

use std::time::Duration;

use codex_protocol::codex::ThreadId;
use codex_protocol::rpc::{RequestId, code};
use mcp_server::code::Code;
use mcp_server::error::ToolError;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};

use crate::logic::{Answer, CallInfo, Failure, RouterTimeouts};

/// The members that the output schemas of `codex mcp-server`'s tools require.
const REQUIRED: [&str; 2] = ["threadId", "content"];

/// An answer as a message, without the line break at its end.
pub(super) fn message(id: &RequestId, answer: Answer, timeouts: &RouterTimeouts) -> Vec<u8> {
    let in_use = format!("the id {id} is already in use; give each request an id of its own");
    match answer {
        Answer::Result(result) => response(id, &result),
        Answer::Failed { call, why } => response(id, &failed(call, &why, timeouts)),
        Answer::Declined { call, question } => response(id, &declined(call, question)),
        Answer::Error { method, why } => {
            let error = error_of(&method, &why, timeouts.request);
            let data = Value::Object(error.details());
            refusal(Some(id), code::INTERNAL_ERROR, &error.text(), Some(data))
        }
        Answer::UnknownMethod { method } => {
            let text = format!("codex mcp-server does not answer {method}");
            refusal(Some(id), code::METHOD_NOT_FOUND, &text, None)
        }
        // The refusal names no ID: the client would take it for the answer to its earlier request
        // with this ID.
        Answer::IdInUse => refusal(None, code::INVALID_REQUEST, &in_use, None),
        Answer::IdSpent => refusal(Some(id), code::INVALID_REQUEST, &in_use, None),
        Answer::TooMany => {
            let text = "too many requests have no answer yet; wait for some of them";
            refusal(Some(id), code::INVALID_REQUEST, text, None)
        }
    }
}

/// The response with the result of one of our tools.
pub(super) fn tool_result(id: &RequestId, result: &CallToolResult) -> Vec<u8> {
    response(id, &as_value(result))
}

/// The result as JSON, without the member that exists only in MCP 2026-07-28.
fn as_value(result: &CallToolResult) -> Value {
    let mut value = json!(result);
    if let Some(members) = value.as_object_mut() {
        members.remove("resultType");
    }
    value
}

fn response(id: &RequestId, result: &Value) -> Vec<u8> {
    let message = json!({ "jsonrpc": "2.0", "id": id, "result": result });
    message.to_string().into_bytes()
}

/// An error response; it has no ID if `id` is `None`.
pub(super) fn refusal(
    id: Option<&RequestId>,
    code: i64,
    text: &str,
    data: Option<Value>,
) -> Vec<u8> {
    let mut error = json!({ "code": code, "message": text });
    if let (Some(data), Some(error)) = (data, error.as_object_mut()) {
        error.insert("data".to_owned(), data);
    }
    let message = json!({ "jsonrpc": "2.0", "id": id, "error": error });
    message.to_string().into_bytes()
}

/// The error of a failed request: `what` names the request, and `waited` is its time limit.
fn error_of(what: &str, why: &Failure, waited: Duration) -> ToolError {
    let (code, text) = match why {
        Failure::TimedOut => (
            Code::CodexSilent,
            format!(
                "codex mcp-server did not answer {what} within {} s",
                waited.as_secs()
            ),
        ),
        Failure::Busy => (
            Code::SessionBusy,
            "another turn is still running in this thread".to_owned(),
        ),
        Failure::OutOfStep => (
            Code::ThreadOutOfStep,
            "an earlier turn of this thread failed, and codex mcp-server answers each further \
prompt with the result of the one before"
                .to_owned(),
        ),
        Failure::NotStarted => (
            Code::CodexSilent,
            format!(
                "codex mcp-server has not started within {} s",
                waited.as_secs()
            ),
        ),
        Failure::Interrupted => (
            Code::Interrupted,
            "the turn was ended before it was done".to_owned(),
        ),
        Failure::TooLong(why) => (Code::OverLimit, why.clone()),
        Failure::NotReading => (
            Code::CodexSilent,
            "codex mcp-server does not read what it is sent".to_owned(),
        ),
        Failure::Gone(how) => (Code::ServerDied, format!("codex mcp-server {how}")),
        Failure::Unreadable(why) => (Code::Unreadable, why.clone()),
        Failure::ShuttingDown => (Code::ShuttingDown, "codex-mcp is shutting down".to_owned()),
    };
    ToolError::new(code, text)
}

fn failed(call: CallInfo, why: &Failure, timeouts: &RouterTimeouts) -> Value {
    let error = match why {
        Failure::TimedOut => {
            let waited = timeouts.call.as_secs();
            let text = format!("the call took longer than {waited} s and was cancelled");
            ToolError::new(Code::Timeout, text)
        }
        why => error_of("the call", why, timeouts.call),
    };
    let error = error.with_partial(call.partial);
    let thread = call.thread.and_then(|id| ThreadId::parse(&id).ok());
    let error = match &thread {
        Some(thread) => error.in_thread(thread),
        None => error,
    };
    complete(error.into_result())
}

/// The result of a call that returns early because the client cannot answer Codex's question.
fn declined(call: CallInfo, question: Value) -> Value {
    let asked = question.get("message").and_then(Value::as_str);
    let asked = asked.unwrap_or("Codex asked something.");
    let mut text = format!(
        "{asked}\n\
         Nobody could be asked, so the request was declined and the turn continues. Continue with \
         codex-reply when it has ended. Codex asks less under another approval-policy or sandbox, \
         and codex-mcp's default backend lets you decide."
    );
    if !call.partial.is_empty() {
        text.push_str("\nWhat Codex had said until then:\n");
        text.push_str(&call.partial);
    }
    let mut rest = Map::new();
    rest.insert("status".to_owned(), "waiting_approval".into());
    rest.insert("actions".to_owned(), json!([action(question)]));
    if let Some(thread) = call.thread {
        rest.insert("threadId".to_owned(), thread.into());
    }
    let object = Value::Object(rest.clone()).to_string();
    let blocks = vec![ContentBlock::text(text.clone()), ContentBlock::text(object)];
    let mut result = CallToolResult::success(blocks);
    rest.insert("content".to_owned(), text.into());
    result.structured_content = Some(Value::Object(rest));
    complete(result)
}

/// The child's question as an action for the caller, without the members that only a form needs.
fn action(mut question: Value) -> Value {
    if let Some(question) = question.as_object_mut() {
        question.remove("requestedSchema");
        question.insert("type".to_owned(), "approval".into());
        question.insert("decision".to_owned(), "decline".into());
    }
    question
}

/// Adds the required members: clients check all results, errors too, against the child's output
/// schemas.
fn complete(mut result: CallToolResult) -> Value {
    if let Some(Value::Object(structured)) = &mut result.structured_content {
        for member in REQUIRED {
            structured
                .entry(member.to_owned())
                .or_insert_with(|| "".into());
        }
    }
    as_value(&result)
}

#[cfg(test)]
mod tests {
    use crate::answers::*;

    const LIMITS: RouterTimeouts = RouterTimeouts {
        call: Duration::from_secs(300),
        approval: Duration::from_secs(60),
        request: Duration::from_secs(30),
    };

    fn call(thread: Option<&str>) -> CallInfo {
        CallInfo {
            thread: thread.map(str::to_owned),
            partial: "half".to_owned(),
        }
    }

    fn shown(answer: Answer) -> Value {
        let message = message(&RequestId::Number(7), answer, &LIMITS);
        serde_json::from_slice(&message).unwrap()
    }

    #[test]
    fn results_and_errors_match_the_output_schema() {
        let thread = "0199a213-81c0-7800-8aa1-bbab2a035a53";
        for (given, expected) in [(None, ""), (Some(thread), thread)] {
            for why in [
                Failure::TimedOut,
                Failure::Busy,
                Failure::Gone("exited with code 3".to_owned()),
                Failure::Unreadable("not JSON".to_owned()),
                Failure::TooLong("too long".to_owned()),
                Failure::NotStarted,
                Failure::Interrupted,
                Failure::OutOfStep,
                Failure::NotReading,
                Failure::ShuttingDown,
            ] {
                let call = call(given);
                let result = &shown(Answer::Failed { call, why })["result"];
                assert_eq!(result["isError"], true);
                assert_eq!(result["structuredContent"]["threadId"], expected);
                assert_eq!(result["structuredContent"]["content"], "half");
            }
            let question = json!({ "message": "Allow?", "requestedSchema": {} });
            let call = call(given);
            let result = &shown(Answer::Declined { call, question })["result"];
            let structured = &result["structuredContent"];
            assert_eq!(structured["threadId"], expected);
            assert_eq!(structured["status"], "waiting_approval");
            assert_eq!(
                structured["actions"],
                json!([{ "message": "Allow?", "type": "approval", "decision": "decline" }])
            );
        }
    }

    #[test]
    fn failed_request_is_answered_with_its_error_code() {
        let method = "made/up".to_owned();
        let why = Failure::Gone("exited with code 3".to_owned());
        let error = &shown(Answer::Error { method, why })["error"];
        assert_eq!(error["data"]["error"]["code"], "CODEX_DIED");
        let text = error["message"].as_str().unwrap();
        assert!(
            text.starts_with("Error [CODEX_DIED]: codex mcp-server exited with code 3. Close"),
            "{text}"
        );
        let method = "prompts/list".to_owned();
        let error = &shown(Answer::UnknownMethod { method })["error"];
        assert_eq!(error["code"], -32601);
    }

    #[test]
    fn refusal_of_an_id_in_use_has_no_id() {
        assert_eq!(shown(Answer::IdInUse)["id"], Value::Null);
    }
}
