//! The result of an attempt: its outcome, its thread and its report.

use std::time::SystemTime;

use codex_engine::logic::work::{Failure, FailureClass};
use codex_protocol::codex::ThreadId;
use common::timestamp::minute;

use super::attempt_spec::BadAttemptSpec;
use crate::call::CallOutcome;
use crate::logic::{Attempt, AttemptPhase, Cancellation, JobState, LONGEST_WAIT, NextWait};
use crate::report::{FailureReport, Report};
use crate::store::Job;

/// The result of an attempt.
pub(super) struct AttemptResult {
    pub(super) outcome: AttemptOutcome,
    pub(super) session: Option<ThreadId>,
    pub(super) report: Report,
}

/// The outcome of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptOutcome {
    /// The attempt was completed.
    Completed,
    /// The attempt was cancelled.
    Cancelled,
    /// The attempt has failed.
    Failed,
    /// Codex's process has ended, and the job may run again.
    LostCodex,
    /// A usage limit is reached, and the job must wait.
    UsedUp(NextWait),
}

/// The current attempt of a claimed job.
pub(super) fn attempt_of(job: &Job) -> Attempt {
    Attempt {
        number: job.counted_attempts(),
        retry: job.request.retry,
        cancellation: Cancellation::NotRequested,
        phase: AttemptPhase::Turn,
    }
}

impl AttemptResult {
    pub(super) fn of(outcome: CallOutcome, keep_stream: bool, job: &Job) -> Self {
        let runs_again = attempt_of(job).lost() == JobState::Queued;
        // An attempt reports only its own work, so one that has done some ends the job.
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
            report: Report::of(outcome, keep_stream),
        }
    }

    pub(super) fn without_codex(error: &BadAttemptSpec, job: &Job) -> Self {
        let is_lost = matches!(error, BadAttemptSpec::NotTakenOver);
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
                _ if is_lost => AttemptOutcome::LostCodex,
                Some(waiting) => AttemptOutcome::UsedUp(waiting),
                None => AttemptOutcome::Failed,
            },
        }
    }
}

/// The wait that continues after an attempt with this thread. An attempt that was made before the
/// end of the wait, and has opened no thread, does not end the job, however it failed.
pub(super) fn still_waiting(
    job: &Job,
    thread: Option<&ThreadId>,
    now: SystemTime,
) -> Option<NextWait> {
    match thread {
        None => job.wait_history.unfinished(now),
        Some(_) => None,
    }
}

/// A failure message, with the time that the job has waited before it gave up.
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
