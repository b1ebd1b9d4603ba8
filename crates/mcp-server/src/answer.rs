//! Results of the classic tools.
//!
//! As text first the plain final message, as `codex mcp-server` gives it, then
//! one small JSON block with everything but that message, so that clients
//! which read only text learn the thread id and nothing is sent twice. Clients
//! that read `structuredContent` find it all there.

use codex_engine::command::SessionId;
use codex_protocol::codex::ThreadId;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};

use super::error::{Names, ToolError};

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
    pub fn into_plain_result(self) -> CallToolResult {
        let mut details = Map::new();
        details.insert("error".to_owned(), self.object(Names::Own));
        failed(vec![self.text()], details, Repeated::Yes)
    }

    /// The same with what else there is to tell.
    pub(super) fn into_result_with(self, more: Value) -> CallToolResult {
        let mut details = match more {
            Value::Object(more) => more,
            _ => Map::new(),
        };
        details.insert("error".to_owned(), self.object(Names::Own));
        failed(vec![self.text()], details, Repeated::Yes)
    }

    /// For tools of the npm package codex-mcp, whose errors are one text.
    pub(super) fn into_sessions_result(self) -> CallToolResult {
        let mut details = Map::new();
        details.insert("error".to_owned(), self.object(Names::Sessions));
        failed(vec![self.text_in(Names::Sessions)], details, Repeated::No)
    }

    /// For tools that wait for a turn.
    pub fn into_result(self) -> CallToolResult {
        let mut text = vec![self.text()];
        if !self.partial().is_empty() {
            text.push(format!(
                "What Codex had said until then:\n{}",
                self.partial()
            ));
        }
        let mut result = failed(text, self.details(), Repeated::Yes);
        if let Some(Value::Object(structured)) = &mut result.structured_content {
            structured.insert("content".to_owned(), self.partial().into());
        }
        result
    }
}

/// Whether the last text repeats the object of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeated {
    Yes,
    No,
}

/// The result of a call that failed, in all tools: `{error: {code, message, hint,
/// retryable}, isError: true}`, and what else `details` has.
fn failed(
    mut text: Vec<String>,
    mut details: Map<String, Value>,
    repeated: Repeated,
) -> CallToolResult {
    details.insert("isError".to_owned(), true.into());
    if repeated == Repeated::Yes {
        text.push(Value::Object(details.clone()).to_string());
    }
    result(text, details, Some(true))
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
