//! The tools for work that outlives its client, which both backends have. The first four have the
//! names, parameters and results of the program that `call_codex` comes from, and `codex_run` those
//! of the specification of runs.

mod call_cancel;
mod call_codex;
pub(crate) mod call_jobs;
mod call_respond;
mod call_status;
mod codex_run;
mod ids;
mod wait;
mod watch;

use job_queue::job_json;
use job_queue::logic::{JobId, JobState};
use job_queue::service::{InstructError, Jobs, JobsError};
use job_queue::spec::BadJobSpec;
use job_queue::store::{Job, StoreError};
use rmcp::model::{CallToolResult, JsonObject, Tool};

use crate::code::Code;
use crate::error::ToolError;
use crate::tools::annotations::Effect;
use crate::tools::schema::answer;

pub(crate) use wait::WaitOutcome;
pub(crate) use watch::JobWatch;

/// The tools whose effect outlives the server and must not happen twice: they begin work, or send
/// Codex something.
pub const LASTING: [&str; 3] = [call_codex::NAME, call_respond::NAME, codex_run::NAME];

/// The error text for a call of one of these tools that was open when its host ended.
pub(super) const LOST: &str =
    "the host process ended before it answered this call, which may have had its effect";

/// A tool for jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobTool {
    /// `call_codex`.
    Codex,
    /// `call_status`.
    Status,
    /// `call_jobs`.
    Jobs,
    /// `call_cancel`.
    Cancel,
    /// `call_respond`.
    Respond,
    /// `codex_run`.
    Run,
}

impl JobTool {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Codex,
        Self::Status,
        Self::Jobs,
        Self::Cancel,
        Self::Respond,
        Self::Run,
    ];

    /// The name of the tool.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Codex => call_codex::NAME,
            Self::Status => call_status::NAME,
            Self::Jobs => call_jobs::NAME,
            Self::Cancel => call_cancel::NAME,
            Self::Respond => call_respond::NAME,
            Self::Run => codex_run::NAME,
        }
    }

    pub(crate) fn describe(self) -> Tool {
        match self {
            Self::Codex => call_codex::describe(),
            Self::Status => call_status::describe(),
            Self::Jobs => call_jobs::describe(),
            Self::Cancel => call_cancel::describe(),
            Self::Respond => call_respond::describe(),
            Self::Run => codex_run::describe(),
        }
    }

    pub(crate) fn effect(self) -> Effect {
        match self {
            Self::Codex | Self::Respond | Self::Run => Effect::Works,
            Self::Status | Self::Jobs => Effect::Looks,
            Self::Cancel => Effect::Ends,
        }
    }

    /// Answers the call of a client with this name.
    ///
    /// # Errors
    ///
    /// [`ToolError`] for wrong arguments, or a failure of the store.
    pub async fn call(
        self,
        jobs: &Jobs,
        client: Option<String>,
        given: JsonObject,
    ) -> Result<JobCall, ToolError> {
        let answered = match self {
            Self::Codex => call_codex::call(jobs, client, given).await,
            Self::Status => {
                let query = call_status::query(jobs, given).await?;
                return Ok(JobCall::Watched(JobWatch::Job(query)));
            }
            Self::Jobs => call_jobs::call(jobs, given).await,
            Self::Cancel => call_cancel::call(jobs, given).await,
            Self::Respond => call_respond::call(jobs, given).await,
            Self::Run => {
                let run = codex_run::begin(jobs, client, given).await?;
                return Ok(JobCall::Watched(JobWatch::Run(run)));
            }
        };
        answered.map(JobCall::Answered)
    }

    /// Submits the job of a call that is answered by a task, if the tool has such calls.
    pub(crate) async fn begin(
        self,
        jobs: &Jobs,
        client: Option<String>,
        given: JsonObject,
    ) -> Result<JobId, ToolError> {
        match self {
            Self::Run => {
                let run = codex_run::begin(jobs, client, given).await?;
                Ok(run.job().clone())
            }
            _ => call_codex::begin(jobs, client, given).await,
        }
    }

    /// Whether a call may be answered by a task.
    pub(crate) fn has_tasks(self) -> bool {
        match self {
            Self::Codex | Self::Run => true,
            Self::Status | Self::Jobs | Self::Cancel | Self::Respond => false,
        }
    }

    /// Whether the call changes something, and so has to be completed even if its caller has gone.
    pub(crate) fn acts(self) -> bool {
        match self {
            Self::Codex | Self::Cancel | Self::Respond | Self::Run => true,
            Self::Status | Self::Jobs => false,
        }
    }
}

