//! One attempt at a job: from the claim to what is written of its end.

use std::cell::Cell;
use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use codex_engine::logic::session::Alert;
use codex_engine::logic::work::FailureClass;
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::Instrument;

use super::cancel_handle::{CancelHandle, CancelReason};
use super::dialog::Dialog;
use super::engines::Login;
use super::journal::{Journal, WAITS};
use super::order::{self, BadOrder, IfUnknown, Order};
use super::result::{AttemptOutcome, AttemptResult, attempt_of};
use super::stalls::StallWatch;
use super::{Worker, running, telling};
use crate::call::{self, Control, News, Request};
use crate::logic::{
    Attempt, AttemptPhase, CODEX_LOST, Ending, JobId, JobState, Lease, WORKER_LOST, WORKER_STOPPED,
    Wait, Waiting, Wanted,
};
use crate::report::FailureReport;
use crate::run::order::Kept;
use crate::store::{Claim, Claimed, Finished, Job, NewEvent, Renewed, Written};

/// Runs a job whose claim was asked for at this moment, and writes down what has come
/// of it.
pub(super) async fn attempt(worker: &Worker, claimed: Claimed, asked: Instant) {
    let span = tracing::info_span!("job", id = %claimed.claim.job);
    // On the heap, as one attempt is larger than a thread's stack may be.
    Box::pin(attempted(worker, claimed, asked))
        .instrument(span)
        .await;
}

async fn attempted(worker: &Worker, claimed: Claimed, asked: Instant) {
    let Claimed { claim, job } = claimed;
    let began = Instant::now();
    let name = format!("job {} {:?}", claim.job, job.summary.task_name);
    match claim.attempt {
        1 => tracing::info!("{name} begins"),
        number => tracing::info!("{name} begins, attempt {number}"),
    }
    let held = HandleGuard::by(worker, &claim.job);
    let phase = match job.wait_history.kept(SystemTime::now()) {
        Some(_) => AttemptPhase::Look,
        None => AttemptPhase::Turn,
    };
    let lease = Cell::new(Lease::new(
        Attempt {
            phase,
            ..attempt_of(&job)
        },
        asked.into_std(),
        worker.options.timing.lease,
    ));
    let ended = tokio::select! {
        ended = run(worker, &claim, &job, &held.cancel) => ended,
        never = keep(worker, &claim, &lease, &held.cancel) => match never {},
    };
    let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let took = humantime::format_duration(Duration::from_millis(millis));
    tracing::info!("{name} {ended} after {took}");
}

/// Lets the worker find the handle while the attempt runs.
struct HandleGuard<'a> {
    worker: &'a Worker,
    job: JobId,
    cancel: Rc<CancelHandle>,
}

impl<'a> HandleGuard<'a> {
    fn by(worker: &'a Worker, job: &JobId) -> Self {
        let cancel = Rc::new(CancelHandle::default());
        let mut cancel_handles = worker.cancel_handles.borrow_mut();
        cancel_handles.insert(job.clone(), Rc::clone(&cancel));
        Self {
            worker,
            job: job.clone(),
            cancel,
        }
    }
}

impl Drop for HandleGuard<'_> {
    fn drop(&mut self) {
        // The worker may have taken the job again meanwhile.
        let mut cancel_handles = self.worker.cancel_handles.borrow_mut();
        if cancel_handles
            .get(&self.job)
            .is_some_and(|cancel| Rc::ptr_eq(cancel, &self.cancel))
        {
            cancel_handles.remove(&self.job);
        }
    }
}

/// Renews the lease, and cancels the attempt when that is not possible.
async fn keep(
    worker: &Worker,
    claim: &Claim,
    lease: &Cell<Lease>,
    cancel: &CancelHandle,
) -> Infallible {
    tokio::join!(
        renew(worker, claim, lease, cancel),
        let_go_in_time(worker, claim, lease, cancel)
    )
    .0
}

