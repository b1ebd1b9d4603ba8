//! Codex's questions as MCP elicitations, and the answers to them.
//!
//! An elicitation has the standard's form; the form of an approval offers the decisions. It also
//! has the `codex_*` members that `codex mcp-server` sends. Both formats of answers are read: the
//! standard's `{"action":"accept"}` and Codex's `{"decision":"approved"}`.

mod schema;

use codex_engine::command::OpenQuestion;
use codex_engine::logic::action::{self, DecidedBy, Decision};
use codex_engine::logic::approval_text;
use codex_protocol::codex::{
    Ask, CommandApproval, FileChange, FileChangeApproval, FileChangeKind, LegacyCommandApproval,
    ThreadId, TurnId,
};
use job_queue::question::StoredQuestion;
use job_queue::service::{NewAnswer, Response};
use rmcp::model::{InputRequest, InputRequests};
use serde_json::{Map, Value, json};

use schema::{DECISION, REASON, requested_schema, stored_choices};

pub(super) use schema::{ChoiceTitles, stored_schema};

/// A question for a client that can show one.
pub(super) struct Elicitation {
    pub(super) message: String,
    pub(super) requested_schema: Value,
    /// The members that `codex mcp-server` adds.
    pub(super) extra: Map<String, Value>,
}

/// The thread, the turn and the call that a question comes from.
pub(super) struct Origin<'a> {
    pub(super) thread: &'a ThreadId,
    pub(super) turn: Option<&'a TurnId>,
    /// The ID of the tool call that waits for the turn, if one does.
    pub(super) call: Option<&'a str>,
}

impl Elicitation {
    pub(super) fn new(origin: &Origin<'_>, open: &OpenQuestion, titles: ChoiceTitles) -> Self {
        let mut extra = Map::new();
        extra.insert("threadId".to_owned(), json!(origin.thread));
        if let Some(call) = origin.call {
            extra.insert("codex_mcp_tool_call_id".to_owned(), call.into());
        }
        if let Some(turn) = origin.turn {
            extra.insert("codex_event_id".to_owned(), json!(turn));
        }
        if let Value::Object(codex_members) = codex_members(&open.ask) {
            extra.extend(codex_members);
        }
        Self {
            message: approval_text::question(&open.ask),
            requested_schema: requested_schema(&open.ask, titles),
            extra,
        }
    }

    /// The parameters of `elicitation/create`.
    pub(super) fn into_params(self) -> Value {
        let mut params = self.extra;
        params.insert("message".to_owned(), self.message.into());
        params.insert("requestedSchema".to_owned(), self.requested_schema);
        Value::Object(params)
    }
}

/// Questions as requests to a client that answers them by a later call, without those that can't be
/// written as such.
pub(super) fn input_requests(
    origin: &Origin<'_>,
    questions: &[OpenQuestion],
    titles: ChoiceTitles,
) -> InputRequests {
    let as_request = |question: &OpenQuestion| {
        let Elicitation {
            message,
            requested_schema,
            extra,
        } = Elicitation::new(origin, question, titles);
        let request: InputRequest = serde_json::from_value(json!({
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": message,
                "requestedSchema": requested_schema,
                "_meta": extra,
            },
        }))
        .inspect_err(|error| tracing::warn!("cannot pass on a question: {error}"))
        .ok()?;
        Some((question.id.0.clone(), request))
    };
    questions.iter().filter_map(as_request).collect()
}

/// The question as an object, for a client that can't show elicitations.
pub(super) fn as_action(open: &OpenQuestion) -> Value {
    let mut action = open.shown.clone();
    if let Some(action) = action.as_object_mut() {
        // The message says the same.
        action.remove("params");
        action.remove("question");
        let message = approval_text::question(&open.ask);
        action.insert("message".to_owned(), message.into());
    }
    action
}

/// The answer of a client.
#[derive(Debug, PartialEq)]
pub(super) enum Reply {
    /// The client has dismissed the question without a choice.
    Dismissed,
    /// The client has decided.
    Decided {
        /// The decision, followed by the decisions that replace it if it does not fit the question.
        decisions: Vec<Decision>,
        /// The reason, if the client gives one.
        reason: Option<String>,
    },
}

