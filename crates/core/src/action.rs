//! What Codex asks, and how it may be answered.
//!
//! An [`Action`] is an open question. A [`Decision`] answers it; [`answer`]
//! turns the two into what Codex wants to read, or refuses a decision that
//! doesn't fit, in which case the question stays open. Declining and
//! cancelling always fit: Codex honours both also where it doesn't offer them.

use std::collections::BTreeMap;
use std::time::Instant;

use codex_mcp_protocol::codex::{Ask, CommandApproval};
use codex_mcp_protocol::rpc::RequestId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Our name for an open question, unique within a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ActionId(pub String);

/// An open question of Codex's.
#[derive(Debug, Clone)]
pub struct Action {
    /// Our name for it.
    pub id: ActionId,
    /// Codex's name for it; the answer goes there.
    pub request: RequestId,
    /// The question.
    pub ask: Ask,
    /// When it is declined if nobody has answered.
    pub deadline: Instant,
}

/// An answer to an [`Action`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Decision {
    /// Yes, this once.
    Accept,
    /// Yes, and for the like of it until the thread ends.
    AcceptForSession,
    /// No; Codex goes on without it.
    Decline,
    /// No, and the turn ends.
    Cancel,
    /// What the user filled into a form, or answered to questions by their ids.
    Submit(Map<String, Value>),
}

/// Why a decision doesn't fit the question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongDecision {
    /// Codex doesn't offer it for this question.
    #[error("Codex does not offer this decision here; decline and cancel are always possible")]
    NotOffered,
    /// The question wants words, not a yes.
    #[error("this question wants an answer to each of its fields; decline it to go on without")]
    WantsContent,
    /// The question wants a yes or no, not words.
    #[error("this question wants a decision, not a form")]
    WantsDecision,
}

/// What to do once a question is answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The result for Codex's request.
    pub result: Value,
    /// Whether the turn has to be interrupted besides: for questions that
    /// Codex has no `cancel` for.
    pub interrupt: bool,
}

impl Answer {
    fn plain(result: Value) -> Self {
        Self {
            result,
            interrupt: false,
        }
    }
}

/// The answer to `ask` as Codex wants to read it.
///
/// # Errors
///
/// [`WrongDecision`] where the decision doesn't fit the question.
pub fn answer(ask: &Ask, decision: &Decision) -> Result<Answer, WrongDecision> {
    match ask {
        Ask::Command(command) => command_answer(command, decision),
        Ask::FileChange(_) => Ok(Answer::plain(json!({ "decision": word(decision)? }))),
        Ask::Permissions(asked) => permissions_answer(&asked.permissions, decision),
        Ask::McpElicitation(asked) => {
            let wants_form = asked.requested_schema.as_ref().is_some_and(has_fields);
            elicitation_answer(wants_form, decision)
        }
        Ask::UserInput(_) => user_input_answer(decision),
    }
}

/// Codex's word for a decision about a command or a file change.
fn word(decision: &Decision) -> Result<&'static str, WrongDecision> {
    match decision {
        Decision::Accept => Ok("accept"),
        Decision::AcceptForSession => Ok("acceptForSession"),
        Decision::Decline => Ok("decline"),
        Decision::Cancel => Ok("cancel"),
        Decision::Submit(_) => Err(WrongDecision::WantsDecision),
    }
}

fn command_answer(asked: &CommandApproval, decision: &Decision) -> Result<Answer, WrongDecision> {
    let word = word(decision)?;
    let always = matches!(decision, Decision::Decline | Decision::Cancel);
    // Releases before 0.130 list no decisions and take all of them.
    let offered = asked
        .available_decisions
        .as_ref()
        .is_none_or(|offered| offered.iter().any(|one| one == word));
    if always || offered {
        Ok(Answer::plain(json!({ "decision": word })))
    } else {
        Err(WrongDecision::NotOffered)
    }
}

fn permissions_answer(wanted: &Value, decision: &Decision) -> Result<Answer, WrongDecision> {
    let granted = |scope: &str| Answer::plain(json!({ "permissions": wanted, "scope": scope }));
    let nothing = json!({ "permissions": {} });
    match decision {
        Decision::Accept => Ok(granted("turn")),
        Decision::AcceptForSession => Ok(granted("session")),
        Decision::Decline => Ok(Answer::plain(nothing)),
        Decision::Cancel => Ok(Answer {
            result: nothing,
            interrupt: true,
        }),
        Decision::Submit(_) => Err(WrongDecision::WantsDecision),
    }
}

