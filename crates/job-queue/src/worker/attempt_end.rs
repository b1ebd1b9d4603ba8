//! The end of an attempt: its final write to the store, and its notifications.

use std::fmt;

use serde_json::json;

use super::cancel_handle::{CancelHandle, CancelReason};
use super::engines::Login;
use super::journal::WAITS;
use super::result::{AttemptOutcome, AttemptResult};
use super::{Worker, notifications, run_attempt};
use crate::logic::{
    CODEX_LOST, Cancellation, Ending, JobState, NextWait, WORKER_LOST, WORKER_STOPPED, Wait,
};
use crate::report::FailureReport;
use crate::run::spec::StoredRun;
use crate::store::{Claim, FinishedJob, Job, NewEvent, StoreError, WriteOutcome};

/// The final write of an attempt to the store.
#[derive(Debug, PartialEq)]
pub(super) enum FinalWrite {
    Finish(Ending),
    /// Give the job up for this reason.
    GiveUp(&'static str),
    PutBack(NextWait),
    Nothing,
}

/// The end of an attempt, for the log.
#[derive(Debug)]
pub(super) enum AttemptEnd {
    Finished(Ending, Option<String>),
    GivenUp(&'static str, JobState),
    PutBack(Wait),
    /// The worker no longer has the job, or the store's response was lost.
    NotOurs,
    Unwritten(String),
}

impl fmt::Display for AttemptEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished(ending, None) => write!(f, "{}", JobState::from(*ending)),
            Self::Finished(ending, Some(why)) => {
                write!(f, "{} ({why:?})", JobState::from(*ending))
            }
            Self::GivenUp(why, state) => write!(f, "given up ({why}), now {state},"),
            Self::PutBack(wait) => write!(f, "{wait}: put back"),
            Self::NotOurs => f.write_str("no longer belongs to this worker"),
            Self::Unwritten(why) => write!(f, "could not be stored ({why})"),
        }
    }
}

/// The final write of an attempt. An outcome that Codex reached by itself counts, even if the
/// attempt was cancelled meanwhile.
pub(super) fn final_write(why: Option<CancelReason>, outcome: AttemptOutcome) -> FinalWrite {
    match (why, outcome) {
        (Some(CancelReason::Lost), _) => FinalWrite::Nothing,
        (_, AttemptOutcome::LostCodex) => FinalWrite::GiveUp(CODEX_LOST),
        (Some(CancelReason::JobCancelled), AttemptOutcome::UsedUp(_)) => {
            FinalWrite::Finish(Ending::Cancelled)
        }
        (_, AttemptOutcome::UsedUp(waiting)) => FinalWrite::PutBack(waiting),
        (_, AttemptOutcome::Completed) => FinalWrite::Finish(Ending::Completed),
        (Some(CancelReason::JobCancelled), AttemptOutcome::Cancelled) => {
            FinalWrite::Finish(Ending::Cancelled)
        }
        (Some(CancelReason::LeaseOver), AttemptOutcome::Cancelled) => {
            FinalWrite::GiveUp(WORKER_LOST)
        }
        (Some(CancelReason::WorkerEnds), AttemptOutcome::Cancelled) => {
            FinalWrite::GiveUp(WORKER_STOPPED)
        }
        (_, AttemptOutcome::Cancelled | AttemptOutcome::Failed) => {
            FinalWrite::Finish(Ending::Failed)
        }
    }
}

/// Stores the end of an attempt.
pub(super) async fn write_end(
    worker: &Worker,
    claim: &Claim,
    job: &Job,
    final_write: FinalWrite,
    mut done: AttemptResult,
    login: Option<Login>,
    cancel: &CancelHandle,
) -> AttemptEnd {
    match final_write {
        FinalWrite::Finish(ending) => finish(worker, claim, finished(claim, ending, &done)).await,
        FinalWrite::GiveUp(why) => {
            let ended = give_up(worker, claim, why).await;
            if let AttemptEnd::GivenUp(_, state) = ended {
                Box::pin(notify_given_up(worker, job, &done, why, state)).await;
            }
            ended
        }
        FinalWrite::PutBack(waiting) => match requeue(worker, claim, &waiting).await {
            Ok(Some(Cancellation::NotRequested)) => {
                if let Some(login) = login {
                    let mut logins = worker.logins.borrow_mut();
                    logins.insert(claim.job.clone(), login);
                }
                AttemptEnd::PutBack(waiting.wait)
            }
            // The store decides between the wait and a simultaneous cancellation.
            Ok(Some(Cancellation::Requested)) => {
                cancel.cancel(CancelReason::JobCancelled);
                Box::pin(notify_cancelled(worker, job, &mut done, cancel)).await;
                let finished = finished(claim, Ending::Cancelled, &done);
                finish(worker, claim, finished).await
            }
            Ok(None) => AttemptEnd::NotOurs,
            Err(error) => finish(worker, claim, not_put_back(claim, &done, &error)).await,
        },
        FinalWrite::Nothing => AttemptEnd::NotOurs,
    }
}

