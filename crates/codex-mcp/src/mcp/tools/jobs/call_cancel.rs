//! `call_cancel`: call a job off.

use codex_mcp_core::job::CancelAnswer;
use rmcp::model::{CallToolResult, JsonObject, Tool};
use serde::Deserialize;
use serde_json::json;

use super::parameters::arguments;
use super::{Id, answer, tool};
use crate::jobs::service::Jobs;
use crate::mcp::code::Code;
use crate::mcp::error::ToolError;

pub(super) const NAME: &str = "call_cancel";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    job_id: Id,
}

pub(super) fn describe() -> Tool {
    let input = json!({
        "type": "object",
        "properties": { "job_id": { "type": "string" } },
        "required": ["job_id"],
        "additionalProperties": false,
    });
    let description = "Calls a job off. Codex and all that it has started is gone when this \
answers, or the message says when it will be.";
    tool(NAME, description, input).with_title("Cancel Job")
}

pub(super) async fn call(jobs: &Jobs, given: JsonObject) -> Result<CallToolResult, ToolError> {
    let Arguments { job_id: Id(id) } = arguments(given)?;
    let cancelled = jobs.cancel(&id).await?;
    if let CancelAnswer::Refused(_) = cancelled.answer {
        return Err(ToolError::new(Code::JobEnded, cancelled.answer.message()));
    }
    Ok(answer(json!({
        "job_id": id,
        "previous_status": cancelled.answer.previous_status(),
        "new_status": cancelled.new_status(),
        "was_running_in_registry": cancelled.answer.was_running(),
        "message": cancelled.message(),
    })))
}
