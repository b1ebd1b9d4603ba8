//! What the worker of a running job can be told.

use codex_engine::logic::action::Decision;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::store::NewInstruction;

/// Something that the worker of a running job is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Directive {
    /// Answer a question of Codex's.
    Answer(Answer),
    /// Add these words to the turn.
    Steer(String),
}

/// The answer to a question of Codex's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The name of the question.
    pub question: String,
    /// What is decided.
    pub decision: Decision,
    /// Why, for the log of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Directive {
    /// A new instruction for the store.
    ///
    /// # Errors
    ///
    /// If it cannot be written as JSON.
    pub(super) fn instruction(&self) -> Result<NewInstruction, serde_json::Error> {
        Ok(NewInstruction {
            id: Uuid::new_v4(),
            question: match self {
                Self::Answer(answer) => Some(answer.question.clone()),
                Self::Steer(_) => None,
            },
            data: serde_json::to_string(self)?,
        })
    }
}
