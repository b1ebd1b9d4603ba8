//! Cancellation responses.

use super::{JobEvent, JobState, Transition};

/// The response to the cancellation of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelResponse {
    /// The job was queued, and will not run.
    Cancelled,
    /// The job runs, and its worker was asked to cancel it, now or before.
    Requested,
    /// The job was cancelled before.
    AlreadyCancelled,
    /// The job has ended in this state, and cannot be cancelled.
    Refused(JobState),
}

impl CancelResponse {
    /// The response for a job in this state.
    #[must_use]
    pub fn of(state: JobState) -> Self {
        match (state.after(JobEvent::Cancel), state) {
            (Some(Transition::AskWorker), _) => Self::Requested,
            (Some(Transition::State(_)), _) => Self::Cancelled,
            (None, JobState::Cancelled) => Self::AlreadyCancelled,
            (None, state) => Self::Refused(state),
        }
    }

    /// The state of the job before the cancellation.
    #[must_use]
    pub fn previous_status(self) -> JobState {
        match self {
            Self::Cancelled => JobState::Queued,
            Self::Requested => JobState::Running,
            Self::AlreadyCancelled => JobState::Cancelled,
            Self::Refused(state) => state,
        }
    }

    /// The state of the job once the cancellation has taken effect.
    #[must_use]
    pub fn new_status(self) -> JobState {
        match self {
            Self::Refused(state) => state,
            _ => JobState::Cancelled,
        }
    }

    /// Whether a worker had the job: the `was_running_in_registry` of the tools.
    #[must_use]
    pub fn was_running(self) -> bool {
        self == Self::Requested
    }

    /// The response as a message.
    #[must_use]
    pub fn message(self) -> String {
        match self {
            Self::Cancelled => "Job cancelled before it began".to_owned(),
            Self::Requested => "Cancellation requested; its worker ends Codex now".to_owned(),
            Self::AlreadyCancelled => "Job already cancelled".to_owned(),
            Self::Refused(state) => format!("Cannot cancel job in '{state}' status"),
        }
    }
}