async fn renew(
    worker: &Worker,
    claim: &Claim,
    lease: &Cell<Lease>,
    cancel: &CancelHandle,
) -> Infallible {
    let length = worker.options.timing.lease;
    loop {
        sleep(worker.options.timing.heartbeat).await;
        let mut asked = Instant::now();
        let renew = async || {
            asked = Instant::now();
            worker.store.renew(claim, length).await
        };
        match worker.trouble.insist(renew).await {
            Renewed::Held(wanted) => {
                lease.set(lease.get().renewed(asked.into_std(), length));
                if wanted == Wanted::No {
                    cancel.cancel(CancelReason::Unwanted);
                }
            }
            Renewed::Lost => {
                cancel.cancel(CancelReason::Lost);
                return pending().await;
            }
        }
    }
}

async fn let_go_in_time(
    worker: &Worker,
    claim: &Claim,
    lease: &Cell<Lease>,
    cancel: &CancelHandle,
) -> Infallible {
    let ending = worker.options.timing.ending;
    loop {
        let Some(at) = lease.get().let_go_at(ending) else {
            return pending().await;
        };
        sleep_until(at.into()).await;
        if lease.get().let_go_at(ending) == Some(at) {
            let job = &claim.job;
            tracing::warn!("the lease of job {job} ends, and it may run elsewhere: it ends here");
            cancel.cancel(CancelReason::LeaseOver);
            return pending().await;
        }
    }
}

