//! `call_codex`: submits a task as a job.

use std::path::PathBuf;
use std::time::Duration;

use codex_config::profile::ProfileName;
use codex_protocol::codex::{Effort, SandboxMode, ThreadId};
use goal_run::logic::machine::milliseconds;
use goal_run::logic::notifier::Notifier;
use job_queue::call_settings::Approval;
use job_queue::logic::JobId;
use job_queue::service::{Jobs, Submission};
use job_queue::spec::{Continuation, JobSpec, TIMEOUT};
use rmcp::model::{CallToolResult, JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::ids::ThreadIdArgument;
use crate::code::Code;
use crate::error::ToolError;
use crate::tools::output_schema::OutputSchema;
use crate::tools::parameters::{Count, TimeLimit, arguments};
use crate::tools::schema::{OneOf, answer, input, output, tool};

pub(super) const NAME: &str = "call_codex";

/// How long a question of a call that is answered by a task stays open by default. Clients do not
/// look at a task while they show its dialog, so a yes to a question that was declined meanwhile
/// would be lost; but an open question keeps one of the worker's places for jobs.
const TASK_QUESTION_LIMIT: Duration = Duration::from_secs(60 * 60);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    prompt: String,
    cwd: PathBuf,
    task_name: Option<String>,
    model: Option<String>,
    resume_session_id: Option<ThreadIdArgument>,
    /// Latest job of cwd.
    continue_latest: Option<bool>,
    #[schemars(extend("default" = milliseconds(TIMEOUT)))]
    timeout_ms: Option<TimeLimit>,
    tool_timeout_ms: Option<TimeLimit>,
    expose_stream: Option<bool>,
    fire_and_forget: Option<bool>,
    /// Default: configured, else workspace-write.
    #[schemars(with = "Option<OneOf<SandboxMode>>")]
    sandbox: Option<SandboxMode>,
    #[schemars(with = "Option<String>")]
    effort: Option<Effort>,
    #[schemars(with = "Option<String>")]
    profile: Option<ProfileName>,
    images: Option<Vec<String>>,
    output_schema: Option<OutputSchema>,
    config: Option<Map<String, Value>>,
    add_dirs: Option<Vec<PathBuf>>,
    network: Option<bool>,
    #[schemars(with = "Option<OneOf<Approval>>")]
    approval: Option<Approval>,
    approval_timeout_ms: Option<TimeLimit>,
    #[schemars(with = "Option<Vec<String>>")]
    notify: Option<Vec<Notifier>>,
    retry: Option<Count>,
}

pub(super) fn describe() -> Tool {
    let description = "Use to hand Codex a task that continues after this client exits. Returns \
{job_id} at once; poll with call_status. approval ask: call_respond answers its questions.";
    let answer = output(json!({ "status": "string", "job_id": "string" }));
    tool(NAME, "Call Codex", description, input::<Arguments>()).with_raw_output_schema(answer)
}

pub(super) async fn call(
    jobs: &Jobs,
    client: Option<String>,
    given: JsonObject,
) -> Result<CallToolResult, ToolError> {
    let given: Arguments = arguments(given)?;
    let is_forgotten = given.fire_and_forget.unwrap_or_default();
    let submitted = submit(jobs, client, given).await?;
    Ok(answer(json!({
        "status": "queued",
        "job_id": submitted.job,
        "message": message(&submitted, is_forgotten),
    })))
}

/// Submits the job of a call that is answered by a task.
pub(super) async fn begin(
    jobs: &Jobs,
    client: Option<String>,
    given: JsonObject,
) -> Result<JobId, ToolError> {
    let mut given: Arguments = arguments(given)?;
    if given.approval == Some(Approval::Ask) {
        let limit = given.approval_timeout_ms;
        given.approval_timeout_ms = limit.or(Some(TimeLimit(TASK_QUESTION_LIMIT)));
    }
    let submitted = submit(jobs, client, given).await?;
    Ok(submitted.job)
}

async fn submit(
    jobs: &Jobs,
    client: Option<String>,
    mut given: Arguments,
) -> Result<Submission, ToolError> {
    let session = match given.resume_session_id.take() {
        // A whole ID is not looked up here: the thread may be on the machine that runs the job.
        Some(ThreadIdArgument(prefix)) => Some(match prefix.whole() {
            Some(session) => session,
            None => jobs.thread(prefix).await?,
        }),
        None => None,
    };
    Ok(jobs.submit(given.into_order(client, session)?).await?)
}

fn message(submitted: &Submission, is_forgotten: bool) -> String {
    let Submission { job, no_worker, .. } = submitted;
    match no_worker {
        Some(why) => format!(
            "Job queued, but it waits: {why}. `codex-mcp worker` runs one by hand; call_status \
             tries again to start one."
        ),
        None if is_forgotten => "Job queued. Nobody has to wait for it.".to_owned(),
        None => format!(
            "Job queued. call_status with job_id {job} and wait_ms 50000 answers when it is done."
        ),
    }
}

impl Arguments {
    fn into_order(
        self,
        client: Option<String>,
        session: Option<ThreadId>,
    ) -> Result<JobSpec, ToolError> {
        let continuation = match (session, self.continue_latest) {
            (Some(_), Some(true)) => {
                let why = "resume_session_id and continue_latest cannot be used together";
                return Err(ToolError::new(Code::InvalidArgument, why));
            }
            (Some(session), _) => Continuation::Session(session),
            (None, Some(true)) => Continuation::Latest,
            (None, _) => Continuation::None,
        };
        let spec = JobSpec::new(self.prompt, self.cwd);
        let retry = self.retry.map_or(0, |Count(count)| count);
        Ok(JobSpec {
            client,
            task_name: self.task_name,
            continuation,
            model: self.model,
            sandbox: self.sandbox,
            effort: self.effort,
            profile: self.profile,
            images: self.images.unwrap_or_default(),
            output_schema: self.output_schema.map(|OutputSchema(schema)| schema),
            timeout: self.timeout_ms.map_or(spec.timeout, |TimeLimit(time)| time),
            tool_timeout: self.tool_timeout_ms.map(|TimeLimit(time)| time),
            config: self.config.unwrap_or_default(),
            add_dirs: self.add_dirs.unwrap_or_default(),
            network: self.network,
            approval: self.approval.unwrap_or_default(),
            approval_timeout: self.approval_timeout_ms.map(|TimeLimit(time)| time),
            notify: self.notify.unwrap_or_default(),
            expose_stream: self.expose_stream.unwrap_or_default(),
            fire_and_forget: self.fire_and_forget.unwrap_or_default(),
            retry: u32::try_from(retry).unwrap_or(u32::MAX),
            ..spec
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_schema_that_is_no_schema_is_refused() {
        let read = |schema: Value| {
            let given = json!({ "prompt": "work", "cwd": "/", "output_schema": schema });
            arguments::<Arguments>(given.as_object().cloned().unwrap())
        };
        assert!(read(json!({ "type": "object" })).is_ok());
        let refused = read(json!({ "type": "text" })).unwrap_err().text();
        assert!(
            refused.contains("output_schema: is not a JSON Schema: type"),
            "{refused}"
        );
    }
}
