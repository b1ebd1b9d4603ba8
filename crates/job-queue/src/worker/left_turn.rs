//! A turn that an earlier worker of this machine has begun, as its attempt continues it.

use std::collections::HashSet;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::Worker;
use super::dialog::ASKED;
use super::engines::SharedEngine;
use super::journal::AGAIN;
use crate::call::{CallRecord, KnownSteps};
use crate::logic::{JobId, WorkerId};
use crate::store::{Claim, StoredEvent};

/// What a worker stores with the guard of an app-server about an attempt at a job.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AttemptRecord {
    pub(super) claim: Claim,
    /// The workers that were about to take the job over, and may have been killed then.
    #[serde(default)]
    pub(super) takers: Vec<WorkerId>,
    pub(super) call: CallRecord,
}

/// A turn that the earlier worker has begun.
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
            // The turn of a repeated attempt has other steps.
            AGAIN => *self = Self::default(),
            ASKED => self.questions.extend(question_of(&event.data)),
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
        known.add(&event(ASKED, r#"{"words":"asks","request_id":"req_1"}"#));
        assert!(known.steps.contain(r#"{"type":"turn.started"}"#));
        assert_eq!(known.questions, ["req_1".to_owned()].into());
        known.add(&event(AGAIN, r#"{"attempt":2}"#));
        assert!(!known.steps.contain(r#"{"type":"turn.started"}"#));
        assert!(known.questions.is_empty());
    }
}