/// Reads a client's answer to a question of a session.
pub(super) fn reply(ask: &Ask, answer: &Value) -> Reply {
    let choices = action::choices(ask);
    let Some(decision) = decision(&choices, answer) else {
        return Reply::Dismissed;
    };
    let decisions = match decision {
        // A server that only needs a yes does not receive the form.
        Decision::Submit(_) => vec![decision, Decision::Accept, Decision::Decline],
        Decision::Decline | Decision::Cancel => vec![decision],
        // An approval of more than this command must not become an approval of this command alone.
        _ => vec![decision, Decision::Decline],
    };
    Reply::Decided {
        decisions,
        reason: reason(&choices, answer),
    }
}

/// Reads a client's answer to a question of a job; `None` if the client has dismissed it.
pub(super) fn stored_answer(question: &StoredQuestion, answer: &Value) -> Option<NewAnswer> {
    let choices = stored_choices(question);
    let response = match decision(&choices, answer)? {
        // All of the fields may be optional.
        Decision::Accept if !question.fields.is_empty() => Response::Words(Map::new()),
        decision => Response::Decision(decision),
    };
    Some(NewAnswer {
        reason: reason(&choices, answer),
        ..NewAnswer::new(response, DecidedBy::Elicitation)
    })
}

/// The reason in a form that has these choices, if there is one.
fn reason(choices: &[Decision], answer: &Value) -> Option<String> {
    let reason = filled_in(answer)?.get(REASON)?.as_str()?;
    let is_given = !reason.is_empty() && !choices.is_empty();
    is_given.then(|| reason.to_owned())
}

/// The client's decision on a question that offers these choices, or fields instead; `None` if the
/// client has dismissed the question. If an answer contains contradictory decisions, a no takes
/// precedence over a yes and over a dismissal, and a dismissal over a yes.
fn decision(choices: &[Decision], answer: &Value) -> Option<Decision> {
    let standard = answer.get("action").and_then(Value::as_str);
    let codex = answer.get("decision").map(codex_decision);
    match (standard, codex) {
        (Some("accept"), None) => Some(chosen(choices, answer)),
        (Some("accept"), Some(decision)) => Some(match chosen(choices, answer) {
            Decision::Decline => Decision::Decline,
            chosen if decision == Decision::Accept => chosen,
            _ => decision,
        }),
        (Some("cancel"), Some(no @ (Decision::Decline | Decision::Cancel))) => Some(no),
        (Some("cancel"), _) => None,
        (None, Some(decision)) => Some(decision),
        _ => Some(Decision::Decline),
    }
}

/// The decision in the form of a client that accepts. A client without forms sends no form, which
/// is a plain yes.
fn chosen(choices: &[Decision], answer: &Value) -> Decision {
    match filled_in(answer) {
        None => Decision::Accept,
        Some(content) if choices.is_empty() => Decision::Submit(content.clone()),
        Some(content) => match content.get(DECISION) {
            None => Decision::Accept,
            Some(name) => choices
                .iter()
                .find(|choice| name == choice.name())
                .cloned()
                .unwrap_or(Decision::Decline),
        },
    }
}

fn filled_in(answer: &Value) -> Option<&Map<String, Value>> {
    let content = answer.get("content")?.as_object()?;
    (!content.is_empty()).then_some(content)
}

/// Codex's words for decisions (`ReviewDecision`, 0.104.0 to 0.169.0). A yes that would also change
/// a policy counts as a plain yes.
fn codex_decision(decision: &Value) -> Decision {
    let amended = decision.get("approved_execpolicy_amendment").is_some();
    match decision.as_str() {
        Some("approved" | "approved_mcp_policy_amendment") => Decision::Accept,
        None if amended => Decision::Accept,
        Some("approved_for_session") => Decision::AcceptForSession,
        Some("abort") => Decision::Cancel,
        _ => Decision::Decline,
    }
}

