//! The work that an earlier worker of this machine has begun, as its attempt continues it.

use std::collections::HashSet;
use std::rc::Rc;

use codex_engine::LeftAppServer;
use goal_run::RunRecord;
use serde::Deserialize;
use tokio::sync::watch;

use super::Worker;
use super::dialog::ASKED;
use super::engines::SharedEngine;
use super::journal::{AGAIN, WAITS};
use super::reporter::TURN_ENDED;
use crate::call::{CallRecord, KnownSteps};
use crate::logic::JobId;
use crate::store::StoredEvent;

/// The work of an attempt that the earlier worker has begun.
pub(super) enum LeftWork {
    Turn(Box<LeftTurn>),
    Run(Box<LeftRun>),
}

/// A run that the earlier worker has begun.
pub(super) struct LeftRun {
    pub(super) app_server: LeftAppServer,
    pub(super) record: RunRecord,
}

/// The turn of a call that the earlier worker has begun.
pub(super) struct LeftTurn {
    /// The engine of the turn: `None` until it has been taken over, `Some(None)` if it cannot be.
    pub(super) engine: watch::Receiver<Option<Option<Rc<SharedEngine>>>>,
    pub(super) record: CallRecord,
}

/// What the earlier worker has stored of a turn.
#[derive(Default)]
pub(super) struct KnownEvents {
    pub(super) steps: KnownSteps,
    /// The IDs of the questions that it has announced.
    pub(super) questions: HashSet<String>,
    /// How many ends of turns of a run it has recorded.
    pub(super) turns: u32,
}

impl Worker {
    /// What the store has of the running attempt at a job. If it cannot be read, steps are stored twice.
    pub(super) async fn known_events(&self, job: &JobId) -> KnownEvents {
        let read = async || {
            let mut known = KnownEvents::default();
            let note = |event| known.add(&event);
            self.store.each_of_tail(job, u32::MAX, note).await?;
            Ok(known)
        };
        let known = self.store_health.retry(read).await;
        known.unwrap_or_else(|error| {
            tracing::warn!("cannot read the events of job {job}: {error}");
            KnownEvents::default()
        })
    }
}

impl KnownEvents {
    fn add(&mut self, event: &StoredEvent) {
        match event.kind.as_str() {
            // A repeated attempt, also one after a wait, has other steps.
            AGAIN | WAITS => *self = Self::default(),
            ASKED => self.questions.extend(question_of(&event.data)),
            TURN_ENDED => self.turns = self.turns.saturating_add(1),
            _ => {
                self.steps.add(&event.data);
            }
        }
    }
}

/// The ID of the question that an event announces.
fn question_of(event: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Asked {
        request_id: String,
    }
    let asked: Asked = serde_json::from_str(event).ok()?;
    Some(asked.request_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_attempt_has_other_steps_and_questions() {
        let event = |kind: &str, data: &str| StoredEvent {
            sequence: 1,
            at: std::time::UNIX_EPOCH,
            kind: kind.to_owned(),
            data: data.to_owned(),
        };
        let mut known = KnownEvents::default();
        known.add(&event("turn.started", r#"{"type":"turn.started"}"#));
        known.add(&event(TURN_ENDED, r#"{"words":"ended","turn":3}"#));
        assert_eq!(known.turns, 1);
        known.add(&event(ASKED, r#"{"words":"asks","request_id":"req_1"}"#));
        assert!(known.steps.contain(r#"{"type":"turn.started"}"#));
        assert_eq!(known.questions, ["req_1".to_owned()].into());
        known.add(&event(AGAIN, r#"{"attempt":2}"#));
        assert!(!known.steps.contain(r#"{"type":"turn.started"}"#));
        assert!(known.questions.is_empty());
        assert_eq!(known.turns, 0);
    }
}
