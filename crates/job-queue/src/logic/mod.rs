//! The states of a job, and the transitions between them.
//!
//! ```text
//!              claim                    finish
//!   ┌────────┐ ───────► ┌─────────┐ ─────────────► Completed, Failed, Cancelled
//!   │ Queued │          │ Running │
//!   └────────┘ ◄─────── └─────────┘ ─────────────► Failed (worker lost), or Cancelled
//!       │    worker lost,     worker lost            if that had been requested
//!       │    may run again
//!       └── cancel ──► Cancelled
//! ```
//!
//! A job whose account has reached a usage limit is put back into the queue to *wait*, and is not
//! claimed before the limit is reset. Such an attempt does not count.
//!
//! A running job is cancelled by its worker on request, and stays running until the worker has done
//! so. An ended job never changes.
//!
//! A worker holds a job by a time-limited *lease*, which it renews. An *attempt* is a job in the
//! hands of one worker; attempts are numbered. The store accepts changes only from the current
//! attempt: a worker that was silent for too long, and whose job another worker has, changes
//! nothing.

mod cancel;
mod id;
mod idle;
mod lease;
mod wait;

use serde::{Deserialize, Serialize};
use strum::{VariantArray, VariantNames};

pub use cancel::CancelResponse;
pub use id::{BadId, BadPrefix, JobId, JobPrefix, WorkerId};
pub use idle::IdleTimer;
pub use lease::Lease;
pub use wait::{LONGEST_WAIT, LOOK_EVERY, NextWait, UnknownReason, Wait, WaitHistory, WaitReason};

/// The error of a job whose worker has died, or was silent for too long.
pub const WORKER_LOST: &str = "worker lost";

/// The error of a job whose worker was stopped before the job had ended.
pub const WORKER_STOPPED: &str = "worker stopped";

/// The error of a job whose Codex ended while the job ran.
pub const CODEX_LOST: &str = "Codex lost";

/// The state of a job.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    VariantArray,
    VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(
    serialize_all = "lowercase",
    parse_err_ty = UnknownState,
    parse_err_fn = UnknownState::new
)]
pub enum JobState {
    /// The job waits for a worker, or until a moment.
    Queued,
    /// A worker runs the job.
    Running,
    /// Codex has completed the job.
    Completed,
    /// The job has failed.
    Failed,
    /// The job was cancelled.
    Cancelled,
}

/// The error of an unknown job state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a state of a job: use one of {states}", states = <JobState as VariantNames>::VARIANTS.join(", "))]
pub struct UnknownState(pub String);

impl UnknownState {
    fn new(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl JobState {
    /// All states.
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    /// The name of the state.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether the state is final.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// The transition of a job in this state at an event; `None` if the state stays.
    #[must_use]
    pub fn after(self, event: JobEvent) -> Option<Transition> {
        match (self, event) {
            (Self::Queued, JobEvent::Claim) => Some(Transition::State(Self::Running)),
            (Self::Queued, JobEvent::Cancel) => Some(Transition::State(Self::Cancelled)),
            (Self::Running, JobEvent::Cancel) => Some(Transition::AskWorker),
            (Self::Running, JobEvent::Finish(ending)) => Some(Transition::State(ending.into())),
            (Self::Running, JobEvent::LoseWorker(attempt)) => {
                Some(Transition::State(attempt.lost()))
            }
            _ => None,
        }
    }
}

/// An event in the life of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEvent {
    /// A worker claims the job.
    Claim,
    /// The worker has finished the job.
    Finish(Ending),
    /// The worker has died, was silent for too long, or gives up the job.
    LoseWorker(Attempt),
    /// A user cancels the job.
    Cancel,
}

/// The effect of an event on a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// The job changes to this state.
    State(JobState),
    /// The worker is asked to cancel the job.
    AskWorker,
}

/// The final state that a worker gives a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Codex has completed the job.
    Completed,
    /// The job has failed.
    Failed,
    /// The job was cancelled.
    Cancelled,
}

impl From<Ending> for JobState {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Completed => Self::Completed,
            Ending::Failed => Self::Failed,
            Ending::Cancelled => Self::Cancelled,
        }
    }
}

/// Whether the cancellation of a running job was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cancellation {
    /// The job is to be completed.
    #[default]
    NotRequested,
    /// The worker was asked to cancel the job.
    Requested,
}

/// A job in the hands of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// The number of the attempt among those that count, from 1.
    pub number: u32,
    /// How often a job whose worker was lost may run again.
    pub retry: u32,
    /// Whether the cancellation of the job was requested.
    pub cancellation: Cancellation,
    /// How far the attempt has come.
    pub phase: AttemptPhase,
}

/// How far an attempt has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AttemptPhase {
    /// The attempt only checks whether the job still has to wait: the job was claimed before the
    /// end of its wait, and the attempt has opened no thread. Losing it costs the job no retry.
    Look,
    /// Any other attempt.
    #[default]
    Turn,
}

impl Attempt {
    /// The next state of a running job whose worker is lost.
    #[must_use]
    pub fn lost(self) -> JobState {
        match self.cancellation {
            Cancellation::Requested => JobState::Cancelled,
            Cancellation::NotRequested if self.phase == AttemptPhase::Look => JobState::Queued,
            Cancellation::NotRequested if self.number <= self.retry => JobState::Queued,
            Cancellation::NotRequested => JobState::Failed,
        }
    }
}

#[cfg(test)]
mod tests;
