//! The events of a thread, on their way from Codex's reader to the job.
//!
//! The reader serves all threads and does not wait for a job. It takes each event into the
//! job's [`Digest`] itself, so that a job that falls behind loses lines of its log and never
//! its answer.

use std::mem;
use std::sync::{Arc, Mutex};

use codex_engine::command::Opened;
use codex_engine::logic::work::{Digest, Recorder};
use codex_engine::{Engine, EngineError};
use codex_protocol::codex::{Heard, Item, Notification};
use tokio::sync::mpsc;

use super::hearing::{Hearing, Line, lock};

/// The most bytes of events that wait for the job.
const WAITING_LIMIT: usize = 16 * 1024 * 1024;

/// The events of one thread.
pub(super) struct Events {
    coming: mpsc::UnboundedReceiver<Line>,
    next: Option<Line>,
    shared: Arc<Mutex<Shared>>,
}

/// What the reader and the job both use.
struct Shared {
    recorder: Recorder,
    digest: Arc<Mutex<Digest>>,
    waiting_bytes: usize,
    lost: u64,
    has_subagents: bool,
}

impl Events {
    /// Those of a session from now on.
    ///
    /// # Errors
    ///
    /// Those of [`Engine::hear`].
    pub(super) fn of(
        engine: &Engine,
        opened: &Opened,
        digest: Arc<Mutex<Digest>>,
    ) -> Result<Self, EngineError> {
        let (sender, coming) = mpsc::unbounded_channel();
        let shared = Arc::new(Mutex::new(Shared::new(digest)));
        let reader = Arc::clone(&shared);
        engine.hear(&opened.session, move |heard| {
            if let Some(line) = lock(&reader).take(heard) {
                // A job that is over wants no more of them.
                let _ = sender.send(line);
            }
        })?;
        Ok(Self {
            coming,
            next: None,
            shared,
        })
    }

    /// Whether Codex has begun threads of sub-agents.
    pub(super) fn has_subagents(&self) -> bool {
        lock(&self.shared).has_subagents
    }

    /// The recorder, which knows the steps of the turn.
    pub(super) fn recorder(&self) -> Recorder {
        mem::take(&mut lock(&self.shared).recorder)
    }

    /// Waits for the next one.
    pub(super) async fn come(&mut self) {
        if self.next.is_none() {
            self.next = self.coming.recv().await;
        }
        if self.next.is_none() {
            // The session is gone, and its end is told elsewhere.
            std::future::pending::<()>().await;
        }
    }

    /// Tells all that have come.
    pub(super) fn tell(&mut self, hearing: &mut Hearing<'_>) {
        while let Some(line) = self.next.take().or_else(|| self.coming.try_recv().ok()) {
            lock(&self.shared).waiting_bytes -= line.json.len();
            hearing.tell(&line);
        }
        match mem::take(&mut lock(&self.shared).lost) {
            0 => {}
            lost => hearing.lost(lost),
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
        }
    }

    /// Takes in what Codex says; an event that the job is to get, if it has room for it.
    fn take(&mut self, heard: &Heard<'_>) -> Option<Line> {
        if let Notification::ItemCompleted(Item::CollabAgentToolCall { children }) = &heard.news {
            self.has_subagents |= !children.is_empty();
        }
        let line = Line::of(&self.recorder.take(heard)?);
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
    fn job_that_falls_behind_loses_lines_and_not_the_answer() {
        let digest = Arc::default();
        let mut shared = Shared::new(Arc::clone(&digest));
        let mut says = |text: &str| {
            let item = json!({ "type": "agentMessage", "id": "1", "text": text });
            let params = json!({ "threadId": "t", "turnId": "u", "item": item });
            let params = to_raw_value(&params).unwrap();
            let heard = Heard::read("item/completed", &params).unwrap().unwrap();
            shared.take(&heard).is_some()
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
