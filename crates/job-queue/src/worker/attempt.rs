//! One attempt at a job, from the claim to its outcome.

use std::cell::Cell;
use std::collections::HashSet;
use std::convert::Infallible;
use std::future::pending;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use codex_engine::Engine;
use codex_engine::logic::session::Alert;
use codex_engine::logic::work::FailureClass;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::Instrument;

use super::attempt_end::{AttemptEnd, FinalWrite, final_write, notify_end, write_end};
use super::attempt_record::AttemptRecord;
use super::attempt_spec::{self, AttemptSpec, BadAttemptSpec, IfUnknown};
use super::cancel_handle::{CancelHandle, CancelReason, ThreadRecord};
use super::dialog::Dialog;
use super::engines::{EngineHandle, Login};
use super::journal::Journal;
use super::left_turn::{KnownEvents, LeftTurn, LeftWork};
use super::mail_question::JobQuestion;
use super::result::{AttemptResult, attempt_of};
use super::stalls::StallWatch;
use super::{Worker, engines, notifications, run_attempt};
use crate::call::{
    self, CallOutcome, CallRecord, CallRequest, CallUpdate, Control, PendingDirective,
};
use crate::logic::{Attempt, AttemptPhase, Cancellation, JobId, Lease};
use crate::run::spec::StoredRun;
use crate::store::{Claim, ClaimedJob, Job, RenewOutcome};

/// How long the store may take to return the events of an attempt that an earlier worker has begun.
const KNOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs a claimed job, and stores the outcome. The claim was requested at the moment `asked`. `left` is
/// the work, if an earlier worker has begun the attempt.
pub(super) async fn attempt(
    held: HeldJob,
    claimed: ClaimedJob,
    asked: Instant,
    left: Option<LeftWork>,
) {
    let span = tracing::info_span!("job", id = %claimed.claim.job);
    // On the heap, as the future of an attempt may be larger than a thread's stack.
    Box::pin(run_claimed(held, claimed, asked, left))
        .instrument(span)
        .await;
}

