//! Questions of every kind become actions, and their answers reach Codex in its own form.

use serde_json::{Value, json};
use testkit::fake::{Action, Plan, TurnEnd};
use testkit::wait::wait_for;

use super::super::serve::turns;
use super::{Sessions, ask, decision, is_name, join};

const THREAD: &str = "019fa4e0-0000-7000-8001-00000000abcd";

/// The id of the question, above those that the fake gives its own.
const REQUEST: u64 = 4711;

/// A question of the first protocol, which names the thread a conversation. Only
/// the id of a thread that is resumed is known beforehand.
fn legacy(method: &str, params: Value) -> Plan {
    let params = join(
        json!({"conversationId": THREAD, "callId": "call-1"}),
        params,
    );
    let question = json!({"id": REQUEST, "method": method, "params": params});
    let bytes = format!("{question}\n").into_bytes();
    Plan::new().on(
        "turn/start",
        [
            Action::Answer,
            Action::StartTurn,
            Action::Write { bytes },
            Action::gate("answered"),
            Action::say("done"),
            Action::EndTurn(TurnEnd::Completed),
        ],
    )
}

/// Has a Codex of this version ask.
async fn legacy_question(version: &str, plan: &Plan) -> (Sessions, String, Value) {
    let mut sessions = Sessions::of_version(plan, version).await;
    let resume = json!({"action": "resume", "threadId": THREAD, "prompt": "hi"});
    let resumed = sessions.call("codex_session", resume).await;
    let session = resumed["sessionId"].as_str().unwrap().to_owned();
    let question = sessions.question(&session).await;
    (sessions, session, question)
}

/// Has a Codex of this version ask, decides, and returns the action and the answer to Codex.
async fn legacy_answer(version: &str, plan: &Plan, more: Value) -> (Value, Value) {
    let (mut sessions, session, question) = legacy_question(version, plan).await;
    sessions
        .call("codex_check", join(decision(&session, &question, ""), more))
        .await;
    let answer = sessions.answers(1).await.remove(0);
    assert_eq!(answer["id"], REQUEST);
    sessions.serve.fake.open_gate("answered");
    assert_eq!(sessions.result(&session).await["output"], "done");
    sessions.finish().await;
    (question, answer["result"]["decision"].clone())
}

#[tokio::test]
async fn questions_of_the_first_protocol_are_answered_in_its_terms() {
    let command =
        json!({"command": ["git", "push", "a b"], "cwd": "/repo", "reason": "r", "parsedCmd": []});
    let patch = json!({"fileChanges": {"/repo/a": {"type": "add", "content": "x"}}, "reason": "r"});
    for version in ["0.104.0", "0.169.0"] {
        let denied = match version {
            "0.104.0" => json!("denied"),
            _ => json!({"denied": {"rejection": "declined by the user"}}),
        };
        for (method, params, kind) in [
            ("execCommandApproval", &command, "command"),
            ("applyPatchApproval", &patch, "fileChange"),
        ] {
            let plan = legacy(method, params.clone());
            for (word, expected) in [
                ("accept", json!("approved")),
                ("acceptForSession", json!("approved_for_session")),
                ("decline", denied.clone()),
                ("cancel", json!("abort")),
            ] {
                let more = json!({"decision": word});
                let (question, answer) = legacy_answer(version, &plan, more).await;
                assert_eq!(answer, expected, "{version} {method} {word}");
                assert_eq!(question["type"], "approval");
                assert_eq!(question["kind"], kind);
                assert_eq!(question["itemId"], "call-1");
                assert_eq!(question["reason"], "r");
                assert_eq!(question["params"]["conversationId"], THREAD);
                match kind {
                    "command" => assert_eq!(question["command"], "git push 'a b'"),
                    _ => assert_eq!(question["changes"], patch["fileChanges"]),
                }
            }
        }
    }
}