fn has_fields(schema: &Value) -> bool {
    schema
        .get("properties")
        .and_then(Value::as_object)
        .is_some_and(|properties| !properties.is_empty())
}

fn elicitation_answer(wants_form: bool, decision: &Decision) -> Result<Answer, WrongDecision> {
    let result = match decision {
        Decision::Accept if wants_form => return Err(WrongDecision::WantsContent),
        Decision::Accept => json!({ "action": "accept", "content": {} }),
        Decision::AcceptForSession => return Err(WrongDecision::NotOffered),
        Decision::Submit(content) => json!({ "action": "accept", "content": content }),
        Decision::Decline => json!({ "action": "decline" }),
        Decision::Cancel => json!({ "action": "cancel" }),
    };
    Ok(Answer::plain(result))
}

fn user_input_answer(decision: &Decision) -> Result<Answer, WrongDecision> {
    let answers: BTreeMap<&str, Value> = match decision {
        Decision::Accept | Decision::AcceptForSession => return Err(WrongDecision::WantsContent),
        Decision::Decline | Decision::Cancel => BTreeMap::new(),
        Decision::Submit(content) => content
            .iter()
            .map(|(id, value)| (id.as_str(), json!({ "answers": texts(value) })))
            .collect(),
    };
    Ok(Answer {
        result: json!({ "answers": answers }),
        interrupt: *decision == Decision::Cancel,
    })
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(values) => values.iter().flat_map(texts).collect(),
        Value::String(text) => vec![text.clone()],
        Value::Null => Vec::new(),
        other => vec![other.to_string()],
    }
}

#[cfg(test)]
mod tests {
    use codex_mcp_protocol::codex::{
        FileChangeApproval, McpElicitation, PermissionsApproval, UserInputRequest,
    };

    use super::*;

    fn submit() -> Decision {
        let Value::Object(content) = json!({"q": "yes", "many": ["a", 1]}) else {
            panic!("an object");
        };
        Decision::Submit(content)
    }

    fn asks() -> Vec<(&'static str, Ask)> {
        let command = |decisions| {
            Ask::Command(CommandApproval {
                available_decisions: decisions,
                ..CommandApproval::default()
            })
        };
        let elicitation = |schema| {
            Ask::McpElicitation(McpElicitation {
                requested_schema: Some(schema),
                ..McpElicitation::default()
            })
        };
        vec![
            ("command, nothing listed (0.104)", command(None)),
            (
                "command, as listed by 0.169",
                command(Some(vec![
                    json!("accept"),
                    json!({"acceptWithExecpolicyAmendment": {}}),
                    json!("cancel"),
                ])),
            ),
            (
                "file change",
                Ask::FileChange(FileChangeApproval::default()),
            ),
            (
                "permissions",
                Ask::Permissions(PermissionsApproval {
                    permissions: json!({"network": {"enabled": true}}),
                    ..PermissionsApproval::default()
                }),
            ),
            (
                "tool call",
                elicitation(json!({"type": "object", "properties": {}})),
            ),
            (
                "form of a server",
                elicitation(json!({"type": "object", "properties": {"q": {"type": "string"}}})),
            ),
            ("user input", Ask::UserInput(UserInputRequest::default())),
        ]
    }

    #[test]
    fn every_question_and_decision() {
        let decisions = [
            Decision::Accept,
            Decision::AcceptForSession,
            Decision::Decline,
            Decision::Cancel,
            submit(),
        ];
        let mut table = String::new();
        for (name, ask) in asks() {
            table.push_str(&format!("{name}\n"));
            for decision in &decisions {
                let cell = match answer(&ask, decision) {
                    Ok(Answer { result, interrupt }) => {
                        format!(
                            "{result}{}",
                            if interrupt { ", then interrupt" } else { "" }
                        )
                    }
                    Err(refusal) => format!("refused: {refusal:?}"),
                };
                let decision = match decision {
                    Decision::Submit(_) => "Submit".to_owned(),
                    other => format!("{other:?}"),
                };
                table.push_str(&format!("  {decision:<18}{cell}\n"));
            }
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn declining_and_cancelling_always_fit() {
        for (name, ask) in asks() {
            assert!(answer(&ask, &Decision::Decline).is_ok(), "{name}");
            assert!(answer(&ask, &Decision::Cancel).is_ok(), "{name}");
        }
    }
}
