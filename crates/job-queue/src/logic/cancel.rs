//! What is said to who calls a job off.

use super::{Event, JobState, Next};

/// What has come of a cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelAnswer {
    /// It was waiting, and will not run.
    Cancelled,
    /// It runs, and its worker was asked to end it, now or before.
    Asked,
    /// It was cancelled before.
    AlreadyCancelled,
    /// It has ended in another way, which is refused.
    Refused(JobState),
}

impl CancelAnswer {
    /// What a job in this state answers.
    #[must_use]
    pub fn of(state: JobState) -> Self {
        match (state.after(Event::Cancel), state) {
            (Some(Next::AskWorker), _) => Self::Asked,
            (Some(Next::State(_)), _) => Self::Cancelled,
            (None, JobState::Cancelled) => Self::AlreadyCancelled,
            (None, state) => Self::Refused(state),
        }
    }

    /// How the job stood before.
    #[must_use]
    pub fn previous_status(self) -> JobState {
        match self {
            Self::Cancelled => JobState::Queued,
            Self::Asked => JobState::Running,
            Self::AlreadyCancelled => JobState::Cancelled,
            Self::Refused(state) => state,
        }
    }

    /// How it will stand.
    #[must_use]
    pub fn new_status(self) -> JobState {
        match self {
            Self::Refused(state) => state,
            _ => JobState::Cancelled,
        }
    }

    /// Whether a worker had it: the `was_running_in_registry` of the tools.
    #[must_use]
    pub fn was_running(self) -> bool {
        self == Self::Asked
    }

    /// It in words.
    #[must_use]
    pub fn message(self) -> String {
        match self {
            Self::Cancelled => "Job cancelled before it began".to_owned(),
            Self::Asked => "Cancellation requested; its worker ends Codex now".to_owned(),
            Self::AlreadyCancelled => "Job already cancelled".to_owned(),
            Self::Refused(state) => format!("Cannot cancel job in '{state}' status"),
        }
    }
}
