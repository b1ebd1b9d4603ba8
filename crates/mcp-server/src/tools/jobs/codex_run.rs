//! `codex_run`: turns of Codex until all criteria are met.

use std::path::PathBuf;
use std::time::Duration;

use codex_config::profile::ProfileName;
use codex_engine::EngineError;
use codex_protocol::codex::{Effort, SandboxMode, ThreadId};
use goal_run::Caller;
use goal_run::logic::criteria::Criteria;
use goal_run::logic::machine::{
    BadLimits, Limits, MAX_TURNS, RawLimits, STALL_AFTER, TOTAL_LIMIT, TURN_LIMIT, milliseconds,
};
use goal_run::logic::notifier::Notifier;
use goal_run::logic::snapshot::Preexisting;
use goal_run::spec::{Approve, RunSpec, WorkspaceMode};
use job_queue::job_json;
use job_queue::logic::JobId;
use job_queue::run::result;
use job_queue::run::spec::RunJobSpec;
use job_queue::service::{JobView, Jobs};
use job_queue::store::Job;
use rmcp::model::{CallToolResult, JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use strum::VariantNames;
use tokio::time::Instant;

use super::ids::ThreadIdArgument;
use super::wait::{WaitOutcome, until_ended};
use crate::code::Code;
use crate::error::ToolError;
use crate::tools::parameters::{Count, Wait, arguments};
use crate::tools::schema::{OneOf, answer, input, output, tool};

pub(super) const NAME: &str = job_queue::run::spec::TOOL;

/// The default time to wait for the end: some clients end a call after a minute.
const WAIT: Duration = Duration::from_secs(50);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    task: String,
    /// Default: the server's directory.
    repo: Option<PathBuf>,
    #[schemars(with = "Option<CriteriaSchema>")]
    exit_criteria: Option<Criteria>,
    #[schemars(extend("default" = MAX_TURNS))]
    max_turns: Option<Count>,
    #[schemars(extend("default" = milliseconds(TURN_LIMIT)))]
    turn_timeout_ms: Option<Count>,
    #[schemars(extend("default" = milliseconds(TOTAL_LIMIT)))]
    total_timeout_ms: Option<Count>,
    #[schemars(extend("default" = STALL_AFTER))]
    stall_after: Option<Count>,
    max_tokens: Option<Count>,
    allow_preexisting: Option<bool>,
    thread_id: Option<ThreadIdArgument>,
    worktree: Option<bool>,
    model: Option<String>,
    #[schemars(with = "Option<OneOf<SandboxMode>>")]
    sandbox: Option<SandboxMode>,
    #[schemars(with = "Option<String>")]
    effort: Option<Effort>,
    #[schemars(with = "Option<String>")]
    profile: Option<ProfileName>,
    #[schemars(with = "Option<OneOf<Approval>>")]
    approve: Option<Approval>,
    /// mail:AGENT, irc://…, desktop, webhook:URL, ntfy:TOPIC, command:PROGRAM
    #[schemars(with = "Option<Vec<String>>")]
    notify: Option<Vec<Notifier>>,
    task_name: Option<String>,
    retry: Option<Count>,
    #[schemars(extend("default" = milliseconds(WAIT)))]
    wait_ms: Option<Wait>,
}

// The schema of the criteria. Most can be one value or several; this is the most useful form.
/// All must hold. If none: Codex executed something and says it is done.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct CriteriaSchema {
    /// Globs of new or changed files.
    files: Option<Vec<String>>,
    /// N new, or "N@BRANCH".
    #[schemars(extend("type" = ["integer", "string"]))]
    commits: Option<String>,
    branch: Option<String>,
    pushed: Option<bool>,
    pr: Option<bool>,
    /// OWNER/REPO#N
    issue_comment: Option<String>,
    clean: Option<bool>,
    /// Exits with 0; unsandboxed.
    command: Option<String>,
    review: Option<bool>,
    diff_within: Option<Vec<String>>,
}

/// The answer to Codex's questions, as nobody can be asked.
#[derive(Debug, Clone, Copy, Deserialize, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
enum Approval {
    Never,
    Always,
}

pub(super) fn describe() -> Tool {
    let description = "Use when the result must exist in the repository: Codex works turn after turn \
until exit_criteria hold. Returns {ok, artifacts, evidence, turns, reason, partial, missing, \
usage}; after wait_ms {status, job_id} for call_status. Continues after the call returns; \
call_cancel cancels it.";
    let answer = output(json!({
        "ok?": "boolean",
        "status": "string",
        "job_id": "string",
        "thread_id?": ["string", "null"],
    }));
    tool(NAME, "Run Until Done", description, input::<Arguments>()).with_raw_output_schema(answer)
}

/// A submitted run, and the time until which the call waits for its end.
#[derive(Debug)]
pub struct StartedRun {
    job: JobId,
    until: Instant,
}

