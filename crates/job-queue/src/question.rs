//! Codex's questions in jobs: how they are stored, and shown as JSON.

use codex_engine::command::OpenQuestion;
use codex_engine::logic::action::{self, ActionKind, Decision};
use codex_engine::logic::approval_text;
use codex_protocol::codex::Ask;
use common::timestamp::timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use settings::bounds::Bound;

use super::store::{NewQuestion, Origin, Question};

/// The limit of a question's details, in bytes of JSON. The text of the question has the
/// essentials in less than 4 KiB.
const DETAILS: usize = 32 * 1024;

/// The keys of a session's question that a job has under other names.
const RENAMED_KEYS: [&str; 9] = [
    "type",
    "params",
    "requestId",
    "kind",
    "question",
    "availableDecisions",
    "itemId",
    "createdAt",
    "expiresAt",
];

/// A question of Codex as the store has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredQuestion {
    /// The kind of the question.
    pub kind: ActionKind,
    /// The question for the person who answers.
    pub text: String,
    /// The decisions that the question offers.
    pub decisions: Vec<Decision>,
    /// The names of the fields that need a text as answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// When the question is declined unless somebody answers, in RFC 3339.
    pub expires_at: String,
    /// The details, as sessions show them; `None` if they are too long.
    #[serde(default)]
    pub details: Option<Map<String, Value>>,
}

/// An open question with its ID, as hosts tell those of their sessions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NamedQuestion {
    /// Its ID.
    pub id: String,
    /// The question.
    pub question: StoredQuestion,
}

/// An open question for the store.
pub(super) fn new_question(open: &OpenQuestion, bound: Option<&Bound>) -> NewQuestion {
    NewQuestion {
        id: open.id.0.clone(),
        // All of its keys are texts.
        question: json!(StoredQuestion::new(open, bound.is_some())).to_string(),
    }
}

fn fields(ask: &Ask) -> Vec<String> {
    match ask {
        Ask::UserInput(asked) => asked.questions.iter().map(|one| one.id.clone()).collect(),
        Ask::McpElicitation(asked) => {
            let schema = asked.requested_schema.as_ref();
            let properties = schema.and_then(|schema| schema.get("properties")?.as_object());
            properties
                .into_iter()
                .flat_map(Map::keys)
                .cloned()
                .collect()
        }
        _ => Vec::new(),
    }
}

fn details(shown: &Value) -> Option<Map<String, Value>> {
    let mut details = shown.as_object().cloned().unwrap_or_default();
    details.retain(|key, value| !value.is_null() && !RENAMED_KEYS.contains(&key.as_str()));
    (Value::from(details.clone()).to_string().len() <= DETAILS).then_some(details)
}

impl StoredQuestion {
    /// An open question as the store has it. If the sandbox is bounded, it does not have the
    /// decisions by which a command would leave that.
    #[must_use]
    pub fn new(open: &OpenQuestion, is_bounded: bool) -> Self {
        let mut decisions = action::offered(&open.ask);
        decisions.retain(|one| !is_bounded || !action::leaves_the_sandbox(&open.ask, one));
        Self {
            kind: ActionKind::from(&open.ask),
            text: approval_text::question(&open.ask),
            decisions,
            fields: fields(&open.ask),
            expires_at: timestamp(open.expires),
            details: details(&open.shown),
        }
    }

    /// Reads a question of the store; `None` if it cannot be parsed, as a newer program may
    /// have written it.
    #[must_use]
    pub fn of(question: &Question) -> Option<Self> {
        serde_json::from_value(question.question.clone()).ok()
    }
}

/// The open questions of a job as JSON. A question that no worker of this machine has signed
/// cannot be answered here.
#[must_use]
pub fn shown(questions: &[Question]) -> Value {
    let one = |question: &Question| {
        let stored = StoredQuestion::of(question)?;
        Some(json!({
            "request_id": question.id,
            "kind": stored.kind,
            "question": stored.text,
            "decisions": stored.decisions,
            "fields": stored.fields,
            "asked_at": timestamp(question.asked_at),
            "expires_at": stored.expires_at,
            "answerable": question.origin == Origin::ThisMachine,
            "details": stored.details,
        }))
    };
    questions.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use codex_engine::logic::action::ActionId;
    use codex_protocol::codex::CommandApproval;

    use super::*;
    use settings::Source;

    fn open(command: &str) -> OpenQuestion {
        OpenQuestion {
            id: ActionId("req_1".to_owned()),
            ask: Ask::Command(CommandApproval {
                command: Some(command.to_owned()),
                ..CommandApproval::default()
            }),
            shown: json!({ "command": command, "params": { "long": 1 }, "reason": null }),
            expires: UNIX_EPOCH,
        }
    }

    fn read(new: &NewQuestion) -> StoredQuestion {
        serde_json::from_str(&new.question).unwrap()
    }

    #[test]
    fn bounded_question_offers_no_approval() {
        let free = read(&new_question(&open("ls"), None));
        assert!(free.decisions.contains(&Decision::Accept));
        let bound = Bound {
            key: "max_sandbox",
            source: Source::Default,
        };
        let bounded = read(&new_question(&open("ls"), Some(&bound)));
        assert_eq!(bounded.decisions, [Decision::Decline, Decision::Cancel]);
    }

    #[test]
    fn question_details_are_bounded() {
        let short = read(&new_question(&open("ls"), None));
        assert_eq!(json!(short.details), json!({ "command": "ls" }));
        let long = new_question(&open(&"x".repeat(1 << 20)), None);
        assert_eq!(read(&long).details, None);
        assert!(long.question.len() < DETAILS, "{}", long.question.len());
    }
}