/// The members of an elicitation that `codex mcp-server` sends, by the kind of question.
fn codex_members(ask: &Ask) -> Value {
    match ask {
        Ask::Command(asked) => command_members(asked),
        Ask::LegacyCommand(asked) => legacy_command_members(asked),
        Ask::FileChange(asked) => patch_members(asked),
        Ask::LegacyPatch(asked) => json!({
            "codex_elicitation": "patch-approval",
            "codex_call_id": asked.call_id,
            "codex_changes": asked.file_changes,
        }),
        Ask::Permissions(asked) => json!({
            "codex_elicitation": "permissions-approval",
            "codex_call_id": asked.item_id,
            "codex_permissions": asked.permissions,
        }),
        Ask::McpElicitation(asked) => json!({
            "codex_elicitation": if asked.is_tool_approval() { "mcp-tool-call" } else { "mcp-elicitation" },
            "codex_mcp_server": asked.server_name,
        }),
        Ask::UserInput(asked) => json!({
            "codex_elicitation": "user-input",
            "codex_call_id": asked.item_id,
        }),
    }
}

fn command_members(asked: &CommandApproval) -> Value {
    let command = asked.command.as_deref().unwrap_or_default();
    let words = shlex::split(command).unwrap_or_else(|| vec![command.to_owned()]);
    let actions: Vec<Map<String, Value>> = asked
        .command_actions
        .iter()
        .flatten()
        .cloned()
        .map(|mut action| {
            if let Some(command) = action.remove("command") {
                action.insert("cmd".to_owned(), command);
            }
            action
        })
        .collect();
    json!({
        "codex_elicitation": "exec-approval",
        "codex_call_id": asked.item_id,
        "codex_command": words,
        "codex_cwd": asked.cwd,
        "codex_parsed_cmd": actions,
    })
}

fn legacy_command_members(asked: &LegacyCommandApproval) -> Value {
    json!({
        "codex_elicitation": "exec-approval",
        "codex_call_id": asked.call_id,
        "codex_command": asked.command,
        "codex_cwd": asked.cwd,
    })
}

fn patch_members(asked: &FileChangeApproval) -> Value {
    let mut members = json!({
        "codex_elicitation": "patch-approval",
        "codex_call_id": asked.item_id,
        "codex_changes": changes_by_path(&asked.changes),
    });
    if let Some(members) = members.as_object_mut() {
        let optional = [
            ("codex_reason", &asked.reason),
            ("codex_grant_root", &asked.grant_root),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                members.insert(name.to_owned(), value.as_str().into());
            }
        }
    }
    members
}

/// File changes as `codex mcp-server` writes them.
fn changes_by_path(changes: &[FileChange]) -> Map<String, Value> {
    let change = |change: &FileChange| match &change.kind {
        FileChangeKind::Add => json!({ "type": "add", "content": change.diff }),
        FileChangeKind::Delete => json!({ "type": "delete", "content": change.diff }),
        FileChangeKind::Update { move_path } => json!({
            "type": "update",
            "unified_diff": change.diff,
            "move_path": move_path,
        }),
        FileChangeKind::Unknown => json!({ "type": "unknown", "unified_diff": change.diff }),
    };
    changes
        .iter()
        .map(|one| (one.path.clone(), change(one)))
        .collect()
}

#[cfg(test)]
mod tests {
    use codex_engine::logic::action::ActionId;

    use super::*;

    fn command() -> Ask {
        Ask::Command(CommandApproval {
            proposed_execpolicy_amendment: Some(vec!["git".into(), "push".into()]),
            ..CommandApproval::default()
        })
    }

    /// The same question in a job.
    fn stored_command() -> StoredQuestion {
        let open = OpenQuestion {
            id: ActionId("req_1".into()),
            ask: command(),
            shown: json!({}),
            expires: std::time::UNIX_EPOCH,
        };
        StoredQuestion::new(&open, false)
    }

    fn response_of(question: &StoredQuestion, answer: &Value) -> Option<Response> {
        stored_answer(question, answer).map(|given| given.response)
    }

