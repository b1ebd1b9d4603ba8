//! What is kept of a turn while it runs, and what came of it.

use std::time::{Instant, SystemTime};

use codex_protocol::codex::{
    Ask, FileChange, FileChangeKind, Item, Plan, RawItem, TokenCount, TokenUsage, Turn, TurnError,
    TurnId,
};
use common::text::BoundedText;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::steps::{Open, Steps};
use super::{Lost, failure};
use crate::logic::review;

/// The most that is kept of what Codex says within one turn, in bytes, for the
/// case that the turn doesn't end by itself. A final message is always whole.
pub const PARTIAL_TEXT_LIMIT: usize = 1024 * 1024;

/// The most that is kept of a turn's diff, in bytes.
pub const DIFF_LIMIT: usize = 1024 * 1024;

/// The most that is kept of a turn as Codex tells it at its end, in bytes.
const TOLD_LIMIT: usize = 256 * 1024;

/// How many changed files are listed.
const FILES_LIMIT: usize = 1000;

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// As it should.
    Completed,
    /// Early, on request.
    Interrupted,
    /// By an error in Codex or at the model.
    Failed(TurnError),
    /// Codex went away in the middle; how it did.
    Lost(String),
}

/// What came of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Codex's name for the turn, if it gave one.
    pub turn: Option<TurnId>,
    /// How it ended.
    pub ending: Ending,
    /// The last whole message of a completed turn, else all that was said.
    pub text: String,
    /// The text read as JSON, where the turn had an output schema.
    pub structured: Option<Value>,
    /// What it did besides.
    pub facts: Facts,
    /// The turn as Codex told it at its end, unless that is long.
    pub told: Option<Value>,
    /// When it ended.
    pub at: SystemTime,
}

/// What Codex told of a turn besides its words.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// How many tokens were used, by the thread as a whole and last.
    pub usage: Option<TokenUsage>,
    /// How many tokens this turn used.
    pub spent: TokenCount,
    /// The plan, as it stood last.
    pub plan: Option<Plan>,
    /// All changes of files by patches, as a unified diff.
    pub diff: String,
    /// The files that were changed by patches, in the order of their first
    /// change. What commands change appears nowhere in what Codex tells.
    pub changed_files: Vec<ChangedFile>,
    /// How many more changes of files there were than are listed.
    pub unlisted_files: u64,
    /// What it really did.
    pub steps: Steps,
}

/// A file that a turn has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedFile {
    /// Where it is.
    pub path: String,
    /// `add`, `delete` or `update`.
    pub kind: String,
    /// Its new name, if it got one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub move_path: Option<String>,
}

impl Facts {
    pub(super) fn set_diff(&mut self, diff: &str) {
        let mut bounded = BoundedText::default();
        bounded.push(diff, DIFF_LIMIT);
        bounded.as_str().clone_into(&mut self.diff);
    }

    pub(super) fn changed(&mut self, changes: Vec<FileChange>) {
        for change in changes {
            let (kind, move_path) = match change.kind {
                FileChangeKind::Add => ("add", None),
                FileChangeKind::Delete => ("delete", None),
                FileChangeKind::Update { move_path } => ("update", move_path),
                FileChangeKind::Unknown => ("unknown", None),
            };
            let file = ChangedFile {
                path: change.path,
                kind: kind.to_owned(),
                move_path,
            };
            let is_it = |one: &&mut ChangedFile| one.path == file.path;
            if let Some(known) = self.changed_files.iter_mut().find(is_it) {
                known.follow(&file);
            } else if self.changed_files.len() < FILES_LIMIT {
                self.changed_files.push(file);
            } else {
                self.unlisted_files += 1;
            }
        }
    }
}

impl ChangedFile {
    /// A file that is added and then changed has been added all the same.
    fn follow(&mut self, later: &Self) {
        if !(self.kind == "add" && later.kind == "update") {
            self.kind.clone_from(&later.kind);
        }
        if later.move_path.is_some() {
            self.move_path.clone_from(&later.move_path);
        }
    }
}

/// Whether Codex has said that the turn runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The prompt is taken and on its way to be sent.
    Taken,
    /// The prompt is sent; Codex hasn't said that the turn has started.
    Prompted,
    Started,
}

/// The form that the final message is to have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// Words.
    #[default]
    Text,
    /// JSON after a schema.
    Structured,
    /// A review, which is missing if the model has answered nothing.
    Review,
}

/// A turn that has ended, and how Codex told it.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) turn: Turn,
    pub(super) told: Option<Value>,
}

/// An error that Codex does not mend, so that the turn is about to end.
#[derive(Debug)]
pub(super) struct FinalError {
    pub(super) error: TurnError,
    /// Until when Codex may tell of the end.
    pub(super) deadline: Instant,
}

