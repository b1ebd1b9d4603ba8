//! Codex's questions and their answers.
//!
//! An [`Action`] is an open question, and a [`Decision`] answers it. [`answer`] converts a decision
//! into the form that Codex expects for the question. It refuses a decision that does not fit, and
//! the question then stays open. Declining, cancelling, and allowing a command for the session
//! always fit: Codex honours these three even where it does not offer them.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

use codex_protocol::codex::{Ask, CommandApproval, LegacyRefusal, McpElicitation, Question};
use codex_protocol::rpc::RequestId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use strum::IntoStaticStr;

use super::form;

/// The ID of an open question, unique within a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ActionId(pub String);

/// An open question of Codex's.
#[derive(Debug, Clone)]
pub struct Action {
    /// Our ID of the question.
    pub id: ActionId,
    /// Codex's ID of the request to answer.
    pub request: RequestId,
    /// The thread that asks: the session's, or one of a sub-agent.
    pub thread: String,
    /// The question.
    pub ask: Ask,
    /// The raw parameters of the question.
    pub params: Value,
    /// The time at which it was asked.
    pub created: SystemTime,
    /// The audience to which it was shown.
    pub audience: Audience,
    /// The time at which it is declined if nobody has answered.
    pub deadline: Instant,
    /// The deadline by the wall clock.
    pub expires: SystemTime,
}

/// The audience to which a question was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Nobody yet.
    Nobody,
    /// A client, which may be asking its user.
    Client,
    /// The readers of the session, as the client's user has dismissed it.
    Readers,
}

/// The subject of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActionKind {
    /// Running a command.
    #[serde(rename = "command")]
    Command,
    /// Changing files.
    #[serde(rename = "fileChange")]
    FileChange,
    /// Further permissions.
    #[serde(rename = "permissions")]
    Permissions,
    /// Calling a tool of an MCP server, or a question of the server.
    #[serde(rename = "mcp_tool")]
    McpTool,
    /// A question of the model to the user.
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

/// Who decided a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum DecidedBy {
    /// The client, by a call of a tool.
    Client,
    /// The client's user, in an elicitation.
    Elicitation,
    /// A person at a terminal.
    Terminal,
    /// A person in the web page, or a program by its interface.
    Page,
    /// A member of a team, by a reply to the notice of the question.
    Mail,
    /// A setting, where nobody can be asked.
    Settings,
    /// Nobody, within the timeout.
    Nobody,
}

impl DecidedBy {
    /// Its name in the audit.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// An answer to an [`Action`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Decision {
    /// Allow it once.
    Accept,
    /// Allow it, and similar requests until the thread ends.
    AcceptForSession,
    /// Allow it, and from now on all commands that begin with these words.
    AcceptWithExecpolicyAmendment(Vec<String>),
    /// Add this rule for a host, which may allow or deny, to the policy.
    ApplyNetworkPolicyAmendment(Map<String, Value>),
    /// Decline; Codex continues without it.
    Decline,
    /// Decline, and end the turn.
    Cancel,
    /// The content of a form, or the answers to questions by their IDs.
    Submit(Map<String, Value>),
}

/// Why a decision does not fit the question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongDecision {
    /// Codex does not offer it for this question.
    #[error("Codex does not offer this decision here; possible are {}", .offered.join(", "))]
    NotOffered {
        /// The offered decisions, and those that are always possible.
        offered: Vec<String>,
    },
    /// A rule for commands that allows more than Codex has proposed.
    #[error("the rule has to begin with the words of proposedExecpolicyAmendment")]
    OtherRule,
    /// A rule for a host that Codex has not proposed.
    #[error("the rule has to be one of proposedNetworkPolicyAmendments")]
    OtherNetworkRule,
    /// The question expects content, not an approval.
    #[error("answer each field of this question, or decline it")]
    WantsContent,
    /// The answer names an unknown question.
    #[error("there is no question {id:?}; there are {}", .known.join(", "))]
    NoSuchQuestion {
        /// The ID that was given.
        id: String,
        /// The IDs of the questions.
        known: Vec<String>,
    },
    /// A question has no answer.
    #[error("question {id:?} has no answer, which is {{\"answers\": [text, …]}} or a text")]
    Unanswered {
        /// Its id.
        id: String,
    },
    /// The question expects an approval or a refusal, not content.
    #[error("this question takes a decision, not a form")]
    WantsDecision,
}

