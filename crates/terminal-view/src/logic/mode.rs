//! What keys mean just now, and what they have the shell do.

use codex_engine::logic::action::Decision;
use codex_engine::logic::form::Field;
use serde_json::{Map, Value};
use work_board::Kind;

/// What keys mean.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Mode {
    /// They move, and begin something.
    Browse,
    /// The help is shown.
    Help,
    /// They are a text.
    Type { purpose: Purpose, text: String },
    /// Enter does it; every other key does not.
    Confirm { words: String, effect: Effect },
}

/// What a text is for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Purpose {
    /// It filters the list.
    Filter,
    /// It is a message to Codex.
    Message,
    /// It is the answer to the next field of a question.
    Field(Filling),
}

/// A form that is being filled in.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Filling {
    pub(crate) question: String,
    pub(crate) fields: Vec<Field>,
    /// The position of the field that is typed.
    pub(crate) at: usize,
    pub(crate) answers: Map<String, Value>,
    /// Why what was typed before does not fit.
    pub(crate) problem: Option<String>,
}

impl Filling {
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

/// What a key has the shell do.
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
}

/// What somebody has done or found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) text: String,
    pub(crate) is_failure: bool,
}
