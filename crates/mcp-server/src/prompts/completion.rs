//! Completes the IDs in the arguments of prompts.

use job_queue::store::JobFilter;
use rmcp::ErrorData;
use rmcp::model::{CompleteRequestParams, CompleteResult, CompletionInfo, Reference};

use super::{ID, named};
use crate::server::Server;
use crate::tools::ToolName;
use crate::tools::jobs::JobTool;

/// The most values of an answer, as MCP defines it.
const LIMIT: usize = CompletionInfo::MAX_VALUES;

/// The answer to `completion/complete`: the IDs of sessions and jobs that begin with the text that
/// the client has so far, newest first.
///
/// # Errors
///
/// Invalid parameters for a prompt that is not offered, or an argument that it does not take.
pub(crate) async fn complete(
    server: &Server,
    tools: &[ToolName],
    request: &CompleteRequestParams,
) -> Result<CompleteResult, ErrorData> {
    let Reference::Prompt(prompt) = &request.r#ref else {
        // The addresses of resources have no variables.
        return Ok(CompleteResult::default());
    };
    let row = named(tools, &prompt.name)?;
    let argument = &request.argument;
    if !row.arguments.iter().any(|one| one.name == argument.name) {
        let why = super::arguments::unknown(row.arguments, &argument.name);
        return Err(ErrorData::invalid_params(
            format!("prompt {}: {why}", row.name),
            None,
        ));
    }
    if argument.name != ID {
        return Ok(CompleteResult::default());
    }
    let mut found = ids(server, tools).await;
    found.retain(|id| id.starts_with(&argument.value));
    let total = u32::try_from(found.len()).ok();
    let has_more = found.len() > LIMIT;
    found.truncate(LIMIT);
    let completion = CompletionInfo::with_pagination(found, total, has_more);
    let completion = completion.map_err(|why| ErrorData::internal_error(why, None))?;
    Ok(CompleteResult::new(completion))
}

/// The IDs of all sessions and of the newest jobs, so far as the client has tools for them.
async fn ids(server: &Server, tools: &[ToolName]) -> Vec<String> {
    let mut ids = Vec::new();
    if tools.contains(&ToolName::Session) {
        let sessions = server.engine.session_ids().into_iter().rev();
        ids.extend(sessions.map(|session| session.to_string()));
    }
    let Some(jobs) = server.jobs.as_ref() else {
        return ids;
    };
    if tools.contains(&ToolName::Job(JobTool::Status)) {
        let newest = u32::try_from(LIMIT).unwrap_or(u32::MAX);
        match jobs.list(&JobFilter::default(), newest).await {
            Ok(listed) => ids.extend(listed.jobs.iter().map(|job| job.id.to_string())),
            // Completions are a convenience: those of sessions are given without those of jobs.
            Err(error) => tracing::debug!("cannot complete job IDs: {error}"),
        }
    }
    ids
}