    /// Checks the decision in an answer to the question about a command, in a session and in a job.
    #[track_caller]
    fn assert_decides(answer: &Value, expected: Decision) {
        let of_session = decision(&action::choices(&command()), answer);
        assert_eq!(of_session.as_ref(), Some(&expected), "{answer}");
        let of_job = response_of(&stored_command(), answer);
        assert_eq!(of_job, Some(Response::Decision(expected)), "{answer}");
    }

    fn form() -> Ask {
        serde_json::from_value::<codex_protocol::codex::McpElicitation>(json!({
            "serverName": "s",
            "requestedSchema": {"type": "object", "properties": {"q": {"type": "string"}}},
        }))
        .map(Ask::McpElicitation)
        .unwrap()
    }

    #[test]
    fn both_answer_formats_are_read_and_decline_wins() {
        for (answer, expected) in [
            (json!({"action": "accept"}), Decision::Accept),
            (json!({"action": "accept", "content": {}}), Decision::Accept),
            (json!({"action": "decline"}), Decision::Decline),
            (json!({"decision": "approved"}), Decision::Accept),
            (
                json!({"decision": "approved_for_session"}),
                Decision::AcceptForSession,
            ),
            (json!({"decision": "denied"}), Decision::Decline),
            (json!({"decision": "abort"}), Decision::Cancel),
            (
                json!({"decision": {"approved_execpolicy_amendment": {"proposed_execpolicy_amendment": []}}}),
                Decision::Accept,
            ),
            (
                json!({"decision": {"denied": {"rejection": "no"}}}),
                Decision::Decline,
            ),
            (
                json!({"action": "accept", "decision": "approved"}),
                Decision::Accept,
            ),
            (
                json!({"action": "accept", "decision": "approved_for_session"}),
                Decision::AcceptForSession,
            ),
            (
                json!({"action": "accept", "decision": "denied"}),
                Decision::Decline,
            ),
            (
                json!({"action": "decline", "decision": "approved"}),
                Decision::Decline,
            ),
            (
                json!({"action": "cancel", "decision": "denied"}),
                Decision::Decline,
            ),
            (
                json!({"action": "cancel", "decision": "abort"}),
                Decision::Cancel,
            ),
            (json!({"action": "made up"}), Decision::Decline),
            (json!({}), Decision::Decline),
            (json!("yes"), Decision::Decline),
        ] {
            assert_decides(&answer, expected);
        }
        for answer in [
            json!({"action": "cancel"}),
            json!({"action": "cancel", "content": {}}),
            json!({"action": "cancel", "decision": "approved"}),
        ] {
            assert_eq!(reply(&command(), &answer), Reply::Dismissed, "{answer}");
            let of_job = response_of(&stored_command(), &answer);
            assert_eq!(of_job, None, "{answer}");
        }
    }

    #[test]
    fn choice_in_the_form_is_the_decision() {
        let filled = |content: Value| json!({"action": "accept", "content": content});
        let rule = vec!["git".to_owned(), "push".to_owned()];
        for (content, expected) in [
            (json!({"decision": "accept"}), Decision::Accept),
            (
                json!({"decision": "acceptForSession"}),
                Decision::AcceptForSession,
            ),
            (
                json!({"decision": "acceptWithExecpolicyAmendment"}),
                Decision::AcceptWithExecpolicyAmendment(rule),
            ),
            (json!({"decision": "decline"}), Decision::Decline),
            (json!({"decision": "made up"}), Decision::Decline),
            (json!({"decision": 7}), Decision::Decline),
            (json!({"decision": null}), Decision::Decline),
            (json!({"decision": false}), Decision::Decline),
            (json!({"decision": ["decline"]}), Decision::Decline),
            (json!({"sure": true}), Decision::Accept),
        ] {
            assert_decides(&filled(content), expected);
        }
        // A no wins.
        let mut both = filled(json!({"decision": "decline"}));
        both["decision"] = "approved_for_session".into();
        assert_decides(&both, Decision::Decline);
        let mut both = filled(json!({"decision": "accept"}));
        both["decision"] = "denied".into();
        assert_decides(&both, Decision::Decline);
        let words = json!({"q": "yes"});
        let submitted = Decision::Submit(words.as_object().unwrap().clone());
        let choices = action::choices(&form());
        assert_eq!(decision(&choices, &filled(words)), Some(submitted));
    }

