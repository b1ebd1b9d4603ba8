//! `call_jobs`: lists the newest jobs.

use job_queue::job_json;
use job_queue::logic::JobState;
use job_queue::service::Jobs;
use job_queue::store::{JobFilter, JobList};
use rmcp::model::{CallToolResult, JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::code::Code;
use crate::error::ToolError;
use crate::tools::parameters::{Count, arguments};
use crate::tools::schema::{OneOf, answer, input, output, tool};

pub(super) const NAME: &str = "call_jobs";

/// The default number of jobs.
pub(crate) const LIMIT: u32 = 20;

/// The most jobs that may be asked for.
const MAX_LIMIT: u32 = 100;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[schemars(extend("default" = LIMIT))]
    limit: Option<Count>,
    #[schemars(with = "Option<OneOf<JobState>>")]
    status_filter: Option<JobState>,
    tool_name: Option<String>,
}

pub(super) fn describe() -> Tool {
    let description = "Use to find jobs of all clients of this store, newest first.";
    let answer = output(json!({ "jobs": "array", "total": "integer" }));
    tool(NAME, "List Jobs", description, input::<Arguments>()).with_raw_output_schema(answer)
}

pub(super) async fn call(jobs: &Jobs, given: JsonObject) -> Result<CallToolResult, ToolError> {
    let Arguments {
        limit,
        status_filter,
        tool_name,
    } = arguments(given)?;
    let limit = limit.map_or(u64::from(LIMIT), |Count(limit)| limit);
    let limit = u32::try_from(limit)
        .ok()
        .filter(|limit| (1..=MAX_LIMIT).contains(limit));
    let Some(limit) = limit else {
        let why = format!("limit must be from 1 to {MAX_LIMIT}");
        return Err(ToolError::new(Code::InvalidArgument, why));
    };
    let filter = JobFilter {
        status: status_filter,
        tool_name,
        cwd: None,
    };
    Ok(answer(shown(&jobs.list(&filter, limit).await?)))
}

/// The jobs of a list.
pub(crate) fn shown(listed: &JobList) -> Value {
    let shown: Vec<Value> = listed.jobs.iter().map(job_json::summary).collect();
    json!({ "jobs": shown, "total": listed.total })
}