/// It proposes no rule.
#[tokio::test]
async fn rule_for_commands_is_refused_in_the_first_protocol() {
    let plan = legacy("execCommandApproval", json!({"command": ["git", "push"]}));
    let (mut sessions, session, question) = legacy_question("0.169.0", &plan).await;
    let mut rule = decision(&session, &question, "acceptWithExecpolicyAmendment");
    rule["execpolicyAmendment"] = json!(["git"]);
    let refusal = sessions.refused("codex_check", rule).await;
    assert_eq!(refusal.code, "INVALID_ARGUMENT", "{}", refusal.message);
    let decline = decision(&session, &question, "decline");
    sessions.call("codex_check", decline).await;
    sessions.answers(1).await;
    sessions.serve.fake.open_gate("answered");
    assert_eq!(sessions.result(&session).await["output"], "done");
    sessions.finish().await;
}

/// Has Codex ask this, decides, and returns the action and the answer to Codex.
async fn answered(method: &str, params: &Value, more: &Value) -> (Value, Value) {
    let mut sessions = Sessions::new(&turns([ask(method, params.clone())])).await;
    let session = sessions.start(json!({})).await;
    let question = sessions.question(&session).await;
    let respond = json!({"action": "respond_permission", "sessionId": session,
        "requestId": question["requestId"]});
    sessions
        .call("codex_check", join(respond, more.clone()))
        .await;
    let answer = sessions.answers(1).await[0]["result"].clone();
    assert_eq!(sessions.result(&session).await["output"], "done");
    let asked = sessions.events_of(&session, "approval_request").await;
    assert_eq!(asked[0]["data"]["requestId"], question["requestId"]);
    assert_eq!(asked[0]["data"]["kind"], question["kind"]);
    sessions.finish().await;
    (question, answer)
}

#[tokio::test]
async fn permissions_are_granted_for_the_turn_or_for_the_thread() {
    let wanted = json!({"network": {"enabled": true}, "fileSystem": {"write": ["/x"]}});
    let params = json!({"itemId": "i", "reason": "r", "permissions": wanted});
    for (word, expected) in [
        ("accept", json!({"permissions": wanted, "scope": "turn"})),
        (
            "acceptForSession",
            json!({"permissions": wanted, "scope": "session"}),
        ),
        ("decline", json!({"permissions": {}})),
    ] {
        let more = json!({"decision": word});
        let (question, answer) = answered("item/permissions/requestApproval", &params, &more).await;
        assert_eq!(answer, expected, "{word}");
        assert_eq!(
            (&question["kind"], &question["itemId"]),
            (&json!("permissions"), &json!("i"))
        );
        assert_eq!(question["permissions"], wanted);
    }
}

#[tokio::test]
async fn mcp_tool_can_be_allowed() {
    let method = "mcpServer/elicitation/request";
    let params = json!({"serverName": "s", "message": "Call it?",
        "_meta": {"codex_approval_kind": "mcp_tool_call"},
        "requestedSchema": {"type": "object", "properties": {}}});
    for (word, expected) in [
        ("accept", json!({"action": "accept", "content": {}})),
        ("decline", json!({"action": "decline"})),
        ("cancel", json!({"action": "cancel"})),
    ] {
        let (question, answer) = answered(method, &params, &json!({"decision": word})).await;
        assert_eq!(answer, expected, "{word}");
        assert_eq!(question["kind"], "mcp_tool");
        assert_eq!(question["type"], "approval");
        assert_eq!(
            (&question["serverName"], &question["message"]),
            (&json!("s"), &json!("Call it?"))
        );
    }
}

#[tokio::test]
async fn mcp_form_can_be_filled_in() {
    let method = "mcpServer/elicitation/request";
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let params = json!({"serverName": "s", "message": "Your name?", "requestedSchema": schema});
    let filled = json!({"action": "accept", "content": {"name": "x"}});
    for more in [
        json!({"action": "respond_user_input", "answers": {"name": "x"}}),
        json!({"decision": "accept", "answers": {"name": "x"}}),
    ] {
        let (question, answer) = answered(method, &params, &more).await;
        assert_eq!(answer, filled, "{more}");
        assert_eq!(question["requestedSchema"], schema);
    }
}