async fn run_claimed(
    mut held: HeldJob,
    claimed: ClaimedJob,
    asked: Instant,
    left: Option<LeftWork>,
) {
    let worker = Rc::clone(&held.worker);
    let worker = worker.as_ref();
    let ClaimedJob { claim, job } = claimed;
    let began = Instant::now();
    let name = format!("job {} {:?}", claim.job, job.summary.task_name);
    match claim.attempt {
        _ if left.is_some() => tracing::info!("{name} is continued: its worker was killed"),
        1 => tracing::info!("{name} begins"),
        number => tracing::info!("{name} begins, attempt {number}"),
    }
    let phase = match job.wait_history.unfinished(SystemTime::now()) {
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
    let running = async {
        held.earlier_ended().await;
        run(worker, &claim, &job, &held.cancel, left).await
    };
    let ended = tokio::select! {
        ended = running => ended,
        never = keep_lease(worker, &claim, &lease, &held.cancel) => match never {},
    };
    held.is_settled = !matches!(ended, AttemptEnd::Unwritten(_));
    let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let took = humantime::format_duration(Duration::from_millis(millis));
    tracing::info!("{name} {ended} after {took}");
}

/// A job that the worker holds. It is registered with its cancel handle while its attempt runs.
///
/// Create this in the same step in which the claim becomes known. Otherwise a worker that looks for
/// claims whose answers were lost would find this claim, and run the job a second time.
pub(super) struct HeldJob {
    worker: Rc<Worker>,
    job: JobId,
    cancel: Rc<CancelHandle>,
    /// The handle of the worker's earlier attempt at the job, if that had not ended.
    earlier: Option<Rc<CancelHandle>>,
    /// Whether the store has the outcome, or the job is not this worker's any more.
    is_settled: bool,
}

impl HeldJob {
    /// Registers the attempt of a claim; `None` if an attempt with the same claim is already
    /// running. This happens when the database has lost the claim, as in a failover with
    /// asynchronous replication, and grants it once more: then the running attempt can write again.
    /// Any other earlier attempt at the job has lost the job.
    pub(super) fn new(worker: &Rc<Worker>, claim: &Claim) -> Option<Self> {
        let mut cancel_handles = worker.cancel_handles.borrow_mut();
        let earlier = cancel_handles.get(&claim.job).cloned();
        if let Some(earlier) = &earlier {
            if earlier.attempt == claim.attempt && earlier.why() != Some(CancelReason::Lost) {
                return None;
            }
            earlier.cancel(CancelReason::Lost);
        }
        let cancel = Rc::new(CancelHandle::of(claim.attempt));
        cancel_handles.insert(claim.job.clone(), Rc::clone(&cancel));
        worker.unsettled.borrow_mut().remove(&claim.job);
        Some(Self {
            worker: Rc::clone(worker),
            job: claim.job.clone(),
            cancel,
            earlier,
            is_settled: false,
        })
    }

    /// Waits until the worker's earlier attempt at the job has ended, so that only one of them works
    /// in the directory.
    async fn earlier_ended(&self) {
        if let Some(earlier) = &self.earlier {
            earlier.ended.cancelled().await;
        }
    }
}

impl Drop for HeldJob {
    fn drop(&mut self) {
        if !self.is_settled {
            let mut unsettled = self.worker.unsettled.borrow_mut();
            unsettled.insert(self.job.clone());
        }
        // The worker may have claimed the job again in between.
        let mut cancel_handles = self.worker.cancel_handles.borrow_mut();
        if cancel_handles
            .get(&self.job)
            .is_some_and(|cancel| Rc::ptr_eq(cancel, &self.cancel))
        {
            cancel_handles.remove(&self.job);
        }
        self.cancel.ended.cancel();
        self.worker.job_ended.notify_one();
    }
}

/// Renews the lease, and cancels the attempt when the lease cannot be renewed.
async fn keep_lease(
    worker: &Worker,
    claim: &Claim,
    lease: &Cell<Lease>,
    cancel: &CancelHandle,
) -> Infallible {
    tokio::join!(
        renew(worker, claim, lease, cancel),
        cancel_before_lease_ends(worker.options.timing.ending, claim, lease, cancel)
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
        match worker.store_health.retry_forever(renew).await {
            RenewOutcome::Held(cancellation) => {
                lease.set(lease.get().renewed(asked.into_std(), length));
                if cancellation == Cancellation::Requested {
                    cancel.cancel(CancelReason::JobCancelled);
                }
            }
            RenewOutcome::Lost => {
                cancel.cancel(CancelReason::Lost);
                return pending().await;
            }
        }
    }
}

/// Cancels the attempt before its lease ends if the job would then run elsewhere. `ending` is the
/// time that ending the attempt takes.
async fn cancel_before_lease_ends(
    ending: Duration,
    claim: &Claim,
    lease: &Cell<Lease>,
    cancel: &CancelHandle,
) -> Infallible {
    let release_at = || match cancel.thread() {
        ThreadRecord::Absent => lease.get().release_at(ending),
        ThreadRecord::Stored => lease.get().with_thread().release_at(ending),
    };
    loop {
        let Some(at) = release_at() else {
            return pending().await;
        };
        sleep_until(at.into()).await;
        if release_at() == Some(at) {
            let job = &claim.job;
            tracing::warn!("the lease of job {job} ends, and it may run elsewhere; cancelling it");
            cancel.cancel(CancelReason::LeaseOver);
            return pending().await;
        }
    }
}

async fn run(
    worker: &Worker,
    claim: &Claim,
    job: &Job,
    cancel: &CancelHandle,
    left: Option<LeftWork>,
) -> AttemptEnd {
    let known = match &left {
        Some(_) => Some(known_events(worker, &claim.job, cancel).await),
        None => None,
    };
    let (journal, announced, turns) = match known {
        Some(known) => (
            Journal::continuing(known.steps),
            known.questions,
            known.turns,
        ),
        None => (Journal::of(job), HashSet::new(), 0),
    };
    worker.logins.borrow_mut().remove(&claim.job);
    let login = Login::of(&attempt_spec::codex_home(job, &worker.options)).await;
    let login = login.ok();
    let running = async {
        let working = async {
            match StoredRun::of(&job.request) {
                Some(stored) => {
                    let left = match left {
                        Some(LeftWork::Run(left)) => Some((left, turns)),
                        Some(LeftWork::Turn(_)) | None => None,
                    };
                    let run = run_attempt::run(worker, claim, job, stored, &journal, cancel, left);
                    let done = Box::pin(run).await;
                    let final_write = final_write(cancel.why(), done.outcome);
                    (done, final_write)
                }
                None => {
                    let left = match left {
                        Some(LeftWork::Turn(left)) => Some((*left, announced)),
                        Some(LeftWork::Run(_)) | None => None,
                    };
                    let call = run_call(worker, claim, job, &journal, cancel, left);
                    let mut done = Box::pin(call).await;
                    let final_write = final_write(cancel.why(), done.outcome);
                    if let FinalWrite::Finish(ending) = final_write {
                        Box::pin(notify_end(worker, job, ending, &mut done, cancel)).await;
                    }
                    (done, final_write)
                }
            }
        };
        let ended = worker.work.on(working).await;
        journal.close();
        ended
    };
    let ((done, final_write), ()) = tokio::join!(running, journal.write(worker, claim, cancel));
    if let Some(failure) = &done.report.failure
        && failure.class == FailureClass::Timeout.name()
    {
        tracing::warn!("{}", failure.message);
    }
    if cancel.why() == Some(CancelReason::Lost) {
        return AttemptEnd::NotOurs;
    }
    write_end(worker, claim, job, final_write, done, login, cancel).await
}

/// What the store has of the attempt that an earlier worker has begun. Nobody follows its turn meanwhile, so
/// a store that takes long is not waited for: then some steps are stored twice.
async fn known_events(worker: &Worker, job: &JobId, cancel: &CancelHandle) -> KnownEvents {
    let reading = timeout(KNOWN_TIMEOUT, worker.known_events(job));
    let known = cancel.token.run_until_cancelled(reading).await;
    known.and_then(Result::ok).unwrap_or_default()
}

/// The specification of an attempt, the engine that it uses, and the state of the call if an earlier
/// worker has begun it. The turn of such a call is ended if the job may not run any more.
async fn start_of<'a>(
    worker: &'a Worker,
    job: &Job,
    left: Option<LeftTurn>,
) -> Result<(AttemptSpec, EngineHandle<'a>, Option<CallRecord>), BadAttemptSpec> {
    let Some(LeftTurn { mut engine, record }) = left else {
        let (spec, codex) = spec_and_engine(worker, job).await?;
        return Ok((spec, codex, None));
    };
    let taken_over = engine.wait_for(Option::is_some).await;
    let shared = taken_over.ok().and_then(|shared| shared.clone().flatten());
    let shared = shared.ok_or(BadAttemptSpec::NotTakenOver)?;
    let codex = worker.engines.handle(&shared);
    match attempt_spec::attempt_spec(job, &worker.options).await {
        Ok(spec) => Ok((spec, codex, Some(record))),
        Err(error) => {
            engines::close(codex.engine(), &record.session).await;
            Err(error)
        }
    }
}

