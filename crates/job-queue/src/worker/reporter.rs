//! Writes the events of a run into the job's journal.

use std::cell::{Cell, RefCell};

use codex_engine::Engine;
use codex_engine::logic::action::{DecidedBy, Decision};
use codex_protocol::codex::{Ask, SandboxMode, ThreadId};
use goal_run::logic::findings::{Finding, Verdict};
use goal_run::logic::outcome::TurnRecord;
use goal_run::spec::Approve;
use goal_run::watcher::{RunEvent, Watcher, WriteConsent};
use goal_run::{Caller, RunRecord, words};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::attempt_record::AttemptRecord;
use super::journal::Journal;
use crate::run::spec::StoredRun;
use crate::store::Claim;

/// The event kinds of a run. The data of each has `words`, a line for people.
pub const BEGINS: &str = "codex-mcp/run";
/// See [`BEGINS`].
pub const THREAD: &str = "codex-mcp/thread";
/// See [`BEGINS`].
pub(super) const WARNING: &str = "codex-mcp/warning";
/// See [`BEGINS`].
pub const TURN: &str = "codex-mcp/turn";
/// See [`BEGINS`]. Within a turn, `turn` and `most_turns` are its number and the limit of turns: the
/// event of the turn itself may be far back.
pub const STEP: &str = "codex-mcp/step";
/// See [`BEGINS`]. The other fields are the turn's line of evidence.
pub const TURN_ENDED: &str = "codex-mcp/turn_ended";

/// The longest record of a run that is kept for the next worker, in bytes of JSON (16 MiB). A guard has
/// 64 MiB.
const LONGEST_RECORD: usize = 16 << 20;

/// Records a run, and answers Codex's questions itself, as there is nobody to ask.
pub(super) struct Reporter<'a> {
    journal: &'a Journal,
    engine: &'a Engine,
    claim: &'a Claim,
    caller: Caller,
    approve: Approve,
    most_turns: u32,
    /// The number of the turn, from 1; 0 before the first.
    turn: Cell<u32>,
    thread: RefCell<Option<ThreadId>>,
    /// How many ends of turns are still to be reported that an earlier worker has recorded.
    recorded_turns: Cell<u32>,
}

impl<'a> Reporter<'a> {
    pub(super) fn new(
        journal: &'a Journal,
        engine: &'a Engine,
        claim: &'a Claim,
        stored: &StoredRun,
    ) -> Self {
        Self {
            journal,
            engine,
            claim,
            caller: stored.caller,
            approve: stored.spec.approve,
            most_turns: stored.spec.limits.turns(),
            turn: Cell::default(),
            thread: RefCell::default(),
            recorded_turns: Cell::default(),
        }
    }

    /// Continues a run that an earlier worker has begun, and of which it has recorded the ends of this
    /// many turns.
    pub(super) fn continue_from(&self, record: &RunRecord, recorded_turns: u32) {
        self.turn.set(record.turn());
        if let Some(thread) = record.thread() {
            self.thread.replace(Some(thread.clone()));
            self.journal.note_session(thread);
        }
        let known = recorded_turns.saturating_sub(record.ended_turns());
        self.recorded_turns.set(known);
    }

    /// Has the guard of Codex store the record, unless it is too long.
    fn keep_record(&self, record: RunRecord) {
        let record = AttemptRecord {
            claim: self.claim.clone(),
            takers: Vec::new(),
            call: None,
            run: Some(Box::new(record)),
        };
        let job = self.claim.job.as_str();
        match to_raw_value(&record) {
            Ok(record) if record.get().len() <= LONGEST_RECORD => self.engine.keep(job, &record),
            Ok(record) => {
                tracing::warn!(
                    "no other worker could continue this run: its record has {} bytes",
                    record.get().len()
                );
                self.engine.forget(job);
            }
            Err(error) => {
                tracing::error!("no other worker could continue this run: {error}");
                self.engine.forget(job);
            }
        }
    }

    /// The thread, if there was one.
    pub(super) fn thread(&self) -> Option<ThreadId> {
        self.thread.borrow().clone()
    }

    fn step(&self, words: &str) {
        let data = match self.turn.get() {
            0 => json!({ "words": words }),
            turn => json!({ "words": words, "turn": turn, "most_turns": self.most_turns }),
        };
        self.journal.note(STEP, &data);
    }

    fn turn_ended(&self, record: &TurnRecord) {
        let mut data = json!(record);
        let words = format!(
            "{}; {}",
            words::ended(record).trim(),
            criteria_text(&record.criteria)
        );
        if let Value::Object(members) = &mut data {
            members.insert("words".to_owned(), words.into());
        }
        self.journal.note(TURN_ENDED, &data);
    }
}

