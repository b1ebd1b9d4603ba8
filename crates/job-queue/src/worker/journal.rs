//! Writes the events of an attempt to the store.
//!
//! Events are queued, so that a slow store does not slow down the reading of Codex's output, and
//! are written in batches. The queue is bounded: events beyond the limit are dropped and counted,
//! and a last event holds their number. A batch names the number of its first event, so that it can
//! be written again if the store's answer was lost.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use codex_engine::logic::work::event::WorkEvent;
use codex_protocol::codex::ThreadId;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Worker;
use super::cancel_handle::{CancelHandle, CancelReason};
use super::result::attempt_of;
use crate::call::{CallUpdate, KnownSteps};
use crate::store::{AppendOutcome, Claim, Job, LONGEST_TEXT, NewEvent, StoreError, WriteOutcome};

/// The limit of the queue, in bytes. A single longer event is accepted too.
pub const QUEUE_LIMIT: usize = 8 << 20;

/// The kind of the event that counts dropped events: `{"dropped":N}`.
pub const DROPPED: &str = "codex-mcp/dropped";

/// The kind of the event of a repeated attempt: `{"attempt":N}`.
pub const AGAIN: &str = "codex-mcp/attempt";

/// The kind of the event of a job that is put back to wait: `{"words":TEXT}`, with the end of
/// the wait.
pub const WAITS: &str = "codex-mcp/waits";

/// The overhead that is counted for each event beside its text, in bytes.
const OVERHEAD: usize = 100;

/// The kind of the event of a turn that another worker continues: `{"words":TEXT}`.
pub const CONTINUES: &str = "codex-mcp/continues";

/// The limits of a batch, in events and in bytes.
const BATCH: usize = 500;
const BATCH_BYTES: usize = 1 << 20;

/// The pause after a batch, in which events are gathered for the next one.
const GATHERING: Duration = Duration::from_millis(20);

/// The queue of events that are not written yet.
#[derive(Debug, Default)]
pub(super) struct Journal {
    pending: RefCell<PendingWrites>,
    /// The number of the next event, if it is known.
    next: Cell<Option<u32>>,
    news: Notify,
    /// Cancelled when no more events will come.
    closed: CancellationToken,
    /// The steps that an earlier worker has stored.
    stored: KnownSteps,
}

#[derive(Debug, Default)]
struct PendingWrites {
    session: Option<ThreadId>,
    events: VecDeque<NewEvent>,
    size: usize,
    dropped: u64,
}

/// The next write to the store.
#[derive(Debug, PartialEq, Eq)]
enum NextWrite {
    Session(ThreadId),
    Events(Vec<NewEvent>),
    /// The number of dropped events.
    Dropped(u64),
    /// Nothing yet.
    Wait,
    /// Nothing any more.
    Last,
}

impl Journal {
    /// The journal of an attempt. An attempt after a wait continues the one before it, which has
    /// the event of the repetition already.
    pub(super) fn of(job: &Job) -> Self {
        let journal = Self::default();
        // Before the first attempt, a job has no events.
        journal.next.set((job.attempts == 1).then_some(1));
        let attempt = attempt_of(job).number;
        if attempt > 1 && job.wait_history.last.is_none() {
            journal.pending.borrow_mut().events.push_back(NewEvent {
                kind: AGAIN.to_owned(),
                data: json!({ "attempt": attempt }).to_string(),
            });
        }
        journal
    }

    /// The journal of an attempt that an earlier worker has begun, and which has stored these steps.
    pub(super) fn continuing(stored: KnownSteps) -> Self {
        let journal = Self {
            stored,
            ..Self::default()
        };
        let words = "its worker was killed; another one continues the job";
        journal.note(CONTINUES, &json!({ "words": words }));
        journal
    }

    /// Queues an update of the call.
    pub(super) fn handle_update(&self, news: &CallUpdate<'_>) {
        match news {
            CallUpdate::Session(session) => return self.note_session(session),
            CallUpdate::Lost(number) => {
                let mut pending = self.pending.borrow_mut();
                pending.dropped = pending.dropped.saturating_add(*number);
                return;
            }
            CallUpdate::Event(_, line) if self.stored.contain(line) => return,
            CallUpdate::Event(event, line) => {
                self.pending.borrow_mut().add(kind(event, line), line);
            }
            // The dialog records the questions.
            CallUpdate::Questions(_) | CallUpdate::Followed(_) | CallUpdate::Record(_) => return,
        }
        self.news.notify_one();
    }