/// The specification of an attempt, and the engine that it uses.
async fn spec_and_engine<'a>(
    worker: &'a Worker,
    job: &Job,
) -> Result<(AttemptSpec, EngineHandle<'a>), BadAttemptSpec> {
    let options = &worker.options;
    let codex_home = attempt_spec::codex_home(job, options);
    let spec = attempt_spec::attempt_spec(job, options).await?;
    let chosen = attempt_spec::chosen(job, options);
    let mail = spec.mail.clone();
    let engine = worker
        .engines
        .of(chosen, &codex_home, mail, &options.tools)?;
    Ok((spec, engine))
}

async fn run_call(
    worker: &Worker,
    claim: &Claim,
    job: &Job,
    journal: &Journal,
    cancel: &CancelHandle,
    left: Option<(LeftTurn, HashSet<String>)>,
) -> AttemptResult {
    let options = &worker.options;
    let (left, announced) = left.unzip();
    if left.is_some() {
        // The earlier worker may have taken an answer without passing it on.
        cancel.instructed.notify_one();
    }
    let (spec, codex, record) = match start_of(worker, job, left).await {
        Ok(start) => start,
        Err(error) => return AttemptResult::without_codex(&error, job),
    };
    let AttemptSpec {
        mut request,
        if_unknown,
        mail: _,
    } = spec;
    let alerts = notifications::alerts_of_call(job, options);
    let alert = |alert: &Alert| {
        if let Some(alerts) = &alerts {
            alerts.give(&job.summary.id, alert);
        }
    };
    let on_question = |question: JobQuestion| {
        if let Some(alerts) = &alerts {
            alerts.ask(question);
        }
    };
    let stalls = StallWatch::new(options.stall, &alert);
    let (dialog, mut directives) = Dialog::of(worker, claim, job, journal, cancel);
    let dialog = dialog.continuing(announced.unwrap_or_default());
    let handle_update = |news: CallUpdate<'_>| {
        if let CallUpdate::Record(call) = &news {
            let record = AttemptRecord {
                claim: claim.clone(),
                takers: Vec::new(),
                call: Some((*call).clone()),
                run: None,
            };
            codex.engine().keep(claim.job.as_str(), &record);
        }
        stalls.handle_update(&news);
        journal.handle_update(&news);
        dialog.handle_update(&news, &on_question);
    };
    let exchange = async {
        let engine = codex.engine();
        let outcome = match record {
            Some(record) => {
                let control = Control {
                    cancel: cancel.token.clone(),
                    directives: Some(&mut directives),
                };
                let turn = call::resume(engine, &request, record, handle_update, control);
                Box::pin(turn).await
            }
            None => {
                cancel.token.run_until_cancelled(codex.start()).await;
                let turn = run_turn(
                    engine,
                    &mut request,
                    if_unknown,
                    handle_update,
                    cancel,
                    &mut directives,
                );
                turn.await
            }
        };
        engine.forget(claim.job.as_str());
        // Drop the remaining directives, which answers their senders.
        directives.close();
        while directives.try_recv().is_ok() {}
        if outcome.class() == Some(FailureClass::Auth) || outcome.leaves_threads {
            codex.retire();
        }
        codex.tidy().await;
        dialog.close();
        AttemptResult::of(outcome, request.keep_stream, job)
    };
    tokio::select! {
        (done, ()) = async { tokio::join!(exchange, dialog.carry()) } => done,
        never = stalls.watch() => match never {},
    }
}