/// Sends the notifications of a job that was cancelled while it was to wait.
async fn notify_cancelled(
    worker: &Worker,
    job: &Job,
    done: &mut AttemptResult,
    cancel: &CancelHandle,
) {
    match StoredRun::of(&job.request) {
        None => notify_end(worker, job, Ending::Cancelled, done, cancel).await,
        Some(Ok(stored)) => {
            let usual = &worker.options.notifiers;
            run_attempt::notify_cancelled(job, &stored, usual, done, cancel).await;
        }
        Some(Err(_)) => {}
    }
}

/// Sends the notifications of the end of a call.
pub(super) async fn notify_end(
    worker: &Worker,
    job: &Job,
    ending: Ending,
    done: &mut AttemptResult,
    cancel: &CancelHandle,
) {
    let told = notifications::of_call(job, &worker.options, ending, done, cancel).await;
    done.report.notified = told;
    let failed = done.report.failed_notifications();
    done.report.warnings.extend(failed);
}

/// Sends the notifications of a job that was given up, unless it runs again.
async fn notify_given_up(
    worker: &Worker,
    job: &Job,
    done: &AttemptResult,
    why: &str,
    state: JobState,
) {
    if !state.has_ended() {
        return;
    }
    let mut job = job.clone().ended_without_result(state, why);
    if let Some(session) = &done.session {
        job.summary.session_id = Some(session.to_string());
    }
    let timeouts = notifications::within(notifications::GIVEN_UP_TIMEOUT);
    notifications::of_lost(&job, &worker.options, timeouts).await;
}

fn finished(claim: &Claim, ending: Ending, done: &AttemptResult) -> FinishedJob {
    let failure = done
        .report
        .failure
        .as_ref()
        .filter(|_| ending == Ending::Failed)
        .map(FailureReport::in_words);
    // A report always serializes: all keys are strings.
    let result = serde_json::to_value(&done.report).ok();
    FinishedJob {
        ending,
        error: failure,
        session_id: done.session.as_ref().map(ToString::to_string),
        exchange_id: done.session.as_ref().map(|_| exchange(claim)),
        result,
    }
}

/// The end of a job that was to wait, but cannot be put back.
fn not_put_back(claim: &Claim, done: &AttemptResult, error: &StoreError) -> FinishedJob {
    FinishedJob {
        error: Some(format!(
            "cannot put the job back into the queue to wait: {error}"
        )),
        ..finished(claim, Ending::Failed, done)
    }
}

/// The ID of the exchange of prompt and answer of an attempt: `JOB.ATTEMPT`.
fn exchange(claim: &Claim) -> String {
    format!("{}.{}", claim.job, claim.attempt)
}

async fn finish(worker: &Worker, claim: &Claim, finished: FinishedJob) -> AttemptEnd {
    let finish = async |how: &FinishedJob| {
        let finish = async || worker.store.finish(claim, how).await;
        worker.store_health.retry(finish).await
    };
    let (mut how, mut written) = (finished.clone(), finish(&finished).await);
    if let Err(error) = &written {
        how = FinishedJob {
            ending: Ending::Failed,
            error: Some(format!("cannot store the result of the job: {error}")),
            result: None,
            ..finished
        };
        written = finish(&how).await;
    }
    match written {
        Ok(WriteOutcome::Done) => AttemptEnd::Finished(how.ending, how.error),
        Ok(WriteOutcome::Lost) => AttemptEnd::NotOurs,
        Err(error) => AttemptEnd::Unwritten(error.to_string()),
    }
}

