//! Derives the current step of a job from its events.

use std::time::SystemTime;

use codex_engine::logic::progress::{Activity, CurrentStep};
use codex_engine::logic::work::activity;
use codex_engine::logic::work::event::WorkEvent;
use common::text::one_line;
use serde_json::Value;

use super::logic::JobId;
use super::store::{JobStore, StoreError, StoredEvent};

/// How many of the last events are read. Steps that have started and not ended are among them.
pub const TAIL: u32 = 50;

/// The limit of the text of a run's event, in bytes.
const LONGEST: usize = 200;

/// The current step of a job, updated event by event.
#[derive(Debug, Clone, Default)]
pub struct JobActivity(Option<Activity<SystemTime>>);

impl JobActivity {
    /// Updates the step by the next event.
    pub fn take(&mut self, event: &StoredEvent) {
        let at = event.at;
        let activity = self.0.get_or_insert_with(|| Activity::new(at));
        match serde_json::from_str::<WorkEvent>(&event.data) {
            Ok(event) => activity::take(activity, &event, at),
            // An event of a run has a text for people.
            Err(_) => {
                let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
                if let Some(words) = data.get("words").and_then(Value::as_str) {
                    let words = one_line(words, LONGEST);
                    let number = |name: &str| data.get(name).and_then(Value::as_u64);
                    let words = match (number("turn"), number("most_turns")) {
                        (Some(turn), Some(most)) => format!("{words}, turn {turn} of {most}"),
                        _ => words,
                    };
                    activity.report(words, at);
                }
            }
        }
    }

    /// The current step; `None` before the first.
    #[must_use]
    pub fn step(&self, now: SystemTime) -> Option<CurrentStep> {
        let activity = self.0.as_ref()?;
        let step = CurrentStep {
            number: activity.number(),
            words: activity.words().to_owned(),
            // The clock of the store may differ from ours.
            took: now.duration_since(activity.since()).unwrap_or_default(),
        };
        (!step.words.is_empty()).then_some(step)
    }
}

/// The current step of a job after its last events, of which only some MiB are in memory at a time.
///
/// # Errors
///
/// [`StoreError`].
pub async fn current_step(
    store: &JobStore,
    job: &JobId,
    now: SystemTime,
) -> Result<Option<CurrentStep>, StoreError> {
    let mut activity = JobActivity::default();
    let mut last = 0;
    let each = store.each_of_tail(job, TAIL, |event| {
        activity.take(&event);
        last = event.sequence;
    });
    each.await?;
    // Unlike the number of steps in the tail, the sequence number never falls.
    let number = last.into();
    let step = activity.step(now);
    Ok(step.map(|step| CurrentStep { number, ..step }))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::json;

    use super::*;

    fn event(sequence: u32, seconds: u64, data: &Value) -> StoredEvent {
        StoredEvent {
            sequence,
            at: UNIX_EPOCH + Duration::from_secs(seconds),
            kind: String::new(),
            data: data.to_string(),
        }
    }

    fn step_after(events: &[StoredEvent], seconds: u64) -> Option<CurrentStep> {
        let mut activity = JobActivity::default();
        events.iter().for_each(|event| activity.take(event));
        activity.step(UNIX_EPOCH + Duration::from_secs(seconds))
    }

    #[test]
    fn step_of_a_job_is_shown_with_its_duration() {
        assert_eq!(step_after(&[], 22), None);
        let item = json!({ "type": "command_execution", "id": "1", "command": "cargo test" });
        let events = [
            event(7, 5, &json!({ "type": "turn.started" })),
            event(8, 10, &json!({ "type": "item.started", "item": item })),
        ];
        let step = step_after(&events, 22).unwrap();
        assert_eq!(step.to_string(), "running cargo test, 12 s");
    }

    #[test]
    fn step_of_a_run_names_its_turn() {
        let step = json!({ "words": "running cargo test", "turn": 2, "most_turns": 10 });
        let step = step_after(&[event(90, 10, &step)], 22).unwrap();
        assert_eq!(step.to_string(), "running cargo test, turn 2 of 10, 12 s");
        let turn = json!({ "words": "turn 2 of 10", "turn": 2 });
        let step = step_after(&[event(2, 10, &turn)], 22).unwrap();
        assert_eq!(step.words, "turn 2 of 10");
    }

    #[test]
    fn step_of_a_run_has_no_hidden_characters() {
        let words = format!("running \u{1b}[31m{}", "x".repeat(1000));
        let events = [event(1, 1, &json!({ "words": words }))];
        let step = step_after(&events, 3).unwrap();
        assert!(step.words.starts_with("running \\u{1b}[31mxxx"), "{step}");
        assert!(step.words.len() <= LONGEST, "{step}");
        assert!(step.to_string().ends_with(" …, 2 s"), "{step}");
    }
}
