//! The current meaning of keys, and their effects.

use codex_engine::logic::action::Decision;
use codex_engine::logic::form::Field;
use serde_json::{Map, Value};
use work_board::Kind;

/// The meaning of keys.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Mode {
    /// They move, and begin something.
    Browse,
    /// The help is shown.
    Help,
    /// They are a text.
    Type { purpose: Purpose, text: String },
    /// They go nowhere until Enter or Esc: the question was closed while its answer was typed, and
    /// letters of the answer must not be keys.
    Closed,
    /// Enter does it; every other key does not.
    Confirm { words: String, effect: Effect },
}

/// The purpose of a text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Purpose {
    /// It filters the list.
    Filter,
    /// It is a message to Codex.
    Message {
        /// Why it was refused before.
        problem: Option<String>,
    },
    /// It is the answer to the next field of a question.
    Field(OpenForm),
}

/// A form that is being filled in.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OpenForm {
    pub(crate) question: String,
    pub(crate) fields: Vec<Field>,
    /// The position of the field that is typed.
    pub(crate) at: usize,
    pub(crate) answers: Map<String, Value>,
    /// Why what was typed before does not fit.
    pub(crate) problem: Option<String>,
}

impl OpenForm {
    pub(crate) fn new(question: String, fields: Vec<Field>) -> Self {
        Self {
            question,
            fields,
            at: 0,
            answers: Map::new(),
            problem: None,
        }
    }

    /// The field that is typed.
    pub(crate) fn field(&self) -> Option<&Field> {
        self.fields.get(self.at)
    }
}

/// Some work that is acted on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) id: String,
    pub(crate) kind: Kind,
}

impl Target {
    pub(crate) fn is_session(&self) -> bool {
        self.kind == Kind::Session
    }
}

/// A refused message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) target: Target,
    pub(crate) text: String,
    /// Why it was refused, without a full stop.
    pub(crate) why: String,
}

impl Draft {
    pub(crate) fn new(target: Target, text: String, why: &str) -> Self {
        let why = why.trim_end().trim_end_matches('.').to_owned();
        Self { target, text, why }
    }
}

/// An action on the work that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Send,
    Interrupt,
    ShowDiff,
    Fork,
    /// End a session, or cancel a job.
    End,
    Retry,
}

impl Act {
    /// All actions with their keys and labels, in the order in which they are shown.
    pub(crate) const ALL: [(Self, char, &str); 6] = [
        (Self::Send, 's', "message"),
        (Self::Interrupt, 'i', "interrupt"),
        (Self::ShowDiff, 'd', "diff"),
        (Self::Fork, 'f', "fork"),
        (Self::End, 'x', "end"),
        (Self::Retry, 'r', "submit again"),
    ];

    pub(crate) fn of_key(key: char) -> Option<Self> {
        let found = Self::ALL.iter().find(|(_, of, _)| *of == key);
        found.map(|(act, ..)| *act)
    }
}

/// The effect of a key, which the shell performs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    Quit,
    Suspend,
    /// Follow this work, and nothing else.
    Follow(Target),
    /// Follow nothing.
    Unfollow,
    Answer {
        target: Target,
        question: String,
        decision: Decision,
    },
    Send {
        target: Target,
        text: String,
    },
    Interrupt(Target),
    /// End a session, or cancel a job.
    Cancel(Target),
    Fork(Target),
    /// Submit a job once more.
    Retry(Target),
}

/// A message about an action or a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) text: String,
    pub(crate) is_failure: bool,
}