#[tokio::test]
async fn answers_to_a_user_question_may_have_several_forms() {
    let params = json!({"itemId": "i", "questions": [
        {"id": "a", "header": "A", "question": "?", "options": null},
        {"id": "b", "header": "B", "question": "?", "options": [{"label": "x", "description": ""}]},
    ]});
    let expected = json!({"answers": {"a": {"answers": ["one"]}, "b": {"answers": ["x", "y"]}}});
    for answers in [
        json!({"a": {"answers": ["one"]}, "b": {"answers": ["x", "y"]}}),
        json!({"a": ["one"], "b": ["x", "y"]}),
        json!({"a": "one", "b": {"answers": ["x", "y"]}}),
    ] {
        let more = json!({"action": "respond_user_input", "answers": answers});
        let (question, answer) = answered("item/tool/requestUserInput", &params, &more).await;
        assert_eq!(answer, expected, "{answers}");
        assert_eq!(
            (&question["type"], &question["kind"]),
            (&json!("user_input"), &json!("user_input"))
        );
        assert_eq!(question["questions"][0]["id"], "a");
    }
}

#[tokio::test]
async fn unanswerable_question_is_refused_at_once() {
    let foreign = json!({"threadId": "019fa4e0-0000-7000-8fff-000000000000", "command": "x"});
    let plan = turns([
        ask("brand/new", json!({"a": 1})),
        ask("account/chatgptAuthTokens/refresh", json!({})),
        ask("item/commandExecution/requestApproval", foreign),
        ask(
            "item/commandExecution/requestApproval",
            json!({"command": 7}),
        ),
    ]);
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    assert_eq!(sessions.result(&session).await["output"], "done");
    let answers = sessions.answers(4).await;
    assert_eq!(answers.len(), 4);
    for answer in answers {
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
    }
    assert_eq!(
        sessions.events_of(&session, "approval_request").await,
        Vec::<Value>::new()
    );
    sessions.finish().await;
}

#[tokio::test]
async fn several_questions_are_decided_in_any_order() {
    let questions = ["one", "two", "three"].map(testkit::fake::Question::approval);
    let plan = turns([Action::AskTogether(questions.to_vec())]);
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    let wanted = json!(["one", "two", "three"]);
    let actions = wait_for("three questions", async || {
        let state = sessions.state(&session).await;
        let actions = state["actions"].as_array().cloned().unwrap_or_default();
        if actions.len() == 3 {
            return Some(actions);
        }
        let more =
            json!({"waitMs": 20_000, "pollOptions": {"includeEvents": true}, "maxEvents": 100});
        sessions.poll(&session, more).await;
        None
    })
    .await;
    let commands: Vec<&Value> = actions.iter().map(|action| &action["command"]).collect();
    assert_eq!(json!(commands), wanted);
    for action in &actions {
        assert!(is_name(action["requestId"].as_str().unwrap(), "req_", 8));
    }
    for (place, word, left) in [(1, "accept", 2), (2, "decline", 1), (0, "accept", 0)] {
        let answered = sessions
            .call("codex_check", decision(&session, &actions[place], word))
            .await;
        let open = answered["actions"].as_array().map_or(0, Vec::len);
        assert_eq!(open, left, "{answered:#}");
    }
    assert_eq!(sessions.result(&session).await["output"], "done");
    let expected = [
        json!({"id": 1, "result": {"decision": "accept"}}),
        json!({"id": 2, "result": {"decision": "decline"}}),
        json!({"id": 0, "result": {"decision": "accept"}}),
    ];
    assert_eq!(sessions.serve.answers(), expected);
    sessions.finish().await;
}
