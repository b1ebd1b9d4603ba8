//! A job: a prompt that was handed over for good, and outlives who handed it over.
//!
//! ```text
//!              claim                    finish
//!   ┌────────┐ ───────► ┌─────────┐ ─────────────► Completed, Failed, Cancelled
//!   │ Queued │          │ Running │
//!   └────────┘ ◄─────── └─────────┘ ─────────────► Failed (worker lost), or Cancelled
//!       │    worker lost,     worker lost            if that had been asked for
//!       │    may run again
//!       └── cancel ──► Cancelled
//! ```
//!
//! A job whose account is used up is put back into the queue to *wait*, and not claimed
//! before the limit is reset. Such an attempt does not count.
//!
//! A job that runs is cancelled by its worker, which is asked to: until then it
//! runs. An ended job stays as it is.
//!
//! A worker has a job for a *lease*, which it renews. An *attempt* is a job in the
//! hands of one worker; each has a number. What a worker says counts only while its
//! attempt is the running one: so a worker that was away for too long, and whose
//! job somebody else has now, changes nothing.

mod cancel;
mod id;
mod idle;
mod lease;
mod wait;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use cancel::CancelAnswer;
pub use id::{BadId, BadPrefix, JobId, JobPrefix, WorkerId};
pub use idle::Idle;
pub use lease::Lease;
pub use wait::{LONGEST_WAIT, LOOK_EVERY, UnknownReason, Wait, WaitHistory, WaitReason, Waiting};

/// What is noted of a job whose worker has died, or was not heard of for too long.
pub const WORKER_LOST: &str = "worker lost";

/// What is noted of a job whose worker was told to end before the job had.
pub const WORKER_STOPPED: &str = "worker stopped";

/// What is noted of a job whose Codex went away while the job ran.
pub const CODEX_LOST: &str = "Codex lost";

/// How a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// It waits for a worker.
    Queued,
    /// A worker has it.
    Running,
    /// Codex has done it.
    Completed,
    /// It could not be done.
    Failed,
    /// Nobody wants it any more.
    Cancelled,
}

/// Why a text is not the state of a job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a state of a job: use queued, running, completed, failed or cancelled")]
pub struct UnknownState(pub String);

impl JobState {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Queued,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// It in a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing happens to it any more.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// What becomes of a job to which something happens; `None` if it is as it was.
    #[must_use]
    pub fn after(self, event: Event) -> Option<Next> {
        match (self, event) {
            (Self::Queued, Event::Claim) => Some(Next::State(Self::Running)),
            (Self::Queued, Event::Cancel) => Some(Next::State(Self::Cancelled)),
            (Self::Running, Event::Cancel) => Some(Next::AskWorker),
            (Self::Running, Event::Finish(ending)) => Some(Next::State(ending.into())),
            (Self::Running, Event::LoseWorker(attempt)) => Some(Next::State(attempt.lost())),
            _ => None,
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for JobState {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, UnknownState> {
        let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
        found.ok_or_else(|| UnknownState(text.to_owned()))
    }
}

/// What can happen to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A worker takes it.
    Claim,
    /// Its worker is done with it.
    Finish(Ending),
    /// Its worker has died, was not heard of for too long, or gives it up.
    LoseWorker(Attempt),
    /// Somebody doesn't want it any more.
    Cancel,
}

/// What becomes of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It is in this state.
    State(JobState),
    /// Its worker is asked to cancel it.
    AskWorker,
}

/// How a job ends in the hands of its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// Codex has done it.
    Completed,
    /// It could not be done.
    Failed,
    /// It was called off.
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

/// Whether somebody doesn't want a running job any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wanted {
    /// It is to be done.
    #[default]
    Yes,
    /// Its worker was asked to cancel it.
    No,
}

/// A job in the hands of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Which it is of those that count, from 1.
    pub number: u32,
    /// How often a job whose worker was lost may run again.
    pub retry: u32,
    /// Whether the job is still wanted.
    pub wanted: Wanted,
    /// How far it has come.
    pub phase: AttemptPhase,
}

/// How far an attempt has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttemptPhase {
    /// The job was claimed before its wait is over, to look whether it still has to wait, and
    /// the attempt has opened no thread. Losing it costs the job nothing.
    Look,
    /// Any other.
    #[default]
    Turn,
}

impl Attempt {
    /// What becomes of a running job whose worker is lost.
    #[must_use]
    pub fn lost(self) -> JobState {
        match self.wanted {
            Wanted::No => JobState::Cancelled,
            Wanted::Yes if self.phase == AttemptPhase::Look => JobState::Queued,
            Wanted::Yes if self.number <= self.retry => JobState::Queued,
            Wanted::Yes => JobState::Failed,
        }
    }
}

#[cfg(test)]
mod tests;
