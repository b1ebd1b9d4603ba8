//! Results of the classic tools.
//!
//! As text first the plain final message, as `codex mcp-server` gives it, then
//! one small JSON block with everything but that message, so that clients
//! which read only text learn the thread id and nothing is sent twice. Clients
//! that read `structuredContent` find it all there.

use codex_mcp_protocol::codex::ThreadId;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};

use super::error::ToolError;
use crate::engine::command::SessionId;

/// What came of a call that did not fail.
pub(super) struct Answer {
    pub(super) thread: ThreadId,
    /// By which `codex_check` knows it.
    pub(super) session: SessionId,
    /// The final message, or what Codex waits for, in words.
    pub(super) content: String,
    pub(super) status: Status,
    /// What the caller should know besides.
    pub(super) warnings: Vec<String>,
}

/// How the turn stands.
pub(super) enum Status {
    Completed,
    /// Codex is at work.
    Running,
    /// Codex waits for these; each is an object that names and describes it.
    WaitingApproval(Vec<Value>),
}

impl Answer {
    pub(super) fn into_result(self) -> CallToolResult {
        let mut rest = Map::new();
        rest.insert("threadId".to_owned(), json!(self.thread));
        rest.insert("sessionId".to_owned(), json!(self.session));
        match self.status {
            Status::Running => rest.insert("status".to_owned(), "running".into()),
            Status::Completed => rest.insert("status".to_owned(), "completed".into()),
            Status::WaitingApproval(actions) => {
                rest.insert("status".to_owned(), "waiting_approval".into());
                rest.insert("actions".to_owned(), actions.into())
            }
        };
        if !self.warnings.is_empty() {
            rest.insert("warnings".to_owned(), self.warnings.into());
        }
        let text = vec![
            self.content.clone(),
            Value::Object(rest.clone()).to_string(),
        ];
        rest.insert("content".to_owned(), self.content.into());
        result(text, rest, None)
    }
}

impl ToolError {
    /// For tools that don't prompt Codex: there is no message of Codex's and no thread.
    pub(super) fn into_plain_result(self) -> CallToolResult {
        let mut details = Map::new();
        if let Some(error) = self.details().get_mut("error") {
            details.insert("error".to_owned(), error.take());
        }
        let object = Value::Object(details.clone()).to_string();
        result(vec![self.text(), object], details, Some(true))
    }

    pub(super) fn into_result(self) -> CallToolResult {
        let details = self.details();
        let mut text = vec![self.text()];
        if !self.partial().is_empty() {
            text.push(format!(
                "What Codex had said until then:\n{}",
                self.partial()
            ));
        }
        text.push(details.to_string());
        let Value::Object(mut structured) = details else {
            return CallToolResult::error(text.into_iter().map(ContentBlock::text).collect());
        };
        structured.insert("content".to_owned(), self.partial().into());
        result(text, structured, Some(true))
    }
}

fn result(
    text: Vec<String>,
    structured: Map<String, Value>,
    is_error: Option<bool>,
) -> CallToolResult {
    let mut result = CallToolResult::success(text.into_iter().map(ContentBlock::text).collect());
    result.structured_content = Some(Value::Object(structured));
    result.is_error = is_error;
    result
}
