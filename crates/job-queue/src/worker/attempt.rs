//! One attempt at a job: from the claim to what is written of its end.

use std::cell::Cell;
use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use codex_engine::logic::session::Alert;
use codex_engine::logic::work::{Failure, FailureClass};
use codex_protocol::codex::ThreadId;
use common::timestamp::minute;
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::Instrument;

use super::dialog::Dialog;
use super::engines::Login;
use super::journal::{Journal, WAITS};
use super::leash::{End, Leash};
use super::order::{self, BadOrder, IfUnknown, Order};
use super::stalls::StallWatch;
use super::{Worker, running, telling};
use crate::call::{self, Control, KeepStream, News, Outcome, Request};
use crate::logic::{
    Attempt, CODEX_LOST, Ending, JobId, JobState, LONGEST_WAIT, Lease, WORKER_LOST, WORKER_STOPPED,
    Wait, Waiting, Wanted,
};
use crate::report::{FailureReport, Report};
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
    let held = Held::by(worker, &claim.job);
    let lease = Cell::new(Lease::new(
        of(&job),
        asked.into_std(),
        worker.options.timing.lease,
    ));
    let ended = tokio::select! {
        ended = run(worker, &claim, &job, &held.leash) => ended,
        never = keep(worker, &claim, &lease, &held.leash) => match never {},
    };
    let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let took = humantime::format_duration(Duration::from_millis(millis));
    tracing::info!("{name} {ended} after {took}");
}

fn of(job: &Job) -> Attempt {
    Attempt {
        number: job.counted_attempts(),
        retry: job.request.retry,
        wanted: Wanted::Yes,
    }
}

/// A leash that the worker finds while the attempt runs.
struct Held<'a> {
    worker: &'a Worker,
    job: JobId,
    leash: Rc<Leash>,
}

impl<'a> Held<'a> {
    fn by(worker: &'a Worker, job: &JobId) -> Self {
        let leash = Rc::new(Leash::default());
        let mut leashes = worker.leashes.borrow_mut();
        leashes.insert(job.clone(), Rc::clone(&leash));
        Self {
            worker,
            job: job.clone(),
            leash,
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // The worker may have taken the job again meanwhile.
        let mut leashes = self.worker.leashes.borrow_mut();
        if leashes
            .get(&self.job)
            .is_some_and(|leash| Rc::ptr_eq(leash, &self.leash))
        {
            leashes.remove(&self.job);
        }
    }
}

/// Renews the lease, and pulls the leash when that is not possible.
async fn keep(worker: &Worker, claim: &Claim, lease: &Cell<Lease>, leash: &Leash) -> Infallible {
    tokio::join!(
        renew(worker, claim, lease, leash),
        let_go_in_time(worker, claim, lease, leash)
    )
    .0
}

async fn renew(worker: &Worker, claim: &Claim, lease: &Cell<Lease>, leash: &Leash) -> Infallible {
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
                    leash.pull(End::Unwanted);
                }
            }
            Renewed::Lost => {
                leash.pull(End::Lost);
                return pending().await;
            }
        }
    }
}

async fn let_go_in_time(
    worker: &Worker,
    claim: &Claim,
    lease: &Cell<Lease>,
    leash: &Leash,
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
            leash.pull(End::LeaseOver);
            return pending().await;
        }
    }
}

/// What has come of an attempt.
pub(super) struct Done {
    pub(super) came: Came,
    pub(super) session: Option<ThreadId>,
    pub(super) report: Report,
}

/// How an attempt has come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
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

