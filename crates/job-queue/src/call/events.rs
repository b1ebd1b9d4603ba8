//! The queue of a thread's events between Codex's reader and the job.
//!
//! The reader serves all threads and does not wait for a job. It adds each event to the job's
//! [`Digest`] itself, so that a slow job loses lines of its log but never its answer.

use std::mem;
use std::sync::{Arc, Mutex};

use codex_engine::command::OpenThread;
use codex_engine::logic::work::{Digest, Recorder};
use codex_engine::{Engine, EngineError};
use codex_protocol::codex::{Item, Notification, ThreadNotification};
use common::sync::lock;
use tokio::sync::mpsc;

use super::event_sink::{EventLine, EventSink};
use super::steps::KnownSteps;

/// The limit of the queue, in bytes.
const WAITING_LIMIT: usize = 16 * 1024 * 1024;

/// The queue of one thread's events.
pub(super) struct EventQueue {
    coming: mpsc::UnboundedReceiver<EventLine>,
    next: Option<EventLine>,
    shared: Arc<Mutex<Shared>>,
}

/// The state that the reader and the job share.
struct Shared {
    recorder: Recorder,
    digest: Arc<Mutex<Digest>>,
    waiting_bytes: usize,
    lost: u64,
    has_subagents: bool,
    /// The steps that were taken, if Codex may repeat them.
    taken: Option<KnownSteps>,
}

impl EventQueue {
    /// Queues the events of a session from now on.
    ///
    /// # Errors
    ///
    /// Those of [`Engine::hear`].
    pub(super) fn of(
        engine: &Engine,
        opened: &OpenThread,
        digest: Arc<Mutex<Digest>>,
    ) -> Result<Self, EngineError> {
        Self::from_shared(engine, opened, Shared::new(digest))
    }

    /// As [`of`](Self::of), for a session whose turn is about to be continued.
    pub(super) fn continuing(
        engine: &Engine,
        opened: &OpenThread,
        digest: Arc<Mutex<Digest>>,
    ) -> Result<Self, EngineError> {
        let taken = Some(KnownSteps::default());
        let shared = Shared {
            taken,
            ..Shared::new(digest)
        };
        Self::from_shared(engine, opened, shared)
    }

    fn from_shared(
        engine: &Engine,
        opened: &OpenThread,
        shared: Shared,
    ) -> Result<Self, EngineError> {
        let (sender, coming) = mpsc::unbounded_channel();
        let shared = Arc::new(Mutex::new(shared));
        let reader = Arc::clone(&shared);
        engine.set_on_notification(&opened.session, move |notification| {
            if let Some(line) = lock(&reader).take(notification) {
                // The job may have ended.
                let _ = sender.send(line);
            }
        })?;
        Ok(Self {
            coming,
            next: None,
            shared,
        })
    }

    /// Whether Codex has started threads of sub-agents.
    pub(super) fn has_subagents(&self) -> bool {
        lock(&self.shared).has_subagents
    }

    /// Takes the recorder, which knows the steps of the turn.
    pub(super) fn recorder(&self) -> Recorder {
        mem::take(&mut lock(&self.shared).recorder)
    }

    /// Waits until an event is queued.
    pub(super) async fn ready(&mut self) {
        if self.next.is_none() {
            self.next = self.coming.recv().await;
        }
        if self.next.is_none() {
            // The session has closed. The end of the turn is reported in another way.
            std::future::pending::<()>().await;
        }
    }

    /// Passes all queued events on.
    pub(super) fn emit(&mut self, sink: &mut EventSink<'_>) {
        while let Some(line) = self.next.take().or_else(|| self.coming.try_recv().ok()) {
            lock(&self.shared).waiting_bytes -= line.json.len();
            sink.emit(&line);
        }
        match mem::take(&mut lock(&self.shared).lost) {
            0 => {}
            lost => sink.lost(lost),
        }
    }
}

impl Shared {
    fn new(digest: Arc<Mutex<Digest>>) -> Self {
        Self {
            recorder: Recorder::default(),
            digest,
            waiting_bytes: 0,
            lost: 0,
            has_subagents: false,
            taken: None,
        }
    }

    /// Records a notification of Codex. Returns its event for the job, if the queue has room.
    fn take(&mut self, notification: &ThreadNotification<'_>) -> Option<EventLine> {
        if let Notification::ItemCompleted(Item::CollabAgentToolCall { children }) =
            &notification.notification
        {
            self.has_subagents |= !children.is_empty();
        }
        let line = EventLine::of(&self.recorder.take(notification)?);
        if let Some(taken) = &mut self.taken
            && !taken.add(&line.json)
        {
            return None;
        }
        lock(&self.digest).take(&line.event);
        if self.waiting_bytes + line.json.len() > WAITING_LIMIT {
            self.lost += 1;
            return None;
        }
        self.waiting_bytes += line.json.len();
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    #[test]
    fn slow_job_loses_events_but_not_the_answer() {
        let digest = Arc::default();
        let mut shared = Shared::new(Arc::clone(&digest));
        let mut says = |text: &str| {
            let item = json!({ "type": "agentMessage", "id": "1", "text": text });
            let params = json!({ "threadId": "t", "turnId": "u", "item": item });
            let params = to_raw_value(&params).unwrap();
            let notification = ThreadNotification::read("item/completed", &params)
                .unwrap()
                .unwrap();
            shared.take(&notification).is_some()
        };
        let long = "x".repeat(1024 * 1024);

        let waiting = (0..20).filter(|_| says(&long)).count();
        assert_eq!(waiting, 15);
        assert!(!says(&long));
        assert!(says("Done."), "a short line has room");
        let answer = format!("Done. {long}");
        assert!(!says(&answer));

        assert_eq!(shared.lost, 7);
        let message = lock(&digest).message.take().unwrap();
        assert!(message.starts_with("Done. x"), "{}", message.len());
    }
}
