//! Results of the classic tools.
//!
//! The text content has two parts: the plain final message, as `codex mcp-server` returns it, and a
//! small JSON block with all other members, so that clients that read only text learn the thread
//! ID, and nothing is sent twice. `structuredContent` contains everything.

use std::sync::Arc;
use std::time::Duration;

use codex_engine::command::{SessionId, TurnView};
use codex_engine::logic::session::{TurnEnding, TurnOutcome};
use codex_protocol::codex::ThreadId;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};

use super::code::Code;
use super::error::{ErrorNames, ToolError};

/// The longest time for an interrupted turn to end before the call answers without it. Codex takes
/// some 20 ms; rmcp waits 5 s for answers at the end.
pub(super) const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(3);

/// The result of a call that did not fail.
pub(super) struct TurnAnswer {
    pub(super) thread: ThreadId,
    /// The session, for `codex_check`.
    pub(super) session: SessionId,
    /// The final message, or the questions that Codex waits for, in words.
    pub(super) content: String,
    pub(super) status: TurnStatus,
    /// Warnings for the caller.
    pub(super) warnings: Vec<String>,
}

/// The state of the turn.
pub(super) enum TurnStatus {
    Completed,
    /// Codex is at work.
    Running,
    /// Codex waits for answers to these questions, each an object with its ID and description.
    WaitingApproval(Vec<Value>),
}

impl TurnAnswer {
    pub(super) fn into_result(self) -> CallToolResult {
        let mut rest = Map::new();
        rest.insert("threadId".to_owned(), json!(self.thread));
        rest.insert("sessionId".to_owned(), json!(self.session));
        match self.status {
            TurnStatus::Running => rest.insert("status".to_owned(), "running".into()),
            TurnStatus::Completed => rest.insert("status".to_owned(), "completed".into()),
            TurnStatus::WaitingApproval(actions) => {
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

/// The outcome of turn `number` of a session, once it has one.
pub(super) fn outcome_of(
    view: &TurnView,
    number: u64,
) -> Option<Result<Arc<TurnOutcome>, ToolError>> {
    match &view.outcome {
        Some((turn, outcome)) if *turn == number => Some(Ok(Arc::clone(outcome))),
        Some((turn, _)) if *turn > number => Some(Err(ToolError::new(
            Code::Internal,
            "a later turn of the thread has ended in the meantime",
        ))),
        _ => None,
    }
}

/// Whether a turn that was interrupted for this reason still counts as answered: Codex had
/// completed it when the interrupt arrived. A turn that was cancelled does not, as its caller does
/// not want the answer.
pub(super) fn is_complete_at_limit(code: Code, outcome: &TurnOutcome) -> bool {
    code == Code::Timeout && outcome.ending == TurnEnding::Completed
}

/// The answer to the call of a turn that has this outcome.
pub(super) fn answer_of(
    outcome: Arc<TurnOutcome>,
    thread: &ThreadId,
    session: &SessionId,
) -> Result<TurnAnswer, ToolError> {
    let TurnOutcome { ending, text, .. } = Arc::unwrap_or_clone(outcome);
    let error = match ending {
        TurnEnding::Completed => {
            return Ok(TurnAnswer {
                thread: thread.clone(),
                session: session.clone(),
                content: text,
                status: TurnStatus::Completed,
                warnings: Vec::new(),
            });
        }
        TurnEnding::Interrupted => ToolError::new(Code::Interrupted, "the turn was interrupted"),
        TurnEnding::Failed(error) => error.into(),
        TurnEnding::Lost(how) => ToolError::new(Code::CodexDied, format!("{how} during the turn")),
    };
    Err(error.with_partial(text))
}

impl ToolError {
    /// The result for tools that do not prompt Codex, without a message of Codex and a thread.
    pub fn into_plain_result(self) -> CallToolResult {
        let mut details = Map::new();
        details.insert("error".to_owned(), self.object(ErrorNames::Own));
        failed(vec![self.text()], details)
    }

    /// The same result with further members.
    pub(super) fn into_result_with(self, more: Value) -> CallToolResult {
        let mut details = match more {
            Value::Object(more) => more,
            _ => Map::new(),
        };
        details.insert("error".to_owned(), self.object(ErrorNames::Own));
        failed(vec![self.text()], details)
    }

    /// The result for tools of the npm package @leo000001/codex-mcp, which return errors as a
    /// single text.
    pub(super) fn into_sessions_result(self) -> CallToolResult {
        let mut details = Map::new();
        details.insert("error".to_owned(), self.object(ErrorNames::Sessions));
        details.insert("isError".to_owned(), true.into());
        result(
            vec![self.text_in(ErrorNames::Sessions)],
            details,
            Some(true),
        )
    }

    /// The result for tools that wait for a turn.
    pub fn into_result(self) -> CallToolResult {
        let mut text = vec![self.text()];
        if !self.partial().is_empty() {
            text.push(format!(
                "What Codex had said until then:\n{}",
                self.partial()
            ));
        }
        let mut result = failed(text, self.details());
        if let Some(Value::Object(structured)) = &mut result.structured_content {
            structured.insert("content".to_owned(), self.partial().into());
        }
        result
    }
}

/// The result of a call that failed:
/// `{error: {code, message, hint, retryable}, isError: true}`, and the other members of `details`.
/// The last text repeats this object.
fn failed(mut text: Vec<String>, mut details: Map<String, Value>) -> CallToolResult {
    details.insert("isError".to_owned(), true.into());
    text.push(Value::Object(details.clone()).to_string());
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
