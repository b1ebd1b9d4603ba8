//! Directives to the worker of a running job.

use codex_engine::logic::action::{DecidedBy, Decision};
use common::text::one_line;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::store::NewInstruction;

/// The longest name of an agent in [`Answer::in_short`], in bytes.
const NAME: usize = 200;

/// A directive to the worker of a running job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Directive {
    /// Answer a question of Codex.
    Answer(Answer),
    /// Add this text to the turn.
    Steer(String),
}

/// The answer to a question of Codex.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The ID of the question.
    pub question: String,
    /// The decision.
    pub decision: Decision,
    /// The reason, for the log of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where it was decided. Directives of earlier programs do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<DecidedBy>,
}

impl Answer {
    /// The decision and who made it, such as `accept (mail: lead@builders)`.
    pub(crate) fn in_short(&self) -> String {
        let decision = match &self.decision {
            Decision::Submit(_) => "accept",
            decision => decision.name(),
        };
        match (self.by, &self.reason) {
            // The reason is the agent.
            (Some(DecidedBy::Mail), Some(agent)) => {
                format!("{decision} (mail: {})", one_line(agent, NAME))
            }
            (Some(by), _) => format!("{decision} ({})", by.name()),
            (None, _) => decision.to_owned(),
        }
    }
}

impl Directive {
    /// The directive as a new instruction for the store.
    ///
    /// # Errors
    ///
    /// If the directive cannot be serialized.
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