/// What is to be written of its end.
#[derive(Debug, PartialEq)]
enum Closing {
    Finish(Ending),
    /// For this reason.
    GiveUp(&'static str),
    PutBack(Waiting),
    Nothing,
}

async fn run(worker: &Worker, claim: &Claim, job: &Job, cancel: &CancelHandle) -> Ended {
    let journal = Journal::of(job);
    worker.logins.borrow_mut().remove(&claim.job);
    let login = Login::of(&order::codex_home(job, &worker.options)).await;
    let running = async {
        let working = async {
            match Kept::of(&job.request) {
                Some(kept) => {
                    let done = Box::pin(running::run(worker, job, kept, &journal, cancel)).await;
                    let closing = closing(cancel.why(), done.outcome);
                    (done, closing)
                }
                None => {
                    let mut done = Box::pin(ask_codex(worker, claim, job, &journal, cancel)).await;
                    let closing = closing(cancel.why(), done.outcome);
                    if let Closing::Finish(ending) = closing {
                        Box::pin(tell_end(worker, job, ending, &mut done, cancel)).await;
                    }
                    (done, closing)
                }
            }
        };
        let ended = worker.work.on(working).await;
        journal.close();
        ended
    };
    let ((mut done, closing), ()) = tokio::join!(running, journal.write(worker, claim, cancel));
    if let Some(failure) = &done.report.failure
        && failure.class == FailureClass::Timeout.name()
    {
        tracing::warn!("{}", failure.message);
    }
    if cancel.why() == Some(CancelReason::Lost) {
        return Ended::NotOurs;
    }
    match closing {
        Closing::Finish(ending) => finish(worker, claim, finished(claim, ending, &done)).await,
        Closing::GiveUp(why) => give_up(worker, claim, why).await,
        Closing::PutBack(waiting) => match put_back(worker, claim, &waiting).await {
            Some(Wanted::Yes) => {
                if let Ok(login) = login {
                    let mut logins = worker.logins.borrow_mut();
                    logins.insert(claim.job.clone(), login);
                }
                Ended::PutBack(waiting.wait)
            }
            // The store decides of a cancellation that comes at the same time.
            Some(Wanted::No) => {
                cancel.cancel(CancelReason::Unwanted);
                match Kept::of(&job.request) {
                    None => {
                        let told = tell_end(worker, job, Ending::Cancelled, &mut done, cancel);
                        Box::pin(told).await;
                    }
                    Some(Ok(kept)) => {
                        let told = running::tell_cancelled(job, &kept, &mut done, cancel);
                        Box::pin(told).await;
                    }
                    Some(Err(_)) => {}
                }
                let finished = finished(claim, Ending::Cancelled, &done);
                finish(worker, claim, finished).await
            }
            None => Ended::NotOurs,
        },
        Closing::Nothing => Ended::NotOurs,
    }
}

/// Tells others of the end of a call.
async fn tell_end(
    worker: &Worker,
    job: &Job,
    ending: Ending,
    done: &mut AttemptResult,
    cancel: &CancelHandle,
) {
    let told = telling::of_call(job, &worker.options, ending, done, cancel).await;
    done.report.notified = told;
}

/// What Codex has done by itself counts, whatever it was to be ended for meanwhile.
fn closing(why: Option<CancelReason>, came: AttemptOutcome) -> Closing {
    match (why, came) {
        (Some(CancelReason::Lost), _) => Closing::Nothing,
        (_, AttemptOutcome::LostCodex) => Closing::GiveUp(CODEX_LOST),
        (Some(CancelReason::Unwanted), AttemptOutcome::UsedUp(_)) => {
            Closing::Finish(Ending::Cancelled)
        }
        (_, AttemptOutcome::UsedUp(waiting)) => Closing::PutBack(waiting),
        (_, AttemptOutcome::Completed) => Closing::Finish(Ending::Completed),
        (Some(CancelReason::Unwanted), AttemptOutcome::Cancelled) => {
            Closing::Finish(Ending::Cancelled)
        }
        (Some(CancelReason::LeaseOver), AttemptOutcome::Cancelled) => Closing::GiveUp(WORKER_LOST),
        (Some(CancelReason::WorkerEnds), AttemptOutcome::Cancelled) => {
            Closing::GiveUp(WORKER_STOPPED)
        }
        (_, AttemptOutcome::Cancelled | AttemptOutcome::Failed) => Closing::Finish(Ending::Failed),
    }
}

async fn ask_codex(
    worker: &Worker,
    claim: &Claim,
    job: &Job,
    journal: &Journal,
    cancel: &CancelHandle,
) -> AttemptResult {
    let options = &worker.options;
    let codex_home = order::codex_home(job, options);
    let ordered = match order::order(job, options).await {
        Ok(ordered) => {
            let chosen = order::chosen(job, options);
            let mail = ordered.mail.clone();
            let engine = worker.engines.of(chosen, &codex_home, mail, &options.tools);
            engine
                .map(|engine| (ordered, engine))
                .map_err(BadOrder::from)
        }
        Err(error) => Err(error),
    };
    let (
        Order {
            mut request,
            if_unknown,
            mail: _,
        },
        codex,
    ) = match ordered {
        Ok(ordered) => ordered,
        Err(error) => return AttemptResult::without_codex(&error, job),
    };
    let alerts = telling::alerts_of_call(job, options);
    let alert = |alert: &Alert| {
        if let Some(alerts) = &alerts {
            alerts.give(telling::notice(&job.summary.id, alert));
        }
    };
    let stalls = StallWatch::new(options.stall, &alert);
    let (dialog, mut directives) = Dialog::of(worker, claim, job, journal, cancel);
    let hear = |news: News<'_>| {
        stalls.hear(&news);
        journal.hear(&news);
        dialog.hear(&news, &alert);
    };
    let exchange = async {
        cancel.token.run_until_cancelled(codex.start()).await;
        let engine = codex.engine();
        let mut turn = async |request: &Request| {
            let control = Control {
                cancel: cancel.token.clone(),
                directives: Some(&mut directives),
            };
            Box::pin(call::run(engine, request, hear, control)).await
        };
        let mut outcome = turn(&request).await;
        if let (IfUnknown::Begin(resume), Some(FailureClass::UnknownSession)) =
            (if_unknown, outcome.class())
        {
            request.resume = resume;
            outcome = turn(&request).await;
        }
        // What the turn was still to be told is answered now.
        directives.close();
        while directives.try_recv().is_ok() {}
        if outcome.class() == Some(FailureClass::Auth) || outcome.leaves_threads {
            codex.retire();
        }
        codex.tidy().await;
        dialog.close();
        AttemptResult::of(outcome, request.stream, job)
    };
    tokio::select! {
        (done, ()) = async { tokio::join!(exchange, dialog.carry()) } => done,
        never = stalls.watch() => match never {},
    }
}

fn finished(claim: &Claim, ending: Ending, done: &AttemptResult) -> Finished {
    let failure = done
        .report
        .failure
        .as_ref()
        .filter(|_| ending == Ending::Failed)
        .map(FailureReport::in_words);
    // All of its keys are texts.
    let result = serde_json::to_value(&done.report).ok();
    Finished {
        ending,
        error: failure,
        session_id: done.session.as_ref().map(ToString::to_string),
        exchange_id: done.session.as_ref().map(|_| exchange(claim)),
        result,
    }
}