/// The answer to a question, for Codex.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The result for Codex's request.
    pub result: Value,
    /// Whether the turn has to be interrupted too: `cancel` is to end the turn, and for some
    /// questions Codex has no such answer.
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

/// Converts a decision into the answer that Codex expects.
///
/// # Errors
///
/// [`WrongDecision`] if the decision does not fit the question.
pub fn answer(ask: &Ask, decision: &Decision) -> Result<Answer, WrongDecision> {
    match ask {
        Ask::Command(command) => command_answer(command, decision),
        Ask::FileChange(_) => Ok(Answer::plain(json!({ "decision": word(decision)? }))),
        Ask::Permissions(asked) => permissions_answer(&asked.permissions, decision),
        Ask::McpElicitation(asked) => elicitation_answer(ask, asked, decision),
        Ask::UserInput(asked) => user_input_answer(&asked.questions, decision),
        Ask::LegacyCommand(asked) => legacy_answer(asked.refusal, decision),
        Ask::LegacyPatch(asked) => legacy_answer(asked.refusal, decision),
    }
}

/// Codex's name of a decision about a command or a file change.
fn word(decision: &Decision) -> Result<&'static str, WrongDecision> {
    match decision {
        Decision::Accept => Ok("accept"),
        Decision::AcceptForSession => Ok("acceptForSession"),
        Decision::Decline => Ok("decline"),
        Decision::Cancel => Ok("cancel"),
        Decision::AcceptWithExecpolicyAmendment(_) | Decision::ApplyNetworkPolicyAmendment(_) => {
            Err(not_offered(&["accept", "acceptForSession"]))
        }
        Decision::Submit(_) => Err(WrongDecision::WantsDecision),
    }
}

/// The error for a decision that is not among the offered ones.
fn not_offered(offered: &[&str]) -> WrongDecision {
    let always = ["decline", "cancel"];
    let besides = always.iter().filter(|word| !offered.contains(word));
    WrongDecision::NotOffered {
        offered: offered
            .iter()
            .chain(besides)
            .map(|&word| word.to_owned())
            .collect(),
    }
}

/// The decisions that a person can choose from, in the order in which they are shown.
/// Empty for a question that expects content.
#[must_use]
pub fn choices(ask: &Ask) -> Vec<Decision> {
    let rule = match ask {
        Ask::UserInput(_) => return Vec::new(),
        Ask::McpElicitation(asked) if !asked.is_tool_approval() || wants_form(asked) => {
            return Vec::new();
        }
        Ask::Command(asked) => asked.proposed_execpolicy_amendment.clone(),
        _ => None,
    };
    let rule = rule.filter(|words| !words.is_empty());
    [Decision::Accept, Decision::AcceptForSession]
        .into_iter()
        .chain(rule.map(Decision::AcceptWithExecpolicyAmendment))
        .chain([Decision::Decline])
        .filter(|decision| answer(ask, decision).is_ok())
        .collect()
}

/// All decisions that Codex accepts, except forms: the offered ones, with the proposed
/// rules, and those that always fit.
#[must_use]
pub fn offered(ask: &Ask) -> Vec<Decision> {
    let (rule, hosts) = match ask {
        Ask::Command(asked) => (
            proposed_rule(asked),
            asked.proposed_network_policy_amendments.as_deref(),
        ),
        _ => (None, None),
    };
    let hosts = hosts.unwrap_or_default().iter();
    let hosts = hosts.filter_map(|rule| rule.as_object().cloned());
    [Decision::Accept, Decision::AcceptForSession]
        .into_iter()
        .chain(rule.map(Decision::AcceptWithExecpolicyAmendment))
        .chain(hosts.map(Decision::ApplyNetworkPolicyAmendment))
        .chain([Decision::Decline, Decision::Cancel])
        .filter(|decision| answer(ask, decision).is_ok())
        .collect()
}

