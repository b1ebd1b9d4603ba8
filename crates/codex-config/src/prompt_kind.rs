//! The kinds of prompts in a run.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kinds of prompts in a run, each with a template that a project can replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptKind {
    /// The first: the task.
    Initial,
    /// After words only.
    Nudge,
    /// After errors.
    Recovery,
    /// After part of the work.
    Continuation,
}

impl PromptKind {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Initial,
        Self::Nudge,
        Self::Recovery,
        Self::Continuation,
    ];

    /// It in a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::Nudge => "nudge",
            Self::Recovery => "recovery",
            Self::Continuation => "continuation",
        }
    }
}

impl fmt::Display for PromptKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