/// The name of the exchange of prompt and answer that an attempt had with Codex:
/// `JOB.ATTEMPT`.
fn exchange(claim: &Claim) -> String {
    format!("{}.{}", claim.job, claim.attempt)
}

async fn finish(worker: &Worker, claim: &Claim, finished: Finished) -> Ended {
    let finish = async |how: &Finished| {
        let finish = async || worker.store.finish(claim, how).await;
        worker.trouble.attempt(finish).await
    };
    let (mut how, mut written) = (finished.clone(), finish(&finished).await);
    if let Err(error) = &written {
        how = Finished {
            ending: Ending::Failed,
            error: Some(format!("what has come of it can't be kept: {error}")),
            result: None,
            ..finished
        };
        written = finish(&how).await;
    }
    match written {
        Ok(Written::Done) => Ended::Finished(how.ending, how.error),
        Ok(Written::Lost) => Ended::NotOurs,
        Err(error) => Ended::Unwritten(error.to_string()),
    }
}

async fn put_back(worker: &Worker, claim: &Claim, waiting: &Waiting) -> Option<Wanted> {
    let event = waiting.is_new.then(|| NewEvent {
        kind: WAITS.to_owned(),
        data: json!({ "words": waiting.wait.to_string() }).to_string(),
    });
    let put_back = async || worker.store.put_back(claim, waiting, event.as_ref()).await;
    worker.trouble.insist(put_back).await
}

async fn give_up(worker: &Worker, claim: &Claim, why: &'static str) -> Ended {
    let give_up = async || worker.store.give_up(claim, why).await;
    match worker.trouble.insist(give_up).await {
        Some(state) => Ended::GivenUp(why, state),
        None => Ended::NotOurs,
    }
}

/// How an attempt has ended, for the log.
#[derive(Debug)]
enum Ended {
    Finished(Ending, Option<String>),
    GivenUp(&'static str, JobState),
    PutBack(Wait),
    /// Or it is, and the answer of the store was lost.
    NotOurs,
    Unwritten(String),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished(ending, None) => write!(f, "{}", JobState::from(*ending)),
            Self::Finished(ending, Some(why)) => {
                write!(f, "{} ({why:?})", JobState::from(*ending))
            }
            Self::GivenUp(why, state) => write!(f, "given up ({why}), and is {state},"),
            Self::PutBack(wait) => write!(f, "{wait}: it is put back"),
            Self::NotOurs => f.write_str("is not this worker's any more"),
            Self::Unwritten(why) => write!(f, "could not be written down ({why})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::logic::WaitHistory;

    use super::*;

    /// Whatever it was ended for, and however Codex did.
    #[test]
    fn what_is_written_of_the_end() {
        let whys = [
            None,
            Some(CancelReason::WorkerEnds),
            Some(CancelReason::Unwanted),
            Some(CancelReason::LeaseOver),
            Some(CancelReason::Lost),
        ];
        let waiting = WaitHistory::default().next(None, SystemTime::UNIX_EPOCH);
        let waiting = waiting.unwrap();
        let mut table = String::new();
        for why in whys {
            for came in [
                AttemptOutcome::Completed,
                AttemptOutcome::Cancelled,
                AttemptOutcome::Failed,
                AttemptOutcome::LostCodex,
                AttemptOutcome::UsedUp(waiting),
            ] {
                let closing = closing(why, came);
                let row = format!("{why:?}, {came:?}: {closing:?}\n");
                table += &row.replace(&format!("{waiting:?}"), "waiting");
            }
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn of_several_reasons_the_gravest_counts() {
        let cancel = CancelHandle::default();
        for (pulled, counts) in [
            (CancelReason::Unwanted, CancelReason::Unwanted),
            (CancelReason::WorkerEnds, CancelReason::Unwanted),
            (CancelReason::Lost, CancelReason::Lost),
            (CancelReason::LeaseOver, CancelReason::Lost),
        ] {
            cancel.cancel(pulled);
            assert_eq!(cancel.why(), Some(counts));
        }
        assert!(cancel.token.is_cancelled());
    }
}