async fn requeue(
    worker: &Worker,
    claim: &Claim,
    waiting: &NextWait,
) -> Result<Option<Cancellation>, StoreError> {
    let event = waiting.is_new.then(|| NewEvent {
        kind: WAITS.to_owned(),
        data: json!({ "words": waiting.wait.to_string() }).to_string(),
    });
    let requeue = async || worker.store.requeue(claim, waiting, event.as_ref()).await;
    worker.store_health.retry(requeue).await
}

async fn give_up(worker: &Worker, claim: &Claim, why: &'static str) -> AttemptEnd {
    let give_up = async || worker.store.give_up(claim, why).await;
    match worker.store_health.retry(give_up).await {
        Ok(Some(state)) => AttemptEnd::GivenUp(why, state),
        Ok(None) => AttemptEnd::NotOurs,
        Err(error) => AttemptEnd::Unwritten(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use sqlx::ConnectOptions;
    use sqlx::sqlite::SqliteConnectOptions;
    use tokio::time::timeout;

    use super::super::attempt_spec::tests::TestHost;
    use super::*;
    use crate::logic::WaitHistory;
    use crate::report::Report;
    use crate::store::{ClaimedJob, JobStore, NewJob, Request};

    /// All combinations of cancel reasons and outcomes.
    #[test]
    fn final_write_depends_on_reason_and_outcome() {
        let whys = [
            None,
            Some(CancelReason::WorkerEnds),
            Some(CancelReason::JobCancelled),
            Some(CancelReason::LeaseOver),
            Some(CancelReason::Lost),
        ];
        let waiting = WaitHistory::default().next(None, SystemTime::UNIX_EPOCH);
        let waiting = waiting.unwrap();
        let mut table = String::new();
        for why in whys {
            for outcome in [
                AttemptOutcome::Completed,
                AttemptOutcome::Cancelled,
                AttemptOutcome::Failed,
                AttemptOutcome::LostCodex,
                AttemptOutcome::UsedUp(waiting),
            ] {
                let final_write = final_write(why, outcome);
                let row = format!("{why:?}, {outcome:?}: {final_write:?}\n");
                table += &row.replace(&format!("{waiting:?}"), "waiting");
            }
        }
        insta::assert_snapshot!(table);
    }

    /// Longer than a test takes.
    const LONG: Duration = Duration::from_secs(60);

    /// The number of an event is malformed, so that none can be appended after it.
    #[tokio::test]
    async fn job_that_cannot_be_put_back_fails() {
        let host = TestHost::new();
        let options = host.options();
        let path = options.location.path().unwrap().to_owned();
        let store = JobStore::open(&options.location, &options.access()).await;
        let worker = Worker::new(store.unwrap(), options);
        let new = NewJob::new(Request::new("p", "/repo"));
        worker.store.submit(&new).await.unwrap();
        let claimed = worker.store.claim(worker.id(), "here", LONG).await;
        let ClaimedJob { claim, job } = claimed.unwrap().unwrap();
        let event = NewEvent {
            kind: "k".to_owned(),
            data: "{}".to_owned(),
        };
        worker.store.append(&claim, &[event]).await.unwrap();
        let spoil = "UPDATE codex_events SET sequence = 'x'";
        let database = SqliteConnectOptions::new().filename(path).connect().await;
        let mut database = database.unwrap();
        sqlx::raw_sql(spoil).execute(&mut database).await.unwrap();

        let waiting = WaitHistory::default().next(None, SystemTime::now());
        let waiting = waiting.unwrap();
        let done = AttemptResult {
            outcome: AttemptOutcome::UsedUp(waiting),
            session: None,
            report: Report::default(),
        };
        let (put_back, cancel) = (FinalWrite::PutBack(waiting), CancelHandle::default());
        let end = write_end(&worker, &claim, &job, put_back, done, None, &cancel);
        timeout(LONG, end).await.unwrap();
        let stored = worker.store.summary(&new.id).await.unwrap().unwrap();
        assert_eq!(stored.state, JobState::Failed);
        let why = stored.error.unwrap();
        assert!(why.starts_with("cannot put the job back"), "{why}");
    }
}
