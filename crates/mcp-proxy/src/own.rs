//! Our own tools, beside those of the child.

use std::sync::Arc;

use agent_team::TeamServices;
use codex_protocol::rpc::RequestId;
use mcp_server::Groups;
use mcp_server::code::Code;
use mcp_server::deliveries::Told;
use mcp_server::error::ToolError;
use mcp_server::status::{self, Calls, Messages, Status};
use mcp_server::tools::jobs::{Called, JobTool};
use mcp_server::tools::team::TeamTool;
use mcp_server::tools::{Name, codex_status};
use rmcp::model::{JsonObject, Tool};
use serde_json::Value;

use crate::logic::Child;
use crate::{Proxy, answers, lock};

/// Those of these groups.
pub(super) fn all(services: &TeamServices, groups: &Groups) -> Vec<Tool> {
    let jobs = JobTool::ALL.map(Name::Job);
    let team = TeamTool::all(services.mail_client.as_ref());
    let team = team.into_iter().map(Name::Team);
    std::iter::once(Name::Status)
        .chain(jobs)
        .chain(team)
        .filter(|name| name.is_in(groups))
        .map(Name::describe)
        .collect()
}

impl Proxy {
    /// Runs a tool of our own, and answers, unless the client does not want that any
    /// more.
    pub(super) async fn run_own(self: Arc<Self>, id: &RequestId, name: &str, arguments: Value) {
        let job_tool = JobTool::ALL.into_iter().find(|tool| tool.as_str() == name);
        let told = match job_tool {
            Some(tool) => self.call_job_tool(tool, arguments).await,
            None => self.call_own(name, arguments).await,
        };
        let (answer, then) = match told {
            Ok(Told { result, then }) => (answers::tool_result(id, &result), then),
            Err(error) => (answers::tool_result(id, &error.into_plain_result()), None),
        };
        if lock(&self.state).router.own_answered(id) {
            self.send_to_client_and(answer, then);
        }
        self.done.notify_waiters();
    }

    async fn call_own(&self, name: &str, arguments: Value) -> Result<Told, ToolError> {
        let given = object(name, arguments)?;
        let services = &self.recorder.services;
        let team = TeamTool::all(services.mail_client.as_ref()).into_iter();
        match team.into_iter().find(|tool| tool.as_str() == name) {
            Some(tool) => tool.call(services, given).await,
            None => Ok(codex_status::call(given, self.status().await)?.into()),
        }
    }

    async fn call_job_tool(&self, tool: JobTool, arguments: Value) -> Result<Told, ToolError> {
        let given = object(tool.as_str(), arguments)?;
        let called = tool.call(&self.jobs, None, given).await?;
        let mut result = match called {
            Called::Answered(answer) => answer,
            Called::Watched(job) => match job.goes_on() {
                Some(goes_on) => tokio::select! {
                    answer = job.answer(&self.jobs) => answer?,
                    () = self.leaving.cancelled() => goes_on,
                },
                None => job.answer(&self.jobs).await?,
            },
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
            member: self.rules.defaults.member().cloned(),
            codex,
            limits: Err("`codex mcp-server` does not tell them".to_owned()),
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

/// The arguments of a call.
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
