//! The data of a running turn, and its outcome.

use std::time::{Duration, Instant, SystemTime};

use codex_protocol::codex::{
    FileChange, FileChangeKind, Item, Plan, RawItem, TokenCount, TokenUsage, Turn, TurnError,
    TurnId,
};
use common::text::{BoundedText, bounded};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::file_changes::AnnouncedChanges;
use super::steps::{PendingSteps, Steps};
use super::{CodexLoss, failure};
use crate::logic::review;

/// The most text of Codex that is kept within one turn, in bytes. It bounds a turn that does not
/// end by itself. A final message is kept whole, unless its line exceeds the limit of the
/// connection.
pub const PARTIAL_TEXT_LIMIT: usize = 1024 * 1024;

/// The most that is kept of a turn's diff, in bytes.
pub const DIFF_LIMIT: usize = 1024 * 1024;

/// The largest raw turn that is kept from the notification of its end, in bytes.
const RAW_TURN_LIMIT: usize = 256 * 1024;

/// The most that is kept of the text and the error of a turn for the next host, in bytes: a guard
/// keeps 64 MiB for up to 1000 sessions.
const EARLIER_TEXT_LIMIT: usize = 16 * 1024;

/// The most changed files that are listed.
const FILES_LIMIT: usize = 1000;

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnEnding {
    /// It completed.
    Completed,
    /// It was interrupted.
    Interrupted,
    /// It failed with an error of Codex or the model.
    Failed(TurnError),
    /// Codex exited during the turn; a description of the exit.
    Lost(String),
}

/// The outcome of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnOutcome {
    /// Codex's ID of the turn, if it is known.
    pub turn: Option<TurnId>,
    /// How the turn ended.
    pub ending: TurnEnding,
    /// The last message of a completed turn, if it was received whole, or else all text of the turn.
    pub text: String,
    /// The text parsed as JSON, if the turn had an output schema.
    pub structured: Option<Value>,
    /// The facts about its work.
    pub facts: Facts,
    /// The raw turn in the notification of its end, unless it is long.
    #[serde(rename = "told")]
    pub raw_turn: Option<Value>,
    /// When it ended.
    pub at: SystemTime,
}

/// The facts that Codex reported about a turn, besides its messages.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// The tokens used by the thread as a whole and by the last request.
    pub usage: Option<TokenUsage>,
    /// The tokens used by this turn.
    pub spent: TokenCount,
    /// The last plan.
    pub plan: Option<Plan>,
    /// All changes of files by patches, as a unified diff.
    pub diff: String,
    /// The files that were changed by patches, in the order of their first change. Codex
    /// does not report changes by commands.
    pub changed_files: Vec<PatchedFile>,
    /// How many further changes of files are not listed.
    pub unlisted_files: u64,
    /// The steps that it executed.
    pub steps: Steps,
}

/// A file that a patch of a turn changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PatchedFile {
    /// Where it is.
    pub path: String,
    /// `add`, `delete` or `update`.
    pub kind: String,
    /// Its new path, if it was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub move_path: Option<String>,
}

impl Facts {
    pub(super) fn set_diff(&mut self, diff: &str) {
        self.diff = bounded(diff, DIFF_LIMIT);
    }

