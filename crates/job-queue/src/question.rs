//! Codex's questions in jobs, as they are kept and shown.

use codex_engine::command::Open;
use codex_engine::logic::action::{self, ActionKind, Decision};
use codex_engine::logic::approval_text;
use codex_protocol::codex::Ask;
use common::timestamp::timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use settings::bounds::Bound;

use super::store::{NewQuestion, Origin, Question};

/// How much is kept of the particulars of a question, in bytes as JSON. Its text tells what
/// matters in less than 4 KiB.
const DETAILS: usize = 32 * 1024;

/// What a session tells of a question, and a job has under other names.
const OTHERWISE: [&str; 9] = [
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

/// A question of Codex's as the store keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// What it is about.
    pub kind: ActionKind,
    /// It as the person reads it who answers.
    pub text: String,
    /// The decisions that it may have for an answer.
    pub decisions: Vec<Decision>,
    /// The names of the fields that want words, if it wants some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// When it is declined if nobody has answered. RFC 3339.
    pub expires_at: String,
    /// What it is about in particular, as the sessions tell it; `None` if that is too long.
    #[serde(default)]
    pub details: Option<Map<String, Value>>,
}

/// The question for the store. A bound of the sandbox leaves no decision by which a command
/// would leave it.
pub(super) fn kept(open: &Open, bound: Option<&Bound>) -> NewQuestion {
    let is_within = |one: &Decision| bound.is_none() || !action::leaves_the_sandbox(&open.ask, one);
    let mut decisions = action::offered(&open.ask);
    decisions.retain(is_within);
    let kept = Kept {
        kind: ActionKind::from(&open.ask),
        text: approval_text::question(&open.ask),
        decisions,
        fields: fields(&open.ask),
        expires_at: timestamp(open.expires),
        details: details(&open.shown),
    };
    NewQuestion {
        id: open.id.0.clone(),
        // All of its keys are texts.
        question: json!(kept).to_string(),
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
    details.retain(|key, value| !value.is_null() && !OTHERWISE.contains(&key.as_str()));
    (Value::from(details.clone()).to_string().len() <= DETAILS).then_some(details)
}

impl Kept {
    /// What a store has of a question. One of a newer program may not be readable.
    #[must_use]
    pub fn of(question: &Question) -> Option<Self> {
        serde_json::from_value(question.question.clone()).ok()
    }
}

/// The open questions of a job as programs are told of them. What a worker of this host has
/// not signed cannot be answered here.
#[must_use]
pub fn shown(questions: &[Question]) -> Value {
    let one = |question: &Question| {
        let kept = Kept::of(question)?;
        Some(json!({
            "request_id": question.id,
            "kind": kept.kind,
            "question": kept.text,
            "decisions": kept.decisions,
            "fields": kept.fields,
            "asked_at": timestamp(question.asked_at),
            "expires_at": kept.expires_at,
            "answerable": question.origin == Origin::ThisHost,
            "details": kept.details,
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

    fn open(command: &str) -> Open {
        Open {
            id: ActionId("req_1".to_owned()),
            ask: Ask::Command(CommandApproval {
                command: Some(command.to_owned()),
                ..CommandApproval::default()
            }),
            shown: json!({ "command": command, "params": { "long": 1 }, "reason": null }),
            expires: UNIX_EPOCH,
        }
    }

    fn read(new: &NewQuestion) -> Kept {
        serde_json::from_str(&new.question).unwrap()
    }

    #[test]
    fn bound_leaves_no_yes() {
        let free = read(&kept(&open("ls"), None));
        assert!(free.decisions.contains(&Decision::Accept));
        let bound = Bound {
            key: "max_sandbox",
            source: Source::Default,
        };
        let bounded = read(&kept(&open("ls"), Some(&bound)));
        assert_eq!(bounded.decisions, [Decision::Decline, Decision::Cancel]);
    }

    #[test]
    fn particulars_are_bounded() {
        let short = read(&kept(&open("ls"), None));
        assert_eq!(json!(short.details), json!({ "command": "ls" }));
        let long = kept(&open(&"x".repeat(1 << 20)), None);
        assert_eq!(read(&long).details, None);
        assert!(long.question.len() < DETAILS, "{}", long.question.len());
    }
}