    /// Queues the ID of Codex's thread.
    pub(super) fn note_session(&self, session: &ThreadId) {
        self.pending.borrow_mut().session = Some(session.clone());
        self.news.notify_one();
    }

    /// Queues an event of our own.
    pub(super) fn note(&self, kind: &str, data: &Value) {
        let data = data.to_string();
        self.pending.borrow_mut().add(kind.to_owned(), &data);
        self.news.notify_one();
    }

    #[cfg(test)]
    pub(super) fn queued_kinds(&self) -> Vec<String> {
        let pending = self.pending.borrow();
        pending
            .events
            .iter()
            .map(|event| event.kind.clone())
            .collect()
    }

    /// Closes the journal: no more events will come.
    pub(super) fn close(&self) {
        self.closed.cancel();
        self.news.notify_one();
    }

    /// Writes until the journal is closed and empty, or the worker no longer has the job.
    pub(super) async fn write(&self, worker: &Worker, claim: &Claim, cancel: &CancelHandle) {
        while cancel.why() != Some(CancelReason::Lost) {
            let next = self
                .pending
                .borrow_mut()
                .next_write(self.closed.is_cancelled());
            let written = match next {
                NextWrite::Session(session) => note(worker, claim, &session, cancel).await,
                NextWrite::Events(events) => {
                    let written = self.append(worker, claim, &events).await;
                    written.unwrap_or_else(|error| {
                        tracing::warn!("{} events are dropped: {error}", events.len());
                        self.pending.borrow_mut().leave_out(events.len());
                        WriteOutcome::Done
                    })
                }
                NextWrite::Dropped(number) => {
                    let kind = DROPPED.to_owned();
                    let data = json!({ "dropped": number }).to_string();
                    let written = self.append(worker, claim, &[NewEvent { kind, data }]).await;
                    written.unwrap_or_else(|error| {
                        tracing::warn!(
                            "cannot store the number of dropped events, {number}: {error}"
                        );
                        WriteOutcome::Done
                    })
                }
                NextWrite::Wait => {
                    self.news.notified().await;
                    WriteOutcome::Done
                }
                NextWrite::Last => return,
            };
            if written == WriteOutcome::Lost {
                cancel.cancel(CancelReason::Lost);
            }
        }
    }

    async fn append(
        &self,
        worker: &Worker,
        claim: &Claim,
        events: &[NewEvent],
    ) -> Result<WriteOutcome, StoreError> {
        let first = self.next_number(worker, claim).await?;
        let append = async || worker.store.append_from(claim, first, events).await;
        let appended = worker.store_health.retry(append).await;
        // After an error, some of the events may be stored.
        let number = u32::try_from(events.len()).unwrap_or(u32::MAX);
        let next = first.saturating_add(number);
        self.next.set(appended.is_ok().then_some(next));
        // The store itself marks events beyond its limit.
        if appended? == AppendOutcome::Lost {
            return Ok(WriteOutcome::Lost);
        }
        // Each write costs as much as some hundred events, so gather more of them first.
        let _ = timeout(GATHERING, self.closed.cancelled()).await;
        Ok(WriteOutcome::Done)
    }

    /// The number of the next event. Only this attempt writes events, so it is read once.
    async fn next_number(&self, worker: &Worker, claim: &Claim) -> Result<u32, StoreError> {
        if let Some(next) = self.next.get() {
            return Ok(next);
        }
        let last = async || worker.store.latest_event(&claim.job).await;
        let last = worker.store_health.retry(last).await?;
        Ok(last.saturating_add(1))
    }
}

async fn note(
    worker: &Worker,
    claim: &Claim,
    session: &ThreadId,
    cancel: &CancelHandle,
) -> WriteOutcome {
    let note = async || worker.store.note_session(claim, session.as_str()).await;
    match worker.store_health.retry(note).await {
        Ok(WriteOutcome::Done) => {
            cancel.note_thread();
            WriteOutcome::Done
        }
        Ok(WriteOutcome::Lost) => WriteOutcome::Lost,
        // The end of the job stores the thread too.
        Err(error) => {
            tracing::warn!("cannot store the thread of the job yet: {error}");
            WriteOutcome::Done
        }
    }
}

