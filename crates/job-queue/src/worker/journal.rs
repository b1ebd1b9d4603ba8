//! What Codex says, on its way into the store.
//!
//! Codex is read as fast as it writes, whatever the store does: what comes is put into
//! a queue, and written from there, all that has come meanwhile at once. There is room
//! for so much; what doesn't fit is left out and counted, and the last event then
//! says how much that was.

use std::cell::RefCell;
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
use crate::call::News;
use crate::store::{Appended, Claim, Job, LONGEST_TEXT, NewEvent, StoreError, Written};

/// How much waits to be written, in bytes: so much, or one event that is longer.
pub const QUEUE_LIMIT: usize = 8 << 20;

/// The kind of the event that says how many were left out: `{"dropped":N}`.
pub const DROPPED: &str = "codex-mcp/dropped";

/// The kind of the event that says that the job is run again: `{"attempt":N}`.
pub const AGAIN: &str = "codex-mcp/attempt";

/// The kind of the event that says that the job is put back to wait, and until when:
/// `{"words":TEXT}`.
pub const WAITS: &str = "codex-mcp/waits";

/// What an event counts for beside its text, in bytes.
const OVERHEAD: usize = 100;

/// How much is written at once, in events and in bytes.
const BATCH: usize = 500;
const BATCH_BYTES: usize = 1 << 20;

/// What is written together comes within this time.
const GATHERING: Duration = Duration::from_millis(20);

/// What was heard and is not written yet.
#[derive(Debug, Default)]
pub(super) struct Journal {
    pages: RefCell<Pages>,
    news: Notify,
    /// Cancelled when there is nothing more to come.
    closed: CancellationToken,
}

#[derive(Debug, Default)]
struct Pages {
    session: Option<ThreadId>,
    events: VecDeque<NewEvent>,
    size: usize,
    dropped: u64,
}

/// Whether there is more to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    Open,
    Closed,
}

/// What is to be written next.
#[derive(Debug, PartialEq, Eq)]
enum Page {
    Session(ThreadId),
    Events(Vec<NewEvent>),
    /// So many events were left out.
    Dropped(u64),
    /// Nothing yet.
    Blank,
    /// Nothing any more.
    Last,
}

impl Journal {
    /// The journal of an attempt. One that comes after a wait goes on with the attempt before
    /// it, which has said that the job runs again.
    pub(super) fn of(job: &Job) -> Self {
        let journal = Self::default();
        let attempt = attempt_of(job).number;
        if attempt > 1 && job.wait_history.last.is_none() {
            journal.pages.borrow_mut().events.push_back(NewEvent {
                kind: AGAIN.to_owned(),
                data: json!({ "attempt": attempt }).to_string(),
            });
        }
        journal
    }

    /// Takes in what Codex says.
    pub(super) fn hear(&self, news: &News<'_>) {
        match news {
            News::Session(session) => return self.note_session(session),
            News::Lost(number) => {
                let mut pages = self.pages.borrow_mut();
                pages.dropped = pages.dropped.saturating_add(*number);
                return;
            }
            News::Event(event, line) => {
                self.pages.borrow_mut().add(kind(event, line), line);
            }
            // The dialog notes these.
            News::Questions(_) | News::Followed(_) => return,
        }
        self.news.notify_one();
    }

    /// Takes in Codex's name for the conversation.
    pub(super) fn note_session(&self, session: &ThreadId) {
        self.pages.borrow_mut().session = Some(session.clone());
        self.news.notify_one();
    }

    /// Takes in something of our own.
    pub(super) fn note(&self, kind: &str, data: &Value) {
        let data = data.to_string();
        self.pages.borrow_mut().add(kind.to_owned(), &data);
        self.news.notify_one();
    }

    /// Says that there is nothing more to come.
    pub(super) fn close(&self) {
        self.closed.cancel();
        self.news.notify_one();
    }

    /// Writes until there is nothing more to come and all is written, or the job is
    /// not ours any more.
    pub(super) async fn write(&self, worker: &Worker, claim: &Claim, cancel: &CancelHandle) {
        while cancel.why() != Some(CancelReason::Lost) {
            let page = self.pages.borrow_mut().turn(self.extent());
            let written = match page {
                Page::Session(session) => note(worker, claim, &session).await,
                Page::Events(events) => {
                    let written = self.append(worker, claim, &events).await;
                    written.unwrap_or_else(|error| {
                        tracing::warn!("{} events are left out: {error}", events.len());
                        self.pages.borrow_mut().leave_out(events.len());
                        Written::Done
                    })
                }
                Page::Dropped(number) => {
                    let kind = DROPPED.to_owned();
                    let data = json!({ "dropped": number }).to_string();
                    let written = self.append(worker, claim, &[NewEvent { kind, data }]).await;
                    written.unwrap_or_else(|error| {
                        tracing::warn!("that {number} events were left out is not noted: {error}");
                        Written::Done
                    })
                }
                Page::Blank => {
                    self.news.notified().await;
                    Written::Done
                }
                Page::Last => return,
            };
            if written == Written::Lost {
                cancel.cancel(CancelReason::Lost);
            }
        }
    }

