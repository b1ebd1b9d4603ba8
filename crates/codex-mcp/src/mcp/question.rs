//! Codex's questions as MCP elicitations, and the answers to them.
//!
//! The form is the standard's. Besides, the `codex_*` members stand there that
//! `codex mcp-server` sends, and both forms of answer are understood: the
//! standard's `{"action":"accept"}` and Codex's `{"decision":"approved"}`.

use codex_mcp_core::action::Decision;
use codex_mcp_core::approval_text;
use codex_mcp_protocol::codex::{
    Ask, CommandApproval, FileChange, FileChangeApproval, FileChangeKind, LegacyCommandApproval,
    Question, ThreadId, TurnId, UserInputRequest,
};
use serde_json::{Map, Value, json};

use crate::engine::command::Open;

/// A question for a client that can show one.
pub(super) struct Elicitation {
    pub(super) message: String,
    pub(super) requested_schema: Value,
    /// What `codex mcp-server` sends besides.
    pub(super) extra: Map<String, Value>,
}

/// Where a question comes from.
pub(super) struct Origin<'a> {
    pub(super) thread: &'a ThreadId,
    pub(super) turn: Option<&'a TurnId>,
    /// The id of the tool call in which Codex asks, if one waits for it.
    pub(super) call: Option<&'a str>,
}

impl Elicitation {
    pub(super) fn new(origin: &Origin<'_>, open: &Open) -> Self {
        let mut extra = Map::new();
        extra.insert("threadId".to_owned(), json!(origin.thread));
        if let Some(call) = origin.call {
            extra.insert("codex_mcp_tool_call_id".to_owned(), call.into());
        }
        if let Some(turn) = origin.turn {
            extra.insert("codex_event_id".to_owned(), json!(turn));
        }
        let (requested_schema, particulars) = match &open.ask {
            Ask::Command(asked) => (no_fields(), command_members(asked)),
            Ask::LegacyCommand(asked) => (no_fields(), legacy_command_members(asked)),
            Ask::FileChange(asked) => (no_fields(), patch_members(asked)),
            Ask::LegacyPatch(asked) => (
                no_fields(),
                json!({
                    "codex_elicitation": "patch-approval",
                    "codex_call_id": asked.call_id,
                    "codex_changes": asked.file_changes,
                }),
            ),
            Ask::Permissions(asked) => (
                no_fields(),
                json!({
                    "codex_elicitation": "permissions-approval",
                    "codex_call_id": asked.item_id,
                    "codex_permissions": asked.permissions,
                }),
            ),
            Ask::McpElicitation(asked) => (
                asked.requested_schema.clone().unwrap_or_else(no_fields),
                json!({
                    "codex_elicitation": if asked.is_tool_approval() { "mcp-tool-call" } else { "mcp-elicitation" },
                    "codex_mcp_server": asked.server_name,
                }),
            ),
            Ask::UserInput(asked) => (
                questions_schema(asked),
                json!({
                    "codex_elicitation": "user-input",
                    "codex_call_id": asked.item_id,
                }),
            ),
        };
        if let Value::Object(particulars) = particulars {
            extra.extend(particulars);
        }
        Self {
            message: approval_text::question(&open.ask),
            requested_schema,
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

/// The question for a client that can't show one: what it is about, in words too.
pub(super) fn as_action(open: &Open) -> Value {
    let mut action = open.shown.clone();
    if let Some(action) = action.as_object_mut() {
        // They say the same.
        action.remove("params");
        action.remove("question");
        let message = approval_text::question(&open.ask);
        action.insert("message".to_owned(), message.into());
    }
    action
}

/// What the client answered, and after it what that counts as where it doesn't fit
/// the question: a form that isn't wanted is a plain yes, and what can't be passed on
/// is a no. A yes for the session is never taken for a yes for once.
pub(super) fn decisions(answer: &Value) -> Vec<Decision> {
    let decision = decision(answer);
    match decision {
        Decision::Submit(_) => vec![decision, Decision::Accept, Decision::Decline],
        Decision::Accept | Decision::AcceptForSession => vec![decision, Decision::Decline],
        _ => vec![decision],
    }
}

/// What the client answered. An answer that says both yes and no is a no.
fn decision(answer: &Value) -> Decision {
    let standard = answer.get("action").and_then(Value::as_str);
    let codex = answer.get("decision").map(codex_decision);
    match (standard, codex) {
        (Some("accept"), None | Some(Decision::Accept)) => match answer.get("content") {
            Some(Value::Object(content)) if !content.is_empty() => {
                Decision::Submit(content.clone())
            }
            _ => Decision::Accept,
        },
        (Some("cancel"), _) => Decision::Cancel,
        (None | Some("accept"), Some(decision)) => decision,
        _ => Decision::Decline,
    }
}

/// Codex's words for decisions (`ReviewDecision`, 0.104.0 to 0.169.0). A yes
/// that would also change a policy is taken as a yes.
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

fn no_fields() -> Value {
    json!({ "type": "object", "properties": {} })
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

fn questions_schema(asked: &UserInputRequest) -> Value {
    let field = |question: &Question| {
        let mut field = json!({
            "type": "string",
            "title": question.header,
            "description": question.question,
        });
        if let (Some(options), Some(field)) = (&question.options, field.as_object_mut()) {
            let labels: Vec<&str> = options.iter().map(|option| option.label.as_str()).collect();
            field.insert("enum".to_owned(), json!(labels));
        }
        field
    };
    let properties: Map<String, Value> = asked
        .questions
        .iter()
        .map(|question| (question.id.clone(), field(question)))
        .collect();
    let required: Vec<&str> = asked
        .questions
        .iter()
        .map(|question| question.id.as_str())
        .collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

#[cfg(test)]
mod tests {
    use codex_mcp_core::action::ActionId;

    use super::*;

    #[test]
    fn both_forms_of_answer_are_understood_and_a_no_wins() {
        let form = json!({"q": "yes"});
        for (answer, expected) in [
            (json!({"action": "accept"}), Decision::Accept),
            (json!({"action": "accept", "content": {}}), Decision::Accept),
            (
                json!({"action": "accept", "content": form}),
                Decision::Submit(form.as_object().unwrap().clone()),
            ),
            (json!({"action": "decline"}), Decision::Decline),
            (json!({"action": "cancel"}), Decision::Cancel),
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
            (json!({"action": "made up"}), Decision::Decline),
            (json!({}), Decision::Decline),
            (json!("yes"), Decision::Decline),
        ] {
            assert_eq!(decision(&answer), expected, "{answer}");
        }
    }

    #[test]
    fn a_command_is_asked_about_as_codex_mcp_server_does() {
        let open = Open {
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
        };
        let thread = ThreadId::parse("0199a213-81c0-7800-8aa1-bbab2a035a53").unwrap();
        let origin = Origin {
            thread: &thread,
            turn: Some(&TurnId("turn".into())),
            call: Some("50"),
        };
        assert_eq!(
            Elicitation::new(&origin, &open).into_params(),
            json!({
                "message": "Codex wants to run a command.\nCommand: /bin/bash -lc 'touch a b'\nDirectory: /repo",
                "requestedSchema": {"type": "object", "properties": {}},
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
