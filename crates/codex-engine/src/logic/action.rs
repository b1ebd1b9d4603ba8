//! What Codex asks, and how it may be answered.
//!
//! An [`Action`] is an open question. A [`Decision`] answers it; [`answer`]
//! turns the two into what Codex wants to read, or refuses a decision that
//! doesn't fit, in which case the question stays open. Declining and
//! cancelling always fit, and so does allowing a command for the session: Codex
//! honours the three also where it doesn't offer them.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

use codex_protocol::codex::{Ask, CommandApproval, LegacyRefusal, McpElicitation, Question};
use codex_protocol::rpc::RequestId;
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
    /// Who has been shown it.
    pub audience: Audience,
    /// When it is declined if nobody has answered.
    pub deadline: Instant,
    /// The same by the calendar.
    pub expires: SystemTime,
}

/// Who has been shown a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Nobody yet.
    Nobody,
    /// A client, which may be asking its user.
    Client,
    /// The client's user has dismissed it, so that the readers of the session decide.
    Readers,
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

/// By whom a question is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecidedBy {
    /// The client, by a call of a tool.
    Client,
    /// The client, where the question was put to its user as an elicitation.
    Elicitation,
    /// A person at a terminal.
    Terminal,
    /// Settings that say so beforehand, as where there is nobody to be asked.
    Settings,
    /// Nobody, in time.
    Nobody,
}

impl DecidedBy {
    /// Its name in the audit.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Elicitation => "elicitation",
            Self::Terminal => "terminal",
            Self::Settings => "settings",
            Self::Nobody => "nobody",
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
    #[error("Codex does not offer this decision here; possible are {}", .offered.join(", "))]
    NotOffered {
        /// What it does offer, and what is always possible.
        offered: Vec<String>,
    },
    /// A rule for commands that allows more than Codex has proposed.
    #[error("the rule has to begin with the words of proposedExecpolicyAmendment")]
    OtherRule,
    /// The question wants words, not a yes.
    #[error("this question wants an answer to each of its fields; decline it to go on without")]
    WantsContent,
    /// An answer to another question.
    #[error("there is no question {id:?}; there are {}", .known.join(", "))]
    NoSuchQuestion {
        /// Its id, as it was given.
        id: String,
        /// The ids that there are.
        known: Vec<String>,
    },
    /// A question has no answer.
    #[error("question {id:?} has no answer, which is {{\"answers\": [text, …]}} or a text")]
    Unanswered {
        /// Its id.
        id: String,
    },
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
        Ask::UserInput(asked) => user_input_answer(&asked.questions, decision),
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
            Err(not_offered(&["accept", "acceptForSession"]))
        }
        Decision::Submit(_) => Err(WrongDecision::WantsDecision),
    }
}

/// The refusal of a decision where these are offered.
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

/// The decisions that a person can choose from, in the order in which they are
/// shown. None for a question that wants words.
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

/// All decisions that Codex takes for an answer, but forms: those that it offers, with the
/// rules that it proposes, and those that always fit.
#[must_use]
pub fn offered(ask: &Ask) -> Vec<Decision> {
    let (rule, hosts) = match ask {
        Ask::Command(asked) => (
            proposed_rule(asked),
            asked.proposed_network_policy_amendments.as_deref(),
        ),
        _ => (None, None),
    };
    let rule = rule.filter(|words| !words.is_empty());
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
            // The question has shown the proposed rule; a shorter one would allow more.
            if !proposed_rule(asked).is_some_and(|proposed| words.starts_with(&proposed)) {
                return Err(WrongDecision::OtherRule);
            }
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

/// The rule for commands that Codex proposes: by itself, or among the decisions.
fn proposed_rule(asked: &CommandApproval) -> Option<Vec<String>> {
    let among_decisions = || {
        let offered = asked.available_decisions.iter().flatten();
        let mut rules = offered.filter_map(|one| {
            let rule = one.get("acceptWithExecpolicyAmendment")?;
            serde_json::from_value(rule.get("execpolicy_amendment")?.clone()).ok()
        });
        rules.next()
    };
    asked
        .proposed_execpolicy_amendment
        .clone()
        .or_else(among_decisions)
}

/// Codex's word for a yes that holds for the session.
const FOR_SESSION: &str = "acceptForSession";

/// The decisions on a command that every release takes, besides those that are
/// always possible.
const KNOWN_TO_ALL: [&str; 3] = [
    "accept",
    "acceptForSession",
    "acceptWithExecpolicyAmendment",
];

/// The words of the decisions that Codex offers.
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
    let words = match decision {
        Decision::AcceptWithExecpolicyAmendment(words) => words,
        Decision::ApplyNetworkPolicyAmendment(_) => return Err(not_offered(&KNOWN_TO_ALL)),
        decision => return legacy_answer(refusal, decision),
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
        Decision::Submit(content) => json!({ "action": "accept", "content": content }),
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

/// The answers to all questions. One answer too few, or one to something that
/// was not asked, is a slip that could not be mended later.
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

/// The texts of an answer: Codex's `{"answers": […]}`, a list, or one text, as
/// forms give it. `None` for anything else.
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