/// The number of criteria that hold, and the first that is not met.
fn criteria_text(verdict: &Verdict) -> String {
    let all = verdict.iter().count();
    let is_lacking = |finding: &Finding| !matches!(finding, Finding::Satisfied { .. });
    let lacking = verdict.iter().filter(|judged| is_lacking(&judged.finding));
    let holds = all - lacking.count();
    match verdict.missing().first() {
        None => format!("all {all} criteria hold"),
        Some(first) => format!("{holds} of {all} criteria hold; not met: {first}"),
    }
}

impl Watcher for Reporter<'_> {
    fn caller(&self) -> Caller {
        self.caller
    }

    fn on_event(&self, event: RunEvent<'_>) {
        match event {
            RunEvent::Begins { top, verdict } => {
                let words = format!("run in {}; {}", top.display(), criteria_text(verdict));
                let data = json!({ "words": words, "criteria": verdict });
                self.journal.note(BEGINS, &data);
            }
            RunEvent::Thread {
                thread,
                sandbox,
                grants,
            } => {
                self.thread.replace(Some(thread.clone()));
                self.journal.note_session(thread);
                let allowed = words::grants(grants);
                let allowed = allowed.filter(|_| sandbox == Some(SandboxMode::WorkspaceWrite));
                let allowed = allowed.map(|what| format!(", Codex is allowed {what}"));
                let words = format!("thread {thread}{}", allowed.unwrap_or_default());
                let data = json!({ "words": words, "thread_id": thread, "sandbox": sandbox });
                self.journal.note(THREAD, &data);
            }
            RunEvent::Warning(warning) => {
                let data = json!({ "words": format!("warning: {warning}") });
                self.journal.note(WARNING, &data);
            }
            RunEvent::Turn(prompt) => {
                self.turn.set(prompt.turn);
                let words = words::turn(prompt, self.most_turns);
                let data = json!({ "words": words, "turn": prompt.turn, "prompt": prompt.kind });
                self.journal.note(TURN, &data);
            }
            RunEvent::Step(step) => self.step(&step.words),
            // The evidence of each turn has the tokens.
            RunEvent::Tokens(_) => {}
            RunEvent::Interrupted => self.step("interrupted; waiting for Codex to stop"),
            RunEvent::Looking => self.step("inspecting the repository"),
            RunEvent::Reviewing => self.step("reviewing the changes"),
            RunEvent::TurnEnded(record) => match self.recorded_turns.get() {
                0 => self.turn_ended(record),
                known => self.recorded_turns.set(known - 1),
            },
        }
    }

    async fn keep(&self, record: impl FnOnce() -> Option<RunRecord>) {
        match record() {
            Some(record) => self.keep_record(record),
            None => self.engine.forget(self.claim.job.as_str()),
        }
        self.engine.flush_kept().await;
    }

    async fn allows_writing(&self) -> WriteConsent {
        WriteConsent::Refused
    }

    async fn decide(&self, _: &Ask, _: Instant) -> (DecidedBy, Decision) {
        let decision = match self.approve {
            Approve::Always => Decision::Accept,
            Approve::Never | Approve::Ask => Decision::Decline,
        };
        (DecidedBy::Settings, decision)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::engines::engine;
    use super::*;
    use crate::logic::JobId;
    use crate::store::new_worker_id;

    /// The earlier worker was killed between the end of a turn and the record of the next one.
    #[tokio::test]
    async fn end_of_a_turn_that_an_earlier_worker_has_recorded_is_not_recorded_again() {
        let (journal, engine) = (Journal::default(), engine(None, Path::new("/")));
        let claim = Claim {
            job: JobId::from_random(0),
            worker: new_worker_id(),
            attempt: 1,
        };
        let stored = json!({ "order": { "task": "t", "repo": "/" } });
        let stored: StoredRun = serde_json::from_value(stored).unwrap();
        let reporter = Reporter::new(&journal, &engine, &claim, &stored);
        reporter.recorded_turns.set(1);
        let record: TurnRecord = serde_json::from_value(json!({
            "turn": 1, "prompt": "initial", "conversation": "same", "end": "completed",
            "duration_ms": 1, "commands": 0, "declined": 0, "file_changes": 0, "tool_calls": 0,
            "searches": 0, "gain": "nothing",
            "criteria": [{ "criterion": "work", "state": "satisfied", "found": "it" }],
        }))
        .unwrap();
        for queued in [0, 1, 2] {
            reporter.on_event(RunEvent::TurnEnded(&record));
            assert_eq!(journal.queued_kinds().len(), queued);
        }
        assert!(journal.queued_kinds().iter().all(|kind| kind == TURN_ENDED));
    }
}
