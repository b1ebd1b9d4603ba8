use codex_mcp_protocol::codex::{
    FileChangeApproval, LegacyCommandApproval, LegacyPatchApproval, McpElicitation,
    PermissionsApproval, UserInputRequest,
};

use super::*;

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(object) = value else {
        panic!("an object");
    };
    object
}

fn decisions() -> [Decision; 7] {
    [
        Decision::Accept,
        Decision::AcceptForSession,
        Decision::AcceptWithExecpolicyAmendment(vec!["git".into(), "push".into()]),
        Decision::ApplyNetworkPolicyAmendment(object(json!({"host": "h", "action": "allow"}))),
        Decision::Decline,
        Decision::Cancel,
        Decision::Submit(object(json!({"q": "yes", "many": ["a", 1]}))),
    ]
}

fn command(decisions: Option<Value>) -> Ask {
    let decisions = decisions.map(|decisions| decisions.as_array().unwrap().clone());
    Ask::Command(CommandApproval {
        available_decisions: decisions,
        ..CommandApproval::default()
    })
}

fn elicitation(schema: Value) -> Ask {
    Ask::McpElicitation(McpElicitation {
        requested_schema: Some(schema),
        ..McpElicitation::default()
    })
}

fn legacy_command(refusal: LegacyRefusal) -> Ask {
    Ask::LegacyCommand(LegacyCommandApproval {
        refusal,
        ..LegacyCommandApproval::default()
    })
}

fn legacy_patch(refusal: LegacyRefusal) -> Ask {
    Ask::LegacyPatch(LegacyPatchApproval {
        refusal,
        ..LegacyPatchApproval::default()
    })
}

fn asks() -> Vec<(&'static str, Ask)> {
    let permissions = PermissionsApproval {
        permissions: json!({"network": {"enabled": true}}),
        ..PermissionsApproval::default()
    };
    let with_a_rule = json!([
        "accept",
        {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["git", "push"]}},
        "cancel",
    ]);
    let for_a_host = json!([
        "accept",
        "acceptForSession",
        {"applyNetworkPolicyAmendment":
            {"network_policy_amendment": {"host": "h", "action": "allow"}}},
        "cancel",
    ]);
    vec![
        ("command, nothing listed (0.104)", command(None)),
        ("command, as listed by 0.169", command(Some(with_a_rule))),
        ("command that wants the network", command(Some(for_a_host))),
        (
            "file change",
            Ask::FileChange(FileChangeApproval::default()),
        ),
        ("permissions", Ask::Permissions(permissions)),
        (
            "tool call",
            elicitation(json!({"type": "object", "properties": {}})),
        ),
        (
            "tool call that may be allowed for the session",
            Ask::McpElicitation(McpElicitation {
                meta: Some(json!({"codex_approval_kind": "mcp_tool_call",
                    "persist": ["session", "always"]})),
                ..McpElicitation::default()
            }),
        ),
        (
            "form of a server",
            elicitation(json!({"type": "object", "properties": {"q": {"type": "string"}}})),
        ),
        ("user input", Ask::UserInput(UserInputRequest::default())),
        (
            "legacy command, up to 0.144",
            legacy_command(LegacyRefusal::Word),
        ),
        (
            "legacy command, from 0.145",
            legacy_command(LegacyRefusal::Object),
        ),
        (
            "legacy patch, up to 0.144",
            legacy_patch(LegacyRefusal::Word),
        ),
        (
            "legacy patch, from 0.145",
            legacy_patch(LegacyRefusal::Object),
        ),
    ]
}

#[test]
fn every_question_and_decision() {
    let mut table = String::new();
    for (name, ask) in asks() {
        table.push_str(&format!("{name}\n"));
        for decision in &decisions() {
            let cell = match answer(&ask, decision) {
                Ok(Answer { result, interrupt }) => {
                    let then = if interrupt { ", then interrupt" } else { "" };
                    format!("{result}{then}")
                }
                Err(refusal) => format!("refused: {refusal:?}"),
            };
            let decision = match decision {
                Decision::Submit(_) => "submit",
                other => other.name(),
            };
            table.push_str(&format!("  {decision:<31}{cell}\n"));
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

#[test]
fn an_answer_to_a_question_may_come_in_several_shapes() {
    for (given, expected) in [
        (json!("yes"), json!(["yes"])),
        (json!(["a", "b"]), json!(["a", "b"])),
        (json!({"answers": ["a", "b"]}), json!(["a", "b"])),
        (json!({"answers": "a"}), json!(["a"])),
        (json!({"answers": []}), json!([])),
        (json!({"other": 1}), json!([r#"{"other":1}"#])),
        (json!(7), json!(["7"])),
        (json!(true), json!(["true"])),
        (Value::Null, json!([])),
    ] {
        let ask = Ask::UserInput(UserInputRequest::default());
        let decision = Decision::Submit(object(json!({ "q": given.clone() })));
        let expected = json!({"answers": {"q": {"answers": expected}}});
        let answer = answer(&ask, &decision).unwrap();
        assert_eq!(answer, Answer::plain(expected), "{given}");
    }
}