    #[test]
    fn form_of_a_job_is_read() {
        let stored: StoredQuestion = serde_json::from_value(json!({ "kind": "user_input",
            "text": "?", "decisions": ["decline", "cancel"], "fields": ["n"], "expires_at": "" }))
        .unwrap();
        let read = |answer: Value| response_of(&stored, &answer);
        let words = Map::from_iter([("n".to_owned(), json!("7"))]);
        let filled = json!({"action": "accept", "content": words});
        let submitted = Response::Decision(Decision::Submit(words));
        assert_eq!(read(filled.clone()), Some(submitted));
        let empty = Response::Words(Map::new());
        assert_eq!(read(json!({"action": "accept"})), Some(empty));
        assert_eq!(read(json!({"action": "cancel"})), None);
        let mut both = filled;
        both["decision"] = "denied".into();
        for no in [both, json!({"action": "decline"})] {
            let declined = Response::Decision(Decision::Decline);
            assert_eq!(read(no), Some(declined));
        }
    }

    #[test]
    fn reason_of_a_choice_is_kept() {
        let content = json!({"decision": "decline", "reason": "too risky"});
        let answer = json!({"action": "accept", "content": content});
        let expected = Reply::Decided {
            decisions: vec![Decision::Decline],
            reason: Some("too risky".to_owned()),
        };
        assert_eq!(reply(&command(), &answer), expected);
        let of_job = stored_answer(&stored_command(), &answer).unwrap();
        assert_eq!(of_job.reason.as_deref(), Some("too risky"));
        let empty = json!({"action": "accept", "content": {"reason": ""}});
        let of_job = stored_answer(&stored_command(), &empty).unwrap();
        assert_eq!(of_job.reason, None);
    }

    #[test]
    fn session_approval_is_not_reduced_to_a_single_approval() {
        let answer = json!({"decision": "approved_for_session"});
        let expected = Reply::Decided {
            decisions: vec![Decision::AcceptForSession, Decision::Decline],
            reason: None,
        };
        assert_eq!(reply(&command(), &answer), expected);
    }

    #[test]
    fn form_of_an_approval_offers_the_decisions() {
        let names = [
            "accept",
            "acceptForSession",
            "acceptWithExecpolicyAmendment",
            "decline",
        ];
        let schema = requested_schema(&command(), ChoiceTitles::EnumNames);
        let field = &schema["properties"]["decision"];
        assert_eq!(field["type"], "string");
        assert_eq!(field["enum"], json!(names));
        assert_eq!(
            field["enumNames"],
            json!([
                "Yes, once",
                "Yes, for the rest of this session",
                "Yes, and allow for good, in all threads, commands that begin with: git push",
                "No",
            ])
        );
        assert_eq!(field["default"], "accept");
        assert_eq!(schema["required"], json!(["decision"]));
        assert_eq!(schema["properties"]["reason"]["type"], "string");

        let schema = requested_schema(&command(), ChoiceTitles::OneOf);
        let field = &schema["properties"]["decision"];
        let first = json!({"const": "accept", "title": "Yes, once"});
        assert_eq!(field["oneOf"][0], first);
        assert_eq!(field["oneOf"].as_array().unwrap().len(), names.len());

        let own = requested_schema(&form(), ChoiceTitles::OneOf);
        assert_eq!(own["properties"], json!({"q": {"type": "string"}}));
    }