/// Submits the run, which then continues without the client.
pub(super) async fn begin(
    jobs: &Jobs,
    client: Option<String>,
    given: JsonObject,
) -> Result<StartedRun, ToolError> {
    let mut given: Arguments = arguments(given)?;
    let wait = given.wait_ms.map_or(WAIT, |Wait(wait)| wait);
    let thread = match given.thread_id.take() {
        Some(ThreadIdArgument(prefix)) => Some(jobs.thread(prefix).await?),
        None => None,
    };
    let submitted = jobs.submit_run(given.into_order(client, thread)?).await?;
    Ok(StartedRun {
        job: submitted.job,
        until: Instant::now() + wait,
    })
}

/// The result of a run that has ended.
pub(super) fn result_of(job: &Job) -> Option<CallToolResult> {
    let result = result::of(job)?;
    Some(match error_of(&result) {
        Some(error) => error.into_result_with(result),
        None => answer(result),
    })
}

impl StartedRun {
    /// The job that is the run.
    pub(super) fn job(&self) -> &JobId {
        &self.job
    }

    /// Waits for the end for one second at most. Dropping the future loses nothing.
    pub(super) async fn wait(&self, jobs: &Jobs) -> Result<WaitOutcome, ToolError> {
        let id = &self.job;
        let waited = until_ended(jobs, id, self.until).await.map_err(|error| {
            let note = format!("the run is job {id} (call_status), but its state cannot be read");
            error.with_note(&note)
        })?;
        Ok(waited.map(|looked| self.result_so_far(looked)))
    }

    fn result_so_far(&self, JobView { job, no_worker, .. }: JobView) -> CallToolResult {
        if let Some(result) = result_of(&job) {
            return result;
        }
        let message = match (no_worker, job_json::waiting(&job.summary)) {
            (None, Some(wait)) => format!("The run {wait}. {}", self.message()),
            (Some(why), _) => format!(
                "The run waits: {why}. `codex-mcp worker` runs a worker by hand; call_status \
                 tries again to start one."
            ),
            (None, None) => self.message(),
        };
        answer(json!({
            "status": job.summary.state,
            "job_id": self.job,
            "thread_id": job.summary.session_id,
            "message": message,
        }))
    }

    /// The answer when the call no longer waits.
    pub(super) fn still_running(&self) -> CallToolResult {
        let message = self.message();
        answer(json!({ "status": "running", "job_id": self.job, "message": message }))
    }

    fn message(&self) -> String {
        let id = &self.job;
        format!(
            "The run continues in the background. call_status with job_id {id} and wait_ms 50000 \
             returns when it has ended; tail adds what Codex does. call_cancel cancels it."
        )
    }
}

/// The error of a run that could not begin or lost its worker.
fn error_of(result: &Value) -> Option<ToolError> {
    let why = result.get("why").and_then(Value::as_str);
    let why = why.unwrap_or_default();
    let code = match result.get("reason").and_then(Value::as_str)? {
        "worker_lost" => Code::WorkerLost,
        "could_not_run" if why == EngineError::NoLogin.to_string() => Code::Unauthorized,
        "could_not_run" => Code::CouldNotRun,
        _ => return None,
    };
    Some(ToolError::new(code, why))
}

impl Arguments {
    fn into_order(
        self,
        client: Option<String>,
        thread: Option<ThreadId>,
    ) -> Result<RunJobSpec, ToolError> {
        let limits = self.limits()?;
        let mut run = RunSpec::new(self.task, self.repo.unwrap_or_else(|| ".".into()));
        run.limits = limits;
        run.criteria = self.exit_criteria.unwrap_or_default();
        if self.allow_preexisting.unwrap_or_default() {
            run.preexisting = Preexisting::Counts;
        }
        run.thread = thread;
        if self.worktree.unwrap_or_default() {
            run.workspace = WorkspaceMode::Worktree;
        }
        let settings = &mut run.settings;
        settings.thread.model = self.model;
        settings.thread.sandbox = self.sandbox;
        settings.model_options.effort = self.effort;
        settings.profile = self.profile;
        run.approve = match self.approve {
            None | Some(Approval::Never) => Approve::Never,
            Some(Approval::Always) => Approve::Always,
        };
        run.notify = self.notify.unwrap_or_default();
        let retry = self.retry.map_or(0, |Count(count)| count);
        Ok(RunJobSpec {
            caller: Caller::of_client(client.as_deref()),
            client,
            task_name: self.task_name,
            retry: u32::try_from(retry).unwrap_or(u32::MAX),
            ..RunJobSpec::new(run)
        })
    }

    fn limits(&self) -> Result<Limits, ToolError> {
        let count = |given: Option<Count>| given.map(|Count(count)| count);
        let small = |given: Option<Count>| {
            count(given).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
        };
        let limits = Limits::try_from(RawLimits {
            max_turns: small(self.max_turns),
            turn_timeout_ms: count(self.turn_timeout_ms),
            total_timeout_ms: count(self.total_timeout_ms),
            stall_after: small(self.stall_after),
            max_tokens: count(self.max_tokens),
        });
        let wrong = |why: BadLimits| {
            let unit = if why.is_about_time() { "_ms" } else { "" };
            let message = format!("{}{unit}: {why}", why.limit());
            ToolError::new(Code::InvalidArgument, message)
        };
        limits.map_err(wrong)
    }
}
