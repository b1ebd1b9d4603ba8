//! Waiting for a job, a second at a time.

use std::time::{Duration, SystemTime};

use codex_engine::logic::progress::CurrentStep;
use job_queue::activity;
use job_queue::logic::JobId;
use job_queue::service::{Jobs, Looked};
use rmcp::model::CallToolResult;
use tokio::time::Instant;

use crate::error::ToolError;

/// How often a caller that waits can be told what happens.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// What has come of waiting for a while.
#[derive(Debug)]
pub(crate) enum Waited<T = CallToolResult> {
    /// The job has ended, or has been waited for long enough.
    Over(T),
    /// It runs, and is at this step, if that is known.
    Doing(Option<CurrentStep>),
}

impl<T> Waited<T> {
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Waited<U> {
        match self {
            Self::Over(what) => Waited::Over(change(what)),
            Self::Doing(step) => Waited::Doing(step),
        }
    }
}

/// Waits for the end of a job, or for a question, for a second at most.
pub(super) async fn until_ended(
    jobs: &Jobs,
    id: &JobId,
    until: Instant,
) -> Result<Waited<Looked>, ToolError> {
    let left = until.saturating_duration_since(Instant::now());
    let looked = jobs.look(id, Some(left.min(BETWEEN_LOOKS))).await?;
    let is_asked = !looked.questions.is_empty();
    if looked.job.summary.state.has_ended() || is_asked || Instant::now() >= until {
        return Ok(Waited::Over(looked));
    }
    let events = jobs.tail(id, activity::TAIL).await?;
    Ok(Waited::Doing(activity::current_step(
        &events,
        SystemTime::now(),
    )))
}
