use codex_protocol::codex::{
    FileChangeApproval, LegacyCommandApproval, LegacyPatchApproval, McpElicitation,
    PermissionsApproval, Question, QuestionOption, UserInputRequest,
};

use super::*;

fn object(value: Value) -> Map<String, Value> {
    serde_json::from_value(value).unwrap()
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
        proposed_execpolicy_amendment: Some(vec!["git".into(), "push".into()]),
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

fn question(id: &str, labels: &[&str]) -> Question {
    let option = |label: &&str| QuestionOption {
        label: (*label).to_owned(),
        description: String::new(),
    };
    Question {
        id: id.to_owned(),
        header: id.to_uppercase(),
        question: format!("what about {id}?"),
        options: (!labels.is_empty()).then(|| labels.iter().map(option).collect()),
        is_other: true,
        is_secret: false,
    }
}

fn user_input(questions: Vec<Question>) -> Ask {
    Ask::UserInput(UserInputRequest {
        item_id: "item".into(),
        questions,
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
        (
            "user input",
            user_input(vec![question("q", &["yes", "no"]), question("many", &[])]),
        ),
        (
            "user input, one question",
            user_input(vec![question("q", &[])]),
        ),
        (
            "user input, a question more",
            user_input(vec![
                question("q", &[]),
                question("many", &[]),
                question("more", &[]),
            ]),
        ),
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
fn decline_and_cancel_fit_every_question() {
    for (name, ask) in asks() {
        assert!(answer(&ask, &Decision::Decline).is_ok(), "{name}");
        assert!(answer(&ask, &Decision::Cancel).is_ok(), "{name}");
    }
}

#[test]
fn refused_decision_names_the_possible_ones() {
    for (name, ask) in asks() {
        let mut possible: Vec<&str> = Vec::new();
        let mut named: Vec<Vec<String>> = Vec::new();
        for decision in &decisions() {
            match answer(&ask, decision) {
                Ok(_) => possible.push(decision.name()),
                Err(WrongDecision::NotOffered { offered }) => named.push(offered),
                Err(_) => {}
            }
        }
        possible.sort_unstable();
        for mut offered in named {
            offered.sort_unstable();
            assert_eq!(offered, possible, "{name}");
        }
    }
}

#[test]
fn user_input_answer_is_accepted_in_every_form() {
    for (given, expected) in [
        (json!("yes"), json!(["yes"])),
        (json!(["a", "b"]), json!(["a", "b"])),
        (json!({"answers": ["a", "b"]}), json!(["a", "b"])),
        (json!({"answers": "a"}), json!(["a"])),
        (json!(7), json!(["7"])),
        (json!(true), json!(["true"])),
    ] {
        let ask = user_input(vec![question("q", &[])]);
        let decision = Decision::Submit(object(json!({ "q": given.clone() })));
        let expected = json!({"answers": {"q": {"answers": expected}}});
        let answer = answer(&ask, &decision).unwrap();
        assert_eq!(answer, Answer::plain(expected), "{given}");
    }
}

#[test]
fn malformed_user_input_answer_is_refused() {
    for given in [
        json!({"answers": []}),
        json!({"other": 1}),
        json!([]),
        json!(["a", null]),
        json!({}),
        Value::Null,
    ] {
        let ask = user_input(vec![question("q", &[])]);
        let decision = Decision::Submit(object(json!({ "q": given.clone() })));
        let refusal = WrongDecision::Unanswered { id: "q".into() };
        assert_eq!(answer(&ask, &decision), Err(refusal), "{given}");
    }
}

#[test]
fn user_input_must_answer_exactly_the_questions_asked() {
    let ask = user_input(vec![question("a", &[]), question("b", &[])]);
    let unanswered = |id: &str| Err(WrongDecision::Unanswered { id: id.into() });
    let not_asked = Err(WrongDecision::NoSuchQuestion {
        id: "c".into(),
        known: vec!["a".into(), "b".into()],
    });
    let answers = json!({"answers": {"a": {"answers": ["1"]}, "b": {"answers": ["2"]}}});
    for (given, expected) in [
        (json!({"a": "1", "b": "2"}), Ok(Answer::plain(answers))),
        (json!({"a": "1"}), unanswered("b")),
        (json!({"b": "2"}), unanswered("a")),
        (json!({}), unanswered("a")),
        (json!({"a": "1", "b": "2", "c": "3"}), not_asked.clone()),
        (json!({"a": "1", "c": "3"}), not_asked),
    ] {
        let decision = Decision::Submit(object(given.clone()));
        assert_eq!(answer(&ask, &decision), expected, "{given}");
    }
    let nothing = Decision::Submit(Map::new());
    assert_eq!(
        answer(&user_input(Vec::new()), &nothing),
        Ok(Answer::plain(json!({"answers": {}})))
    );
}

#[test]
fn content_for_a_server_has_the_types_of_its_schema() {
    let ask = elicitation(json!({"type": "object", "properties": {
        "count": {"type": "integer"}, "sure": {"type": "boolean"}, "name": {"type": "string"}}}));
    let content = json!({"count": "7", "sure": "true", "name": "7"});
    let typed = json!({"count": 7, "sure": true, "name": "7"});
    let expected = json!({"action": "accept", "content": typed});
    let answered = answer(&ask, &Decision::Submit(object(content)));
    assert_eq!(answered, Ok(Answer::plain(expected)));
}

#[test]
fn command_rule_must_be_the_proposed_one_or_narrower() {
    let ask = command(None);
    let decide = |words: &[&str]| {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        answer(&ask, &Decision::AcceptWithExecpolicyAmendment(words))
    };
    assert!(decide(&["git", "push"]).is_ok());
    assert!(decide(&["git", "push", "origin"]).is_ok());
    for words in [&["git"][..], &["/bin/bash"], &[]] {
        assert_eq!(decide(words), Err(WrongDecision::OtherRule), "{words:?}");
    }
}

#[test]
fn command_rule_without_words_is_not_proposed() {
    let rule = Decision::AcceptWithExecpolicyAmendment(vec!["rm".to_owned()]);
    let offered = json!([{"acceptWithExecpolicyAmendment": {"execpolicy_amendment": []}}]);
    let ask = Ask::Command(CommandApproval {
        available_decisions: offered.as_array().cloned(),
        proposed_execpolicy_amendment: Some(Vec::new()),
        ..CommandApproval::default()
    });
    assert_eq!(answer(&ask, &rule), Err(WrongDecision::OtherRule));
}

#[test]
fn network_rule_must_be_a_proposed_one() {
    let rule = |host: &str| json!({"host": host, "action": "allow"});
    let offered = |host: &str| {
        json!({"applyNetworkPolicyAmendment":
        {"network_policy_amendment": rule(host)}})
    };
    let ask = Ask::Command(CommandApproval {
        available_decisions: Some(vec![offered("a")]),
        proposed_network_policy_amendments: Some(vec![rule("b")]),
        ..CommandApproval::default()
    });
    let decide = |rule: Value| {
        let decision = Decision::ApplyNetworkPolicyAmendment(object(rule));
        answer(&ask, &decision).map(|answer| answer.result["decision"].clone())
    };
    for host in ["a", "b"] {
        assert_eq!(decide(rule(host)), Ok(offered(host)));
    }
    let denied = json!({"host": "a", "action": "deny"});
    for other in [rule("c"), rule("*"), denied, json!({})] {
        assert_eq!(decide(other), Err(WrongDecision::OtherNetworkRule));
    }
}

#[test]
fn every_decision_but_decline_and_cancel_leaves_the_sandbox() {
    for decision in decisions() {
        let is_no = matches!(decision, Decision::Decline | Decision::Cancel);
        assert_eq!(leaves_the_sandbox(&command(None), &decision), !is_no);
        assert!(!leaves_the_sandbox(&user_input(Vec::new()), &decision));
    }
}
