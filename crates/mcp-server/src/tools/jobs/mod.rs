//! The tools for work that outlives its client, which both backends have. Names,
//! parameters and results of the first four are those of the program that `call_codex`
//! comes from; `codex_run` has those of the specification of runs.

mod call_cancel;
mod call_codex;
mod call_jobs;
mod call_respond;
mod call_status;
mod codex_run;
mod ids;
mod waited;
mod watch;

use job_queue::order::BadOrder;
use job_queue::service::{Jobs, JobsError, NotTold};
use job_queue::store::StoreError;
use rmcp::model::{CallToolResult, JsonObject, Tool};

use crate::code::Code;
use crate::error::ToolError;
use crate::tools::annotations::Effect;

pub(crate) use waited::Waited;
pub(crate) use watch::Watch;

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

    /// Does what a client wants that calls itself so.
    ///
    /// # Errors
    ///
    /// What was wrong with it, or with the store.
    pub async fn call(
        self,
        jobs: &Jobs,
        client: Option<String>,
        given: JsonObject,
    ) -> Result<Called, ToolError> {
        let answered = match self {
            Self::Codex => call_codex::call(jobs, client, given).await,
            Self::Status => {
                let asked = call_status::ask(jobs, given).await?;
                return Ok(Called::Watched(Watch::Job(asked)));
            }
            Self::Jobs => call_jobs::call(jobs, given).await,
            Self::Cancel => call_cancel::call(jobs, given).await,
            Self::Respond => call_respond::call(jobs, given).await,
            Self::Run => {
                let begun = codex_run::begin(jobs, client, given).await?;
                return Ok(Called::Watched(Watch::Run(begun)));
            }
        };
        answered.map(Called::Answered)
    }

    /// Whether the call changes something, and so has to go on when its caller has
    /// gone.
    pub(crate) fn acts(self) -> bool {
        matches!(self, Self::Codex | Self::Cancel | Self::Respond | Self::Run)
    }
}

/// What has come of a call so far.
#[derive(Debug)]
pub enum Called {
    /// The answer.
    Answered(CallToolResult),
    /// A job whose end may be waited for.
    Watched(Watch),
}

impl From<JobsError> for ToolError {
    fn from(error: JobsError) -> Self {
        match error {
            JobsError::Store(error) => error.into(),
            JobsError::Order(BadOrder::OutOfBounds(error)) => error.into(),
            JobsError::NotFound(_) => Self::new(Code::JobNotFound, error.to_string()),
            JobsError::Thread(error) => error.into(),
            JobsError::Order(_) | JobsError::Ambiguous { .. } => {
                Self::new(Code::InvalidArgument, error.to_string())
            }
            JobsError::NotTold(error) => error.into(),
            JobsError::Audit(_) => Self::new(Code::TeamFiles, error.to_string()),
        }
    }
}

impl From<NotTold> for ToolError {
    fn from(error: NotTold) -> Self {
        let code = match error {
            NotTold::NotRunning(_) | NotTold::Ended => Code::JobEnded,
            NotTold::NotTaken | NotTold::Unknown => Code::JobStoreAway,
            NotTold::Json(_) => Code::Internal,
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
