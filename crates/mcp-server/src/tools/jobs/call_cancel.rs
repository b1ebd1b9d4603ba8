//! `call_cancel`: cancels a job.

use job_queue::logic::CancelResponse;
use job_queue::service::Jobs;
use rmcp::model::{CallToolResult, JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::ids::JobIdArgument;
use crate::code::Code;
use crate::error::ToolError;
use crate::tools::parameters::arguments;
use crate::tools::schema::{answer, input, output, tool};

pub(super) const NAME: &str = "call_cancel";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    job_id: JobIdArgument,
}

pub(super) fn describe() -> Tool {
    let description = "Use to cancel a job. If it is still stopping, `message` says so.";
    let answer = output(json!({
        "job_id": "string",
        "new_status": "string",
    }));
    tool(NAME, "Cancel Job", description, input::<Arguments>()).with_raw_output_schema(answer)
}

pub(super) async fn call(jobs: &Jobs, given: JsonObject) -> Result<CallToolResult, ToolError> {
    let Arguments {
        job_id: JobIdArgument(prefix),
    } = arguments(given)?;
    let id = jobs.find(&prefix).await?;
    let cancelled = jobs.cancel(&id).await?;
    if let CancelResponse::Refused(_) = cancelled.response {
        return Err(ToolError::new(Code::JobEnded, cancelled.response.message()));
    }
    Ok(answer(json!({
        "job_id": id,
        "previous_status": cancelled.response.previous_status(),
        "new_status": cancelled.new_status(),
        "was_running_in_registry": cancelled.response.was_running(),
        "message": cancelled.message(),
    })))
}