    async fn append(
        &self,
        worker: &Worker,
        claim: &Claim,
        events: &[NewEvent],
    ) -> Result<Written, StoreError> {
        let append = async || worker.store.append(claim, events).await;
        // What is beyond the store's own bound is marked by the store.
        if worker.trouble.attempt(append).await? == Appended::Lost {
            return Ok(Written::Lost);
        }
        // Each write costs as much as some hundred events. That time is over is what is
        // waited for.
        let _ = timeout(GATHERING, self.closed.cancelled()).await;
        Ok(Written::Done)
    }

    fn extent(&self) -> Extent {
        match self.closed.is_cancelled() {
            true => Extent::Closed,
            false => Extent::Open,
        }
    }
}

async fn note(worker: &Worker, claim: &Claim, session: &ThreadId) -> Written {
    let note = async || worker.store.note_session(claim, session.as_str()).await;
    worker.trouble.insist(note).await
}

impl Pages {
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

    fn turn(&mut self, extent: Extent) -> Page {
        if let Some(session) = self.session.take() {
            return Page::Session(session);
        }
        let events = self.batch();
        match (events.is_empty(), extent) {
            (false, _) => Page::Events(events),
            (true, Extent::Open) => Page::Blank,
            (true, Extent::Closed) => match std::mem::take(&mut self.dropped) {
                0 => Page::Last,
                number => Page::Dropped(number),
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

/// Codex's own word for it.
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

    use super::*;
    use crate::logic::WaitHistory;
    use crate::store::{JobStore, NewJob, Request, new_worker_id};

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
        let is_said = |job: &Job| !Journal::of(job).pages.borrow().events.is_empty();
        let first = claim().await;
        store.give_up(&first.claim, "lost").await.unwrap();
        let second = claim().await;
        assert!(is_said(&second.job));
        let waiting = WaitHistory::default()
            .next(None, SystemTime::now())
            .unwrap();
        let put_back = store.put_back(&second.claim, &waiting, None);
        put_back.await.unwrap();
        store.look_now(&job.id).await.unwrap();
        let look = claim().await;
        assert_eq!(attempt_of(&look.job).number, 2);
        assert!(!is_said(&look.job));
    }

    fn said(pages: &mut Pages, length: usize) {
        pages.add("turn.started".to_owned(), &"x".repeat(length));
    }

    fn sizes(page: Page) -> Vec<usize> {
        match page {
            Page::Events(events) => events.iter().map(|event| event.data.len()).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_has_come_is_written_together() {
        let mut pages = Pages::default();
        assert_eq!(pages.turn(Extent::Open), Page::Blank);
        for _ in 0..BATCH + 1 {
            said(&mut pages, 10);
        }
        let session = ThreadId::parse("01a200a4-af16-7971-bdb2-fa12438e61e4").unwrap();
        pages.session = Some(session.clone());
        assert_eq!(pages.turn(Extent::Closed), Page::Session(session));
        assert_eq!(sizes(pages.turn(Extent::Closed)).len(), BATCH);
        assert_eq!(sizes(pages.turn(Extent::Closed)).len(), 1);
        assert_eq!(pages.turn(Extent::Closed), Page::Last);
        assert_eq!(pages.size, 0);
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_counted() {
        let mut pages = Pages::default();
        said(&mut pages, LONGEST_TEXT + 1);
        said(&mut pages, LONGEST_TEXT);
        said(&mut pages, 1);
        assert_eq!(sizes(pages.turn(Extent::Closed)), [LONGEST_TEXT]);
        while pages.dropped == 2 {
            said(&mut pages, 1 << 20);
        }
        assert_eq!(pages.events.len(), 7);
        for _ in 0..7 {
            assert_eq!(sizes(pages.turn(Extent::Closed)), [1 << 20]);
        }
        assert_eq!(pages.turn(Extent::Closed), Page::Dropped(3));
        assert_eq!(pages.turn(Extent::Closed), Page::Last);
    }

    #[test]
    fn an_event_of_a_newer_codex_keeps_its_name() {
        let kind = |line: &str| kind(&serde_json::from_str(line).unwrap(), line);
        assert_eq!(kind(r#"{"type":"turn.completed"}"#), "turn.completed");
        assert_eq!(kind(r#"{"type":"moon.rose","item":7}"#), "moon.rose");
    }
}