impl PendingWrites {
    fn add(&mut self, kind: String, line: &str) {
        let size = line.len() + OVERHEAD;
        let has_room = self.events.is_empty() || self.size + size <= QUEUE_LIMIT;
        if line.len() > LONGEST_TEXT || !has_room {
            self.leave_out(1);
            return;
        }
        self.size += size;
        self.events.push_back(NewEvent {
            kind,
            data: line.to_owned(),
        });
    }

    fn leave_out(&mut self, number: usize) {
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        self.dropped = self.dropped.saturating_add(number);
    }

    fn next_write(&mut self, is_closed: bool) -> NextWrite {
        if let Some(session) = self.session.take() {
            return NextWrite::Session(session);
        }
        let events = self.batch();
        match (events.is_empty(), is_closed) {
            (false, _) => NextWrite::Events(events),
            (true, false) => NextWrite::Wait,
            (true, true) => match std::mem::take(&mut self.dropped) {
                0 => NextWrite::Last,
                number => NextWrite::Dropped(number),
            },
        }
    }

    fn batch(&mut self) -> Vec<NewEvent> {
        let mut batch = Vec::new();
        let mut size = 0;
        while batch.len() < BATCH
            && size < BATCH_BYTES
            && let Some(event) = self.events.pop_front()
        {
            size += event.data.len() + OVERHEAD;
            batch.push(event);
        }
        self.size = self.size.saturating_sub(size);
        batch
    }
}