/// Runs the turn of an attempt. If Codex does not know the thread of an earlier attempt, runs the
/// turn once more, in the way in which that attempt has started; `request` then says so.
async fn run_turn(
    engine: &Engine,
    request: &mut CallRequest,
    if_unknown: IfUnknown,
    handle_update: impl Fn(CallUpdate<'_>) + Copy,
    cancel: &CancelHandle,
    directives: &mut mpsc::UnboundedReceiver<PendingDirective>,
) -> CallOutcome {
    let control = Control {
        cancel: cancel.token.clone(),
        directives: Some(&mut *directives),
    };
    let outcome = Box::pin(call::run(engine, request, handle_update, control)).await;
    let (IfUnknown::Begin(resume), Some(FailureClass::UnknownSession)) =
        (if_unknown, outcome.class())
    else {
        return outcome;
    };
    request.resume = resume;
    let control = Control {
        cancel: cancel.token.clone(),
        directives: Some(directives),
    };
    Box::pin(call::run(engine, request, handle_update, control)).await
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::super::Timing;
    use super::super::attempt_spec::tests::TestHost;
    use super::*;
    use crate::store::{JobStore, new_worker_id};

    /// No attempt has a retry left: a lost look waits again, a lost turn fails.
    #[tokio::test(start_paused = true)]
    async fn look_continues_beyond_its_lease_once_its_thread_is_stored() {
        let claim = Claim {
            job: JobId::from_random(0),
            worker: new_worker_id(),
            attempt: 2,
        };
        let look = Attempt {
            number: 1,
            retry: 0,
            cancellation: Cancellation::NotRequested,
            phase: AttemptPhase::Look,
        };
        let Timing { lease, ending, .. } = Timing::default();
        for (thread, why) in [
            (ThreadRecord::Absent, Some(CancelReason::LeaseOver)),
            (ThreadRecord::Stored, None),
        ] {
            let cancel = CancelHandle::default();
            let until = Cell::new(Lease::new(look, Instant::now().into_std(), lease));
            let attempt = async {
                sleep(lease / 2).await;
                if thread == ThreadRecord::Stored {
                    cancel.note_thread();
                }
                sleep(lease).await;
            };
            tokio::select! {
                never = cancel_before_lease_ends(ending, &claim, &until, &cancel) => match never {},
                () = attempt => {}
            }
            assert_eq!(cancel.why(), why, "{thread:?}");
        }
    }

    #[tokio::test]
    async fn later_attempt_waits_for_the_end_of_the_earlier_one() {
        let host = TestHost::new();
        let options = host.options();
        let store = JobStore::open(&options.location, &options.access()).await;
        let worker = Rc::new(Worker::new(store.unwrap(), options));
        let (job, id) = (JobId::from_random(0), worker.id().clone());
        let held = |attempt| {
            let claim = Claim {
                job: job.clone(),
                worker: id.clone(),
                attempt,
            };
            HeldJob::new(&worker, &claim)
        };
        let earlier = held(1).unwrap();
        assert!(held(1).is_none(), "two attempts with one claim");
        assert_eq!(earlier.cancel.why(), None);
        let later = held(2).unwrap();
        assert_eq!(earlier.cancel.why(), Some(CancelReason::Lost));
        assert!(later.earlier_ended().now_or_never().is_none());
        drop(earlier);
        later.earlier_ended().await;
        // The end of the earlier attempt does not remove the handle of the later one.
        assert!(worker.cancel_handles.borrow().contains_key(&job));
    }

    #[test]
    fn gravest_cancel_reason_counts() {
        let cancel = CancelHandle::default();
        for (reason, counts) in [
            (CancelReason::JobCancelled, CancelReason::JobCancelled),
            (CancelReason::WorkerEnds, CancelReason::JobCancelled),
            (CancelReason::Lost, CancelReason::Lost),
            (CancelReason::LeaseOver, CancelReason::Lost),
        ] {
            cancel.cancel(reason);
            assert_eq!(cancel.why(), Some(counts));
        }
        assert!(cancel.token.is_cancelled());
    }
}