    pub(super) fn changed(&mut self, changes: Vec<FileChange>) {
        for change in changes {
            let (kind, move_path) = match change.kind {
                FileChangeKind::Add => ("add", None),
                FileChangeKind::Delete => ("delete", None),
                FileChangeKind::Update { move_path } => ("update", move_path),
                FileChangeKind::Unknown => ("unknown", None),
            };
            let file = PatchedFile {
                path: change.path,
                kind: kind.to_owned(),
                move_path,
            };
            let is_it = |one: &&mut PatchedFile| one.path == file.path;
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

impl PatchedFile {
    /// Merges a later change: a file that is added and then changed counts as added.
    fn follow(&mut self, later: &Self) {
        if !(self.kind == "add" && later.kind == "update") {
            self.kind.clone_from(&later.kind);
        }
        if later.move_path.is_some() {
            self.move_path.clone_from(&later.move_path);
        }
    }
}

/// The end of a turn that an earlier host has seen. Its text may be cut.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct EarlierEnd {
    pub(super) ending: TurnEnding,
    pub(super) text: String,
    pub(super) at: SystemTime,
}

impl EarlierEnd {
    pub(super) fn of(outcome: &TurnOutcome) -> Self {
        let ending = match outcome.ending.clone() {
            TurnEnding::Failed(error) => TurnEnding::Failed(TurnError {
                message: bounded(&error.message, EARLIER_TEXT_LIMIT),
                additional_details: None,
                ..error
            }),
            ending => ending,
        };
        Self {
            ending,
            text: bounded(&outcome.text, EARLIER_TEXT_LIMIT),
            at: outcome.at,
        }
    }
}

/// The progress of a prompt until Codex reports the start of its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The prompt is accepted and not yet sent.
    Pending,
    /// The prompt is sent; Codex has not reported the start of the turn.
    Sent,
    Started,
}

/// The form of the final message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// Text.
    #[default]
    Text,
    /// JSON that follows a schema.
    Structured,
    /// A review, which is missing if the model has answered nothing.
    Review,
}

/// A turn that has ended, parsed and raw.
#[derive(Debug)]
pub(super) struct TurnEnd {
    pub(super) turn: Turn,
    pub(super) raw_turn: Option<Value>,
}

/// An error that Codex does not retry, so that the turn is about to end.
#[derive(Debug)]
pub(super) struct FinalError {
    pub(super) error: TurnError,
    /// The time until which Codex may report the end.
    pub(super) deadline: Instant,
}

#[derive(Debug)]
pub(super) struct RunningTurn {
    /// The ID in `turn/started`, with which the turn is interrupted.
    pub(super) id: Option<TurnId>,
    /// The ID in the response to the prompt. For a review (0.153.4, 0.169.0), it differs from the
    /// ID in `turn/started`, and the end of the review is reported under this one.
    pub(super) answered: Option<TurnId>,
    /// Whether another client of Codex has begun it, which alone knows the ID in the response.
    pub(super) is_foreign: bool,
    pub(super) phase: Phase,
    pub(super) interrupt_wanted: bool,
    /// How long its questions stay open, if not as long as the session says.
    pub(super) approval_timeout: Option<Duration>,
    /// Whether the end of the turn raises no alert: no client has requested the turn, or an earlier
    /// host has already announced its end.
    pub(super) is_unannounced: bool,
    /// Its ID and its end, if an earlier host has seen that.
    pub(super) earlier_end: Option<(TurnId, EarlierEnd)>,
    /// An end that arrived before it was known whether it belongs to this turn.
    pub(super) early_end: Option<TurnEnd>,
    /// A final error, if it is the last report about the turn's work.
    pub(super) final_error: Option<FinalError>,
    pub(super) facts: Facts,
    /// The tokens that the thread had used before the turn, once they are known.
    used_before: Option<TokenCount>,
    /// Whether the turn has any item yet.
    has_items: bool,
    form: Form,
    /// The exit of Codex before the prompt, if the session had not recovered from it.
    pub(super) lost_before: Option<CodexLoss>,
    /// The number of the first event after the prompt.
    pub(super) since: u64,
    /// The last whole message.
    last: Option<String>,
    /// All whole messages.
    messages: BoundedText,
    /// The message being written, and its item.
    writing: Option<(String, BoundedText)>,
    /// The steps that change files, also those of sub-agents.
    pub(super) file_changes: AnnouncedChanges,
    open: PendingSteps,
}

impl RunningTurn {
    pub(super) fn new(form: Form, lost_before: Option<CodexLoss>, since: u64) -> Self {
        Self {
            id: None,
            phase: Phase::Pending,
            interrupt_wanted: false,
            approval_timeout: None,
            answered: None,
            is_foreign: false,
            is_unannounced: false,
            earlier_end: None,
            early_end: None,
            final_error: None,
            facts: Facts::default(),
            used_before: None,
            has_items: false,
            form,
            lost_before,
            since,
            last: None,
            messages: BoundedText::default(),
            writing: None,
            file_changes: AnnouncedChanges::default(),
            open: PendingSteps::default(),
        }
    }

