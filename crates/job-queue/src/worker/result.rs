//! The result of an attempt: how it ended, its thread and its report.

use std::time::SystemTime;

use codex_engine::logic::work::{Failure, FailureClass};
use codex_protocol::codex::ThreadId;
use common::timestamp::minute;

use super::order::BadOrder;
use crate::call::{KeepStream, Outcome};
use crate::logic::{Attempt, AttemptPhase, JobState, LONGEST_WAIT, Waiting, Wanted};
use crate::report::{FailureReport, Report};
use crate::store::Job;

/// What has come of an attempt.
pub(super) struct AttemptResult {
    pub(super) outcome: AttemptOutcome,
    pub(super) session: Option<ThreadId>,
    pub(super) report: Report,
}

/// How an attempt has come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptOutcome {
    /// What was wanted is done.
    Completed,
    /// It was ended before.
    Cancelled,
    /// It failed by itself.
    Failed,
    /// Codex itself went away, and the job is to run again.
    LostCodex,
    /// The account is used up, and the job is to wait.
    UsedUp(Waiting),
}

/// The attempt that a claimed job is at.
pub(super) fn attempt_of(job: &Job) -> Attempt {
    Attempt {
        number: job.counted_attempts(),
        retry: job.request.retry,
        wanted: Wanted::Yes,
        phase: AttemptPhase::Turn,
    }
}

impl AttemptResult {
    pub(super) fn of(outcome: Outcome, stream: KeepStream, job: &Job) -> Self {
        let runs_again = attempt_of(job).lost() == JobState::Queued;
        // What one attempt reports is its own work: one that has done some ends the job.
        let limit = outcome.limit.filter(|_| !outcome.has_worked());
        let limit = limit.map(|limit| limit.reset);
        let now = SystemTime::now();
        let waiting = match limit {
            Some(reset) => job.wait_history.next(reset, now),
            None => still_waiting(job, outcome.digest.session.as_ref(), now),
        };
        let mut outcome = outcome;
        if limit.is_some()
            && waiting.is_none()
            && let Some(failure) = &mut outcome.failure
        {
            failure.message = with_wait(&failure.message, job);
        }
        Self {
            outcome: match (outcome.class(), waiting) {
                (None, _) => AttemptOutcome::Completed,
                (Some(FailureClass::Cancelled), _) => AttemptOutcome::Cancelled,
                (_, Some(waiting)) => AttemptOutcome::UsedUp(waiting),
                _ if outcome.lost_codex && runs_again => AttemptOutcome::LostCodex,
                _ => AttemptOutcome::Failed,
            },
            session: outcome.digest.session.clone(),
            report: Report::of(outcome, stream),
        }
    }

    pub(super) fn without_codex(error: &BadOrder, job: &Job) -> Self {
        let failure = Failure {
            class: FailureClass::NotStarted,
            message: error.to_string(),
            reset: None,
            cause: None,
        };
        Self {
            report: Report {
                failure: Some(FailureReport::of(&failure)),
                ..Report::default()
            },
            session: None,
            outcome: match still_waiting(job, None, SystemTime::now()) {
                Some(waiting) => AttemptOutcome::UsedUp(waiting),
                None => AttemptOutcome::Failed,
            },
        }
    }
}

/// The wait of a job that goes on after an attempt with this thread: an attempt that comes
/// before the end of the wait and opens no thread ends no job, whatever it fails for.
pub(super) fn still_waiting(
    job: &Job,
    thread: Option<&ThreadId>,
    now: SystemTime,
) -> Option<Waiting> {
    match thread {
        None => job.wait_history.kept(now),
        Some(_) => None,
    }
}

/// These words, and for how long a job has waited that does not wait any more.
pub(super) fn with_wait(words: &str, job: &Job) -> String {
    let words = words.trim_end_matches('.');
    let most = LONGEST_WAIT.as_secs() / (24 * 60 * 60);
    match job.wait_history.since {
        Some(since) => format!(
            "{words}; the job has waited since {}, and is not tried again",
            minute(since)
        ),
        None => format!("{words}; a job waits at most {most} days in total"),
    }
}
