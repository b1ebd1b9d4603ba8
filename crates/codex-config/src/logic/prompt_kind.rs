//! The kinds of prompts in a run.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kinds of prompts in a run, each with a template that a project can replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptKind {
    /// The first prompt, with the task.
    Initial,
    /// After a turn that only announced its work.
    Nudge,
    /// After a turn that failed.
    Recovery,
    /// After a turn that did part of the work.
    Continuation,
}

impl PromptKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [
        Self::Initial,
        Self::Nudge,
        Self::Recovery,
        Self::Continuation,
    ];

    /// The name in template files and settings.
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
