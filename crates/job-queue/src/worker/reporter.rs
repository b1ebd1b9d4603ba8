//! Writes the events of a run into the job's journal.

use std::cell::{Cell, RefCell};

use codex_engine::logic::action::{DecidedBy, Decision};
use codex_protocol::codex::{Ask, SandboxMode, ThreadId};
use goal_run::logic::findings::{Finding, Verdict};
use goal_run::logic::outcome::TurnRecord;
use goal_run::spec::Approve;
use goal_run::watcher::{RunEvent, Watcher, WriteConsent};
use goal_run::{Caller, words};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::journal::Journal;
use crate::run::spec::StoredRun;

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

/// Records a run, and answers Codex's questions itself, as there is nobody to ask.
pub(super) struct Reporter<'a> {
    journal: &'a Journal,
    caller: Caller,
    approve: Approve,
    most_turns: u32,
    /// The number of the turn, from 1; 0 before the first.
    turn: Cell<u32>,
    thread: RefCell<Option<ThreadId>>,
}

impl<'a> Reporter<'a> {
    pub(super) fn new(journal: &'a Journal, stored: &StoredRun) -> Self {
        Self {
            journal,
            caller: stored.caller,
            approve: stored.spec.approve,
            most_turns: stored.spec.limits.turns(),
            turn: Cell::default(),
            thread: RefCell::default(),
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
            RunEvent::TurnEnded(record) => self.turn_ended(record),
        }
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
