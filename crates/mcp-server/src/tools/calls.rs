//! Dispatches the call of a tool.

use std::sync::Arc;

use job_queue::service::Jobs;
use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, JsonObject};
use rmcp::service::RequestContext;
use serde::Deserialize;

use super::jobs::{JobCall, JobTool, JobWatch, WaitOutcome};
use super::parameters::{self, Wait};
use super::team::TeamTool;
use super::{ToolName, classic, codex_status, sessions};
use crate::code::Code;
use crate::deliveries::ToolOutcome;
use crate::error::ToolError;
use crate::progress::Progress;
use crate::repeated_call;
use crate::server::Server;
use crate::tasks;

/// The argument of a repeated call that still counts.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Waiting {
    wait_ms: Option<Wait>,
}

impl ToolName {
    /// Answers a call.
    pub(crate) async fn call(
        self,
        server: &Server,
        context: &RequestContext<RoleServer>,
        arguments: JsonObject,
    ) -> Result<CallToolResponse, ToolError> {
        if repeated_call::is_repeated(context) {
            let Waiting { wait_ms } = parameters::arguments(arguments)?;
            let wait = wait_ms.map(|Wait(wait)| wait);
            return server.rejoin_turn(context, wait).await;
        }
        match self {
            Self::Codex => classic::codex::call(server, context, arguments).await,
            Self::CodexReply => classic::codex_reply::call(server, context, arguments).await,
            Self::StartSession => sessions::codex::call(server, context, arguments).await,
            Self::ReplyToSession => sessions::codex_reply::call(server, context, arguments).await,
            Self::Session => sessions::codex_session::call(server, context, arguments).await,
            Self::Check => sessions::codex_check::call(server, context, arguments).await,
            Self::Review => classic::codex_review::call(server, context, arguments).await,
            Self::Status => Ok(codex_status::call(arguments, server.status().await)?.into()),
            Self::Job(tool) => job_tool(server, tool, context, arguments).await,
            Self::Team(tool) => team_tool(server, tool, context, arguments).await,
        }
    }
}

/// Answers a call of a tool of the team.
async fn team_tool(
    server: &Server,
    tool: TeamTool,
    context: &RequestContext<RoleServer>,
    arguments: JsonObject,
) -> Result<CallToolResponse, ToolError> {
    let ToolOutcome { result, then } = tool.call(&server.services, arguments).await?;
    if let Some(then) = then {
        server.deliveries.register(context.id.clone(), then);
    }
    Ok(result.into())
}

/// Answers a call of a tool for jobs.
async fn job_tool(
    server: &Server,
    tool: JobTool,
    context: &RequestContext<RoleServer>,
    arguments: JsonObject,
) -> Result<CallToolResponse, ToolError> {
    let none = || ToolError::new(Code::JobStore, "this server has no store of jobs");
    let jobs = Arc::clone(server.jobs.as_ref().ok_or_else(none)?);
    let client = context.peer.peer_info();
    let client = client.map(|info| info.client_info.name.clone());
    if tool.has_tasks() && tasks::are_taken(context) {
        let of_call = Arc::clone(&jobs);
        let begin = async move { tool.begin(&of_call, client, arguments).await };
        let job = server.run_detached_through_shutdown(context, begin).await?;
        return Ok(CallToolResponse::Task(tasks::created(&jobs, &job).await?));
    }
    let of_call = Arc::clone(&jobs);
    let call = async move { tool.call(&of_call, client, arguments).await };
    let called = match tool.acts() {
        true => server.run_detached_through_shutdown(context, call).await?,
        false => server.wait_for(context, call).await??,
    };
    match called {
        JobCall::Answered(answer) => Ok(answer.into()),
        JobCall::Watched(job) => wait_for_job(server, context, &jobs, &job).await,
    }
}

/// Waits for a job on behalf of a call, and reports its progress.
async fn wait_for_job(
    server: &Server,
    context: &RequestContext<RoleServer>,
    jobs: &Jobs,
    job: &JobWatch,
) -> Result<CallToolResponse, ToolError> {
    let mut progress = Progress::new(context, "waiting for the job");
    loop {
        let waited = job.wait(jobs);
        match server
            .wait_until(context, None, &mut progress, waited)
            .await
        {
            Ok(waited) => match waited? {
                WaitOutcome::Over(answer) => return Ok(answer.into()),
                WaitOutcome::Running(Some(step)) => progress.report(context, &step).await,
                WaitOutcome::Running(None) => {}
            },
            Err(error) => {
                let known = job
                    .still_running()
                    .filter(|_| server.closing.is_cancelled());
                return known.map(CallToolResponse::from).ok_or(error);
            }
        }
    }
}
