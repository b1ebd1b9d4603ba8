//! The events of a thread, on their way from Codex's reader to the job.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use codex_engine::command::Opened;
use codex_engine::logic::work::Recorder;
use codex_engine::{Engine, EngineError};
use codex_protocol::codex::{Item, Notification};
use serde_json::Value;
use tokio::sync::mpsc;

use super::hearing::Hearing;

/// How many events wait at most. The job takes them as often as Codex is read.
const WAITING: usize = 4096;

/// The events of one thread.
pub(super) struct Events {
    coming: mpsc::Receiver<Value>,
    next: Option<Value>,
    lost: Arc<AtomicU64>,
    has_subagents: Arc<AtomicBool>,
    recorder: Arc<Mutex<Recorder>>,
}

impl Events {
    /// Those of a session from now on.
    pub(super) fn of(engine: &Engine, opened: &Opened) -> Result<Self, EngineError> {
        let (sender, coming) = mpsc::channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let has_subagents = Arc::new(AtomicBool::new(false));
        let recorder = Arc::new(Mutex::new(Recorder::default()));
        let (recording, uncounted) = (Arc::clone(&recorder), Arc::clone(&lost));
        let begun = Arc::clone(&has_subagents);
        engine.hear(&opened.session, move |heard| {
            if let Notification::ItemCompleted(Item::CollabAgentToolCall { children }) = &heard.news
                && !children.is_empty()
            {
                begun.store(true, Ordering::Relaxed);
            }
            let event = recording
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(heard);
            if let Some(event) = event
                && let Err(mpsc::error::TrySendError::Full(_)) = sender.try_send(event)
            {
                uncounted.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        Ok(Self {
            coming,
            next: None,
            lost,
            has_subagents,
            recorder,
        })
    }

    /// Whether Codex has begun threads of sub-agents.
    pub(super) fn has_subagents(&self) -> bool {
        self.has_subagents.load(Ordering::Relaxed)
    }

    /// The recorder, which knows the steps of the turn.
    pub(super) fn recorder(&self) -> Recorder {
        let mut recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut recorder)
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
        while let Some(event) = self.next.take().or_else(|| self.coming.try_recv().ok()) {
            hearing.hear(&event);
        }
        match self.lost.swap(0, Ordering::Relaxed) {
            0 => {}
            lost => hearing.lost(lost),
        }
    }
}
