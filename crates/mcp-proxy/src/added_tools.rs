//! The tools that the proxy adds to those of the child.

use std::sync::Arc;

use agent_team::TeamServices;
use codex_protocol::rpc::RequestId;
use common::sync::lock;
use mcp_server::Groups;
use mcp_server::code::Code;
use mcp_server::deliveries::ToolOutcome;
use mcp_server::error::ToolError;
use mcp_server::status::{self, Calls, Messages, Status};
use mcp_server::tools::jobs::{JobCall, JobTool};
use mcp_server::tools::team::TeamTool;
use mcp_server::tools::{ToolName, codex_status};
use rmcp::model::{JsonObject, Tool};
use serde_json::Value;

use crate::answers;
use crate::logic::Child;
use crate::proxy::Proxy;

/// The tools of these groups.
pub(super) fn all(services: &TeamServices, groups: &Groups) -> Vec<Tool> {
    let jobs = JobTool::ALL.map(ToolName::Job);
    let team = TeamTool::all(services.mail_client.as_ref());
    let team = team.into_iter().map(ToolName::Team);
    std::iter::once(ToolName::Status)
        .chain(jobs)
        .chain(team)
        .filter(|name| name.is_in(groups))
        .map(ToolName::describe)
        .collect()
}

impl Proxy {
    /// Runs one of our own tools, and answers the call unless the client has cancelled it.
    pub(super) async fn run_own_tool(
        self: Arc<Self>,
        id: &RequestId,
        name: &str,
        arguments: Value,
    ) {
        let job_tool = JobTool::ALL.into_iter().find(|tool| tool.as_str() == name);
        let outcome = match job_tool {
            Some(tool) => self.call_job_tool(id, tool, arguments).await,
            None => self.call_other_tool(name, arguments).await,
        };
        let (answer, then) = match outcome {
            Ok(ToolOutcome { result, then }) => (answers::tool_result(id, &result), then),
            Err(error) => (answers::tool_result(id, &error.into_plain_result()), None),
        };
        if lock(&self.state).router.finish_own_call(id) {
            self.send_to_client_then(answer, then);
        }
        self.answered.notify_waiters();
    }

    async fn call_other_tool(
        &self,
        name: &str,
        arguments: Value,
    ) -> Result<ToolOutcome, ToolError> {
        let given = object(name, arguments)?;
        let services = &self.recorder.services;
        let team = TeamTool::all(services.mail_client.as_ref()).into_iter();
        match team.into_iter().find(|tool| tool.as_str() == name) {
            Some(tool) => tool.call(services, given).await,
            None => Ok(codex_status::call(given, self.status().await)?.into()),
        }
    }

    async fn call_job_tool(
        &self,
        id: &RequestId,
        tool: JobTool,
        arguments: Value,
    ) -> Result<ToolOutcome, ToolError> {
        let given = object(tool.as_str(), arguments)?;
        let called = tool.call(&self.jobs, None, given).await?;
        let mut result = match called {
            JobCall::Answered(answer) => answer,
            JobCall::Watched(job) => {
                let left = async {
                    self.leaving.cancelled().await;
                    job.still_running()
                };
                tokio::select! {
                    answer = job.answer(&self.jobs) => answer?,
                    Some(still_running) = left => still_running,
                    () = self.wait_until(|router| !router.is_wanted(id)) => {
                        return Err(ToolError::new(Code::Cancelled, "the call was cancelled"));
                    }
                }
            }
        };
        self.warnings.attach(&mut result, || None);
        Ok(result.into())
    }

    async fn status(&self) -> Status {
        let pending_mail = self.recorder.services.pending_mail().await;
        let active_threads = self.recorder.services.active_threads().await;
        let state = lock(&self.state);
        let counts = state.router.counts();
        let codex = match state.router.child() {
            Child::Starting => status::Codex::Starting,
            Child::Ready { version } => status::Codex::Ready {
                version: version.clone(),
            },
            Child::Gone(how) => status::Codex::Gone {
                reason: format!("codex mcp-server {how}"),
            },
        };
        Status {
            backend: "mcp-server",
            member: self.augmenter.defaults.member().cloned(),
            codex,
            limits: Err("`codex mcp-server` does not report them".to_owned()),
            last_exit: None,
            uptime: self.started.elapsed(),
            calls: Calls {
                total: counts.calls,
                in_flight: counts.in_flight,
            },
            active_threads: active_threads.unwrap_or(counts.active_threads),
            open_questions: counts.questions,
            pending_mail,
            messages: Some(Messages {
                from_client: counts.from_client,
                from_codex: counts.from_child,
            }),
            warnings: self.warnings.all(),
        }
    }
}

/// The arguments of a call, which have to be an object.
fn object(tool: &str, arguments: Value) -> Result<JsonObject, ToolError> {
    match arguments {
        Value::Object(given) => Ok(given),
        Value::Null => Ok(JsonObject::new()),
        _ => {
            let message = format!("the arguments of {tool} must be an object");
            Err(ToolError::new(Code::InvalidArgument, message))
        }
    }
}