/// The result of a call that was answered by a task, once its job has ended: of a run as
/// `codex_run` answers, of any other job its record.
pub(crate) fn result_of_task(job: &Job) -> CallToolResult {
    if let Some(result) = codex_run::result_of(job) {
        return result;
    }
    let mut result = answer(job_json::record(job, &[]));
    result.is_error = Some(job.summary.state == JobState::Failed);
    result
}

/// The result of a call so far.
#[derive(Debug)]
pub enum JobCall {
    /// The answer.
    Answered(CallToolResult),
    /// A job whose end may be awaited.
    Watched(JobWatch),
}

impl From<JobsError> for ToolError {
    fn from(error: JobsError) -> Self {
        match error {
            JobsError::Store(error) => error.into(),
            JobsError::Spec(BadJobSpec::OutOfBounds(error)) => error.into(),
            // The hint of the code has the remedy that the message of the specification ends with.
            JobsError::Spec(BadJobSpec::NoCodex(error)) => {
                Self::new(Code::CodexNotFound, error.to_string())
            }
            // As where the worker finds that out.
            JobsError::Spec(BadJobSpec::NoWriteAccess(error)) => {
                Self::new(Code::CouldNotRun, error.to_string())
            }
            JobsError::NotFound(_) => Self::new(Code::JobNotFound, error.to_string()),
            JobsError::Thread(error) => error.into(),
            JobsError::Spec(_) | JobsError::Ambiguous { .. } => {
                Self::new(Code::InvalidArgument, error.to_string())
            }
            JobsError::SubmissionUnclear { .. } | JobsError::InstructionUnclear { .. } => {
                Self::new(Code::JobUnclear, error.to_string())
            }
            JobsError::Instruct(error) => error.into(),
            JobsError::Audit(_) => Self::new(Code::TeamFiles, error.to_string()),
        }
    }
}

impl From<InstructError> for ToolError {
    fn from(error: InstructError) -> Self {
        let code = match error {
            InstructError::NotRunning(_) | InstructError::Ended => Code::JobEnded,
            InstructError::NotTaken => Code::JobStoreAway,
            InstructError::Unknown => Code::JobUnclear,
            InstructError::Json(_) => Code::Internal,
            InstructError::OutOfBounds(_) => Code::OutOfBounds,
            _ => Code::InvalidArgument,
        };
        Self::new(code, error.to_string())
    }
}

impl From<StoreError> for ToolError {
    fn from(error: StoreError) -> Self {
        let code = match error {
            StoreError::TooLong { .. } | StoreError::OfOthers { .. } => Code::InvalidArgument,
            _ if error.is_retryable() => Code::JobStoreAway,
            _ => Code::JobStore,
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use codex_engine::binary::NoCodex;
    use goal_run::{Caller, NoWriteAccess, ReadOnlyCause};

    use super::*;
    use crate::error::ErrorNames;

    fn is_retryable(error: JobsError) -> bool {
        let object = ToolError::from(error).object(ErrorNames::Own);
        assert_eq!(object["code"], "JOB_STORE");
        object["retryable"] == true
    }

    #[test]
    fn call_that_may_have_had_its_effect_is_not_retryable() {
        let lost = || StoreError::AnswerLost {
            store: "a".to_owned(),
            error: "b".to_owned(),
        };
        let away = StoreError::Unreachable {
            store: "a".to_owned(),
            error: "b".to_owned(),
        };
        let job = JobId::from_random(0);
        let cases: [(JobsError, bool); 5] = [
            (away.into(), true),
            (InstructError::NotTaken.into(), true),
            (InstructError::Unknown.into(), false),
            (
                JobsError::SubmissionUnclear {
                    job: job.clone(),
                    error: lost(),
                },
                false,
            ),
            (JobsError::InstructionUnclear { job, error: lost() }, false),
        ];
        for (error, expected) in cases {
            let words = error.to_string();
            assert_eq!(is_retryable(error), expected, "{words}");
        }
    }

    #[test]
    fn missing_codex_has_its_own_code() {
        let error = JobsError::from(BadJobSpec::from(NoCodex::NotOnPath));
        let object = ToolError::from(error).object(ErrorNames::Own);
        assert_eq!(object["code"], "CODEX_NOT_FOUND");
        assert_eq!(object["message"], "no `codex` found on PATH");
    }

    #[test]
    fn read_only_run_has_the_code_of_runs_that_could_not_begin() {
        let error = NoWriteAccess {
            cause: ReadOnlyCause::Setting("sandbox of the call".to_owned()),
            caller: Caller::Client,
        };
        let error = ToolError::from(JobsError::from(BadJobSpec::from(error)));
        assert_eq!(error.object(ErrorNames::Own)["code"], "COULD_NOT_RUN");
        assert!(
            error
                .message()
                .ends_with("use `sandbox: \"workspace-write\"`")
        );
    }
}