/// Whether Codex would run or write something outside of the sandbox after this answer.
#[must_use]
pub fn leaves_the_sandbox(ask: &Ask, decision: &Decision) -> bool {
    let is_about_the_sandbox = !matches!(ask, Ask::McpElicitation(_) | Ask::UserInput(_));
    let is_no = matches!(decision, Decision::Decline | Decision::Cancel);
    is_about_the_sandbox && !is_no
}

fn command_answer(asked: &CommandApproval, decision: &Decision) -> Result<Answer, WrongDecision> {
    let (name, value) = match decision {
        Decision::AcceptWithExecpolicyAmendment(words) => {
            let name = "acceptWithExecpolicyAmendment";
            // The question shows the proposed rule; a shorter one would allow more.
            if !proposed_rule(asked).is_some_and(|proposed| words.starts_with(&proposed)) {
                return Err(WrongDecision::OtherRule);
            }
            (name, json!({ name: { "execpolicy_amendment": words } }))
        }
        Decision::ApplyNetworkPolicyAmendment(rule) => {
            let name = "applyNetworkPolicyAmendment";
            if offers(asked, name) && !proposes(asked, rule) {
                return Err(WrongDecision::OtherNetworkRule);
            }
            (name, json!({ name: { "network_policy_amendment": rule } }))
        }
        decision => {
            let word = word(decision)?;
            (word, word.into())
        }
    };
    let always = matches!(
        decision,
        Decision::AcceptForSession | Decision::Decline | Decision::Cancel
    );
    if always || offers(asked, name) {
        return Ok(Answer::plain(json!({ "decision": value })));
    }
    let mut offered = words_of(asked);
    if !offered.contains(&FOR_SESSION) {
        offered.push(FOR_SESSION);
    }
    Err(not_offered(&offered))
}

/// The rule for commands that Codex proposes, as a field or among the decisions. A rule without
/// words does not count, as it would allow every command.
fn proposed_rule(asked: &CommandApproval) -> Option<Vec<String>> {
    let has_words = |rule: &Vec<String>| !rule.is_empty();
    let among_decisions = || {
        let offered = asked.available_decisions.iter().flatten();
        let mut rules = offered.filter_map(|one| {
            let rule = one.get("acceptWithExecpolicyAmendment")?;
            serde_json::from_value(rule.get("execpolicy_amendment")?.clone()).ok()
        });
        rules.find(has_words)
    };
    let rule = asked.proposed_execpolicy_amendment.clone();
    rule.filter(has_words).or_else(among_decisions)
}

/// Whether Codex proposes this rule for a host, in a field or among the decisions.
fn proposes(asked: &CommandApproval, rule: &Map<String, Value>) -> bool {
    let in_field = asked.proposed_network_policy_amendments.iter().flatten();
    let offered = asked.available_decisions.iter().flatten();
    let among_decisions = offered.filter_map(|one| {
        let rule = one.get("applyNetworkPolicyAmendment")?;
        rule.get("network_policy_amendment")
    });
    let mut all = in_field.chain(among_decisions);
    all.any(|proposed| proposed.as_object() == Some(rule))
}

/// Codex's name of an approval for the session.
const FOR_SESSION: &str = "acceptForSession";

/// The decisions on a command that every release accepts, besides those that are always
/// possible.
const KNOWN_TO_ALL: [&str; 3] = [
    "accept",
    "acceptForSession",
    "acceptWithExecpolicyAmendment",
];

/// The names of the decisions that Codex offers.
fn words_of(asked: &CommandApproval) -> Vec<&str> {
    fn word(offered: &Value) -> Option<&str> {
        match offered {
            Value::Object(object) => object.keys().next().map(String::as_str),
            offered => offered.as_str(),
        }
    }
    match &asked.available_decisions {
        Some(offered) => offered.iter().filter_map(word).collect(),
        None => KNOWN_TO_ALL.to_vec(),
    }
}

