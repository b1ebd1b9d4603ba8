//! The steps of a conversation.

use std::mem::discriminant;
use std::time::SystemTime;

use common::timestamp;
use serde::Serialize;

/// A step of a conversation, or what somebody has said.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// Its place: later steps have higher ones.
    pub number: u64,
    /// When it began.
    #[serde(serialize_with = "timestamp::serialize")]
    pub at: SystemTime,
    /// The item of Codex that it shows, if it shows one.
    #[serde(skip)]
    pub(super) item: Option<StepItem>,
    /// Its kind.
    pub kind: StepKind,
}

/// An item of Codex. Its ID can be one that a model has chosen, and that later items have too.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StepItem {
    /// The turn; empty if it is not known.
    pub(super) turn: String,
    /// Codex's ID of the item.
    pub(super) id: String,
    /// Whether Codex has reported its end.
    pub(super) has_ended: bool,
}

impl StepItem {
    /// Whether the ID and the turn are the same.
    pub(super) fn has_id_of(&self, other: &Self) -> bool {
        let is_same_turn = self.turn == other.turn || self.turn.is_empty() || other.turn.is_empty();
        self.id == other.id && is_same_turn
    }
}

/// The kind of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum StepKind {
    /// A prompt, or a text that was added to a turn.
    Prompt {
        /// The text.
        text: String,
    },
    /// A message of Codex.
    Message {
        /// The text.
        text: String,
    },
    /// What Codex has thought.
    Thought {
        /// The text.
        text: String,
    },
    /// A command.
    Command {
        /// The command line.
        command: String,
        /// What it has written.
        text: String,
        /// Codex's word for its state, such as `inProgress`.
        status: String,
        /// How it has ended.
        exit_code: Option<i64>,
    },
    /// A change of files.
    Files {
        /// The files.
        files: Vec<ChangedFile>,
        /// Codex's word for its state.
        status: String,
    },
    /// A picture that Codex looks at.
    Picture {
        /// Its path, as Codex names it.
        path: String,
        /// Whether Codex has got it.
        is_shown: bool,
    },
    /// Anything else that Codex does.
    Other {
        /// A line about it.
        title: String,
        /// Text that it writes.
        text: String,
    },
    /// A question of Codex.
    Question {
        /// Its ID.
        id: String,
        /// Its kind, and the command if it is about one.
        title: String,
        /// How it was closed, and by whom.
        closed: Option<String>,
    },
    /// The end of a turn.
    End {
        /// A line about it.
        words: String,
        /// Whether it failed.
        failed: bool,
    },
    /// Events that the log no longer had.
    Gap {
        /// How many.
        count: u64,
    },
}

/// A file that Codex changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangedFile {
    /// Its path.
    pub path: String,
    /// `add`, `delete` or `update`.
    pub kind: String,
    /// The unified diff, or the contents of a new file.
    pub diff: String,
}

/// A step of Codex's plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanStep {
    /// The task.
    pub step: String,
    /// `pending`, `inProgress` or `completed`.
    pub status: String,
}

impl StepKind {
    /// The bytes of its texts.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Prompt { text } | Self::Message { text } | Self::Thought { text } => text.len(),
            Self::Command { command, text, .. } => command.len() + text.len(),
            Self::Files { files, .. } => {
                let sizes = files.iter().map(|file| file.path.len() + file.diff.len());
                sizes.sum()
            }
            Self::Other { title, text } => title.len() + text.len(),
            Self::Picture { path: text, .. } | Self::Question { title: text, .. } => text.len(),
            Self::End { words, .. } => words.len(),
            Self::Gap { .. } => 0,
        }
    }

    /// Whether a later report of the same item can show it as `later`. Items with the same ID can be
    /// in progress at the same time; a command never turns into another one.
    pub(super) fn can_become(&self, later: &Self) -> bool {
        match (self, later) {
            // It consists of pieces of text, whose item was not reported yet.
            (Self::Other { title, .. }, _) if title.is_empty() => true,
            (Self::Command { command: one, .. }, Self::Command { command: other, .. })
            | (Self::Picture { path: one, .. }, Self::Picture { path: other, .. }) => one == other,
            _ => discriminant(self) == discriminant(later),
        }
    }

    /// The text that may grow.
    pub(super) fn text_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Message { text }
            | Self::Thought { text }
            | Self::Command { text, .. }
            | Self::Other { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The text that has come in pieces.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Message { text }
            | Self::Thought { text }
            | Self::Command { text, .. }
            | Self::Other { text, .. } => text,
            _ => "",
        }
    }
}

/// The words for a state that Codex names, as of a command or a change of files.
#[must_use]
pub fn status_words(status: &str) -> &str {
    match status {
        "inProgress" => "in progress",
        other => other,
    }
}

/// The words for how a command has ended, or for its state. Codex gives one that was killed or
/// declined -1 as its exit code.
#[must_use]
pub fn command_words(status: &str, exit_code: Option<i64>) -> String {
    match exit_code {
        Some(code) if code >= 0 => format!("exit code {code}"),
        Some(_) | None => status_words(status).to_owned(),
    }
}

/// The words for events that are no longer known.
#[must_use]
pub fn gap_words(count: u64) -> String {
    match count {
        1 => "1 earlier event is no longer known".to_owned(),
        _ => format!("{count} earlier events are no longer known"),
    }
}
