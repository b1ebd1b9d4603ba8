//! The result of an attempt at a run.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use codex_engine::LimitReached;
use codex_engine::binary::NoCodex;
use codex_engine::logic::work::{Evidence, FailureClass};
use codex_protocol::codex::ThreadId;
use common::text::one_line;
use common::timestamp::minute;
use goal_run::RunError;
use goal_run::logic::artifacts::Artifact;
use goal_run::logic::outcome::{Reason, blocked};
use goal_run::worktree::{KeptWorktree, WorktreeError};
use safe_files::directory::ReplacedDirectory;
use serde_json::{Value, json};
use settings::bounds::OutOfBounds;

use super::admission::Refusal;
use super::attempt_spec::NoBounds;
use super::engines::TakeoverError;
use super::result::{AttemptOutcome, AttemptResult, attempt_of, still_waiting, with_wait};
use crate::logic::{JobState, NextWait};
use crate::report::{FailureReport, Report};
use crate::run::result;
use crate::store::Job;

/// The limit of a failure message, in bytes.
const MESSAGE_LIMIT: usize = 2000;

/// An error that prevents or ends a run.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunFailure {
    #[error(
        "cannot read the specification of the run: {0}; if a newer codex-mcp has submitted it, \
         update the one of this worker"
    )]
    Unreadable(#[from] serde_json::Error),
    #[error("this worker refuses it: {0}")]
    OutOfBounds(#[from] OutOfBounds),
    #[error(transparent)]
    Replaced(#[from] ReplacedDirectory),
    #[error(transparent)]
    Bounds(#[from] NoBounds),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    NoCodex(#[from] NoCodex),
    #[error(transparent)]
    Worktree(#[from] WorktreeError),
    #[error("cannot create the file of evidence in {}: {error}", directory.display())]
    Evidence {
        directory: PathBuf,
        error: io::Error,
    },
    #[error("cannot spawn a thread: {0}")]
    Thread(io::Error),
    #[error("its worker was killed, and its Codex cannot be taken over: {0}")]
    NotTakenOver(#[from] TakeoverError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("the run took longer than {} s with the inspections of its repository", .0.as_secs())]
    TooLong(Duration),
    #[error("a usage limit of the account is reached, and reset at {}", minute(*.0))]
    UsedUp(SystemTime),
    #[error("{0}")]
    WaitedTooLong(String),
    #[error("cancelled before the final check")]
    Cut,
}

/// The result of an attempt at a run.
pub(super) struct RunAttemptResult {
    pub(super) driven: Result<goal_run::RunResult, RunFailure>,
    /// The thread, if there was one.
    pub(super) thread: Option<ThreadId>,
    /// The results of the notifications, as JSON.
    pub(super) told: Option<Value>,
    /// The worktree, if it was kept.
    pub(super) worktree: Option<KeptWorktree>,
    /// The wait after which the job runs again, if it does.
    pub(super) wait: Option<NextWait>,
    /// Whether the job runs again if its Codex is lost.
    pub(super) runs_again: bool,
}

impl RunAttemptResult {
    /// The result of an attempt that failed before it prompted Codex.
    pub(super) fn before(why: impl Into<RunFailure>, job: &Job) -> Self {
        Self {
            driven: Err(why.into()),
            thread: None,
            told: None,
            worktree: None,
            wait: still_waiting(job, None, SystemTime::now()),
            runs_again: attempt_of(job).lost() == JobState::Queued,
        }
    }

    /// Whether the run was left by a worker that was killed, and could not be continued.
    fn is_lost(&self) -> bool {
        matches!(
            self.driven,
            Err(RunFailure::NotTakenOver(_) | RunFailure::Run(RunError::NotContinued(_)))
        )
    }

    /// Whether the run has ended at a usage limit of the account, and has neither executed nor
    /// made anything: a later attempt counts only its own work.
    pub(super) fn is_at_usage_limit(&self) -> bool {
        match &self.driven {
            Err(RunFailure::UsedUp(_)) => true,
            Ok(done) => {
                let is_artifact = |made: &Artifact| !matches!(made, Artifact::Command { .. });
                self.reason() == Some(Reason::CouldNotRun)
                    && done.at_usage_limit
                    && done.outcome.evidence.total == Evidence::default()
                    && !done.outcome.made().iter().any(is_artifact)
            }
            Err(_) => false,
        }
    }

    /// Lets the job wait for a usage limit, unless it has waited too long.
    pub(super) fn wait_for_limit(&mut self, limit: LimitReached, job: &Job) {
        self.wait = job.wait_history.next(limit.reset, SystemTime::now());
        if self.wait.is_some() {
            return;
        }
        match &mut self.driven {
            Ok(done) => {
                if let Some(why) = &mut done.outcome.why {
                    *why = with_wait(why, job);
                }
            }
            Err(failure) => {
                *failure = RunFailure::WaitedTooLong(with_wait(&failure.to_string(), job));
            }
        }
    }

    fn reason(&self) -> Option<Reason> {
        match &self.driven {
            Ok(done) => done.outcome.reason,
            Err(failure) => Some(failure.reason()),
        }
    }

    pub(super) fn outcome(&self) -> AttemptOutcome {
        match (self.reason(), self.wait) {
            (None, _) => AttemptOutcome::Completed,
            (Some(Reason::Cancelled), _) => AttemptOutcome::Cancelled,
            (Some(_), None) if self.is_lost() && self.runs_again => AttemptOutcome::LostCodex,
            (Some(_), Some(wait)) => AttemptOutcome::UsedUp(wait),
            (Some(_), None) => AttemptOutcome::Failed,
        }
    }

    /// Whether the run may have made artifacts. Without an inspection, it may have.
    pub(super) fn may_have_made(&self) -> bool {
        match &self.driven {
            Ok(done) => !done.outcome.made().is_empty(),
            Err(_) => self.thread.is_some(),
        }
    }

    /// The line of the notifications.
    pub(super) fn notice(&self, number: u64) -> String {
        match &self.driven {
            Ok(done) => done.outcome.notice(number),
            Err(failure) => blocked(&failure.to_string()),
        }
    }

    /// The result for the caller of the run, without the fields of the job.
    pub(super) fn result(&self) -> Value {
        let mut result = match &self.driven {
            Ok(done) => json!(done),
            Err(failure) => {
                let reason = json!(failure.reason());
                result::nothing(reason.as_str().unwrap_or_default(), &failure.to_string())
            }
        };
        if let Value::Object(members) = &mut result {
            if let Some(told) = &self.told {
                members.insert("notified".to_owned(), told.clone());
            }
            if let Some(worktree) = &self.worktree {
                members.insert("worktree".to_owned(), json!(worktree));
            }
        }
        result::bounded(result)
    }

    pub(super) fn into_attempt_result(self) -> AttemptResult {
        let report = Report {
            failure: self.failure(),
            run: Some(self.result()),
            ..Report::default()
        };
        AttemptResult {
            outcome: self.outcome(),
            report: match &self.driven {
                Ok(done) => Report {
                    response: Some(done.response.clone()).filter(|text| !text.is_empty()),
                    evidence: done.outcome.evidence.total.into(),
                    usage: (!done.usage.is_nothing()).then(|| done.usage.into()),
                    ..report
                },
                Err(_) => report,
            },
            session: self.thread,
        }
    }

    /// The failure of the job, for readers that know only jobs and no runs.
    fn failure(&self) -> Option<FailureReport> {
        let reason = self.reason()?;
        let words = self.words(reason);
        let (class, message, hint) = match reason {
            Reason::CouldNotRun if matches!(self.driven, Err(RunFailure::WaitedTooLong(_))) => {
                let class = FailureClass::RateLimit;
                (class.name(), words, class.hint())
            }
            Reason::CouldNotRun => ("could_not_run", words, self.advice()),
            Reason::Cancelled => (
                "cancelled",
                "cancelled".to_owned(),
                "Resume the thread to let Codex continue.",
            ),
            Reason::Unconfirmed => (
                "not_satisfied",
                format!("not satisfied: {words}"),
                "Submit it again when nothing else changes the repository.",
            ),
            Reason::ReadOnly => (
                "not_satisfied",
                format!("not satisfied: {words}"),
                "Submit it again with a sandbox in which Codex can write.",
            ),
            Reason::Stalled
            | Reason::MaxTurnsExceeded
            | Reason::TotalTimeExceeded
            | Reason::MaxTokensExceeded => (
                "not_satisfied",
                format!("not satisfied: {words}"),
                "Go on in its thread, with more turns, time or tokens, or in other words.",
            ),
        };
        Some(FailureReport {
            class: class.to_owned(),
            message: one_line(&message, MESSAGE_LIMIT),
            hint: hint.to_owned(),
            reset: None,
        })
    }

    fn advice(&self) -> &'static str {
        match self.is_lost() {
            true => "Continue in its thread, or submit it again.",
            false => "Correct what the message names, then submit it again.",
        }
    }

    fn words(&self, reason: Reason) -> String {
        match &self.driven {
            Err(failure) => failure.to_string(),
            Ok(done) => {
                let why = done.outcome.why.as_deref();
                let why = why.unwrap_or(reason.words()).to_owned();
                match done.outcome.missing.as_slice() {
                    [] => why,
                    missing => format!("{why}; not met: {}", missing.join("; ")),
                }
            }
        }
    }
}

impl RunFailure {
    fn reason(&self) -> Reason {
        match self {
            Self::Cut | Self::Worktree(WorktreeError::Cancelled) => Reason::Cancelled,
            Self::TooLong(_) => Reason::TotalTimeExceeded,
            _ => Reason::CouldNotRun,
        }
    }
}

#[cfg(test)]
mod tests {
    use settings::{Access, Location};

    use super::*;
    use crate::store::{JobStore, NewJob, Request, new_worker_id};

    #[tokio::test]
    async fn run_that_would_wait_too_long_fails() {
        let directory = tempfile::tempdir().unwrap();
        let location = Location::Sqlite(directory.path().join("jobs.db"));
        let access = Access::of(directory.path());
        let store = JobStore::open(&location, &access).await.unwrap();
        let job = NewJob::new(Request::new("p", "/repo"));
        store.submit(&job).await.unwrap();
        let worker = new_worker_id();
        let claimed = store.claim(&worker, "here", Duration::from_secs(600));
        let mut job = claimed.await.unwrap().unwrap().job;
        job.wait_history.since = Some(SystemTime::UNIX_EPOCH);
        let reset = SystemTime::now() + Duration::from_secs(60);
        let mut ended = RunAttemptResult::before(RunFailure::UsedUp(reset), &job);
        ended.wait_for_limit(LimitReached { reset: Some(reset) }, &job);
        assert_eq!(ended.outcome(), AttemptOutcome::Failed);
        let failure = ended.failure().unwrap();
        assert_eq!(failure.class, "rate_limit");
        assert!(
            failure.message.contains("has waited since 1970-01-01"),
            "{failure:?}"
        );
        assert!(
            failure.hint.starts_with("Wait until the limit is reset"),
            "{failure:?}"
        );
    }
}
