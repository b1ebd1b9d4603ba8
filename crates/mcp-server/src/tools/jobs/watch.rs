//! Waiting for the end of a job on behalf of a call.

use job_queue::service::Jobs;
use rmcp::model::CallToolResult;

use super::call_status::Asked;
use super::codex_run::Begun;
use super::waited::Waited;
use crate::error::ToolError;

/// A job whose end a call waits for.
#[derive(Debug)]
pub enum Watch {
    /// A run that the call has begun.
    Run(Begun),
    /// A job that the call asks about.
    Job(Asked),
}

impl Watch {
    /// Waits for a second at most.
    pub(crate) async fn wait(&self, jobs: &Jobs) -> Result<Waited, ToolError> {
        match self {
            Self::Run(run) => run.wait(jobs).await,
            Self::Job(asked) => asked.wait(jobs).await,
        }
    }

    /// Waits until there is an answer.
    pub async fn answer(&self, jobs: &Jobs) -> Result<CallToolResult, ToolError> {
        loop {
            if let Waited::Over(answer) = self.wait(jobs).await? {
                return Ok(answer);
            }
        }
    }

    /// The answer where the server ends: who pipes calls into a server gets to know what
    /// the run is called.
    pub fn goes_on(&self) -> Option<CallToolResult> {
        match self {
            Self::Run(run) => Some(run.goes_on()),
            Self::Job(_) => None,
        }
    }
}