/// The type of an event, as Codex names it.
fn kind(event: &WorkEvent, line: &str) -> String {
    #[derive(Deserialize)]
    struct Typed {
        r#type: String,
    }
    let known = match event {
        WorkEvent::ThreadStarted { .. } => "thread.started",
        WorkEvent::TurnStarted => "turn.started",
        WorkEvent::ItemStarted { .. } => "item.started",
        WorkEvent::ItemUpdated { .. } => "item.updated",
        WorkEvent::ItemCompleted { .. } => "item.completed",
        WorkEvent::TurnCompleted { .. } => "turn.completed",
        WorkEvent::TurnFailed { .. } => "turn.failed",
        WorkEvent::Error { .. } => "error",
        WorkEvent::Other => {
            let typed = serde_json::from_str::<Typed>(line);
            return typed.map_or_else(|_| "unknown".to_owned(), |typed| typed.r#type);
        }
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use settings::{Access, Location};

    use super::super::attempt_spec::tests::TestHost;
    use super::super::cancel_handle::ThreadRecord;
    use super::*;
    use crate::logic::WaitHistory;
    use crate::store::{ClaimedJob, JobStore, NewJob, Request, new_worker_id};

    const CLOSED: bool = true;

    fn thread() -> ThreadId {
        ThreadId::parse("01a200a4-af16-7971-bdb2-fa12438e61e4").unwrap()
    }

    /// A worker that has claimed a job.
    async fn worker_with_a_job(host: &TestHost) -> (Worker, ClaimedJob) {
        let options = host.options();
        let store = JobStore::open(&options.location, &options.access()).await;
        let worker = Worker::new(store.unwrap(), options);
        let job = NewJob::new(Request::new("p", "/repo"));
        worker.store.submit(&job).await.unwrap();
        let lease = worker.options.timing.lease;
        let claimed = worker.store.claim(worker.id(), "here", lease).await;
        (worker, claimed.unwrap().unwrap())
    }

    #[tokio::test]
    async fn thread_is_noted_once_the_store_has_it() {
        let host = TestHost::new();
        let (worker, claimed) = worker_with_a_job(&host).await;
        let stale = Claim {
            attempt: 7,
            ..claimed.claim.clone()
        };
        for (claim, thread_record, why) in [
            (&stale, ThreadRecord::Absent, Some(CancelReason::Lost)),
            (&claimed.claim, ThreadRecord::Stored, None),
        ] {
            let (journal, cancel) = (Journal::default(), CancelHandle::default());
            journal.note_session(&thread());
            journal.close();
            assert_eq!(cancel.thread(), ThreadRecord::Absent);
            journal.write(&worker, claim, &cancel).await;
            assert_eq!((cancel.thread(), cancel.why()), (thread_record, why));
        }
    }

    #[tokio::test]
    async fn attempt_after_a_wait_does_not_say_that_the_job_runs_again() {
        let directory = tempfile::tempdir().unwrap();
        let location = Location::Sqlite(directory.path().join("jobs.db"));
        let access = Access::of(directory.path());
        let store = JobStore::open(&location, &access).await.unwrap();
        let (worker, lease) = (new_worker_id(), Duration::from_secs(600));
        let mut job = NewJob::new(Request::new("p", "/repo"));
        job.request.retry = 1;
        store.submit(&job).await.unwrap();
        let claim = async || store.claim(&worker, "here", lease).await.unwrap().unwrap();
        let is_said = |job: &Job| !Journal::of(job).pending.borrow().events.is_empty();
        let first = claim().await;
        store.give_up(&first.claim, "lost").await.unwrap();
        let second = claim().await;
        assert!(is_said(&second.job));
        let waiting = WaitHistory::default()
            .next(None, SystemTime::now())
            .unwrap();
        let requeue = store.requeue(&second.claim, &waiting, None);
        requeue.await.unwrap();
        store.recheck_now(&job.id).await.unwrap();
        let look = claim().await;
        assert_eq!(attempt_of(&look.job).number, 2);
        assert!(!is_said(&look.job));
    }

    /// The test itself makes the first write, as if its answer had been lost.
    #[tokio::test]
    async fn batch_that_got_no_answer_is_stored_once() {
        let host = TestHost::new();
        let (worker, ClaimedJob { claim, job }) = worker_with_a_job(&host).await;
        let events = [0, 1, 2].map(|n| NewEvent {
            kind: "item".to_owned(),
            data: n.to_string(),
        });
        worker.store.append(&claim, &events).await.unwrap();
        // The second journal is that of a later attempt: it reads the number of its first event.
        for (journal, noted) in [(Journal::of(&job), 0..3), (Journal::default(), 3..4)] {
            for n in noted {
                journal.note("item", &json!(n));
            }
            journal.close();
            journal
                .write(&worker, &claim, &CancelHandle::default())
                .await;
        }
        let stored = worker.store.events(&claim.job, 0, 9).await.unwrap();
        let data = stored.iter().map(|event| event.data.as_str());
        assert_eq!(data.collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    }

    fn said(pending: &mut PendingWrites, length: usize) {
        pending.add("turn.started".to_owned(), &"x".repeat(length));
    }

    fn sizes(next: NextWrite) -> Vec<usize> {
        match next {
            NextWrite::Events(events) => events.iter().map(|event| event.data.len()).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn queued_events_are_written_in_batches() {
        let mut pending = PendingWrites::default();
        assert_eq!(pending.next_write(!CLOSED), NextWrite::Wait);
        for _ in 0..BATCH + 1 {
            said(&mut pending, 10);
        }
        let session = thread();
        pending.session = Some(session.clone());
        assert_eq!(pending.next_write(CLOSED), NextWrite::Session(session));
        assert_eq!(sizes(pending.next_write(CLOSED)).len(), BATCH);
        assert_eq!(sizes(pending.next_write(CLOSED)).len(), 1);
        assert_eq!(pending.next_write(CLOSED), NextWrite::Last);
        assert_eq!(pending.size, 0);
    }

    #[test]
    fn event_beyond_the_queue_limit_is_dropped_and_counted() {
        let mut pending = PendingWrites::default();
        said(&mut pending, LONGEST_TEXT + 1);
        said(&mut pending, LONGEST_TEXT);
        said(&mut pending, 1);
        assert_eq!(sizes(pending.next_write(CLOSED)), [LONGEST_TEXT]);
        while pending.dropped == 2 {
            said(&mut pending, 1 << 20);
        }
        assert_eq!(pending.events.len(), 7);
        for _ in 0..7 {
            assert_eq!(sizes(pending.next_write(CLOSED)), [1 << 20]);
        }
        assert_eq!(pending.next_write(CLOSED), NextWrite::Dropped(3));
        assert_eq!(pending.next_write(CLOSED), NextWrite::Last);
    }

    #[test]
    fn event_of_a_newer_codex_keeps_its_type() {
        let kind = |line: &str| kind(&serde_json::from_str(line).unwrap(), line);
        assert_eq!(kind(r#"{"type":"turn.completed"}"#), "turn.completed");
        assert_eq!(kind(r#"{"type":"moon.rose","item":7}"#), "moon.rose");
    }
}
