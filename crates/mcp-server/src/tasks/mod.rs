//! MCP Tasks (`io.modelcontextprotocol/tasks`, SEP-2663): calls whose results are fetched later.
//!
//! A caller that declares the extension gets a task from [`call_codex` and `codex_run`](job_tasks),
//! and, if a host process serves it, from the [calls that wait for a turn](turn_tasks). Other
//! callers get the usual answers.

mod job_tasks;
mod notifications;
mod record;
mod request;
mod state;
mod subscriptions;
mod turn_tasks;

use rmcp::model::{CallToolResult, DetailedTask, InputResponses, JsonObject};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::Value;

use crate::server::Server;

pub(crate) use job_tasks::created;
pub(crate) use record::TaskKey;
pub use request::{AskedHost, OtherHosts, TaskAct, TaskAnswer, TaskRequest};
pub use subscriptions::TaskSubscriptions;
pub use turn_tasks::SessionTasks;
pub(crate) use turn_tasks::{EarlierTask, NewTask};

/// How often a client should look at a task, in milliseconds.
const POLL_INTERVAL: u64 = 1000;

/// The member of a tool's result that states that the result is complete.
const RESULT_TYPE: &str = "resultType";

/// Whether the caller of this request takes a task for an answer.
pub(crate) fn are_taken(context: &RequestContext<RoleServer>) -> bool {
    let capabilities = context.client_capabilities();
    capabilities.is_some_and(|capabilities| capabilities.supports_tasks())
}

impl Server {
    /// The state of a task.
    pub(crate) async fn task(&self, id: &str) -> Result<DetailedTask, ErrorData> {
        match self.act_on_session_task(id, TaskAct::Get).await {
            Some(Ok(TaskAnswer::State(task))) => Ok(*task),
            Some(Ok(TaskAnswer::Failed(error)) | Err(error)) => Err(error),
            Some(Ok(TaskAnswer::Done)) => Err(internal("unexpected answer of the host process")),
            None => self.state_of_job(id).await,
        }
    }

    /// Answers the questions of a task.
    pub(crate) async fn answer_task(
        &self,
        id: &str,
        responses: InputResponses,
    ) -> Result<(), ErrorData> {
        let act = TaskAct::Answer {
            responses: responses.clone(),
            bound: self.bounds.sandbox_escape_bound().map(|it| it.to_string()),
        };
        match self.act_on_session_task(id, act).await {
            Some(answered) => done(answered),
            None => self.answer_job(id, responses).await,
        }
    }

    /// Ends a task.
    pub(crate) async fn end_task(&self, id: &str) -> Result<(), ErrorData> {
        match self.act_on_session_task(id, TaskAct::Cancel).await {
            Some(answered) => done(answered),
            None => self.end_job(id).await,
        }
    }

    async fn act_on_session_task(
        &self,
        id: &str,
        act: TaskAct,
    ) -> Option<Result<TaskAnswer, ErrorData>> {
        let request = TaskRequest {
            task: id.to_owned(),
            act,
        };
        self.tasks.as_ref()?.act(request).await
    }
}

fn done(answered: Result<TaskAnswer, ErrorData>) -> Result<(), ErrorData> {
    match answered? {
        TaskAnswer::Failed(error) => Err(error),
        TaskAnswer::Done | TaskAnswer::State(_) => Ok(()),
    }
}

/// The result of a tool as an object, marked as complete.
fn whole(result: &CallToolResult) -> Result<JsonObject, ErrorData> {
    let Value::Object(mut result) = serde_json::to_value(result).map_err(internal)? else {
        return Err(internal("a result is no object"));
    };
    result.insert(RESULT_TYPE.to_owned(), "complete".into());
    Ok(result)
}

fn unknown() -> ErrorData {
    ErrorData::invalid_params("there is no such task", None)
}

fn internal(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}
