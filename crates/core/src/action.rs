//! What Codex asks, and how it may be answered.
//!
//! An [`Action`] is an open question. A [`Decision`] answers it; [`answer`]
//! turns the two into what Codex wants to read, or refuses a decision that
//! doesn't fit, in which case the question stays open. Declining and
//! cancelling always fit: Codex honours both also where it doesn't offer them.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

use codex_mcp_protocol::codex::{Ask, CommandApproval, LegacyRefusal, McpElicitation};
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
    /// The question as it came.
    pub params: Value,
    /// When it came.
    pub created: SystemTime,
    /// When it is declined if nobody has answered.
    pub deadline: Instant,
}

/// What an action is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActionKind {
    /// A command wants to run.
    #[serde(rename = "command")]
    Command,
    /// Files are to be changed.
    #[serde(rename = "fileChange")]
    FileChange,
    /// Codex wants more permissions.
    #[serde(rename = "permissions")]
    Permissions,
    /// A tool of an MCP server wants to run, or its server asks something.
    #[serde(rename = "mcp_tool")]
    McpTool,
    /// The model asks the user.
    #[serde(rename = "user_input")]
    UserInput,
}

impl From<&Ask> for ActionKind {
    fn from(ask: &Ask) -> Self {
        match ask {
            Ask::Command(_) | Ask::LegacyCommand(_) => Self::Command,
            Ask::FileChange(_) | Ask::LegacyPatch(_) => Self::FileChange,
            Ask::Permissions(_) => Self::Permissions,
            Ask::McpElicitation(_) => Self::McpTool,
            Ask::UserInput(_) => Self::UserInput,
        }
    }
}

/// An answer to an [`Action`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Decision {
    /// Yes, this once.
    Accept,
    /// Yes, and for the like of it until the thread ends.
    AcceptForSession,
    /// Yes, and from now on for all commands that begin with these words.
    AcceptWithExecpolicyAmendment(Vec<String>),
    /// Add this rule for a host to the policy, which may say yes or no.
    ApplyNetworkPolicyAmendment(Map<String, Value>),
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
        Ask::McpElicitation(asked) => elicitation_answer(asked, decision),
        Ask::UserInput(_) => user_input_answer(decision),
        Ask::LegacyCommand(asked) => legacy_command_answer(asked.refusal, decision),
        Ask::LegacyPatch(asked) => legacy_answer(asked.refusal, decision),
    }
}

/// Codex's word for a decision about a command or a file change.
fn word(decision: &Decision) -> Result<&'static str, WrongDecision> {
    match decision {
        Decision::Accept => Ok("accept"),
        Decision::AcceptForSession => Ok("acceptForSession"),
        Decision::Decline => Ok("decline"),
        Decision::Cancel => Ok("cancel"),
        Decision::AcceptWithExecpolicyAmendment(_) | Decision::ApplyNetworkPolicyAmendment(_) => {
            Err(WrongDecision::NotOffered)
        }
        Decision::Submit(_) => Err(WrongDecision::WantsDecision),
    }
}

fn command_answer(asked: &CommandApproval, decision: &Decision) -> Result<Answer, WrongDecision> {
    let (name, value) = match decision {
        Decision::AcceptWithExecpolicyAmendment(words) => {
            let name = "acceptWithExecpolicyAmendment";
            (name, json!({ name: { "execpolicy_amendment": words } }))
        }
        Decision::ApplyNetworkPolicyAmendment(rule) => {
            let name = "applyNetworkPolicyAmendment";
            (name, json!({ name: { "network_policy_amendment": rule } }))
        }
        decision => {
            let word = word(decision)?;
            (word, word.into())
        }
    };
    let always = matches!(decision, Decision::Decline | Decision::Cancel);
    if always || offers(asked, name) {
        Ok(Answer::plain(json!({ "decision": value })))
    } else {
        Err(WrongDecision::NotOffered)
    }
}

/// Whether Codex offers a decision: a word, or an object with the word as its
/// only key. Releases before 0.130 list none and take all that they know.
fn offers(asked: &CommandApproval, name: &str) -> bool {
    let is_it = |offered: &Value| offered == name || offered.get(name).is_some();
    match &asked.available_decisions {
        Some(offered) => offered.iter().any(is_it),
        None => name != "applyNetworkPolicyAmendment",
    }
}

/// Codex's first protocol takes a rule for commands too.
fn legacy_command_answer(
    refusal: LegacyRefusal,
    decision: &Decision,
) -> Result<Answer, WrongDecision> {
    let Decision::AcceptWithExecpolicyAmendment(words) = decision else {
        return legacy_answer(refusal, decision);
    };
    let amendment = json!({ "proposed_execpolicy_amendment": words });
    Ok(Answer::plain(
        json!({ "decision": { "approved_execpolicy_amendment": amendment } }),
    ))
}

fn legacy_answer(refusal: LegacyRefusal, decision: &Decision) -> Result<Answer, WrongDecision> {
    let value = match (word(decision)?, refusal) {
        ("accept", _) => json!("approved"),
        ("acceptForSession", _) => json!("approved_for_session"),
        ("decline", LegacyRefusal::Word) => json!("denied"),
        ("decline", LegacyRefusal::Object) => {
            json!({ "denied": { "rejection": "declined by the user" } })
        }
        _ => json!("abort"),
    };
    Ok(Answer::plain(json!({ "decision": value })))
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
        Decision::AcceptWithExecpolicyAmendment(_) | Decision::ApplyNetworkPolicyAmendment(_) => {
            Err(WrongDecision::NotOffered)
        }
        Decision::Submit(_) => Err(WrongDecision::WantsDecision),
    }
}

fn has_fields(schema: &Value) -> bool {
    schema
        .get("properties")
        .and_then(Value::as_object)
        .is_some_and(|properties| !properties.is_empty())
}

fn elicitation_answer(
    asked: &McpElicitation,
    decision: &Decision,
) -> Result<Answer, WrongDecision> {
    let wants_form = asked.requested_schema.as_ref().is_some_and(has_fields);
    let result = match decision {
        Decision::AcceptForSession if asked.may_be_kept_for_session() => {
            json!({ "action": "accept", "content": {}, "_meta": { "persist": "session" } })
        }
        Decision::Accept if wants_form => return Err(WrongDecision::WantsContent),
        Decision::Accept => json!({ "action": "accept", "content": {} }),
        Decision::AcceptForSession
        | Decision::AcceptWithExecpolicyAmendment(_)
        | Decision::ApplyNetworkPolicyAmendment(_) => return Err(WrongDecision::NotOffered),
        Decision::Submit(content) => json!({ "action": "accept", "content": content }),
        Decision::Decline => json!({ "action": "decline" }),
        Decision::Cancel => json!({ "action": "cancel" }),
    };
    Ok(Answer::plain(result))
}

fn user_input_answer(decision: &Decision) -> Result<Answer, WrongDecision> {
    let answers: BTreeMap<&str, Value> = match decision {
        Decision::Accept
        | Decision::AcceptForSession
        | Decision::AcceptWithExecpolicyAmendment(_)
        | Decision::ApplyNetworkPolicyAmendment(_) => return Err(WrongDecision::WantsContent),
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
        Value::Object(object) if object.contains_key("answers") => {
            object.get("answers").map(texts).unwrap_or_default()
        }
        other => vec![other.to_string()],
    }
}

#[cfg(test)]
mod tests;