    pub(super) fn form(&self) -> Form {
        self.form
    }

    pub(super) fn used_before(&self) -> Option<TokenCount> {
        self.used_before
    }

    pub(super) fn set_used_before(&mut self, used: Option<TokenCount>) {
        self.used_before = used;
    }

    pub(super) fn item_started(&mut self, item: &Item) {
        self.has_items = true;
        self.facts.steps.item_started(item, &mut self.open);
    }

    pub(super) fn has_step(&self, id: &str) -> bool {
        self.open.has(id)
    }

    pub(super) fn raw_item(&mut self, item: &RawItem) {
        self.facts.steps.raw_item(item, &mut self.open);
    }

    pub(super) fn item_completed(&mut self, item: &Item) {
        self.has_items = true;
        self.facts.steps.item_completed(item, &mut self.open);
    }

    /// Adds a report of the thread's tokens; `before` is the total in the previous report. Codex
    /// may repeat a report, so only totals are compared. For a resumed thread, it first reports the
    /// old total, before the model has answered.
    pub(super) fn add_usage(&mut self, usage: TokenUsage, before: Option<TokenCount>) {
        let before = before.unwrap_or_else(|| match self.has_items {
            true => usage.total.since(usage.last),
            false => usage.total,
        });
        let before = *self.used_before.get_or_insert(before);
        self.facts.spent = usage.total.since(before);
        self.facts.usage = Some(usage);
    }

    pub(super) fn append_delta(&mut self, item: &str, delta: &str) {
        match &mut self.writing {
            Some((writing, text)) if writing == item => text.push(delta, PARTIAL_TEXT_LIMIT),
            other => {
                let mut text = BoundedText::default();
                text.push(delta, PARTIAL_TEXT_LIMIT);
                *other = Some((item.to_owned(), text));
            }
        }
    }

    pub(super) fn message_completed(&mut self, item: &str, text: String) {
        // Codex writes one message after the other: the end of another one was not received.
        let other = self.writing.take().filter(|(writing, _)| writing != item);
        if let Some((_, begun)) = other {
            append(&mut self.messages, begun.as_str());
        }
        append(&mut self.messages, &text);
        self.last = Some(text);
    }

    pub(super) fn partial(&self) -> String {
        let mut all = self.messages.clone();
        if let Some((_, text)) = &self.writing {
            append(&mut all, text.as_str());
        }
        all.as_str().to_owned()
    }

    pub(super) fn outcome(
        self,
        ending: TurnEnding,
        raw_turn: Option<Value>,
        at: SystemTime,
    ) -> TurnOutcome {
        let text = match (&ending, &self.last) {
            // Otherwise the end of the final message was not received, as its line is too long.
            (TurnEnding::Completed, Some(last)) if self.writing.is_none() => last.clone(),
            _ => self.partial(),
        };
        let is_missing = self.form == Form::Review && review::is_missing(&text);
        let ending = match ending {
            TurnEnding::Completed if is_missing => TurnEnding::Failed(failure(
                "the reviewer answered nothing; try again, or name another model".to_owned(),
            )),
            ending => ending,
        };
        let structured = match self.form {
            Form::Structured => serde_json::from_str(&text).ok(),
            Form::Text | Form::Review => None,
        };
        TurnOutcome {
            turn: self.id,
            ending,
            text,
            structured,
            facts: self.facts,
            raw_turn,
            at,
        }
    }
}

/// The raw turn in the parameters of its end, unless it is too long to be kept.
pub(super) fn raw_turn_of(params: &str) -> Option<Value> {
    #[derive(Deserialize)]
    struct Params {
        turn: Value,
    }
    if params.len() > RAW_TURN_LIMIT {
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
