//! Waits for the end of a job on behalf of a call.

use job_queue::service::Jobs;
use rmcp::model::CallToolResult;

use super::call_status::StatusQuery;
use super::codex_run::StartedRun;
use super::wait::WaitOutcome;
use crate::error::ToolError;

/// A job whose end a call waits for.
#[derive(Debug)]
pub enum JobWatch {
    /// A run that the call has begun.
    Run(StartedRun),
    /// A job whose status the call asks for.
    Job(StatusQuery),
}

impl JobWatch {
    /// Waits for one second at most.
    pub(crate) async fn wait(&self, jobs: &Jobs) -> Result<WaitOutcome, ToolError> {
        match self {
            Self::Run(run) => run.wait(jobs).await,
            Self::Job(asked) => asked.wait(jobs).await,
        }
    }

    /// Waits until there is an answer.
    pub async fn answer(&self, jobs: &Jobs) -> Result<CallToolResult, ToolError> {
        loop {
            if let WaitOutcome::Over(answer) = self.wait(jobs).await? {
                return Ok(answer);
            }
        }
    }

    /// The answer when the server ends: a caller that pipes calls into a server learns the ID of
    /// the run.
    pub fn still_running(&self) -> Option<CallToolResult> {
        match self {
            Self::Run(run) => Some(run.still_running()),
            Self::Job(_) => None,
        }
    }
}