/// Whether Codex offers a decision: a word, or an object with the word as its only key.
/// Releases before 0.130 list none and accept all that they know.
fn offers(asked: &CommandApproval, name: &str) -> bool {
    let is_it = |offered: &Value| offered == name || offered.get(name).is_some();
    match &asked.available_decisions {
        Some(offered) => offered.iter().any(is_it),
        None => name != "applyNetworkPolicyAmendment",
    }
}

/// Answers a question of the first protocol. It proposes no rules for commands, so a rule never
/// fits: the person who decides would not see what it allows.
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
            Err(not_offered(&["accept", "acceptForSession"]))
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

fn wants_form(asked: &McpElicitation) -> bool {
    asked.requested_schema.as_ref().is_some_and(has_fields)
}

fn elicitation_answer(
    ask: &Ask,
    asked: &McpElicitation,
    decision: &Decision,
) -> Result<Answer, WrongDecision> {
    let wants_form = wants_form(asked);
    let result = match decision {
        Decision::AcceptForSession if asked.may_be_kept_for_session() => {
            json!({ "action": "accept", "content": {}, "_meta": { "persist": "session" } })
        }
        Decision::Accept if wants_form => return Err(WrongDecision::WantsContent),
        Decision::Accept => json!({ "action": "accept", "content": {} }),
        Decision::AcceptForSession
        | Decision::AcceptWithExecpolicyAmendment(_)
        | Decision::ApplyNetworkPolicyAmendment(_) => {
            let kept = asked.may_be_kept_for_session();
            let offered: &[&str] = match kept {
                true => &["accept", "acceptForSession"],
                false => &["accept"],
            };
            return Err(not_offered(offered));
        }
        Decision::Submit(_) if !wants_form => return Err(WrongDecision::WantsDecision),
        Decision::Submit(content) => {
            json!({ "action": "accept", "content": form::typed(ask, content) })
        }
        Decision::Decline => json!({ "action": "decline" }),
        Decision::Cancel => json!({ "action": "cancel" }),
    };
    Ok(Answer::plain(result))
}

fn user_input_answer(questions: &[Question], decision: &Decision) -> Result<Answer, WrongDecision> {
    let answers = match decision {
        Decision::Accept
        | Decision::AcceptForSession
        | Decision::AcceptWithExecpolicyAmendment(_)
        | Decision::ApplyNetworkPolicyAmendment(_) => return Err(WrongDecision::WantsContent),
        Decision::Decline | Decision::Cancel => BTreeMap::new(),
        Decision::Submit(content) => answers(questions, content)?,
    };
    Ok(Answer {
        result: json!({ "answers": answers }),
        interrupt: *decision == Decision::Cancel,
    })
}

/// The answers to all questions. Refuses missing answers and answers to unknown questions, since
/// they could not be corrected later.
fn answers<'a>(
    questions: &'a [Question],
    content: &Map<String, Value>,
) -> Result<BTreeMap<&'a str, Value>, WrongDecision> {
    let is_asked = |id: &String| questions.iter().any(|question| question.id == *id);
    if let Some(id) = content.keys().find(|id| !is_asked(id)) {
        return Err(WrongDecision::NoSuchQuestion {
            id: id.clone(),
            known: questions.iter().map(|one| one.id.clone()).collect(),
        });
    }
    let answered = questions.iter().map(|question| {
        let given = content.get(&question.id).and_then(texts);
        let given = given.filter(|texts| !texts.is_empty());
        let texts = given.ok_or_else(|| WrongDecision::Unanswered {
            id: question.id.clone(),
        })?;
        Ok((question.id.as_str(), json!({ "answers": texts })))
    });
    answered.collect()
}

/// The texts of an answer: Codex's `{"answers": […]}`, a list, or one text, as forms
/// return it. `None` for anything else.
fn texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Array(values) => {
            let all: Option<Vec<Vec<String>>> = values.iter().map(texts).collect();
            Some(all?.concat())
        }
        Value::Object(object) => texts(object.get("answers")?),
        Value::String(text) => Some(vec![text.clone()]),
        Value::Number(number) => Some(vec![number.to_string()]),
        Value::Bool(flag) => Some(vec![flag.to_string()]),
        Value::Null => None,
    }
}

#[cfg(test)]
mod tests;