#[derive(Debug)]
pub(super) struct Running {
    /// Codex's name for what runs, by which it is interrupted.
    pub(super) id: Option<TurnId>,
    /// The name in the answer to the prompt. A review has another one there than in
    /// `turn/started` (0.153.4, 0.169.0), and ends under this one.
    pub(super) answered: Option<TurnId>,
    pub(super) phase: Phase,
    pub(super) interrupt_wanted: bool,
    /// An end that came before we knew whether it is this turn's.
    pub(super) early_end: Option<Ended>,
    /// The last that was heard of the turn's work, if it is that.
    pub(super) final_error: Option<FinalError>,
    pub(super) facts: Facts,
    /// What the thread had used before the turn, once that is known.
    used_before: Option<TokenCount>,
    /// Whether the model has answered anything in the turn.
    has_items: bool,
    form: Form,
    /// How Codex had gone before the prompt, if it had.
    pub(super) lost_before: Option<Lost>,
    /// The number of the first event after the prompt.
    pub(super) since: u64,
    /// The last whole message.
    last: Option<String>,
    /// All whole messages.
    said: BoundedText,
    /// The message being written, and its item.
    writing: Option<(String, BoundedText)>,
    /// The last change of files that was begun, and its item.
    changing: Option<(String, Vec<FileChange>)>,
    open: Open,
}

impl Running {
    pub(super) fn new(form: Form, lost_before: Option<Lost>, since: u64) -> Self {
        Self {
            id: None,
            phase: Phase::Taken,
            interrupt_wanted: false,
            answered: None,
            early_end: None,
            final_error: None,
            facts: Facts::default(),
            used_before: None,
            has_items: false,
            form,
            lost_before,
            since,
            last: None,
            said: BoundedText::default(),
            writing: None,
            changing: None,
            open: Open::default(),
        }
    }

    pub(super) fn begins(&mut self, item: &Item) {
        self.has_items = true;
        self.facts.steps.begun(item, &mut self.open);
    }

    pub(super) fn has_step(&self, id: &str) -> bool {
        self.open.has(id)
    }

    pub(super) fn told(&mut self, item: &RawItem) {
        self.facts.steps.told(item, &mut self.open);
    }

    pub(super) fn ends(&mut self, item: &Item) {
        self.has_items = true;
        self.facts.steps.done(item, &mut self.open);
    }

    /// Takes what the thread has used, and what it had used when Codex told last. Codex may
    /// tell the same twice, so only the totals count. Of a thread that was taken up it tells
    /// the old ones first, with the account's limits, before the model has answered.
    pub(super) fn uses(&mut self, usage: TokenUsage, before: Option<TokenCount>) {
        let before = before.unwrap_or_else(|| match self.has_items {
            true => usage.total.since(usage.last),
            false => usage.total,
        });
        let before = *self.used_before.get_or_insert(before);
        self.facts.spent = usage.total.since(before);
        self.facts.usage = Some(usage);
    }

    /// Adds to a question about files what Codex told when it began the step.
    pub(super) fn complete(&mut self, ask: &mut Ask) {
        if let (Ask::FileChange(asked), Some((item, changes))) = (ask, &self.changing)
            && asked.item_id == *item
        {
            asked.changes.clone_from(changes);
        }
    }

    pub(super) fn begins_changing(&mut self, item: String, changes: Vec<FileChange>) {
        self.changing = Some((item, changes));
    }

    pub(super) fn wrote(&mut self, item: &str, delta: &str) {
        match &mut self.writing {
            Some((writing, text)) if writing == item => text.push(delta, PARTIAL_TEXT_LIMIT),
            other => {
                let mut text = BoundedText::default();
                text.push(delta, PARTIAL_TEXT_LIMIT);
                *other = Some((item.to_owned(), text));
            }
        }
    }

    pub(super) fn said(&mut self, item: &str, text: String) {
        let is_it = |(writing, _): &(String, BoundedText)| writing == item;
        if self.writing.as_ref().is_some_and(is_it) {
            self.writing = None;
        }
        append(&mut self.said, &text);
        self.last = Some(text);
    }

    pub(super) fn partial(&self) -> String {
        let mut all = self.said.clone();
        if let Some((_, text)) = &self.writing {
            append(&mut all, text.as_str());
        }
        all.as_str().to_owned()
    }

    pub(super) fn outcome(self, ending: Ending, told: Option<Value>, at: SystemTime) -> Outcome {
        let text = match (&ending, &self.last) {
            (Ending::Completed, Some(last)) => last.clone(),
            _ => self.partial(),
        };
        let is_missing = self.form == Form::Review && review::is_missing(&text);
        let ending = match ending {
            Ending::Completed if is_missing => Ending::Failed(failure(
                "the reviewer answered nothing; try again, or name another model".to_owned(),
            )),
            ending => ending,
        };
        let structured = match self.form {
            Form::Structured => serde_json::from_str(&text).ok(),
            Form::Text | Form::Review => None,
        };
        Outcome {
            turn: self.id,
            ending,
            text,
            structured,
            facts: self.facts,
            told,
            at,
        }
    }
}

/// The turn in the parameters of its end, unless it is too long to be kept.
pub(super) fn told_turn(params: &str) -> Option<Value> {
    #[derive(Deserialize)]
    struct Params {
        turn: Value,
    }
    if params.len() > TOLD_LIMIT {
        return None;
    }
    serde_json::from_str::<Params>(params)
        .ok()
        .map(|params| params.turn)
}

fn append(text: &mut BoundedText, paragraph: &str) {
    if !text.is_empty() {
        text.push("\n\n", PARTIAL_TEXT_LIMIT);
    }
    text.push(paragraph, PARTIAL_TEXT_LIMIT);
}