    #[test]
    fn form_of_a_job_has_the_types_of_its_fields() {
        let fields = json!([
            { "id": "n", "label": "How many?", "kind": "integer", "required": true },
            { "id": "c", "label": "Which?", "kind": "choice",
                "options": [{ "value": "r", "label": "Red" }] },
            { "id": "o", "label": "Or?", "kind": "choice", "takes_others": true,
                "options": [{ "value": "r", "label": "Red" }] },
            "earlier",
        ]);
        let stored: StoredQuestion = serde_json::from_value(json!({ "kind": "user_input",
            "text": "?", "decisions": [], "fields": fields, "expires_at": "" }))
        .unwrap();
        let expected = json!({
            "type": "object",
            "properties": {
                "n": { "type": "integer", "title": "n", "description": "How many?" },
                "c": { "type": "string", "title": "c", "description": "Which?", "enum": ["r"] },
                "o": { "type": "string", "title": "o", "description": "Or? (r)" },
                "earlier": { "type": "string", "title": "earlier", "description": "earlier" },
            },
            "required": ["n"],
        });
        assert_eq!(stored_schema(&stored, ChoiceTitles::OneOf), expected);
    }

    #[test]
    fn form_of_a_job_has_no_rules_for_hosts() {
        let rule = |action: &str| {
            let rule = json!({ "action": action, "host": "example.org" });
            json!({ "applyNetworkPolicyAmendment": rule })
        };
        let decisions = json!(["accept", rule("allow"), rule("deny"), "decline", "cancel"]);
        let stored: StoredQuestion = serde_json::from_value(json!({ "kind": "command",
            "text": "?", "decisions": decisions, "expires_at": "" }))
        .unwrap();
        // Both rules have one name, so that a choice of it would say nothing.
        assert_eq!(stored.decisions[1].name(), stored.decisions[2].name());
        let offered = [Decision::Accept, Decision::Decline, Decision::Cancel];
        assert_eq!(stored_choices(&stored), offered);
        let schema = stored_schema(&stored, ChoiceTitles::OneOf);
        let choices = schema["properties"]["decision"]["oneOf"].as_array();
        let names = choices.unwrap().iter().map(|choice| &choice["const"]);
        assert_eq!(names.collect::<Vec<_>>(), ["accept", "decline", "cancel"]);
        let content = json!({"decision": stored.decisions[2].name()});
        let named = json!({"action": "accept", "content": content});
        let declined = Response::Decision(Decision::Decline);
        assert_eq!(response_of(&stored, &named), Some(declined));
    }

    fn without_schema(elicitation: Elicitation) -> Value {
        let mut params = elicitation.into_params();
        params.as_object_mut().unwrap().remove("requestedSchema");
        params
    }

    #[test]
    fn command_question_has_the_members_of_codex_mcp_server() {
        let open = OpenQuestion {
            id: ActionId("req_1".into()),
            ask: Ask::Command(CommandApproval {
                item_id: "c1".into(),
                command: Some("/bin/bash -lc 'touch a b'".into()),
                cwd: Some("/repo".into()),
                command_actions: serde_json::from_value(
                    json!([{"type": "unknown", "command": "touch a b"}]),
                )
                .unwrap(),
                ..CommandApproval::default()
            }),
            shown: Value::Null,
            expires: std::time::UNIX_EPOCH,
        };
        let thread = ThreadId::parse("0199a213-81c0-7800-8aa1-bbab2a035a53").unwrap();
        let origin = Origin {
            thread: &thread,
            turn: Some(&TurnId("turn".into())),
            call: Some("50"),
        };
        assert_eq!(
            without_schema(Elicitation::new(&origin, &open, ChoiceTitles::EnumNames)),
            json!({
                "message": "Codex wants to run a command.\nCommand: /bin/bash -lc 'touch a b'\n\
                            Sandbox: a yes can let the command run outside of it, with your rights\n\
                            Directory: /repo",
                "threadId": "0199a213-81c0-7800-8aa1-bbab2a035a53",
                "codex_elicitation": "exec-approval",
                "codex_mcp_tool_call_id": "50",
                "codex_event_id": "turn",
                "codex_call_id": "c1",
                "codex_command": ["/bin/bash", "-lc", "touch a b"],
                "codex_cwd": "/repo",
                "codex_parsed_cmd": [{"type": "unknown", "cmd": "touch a b"}],
            })
        );
    }
}
