//! The events of a thread, on their way from Codex's reader to the job.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use codex_mcp_core::work::Recorder;
use serde_json::Value;
use tokio::sync::mpsc;

use super::hearing::Hearing;
use crate::engine::command::Opened;
use crate::engine::{Engine, EngineError};

/// How many events wait at most. The job takes them as often as Codex is read.
const WAITING: usize = 4096;

/// The events of one thread.
pub(super) struct Events {
    coming: mpsc::Receiver<Value>,
    next: Option<Value>,
    lost: Arc<AtomicU64>,
}

impl Events {
    /// Those of a session from now on.
    pub(super) fn of(engine: &Engine, opened: &Opened) -> Result<Self, EngineError> {
        let (sender, coming) = mpsc::channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let (recorder, uncounted) = (Mutex::new(Recorder::default()), Arc::clone(&lost));
        engine.hear(&opened.session, move |heard| {
            let event = recorder
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
        })
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