/// What is to be written of its end.
#[derive(Debug, PartialEq)]
enum Closing {
    Finish(Ending),
    /// For this reason.
    GiveUp(&'static str),
    PutBack(Waiting),
    Nothing,
}

async fn run(worker: &Worker, claim: &Claim, job: &Job, leash: &Leash) -> Ended {
    let journal = Journal::of(of(job).number);
    worker.waiting.borrow_mut().remove(&claim.job);
    let login = Login::of(&order::codex_home(job, &worker.options));
    let running = async {
        let working = async {
            match Kept::of(&job.request) {
                Some(kept) => {
                    let done = Box::pin(running::run(worker, job, kept, &journal, leash)).await;
                    let closing = closing(leash.why(), done.came);
                    (done, closing)
                }
                None => {
                    let mut done = Box::pin(ask_codex(worker, claim, job, &journal, leash)).await;
                    let closing = closing(leash.why(), done.came);
                    if let Closing::Finish(ending) = closing {
                        tell_end(worker, job, ending, &mut done, leash).await;
                    }
                    (done, closing)
                }
            }
        };
        let ended = worker.work.on(working).await;
        journal.close();
        ended
    };
    let ((mut done, closing), ()) = tokio::join!(running, journal.write(worker, claim, leash));
    if let Some(failure) = &done.report.failure
        && failure.class == FailureClass::Timeout.name()
    {
        tracing::warn!("{}", failure.message);
    }
    if leash.why() == Some(End::Lost) {
        return Ended::NotOurs;
    }
    match closing {
        Closing::Finish(ending) => finish(worker, claim, finished(claim, ending, &done)).await,
        Closing::GiveUp(why) => give_up(worker, claim, why).await,
        Closing::PutBack(waiting) => match put_back(worker, claim, &waiting).await {
            Some(Wanted::Yes) => {
                let mut logins = worker.waiting.borrow_mut();
                logins.insert(claim.job.clone(), login);
                Ended::PutBack(waiting.wait)
            }
            // The store decides of a cancellation that comes at the same time.
            Some(Wanted::No) => {
                leash.pull(End::Unwanted);
                if Kept::of(&job.request).is_none() {
                    tell_end(worker, job, Ending::Cancelled, &mut done, leash).await;
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
async fn tell_end(worker: &Worker, job: &Job, ending: Ending, done: &mut Done, leash: &Leash) {
    let told = telling::of_call(job, &worker.options, ending, done, leash).await;
    done.report.notified = told;
}

/// What Codex has done by itself counts, whatever it was to be ended for meanwhile.
fn closing(why: Option<End>, came: Came) -> Closing {
    match (why, came) {
        (Some(End::Lost), _) => Closing::Nothing,
        (_, Came::LostCodex) => Closing::GiveUp(CODEX_LOST),
        (Some(End::Unwanted), Came::UsedUp(_)) => Closing::Finish(Ending::Cancelled),
        (_, Came::UsedUp(waiting)) => Closing::PutBack(waiting),
        (_, Came::Completed) => Closing::Finish(Ending::Completed),
        (Some(End::Unwanted), Came::Cancelled) => Closing::Finish(Ending::Cancelled),
        (Some(End::LeaseOver), Came::Cancelled) => Closing::GiveUp(WORKER_LOST),
        (Some(End::WorkerEnds), Came::Cancelled) => Closing::GiveUp(WORKER_STOPPED),
        (_, Came::Cancelled | Came::Failed) => Closing::Finish(Ending::Failed),
    }
}

async fn ask_codex(
    worker: &Worker,
    claim: &Claim,
    job: &Job,
    journal: &Journal,
    leash: &Leash,
) -> Done {
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
        Err(error) => return Done::without_codex(&error),
    };
    let alerts = telling::alerts_of_call(job, options);
    let alert = |alert: &Alert| {
        if let Some(alerts) = &alerts {
            alerts.give(telling::notice(&job.summary.id, alert));
        }
    };
    let stalls = StallWatch::new(options.stall, &alert);
    let (dialog, mut directives) = Dialog::of(worker, claim, job, journal, leash);
    let hear = |news: News<'_>| {
        stalls.hear(&news);
        journal.hear(&news);
        dialog.hear(&news, &alert);
    };
    let exchange = async {
        leash.pulled.run_until_cancelled(codex.start()).await;
        let engine = codex.engine();
        let mut turn = async |request: &Request| {
            let control = Control {
                cancel: leash.pulled.clone(),
                directives: Some(&mut directives),
            };
            call::run(engine, request, hear, control).await
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
        Done::of(outcome, request.stream, job)
    };
    tokio::select! {
        (done, ()) = async { tokio::join!(exchange, dialog.carry()) } => done,
        never = stalls.watch() => match never {},
    }
}

impl Done {
    fn of(outcome: Outcome, stream: KeepStream, job: &Job) -> Self {
        let runs_again = of(job).lost() == JobState::Queued;
        // What one attempt reports is its own work: one that has done some ends the job.
        let limit = outcome.limit.filter(|_| !outcome.has_worked());
        let limit = limit.map(|limit| limit.reset);
        let now = SystemTime::now();
        let waiting = limit.and_then(|reset| job.wait_history.next(reset, now));
        let mut outcome = outcome;
        if limit.is_some()
            && waiting.is_none()
            && let Some(failure) = &mut outcome.failure
        {
            failure.message += &waited(job);
        }
        Self {
            came: match (outcome.class(), waiting) {
                (None, _) => Came::Completed,
                (Some(FailureClass::Cancelled), _) => Came::Cancelled,
                (_, Some(waiting)) => Came::UsedUp(waiting),
                _ if outcome.lost_codex && runs_again => Came::LostCodex,
                _ => Came::Failed,
            },
            session: outcome.digest.session.clone(),
            report: Report::of(outcome, stream),
        }
    }

    fn without_codex(error: &BadOrder) -> Self {
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
            came: Came::Failed,
        }
    }
}

/// How long a job has waited for its usage limit that does not wait any more.
pub(super) fn waited(job: &Job) -> String {
    let most = LONGEST_WAIT.as_secs() / (24 * 60 * 60);
    match job.wait_history.since {
        Some(since) => format!(
            "; the job has waited since {}, and is not tried again",
            minute(since)
        ),
        None => format!("; a job waits {most} days at most"),
    }
}

fn finished(claim: &Claim, ending: Ending, done: &Done) -> Finished {
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
            Some(End::WorkerEnds),
            Some(End::Unwanted),
            Some(End::LeaseOver),
            Some(End::Lost),
        ];
        let waiting = WaitHistory::default().next(None, SystemTime::UNIX_EPOCH);
        let waiting = waiting.unwrap();
        let mut table = String::new();
        for why in whys {
            for came in [
                Came::Completed,
                Came::Cancelled,
                Came::Failed,
                Came::LostCodex,
                Came::UsedUp(waiting),
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
        let leash = Leash::default();
        for (pulled, counts) in [
            (End::Unwanted, End::Unwanted),
            (End::WorkerEnds, End::Unwanted),
            (End::Lost, End::Lost),
            (End::LeaseOver, End::Lost),
        ] {
            leash.pull(pulled);
            assert_eq!(leash.why(), Some(counts));
        }
        assert!(leash.pulled.is_cancelled());
    }
}
