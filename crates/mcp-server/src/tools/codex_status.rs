//! `codex_status`: the status of the server and its Codex.

use rmcp::model::{CallToolResult, JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::parameters::arguments;
use super::schema::{input, output, tool};
use crate::error::ToolError;
use crate::status::Status;

pub(crate) const NAME: &str = "codex_status";

pub(crate) fn describe() -> Tool {
    let description = "Use to see whether Codex is up, its version or how it ended, and its calls, \
threads and open questions.";
    let answer = output(json!({ "codex?": "object", "openQuestions?": "integer" }));
    tool(NAME, "Codex Status", description, input::<Arguments>()).with_raw_output_schema(answer)
}

/// The tool takes no arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {}

/// Answers a call.
///
/// # Errors
///
/// When the call has arguments.
pub fn call(given: JsonObject, status: Status) -> Result<CallToolResult, ToolError> {
    let Arguments {} = arguments(given)?;
    Ok(status.into_result())
}
