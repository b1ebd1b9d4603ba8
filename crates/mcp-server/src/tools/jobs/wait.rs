//! Waits for a job, one second at a time.

use std::time::{Duration, SystemTime};

use codex_engine::logic::progress::CurrentStep;
use job_queue::activity;
use job_queue::logic::JobId;
use job_queue::service::{JobView, Jobs};
use rmcp::model::CallToolResult;
use tokio::time::Instant;

use crate::error::ToolError;

/// The interval of progress reports to a waiting caller.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// The outcome of waiting for a while.
#[derive(Debug)]
pub(crate) enum WaitOutcome<T = CallToolResult> {
    /// The job has ended, or the time to wait is over.
    Over(T),
    /// The job runs, and is at this step, if it is known.
    Running(Option<CurrentStep>),
}

impl<T> WaitOutcome<T> {
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> WaitOutcome<U> {
        match self {
            Self::Over(answer) => WaitOutcome::Over(change(answer)),
            Self::Running(step) => WaitOutcome::Running(step),
        }
    }
}

/// Waits for the end of a job, or for a question, for one second at most.
pub(super) async fn until_ended(
    jobs: &Jobs,
    id: &JobId,
    until: Instant,
) -> Result<WaitOutcome<JobView>, ToolError> {
    let left = until.saturating_duration_since(Instant::now());
    let looked = jobs.view(id, Some(left.min(BETWEEN_LOOKS))).await?;
    let is_asked = !looked.questions.is_empty();
    if looked.job.summary.state.has_ended() || is_asked || Instant::now() >= until {
        return Ok(WaitOutcome::Over(looked));
    }
    let step = activity::current_step(jobs.store().await?, id, SystemTime::now()).await?;
    Ok(WaitOutcome::Running(step))
}
