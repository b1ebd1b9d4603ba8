//! Approval requests of Codex during a call: each kind of answer of a client, and none.

use serde_json::{Value, json};
use testkit::Signal;
use testkit::fake::{Action, Plan, Question, TurnEnd};

use super::serve::{Serve, code, completed, elicitation, is_answer, message, thread, turns};
use super::sessions::decision;

fn asking(command: &str) -> Plan {
    turns([Action::ask_approval(command)])
}

/// An accepted form with this choice.
fn chosen(decision: &str) -> Value {
    json!({"action": "accept", "content": {"decision": decision}})
}

#[tokio::test]
async fn client_answer_becomes_a_decision() {
    let mut serve = Serve::eliciting(&asking("touch x"), &[]).await;
    for (answer, decision) in [
        (json!({"action": "accept"}), "accept"),
        (json!({"action": "accept", "content": {}}), "accept"),
        (
            json!({"action": "accept", "content": {"sure": true}}),
            "accept",
        ),
        (json!({"decision": "approved"}), "accept"),
        // Codex does not offer it here, but accepts it.
        (
            json!({"decision": "approved_for_session"}),
            "acceptForSession",
        ),
        (chosen("accept"), "accept"),
        (chosen("acceptForSession"), "acceptForSession"),
        (chosen("decline"), "decline"),
        (chosen("made up"), "decline"),
        (
            json!({"action": "accept", "decision": "approved"}),
            "accept",
        ),
        (json!({"action": "decline"}), "decline"),
        (json!({"decision": "denied"}), "decline"),
        (json!({"action": "accept", "decision": "denied"}), "decline"),
        (json!({"action": "cancel", "decision": "abort"}), "cancel"),
        (json!({"decision": "abort"}), "cancel"),
        (json!({}), "decline"),
        (json!("yes"), "decline"),
        (json!([true]), "decline"),
        (Value::Null, "decline"),
        (json!({"action": 7, "content": "?"}), "decline"),
    ] {
        let call = serve.prompt();
        let asked = elicitation(&mut serve).await;
        serve.client.respond(&asked["id"], answer.clone());
        let result = serve.client.result(&call).await;
        assert_eq!(completed(&result), "done");
        let last = serve.answers().pop().unwrap();
        assert_eq!(last["result"], json!({"decision": decision}), "{answer}");
    }
    serve.finish().await;
}

#[tokio::test]
async fn elicitation_describes_the_question() {
    let mut serve = Serve::eliciting(&asking("touch 'a b'"), &[]).await;
    let call = serve.prompt();
    let asked = elicitation(&mut serve).await;
    let params = &asked["params"];
    let text = params["message"].as_str().unwrap();
    assert!(text.contains("touch 'a b'"), "{text}");
    assert!(text.contains("the plan says so"), "{text}");
    let schema = &params["requestedSchema"];
    let choices = json!(["accept", "acceptForSession", "decline"]);
    assert_eq!(schema["properties"]["decision"]["enum"], choices);
    assert_eq!(schema["properties"]["reason"]["type"], "string");
    assert_eq!(params["codex_elicitation"], "exec-approval");
    assert_eq!(params["codex_command"], json!(["touch", "a b"]));
    serve
        .client
        .respond(&asked["id"], json!({"action": "accept"}));
    let result = serve.client.result(&call).await;
    assert_eq!(params["threadId"], thread(&result));
    serve.finish().await;
}

/// Has Codex send this question and the client this answer, and returns the answer that Codex
/// gets.
async fn answered(method: &str, params: Value, answer: Value) -> Value {
    let ask = Action::Ask {
        method: method.to_owned(),
        params,
    };
    let mut serve = Serve::eliciting(&turns([ask]), &[]).await;
    let call = serve.prompt();
    let asked = elicitation(&mut serve).await;
    serve.client.respond(&asked["id"], answer);
    assert_eq!(completed(&serve.client.result(&call).await), "done");
    let result = serve.answers()[0]["result"].take();
    serve.finish().await;
    result
}

#[tokio::test]
async fn approval_of_each_kind_is_passed_on_and_answered() {
    let network = json!({"network": {"enabled": true}});
    let tool_call = json!({
        "serverName": "s", "message": "Call it?",
        "_meta": {"codex_approval_kind": "mcp_tool_call"},
        "requestedSchema": {"type": "object", "properties": {}},
    });
    for (method, params, expected) in [
        (
            "item/fileChange/requestApproval",
            json!({"itemId": "i", "reason": "r"}),
            json!({"decision": "accept"}),
        ),
        (
            "item/permissions/requestApproval",
            json!({"itemId": "i", "permissions": network}),
            json!({"permissions": network, "scope": "turn"}),
        ),
        (
            "mcpServer/elicitation/request",
            tool_call,
            json!({"action": "accept", "content": {}}),
        ),
    ] {
        let got = answered(method, params, json!({"action": "accept"})).await;
        assert_eq!(got, expected, "{method}");
    }
}

#[tokio::test]
async fn form_of_each_kind_is_passed_on_and_answered() {
    let server = (
        "mcpServer/elicitation/request",
        json!({
            "serverName": "s", "message": "Your name?",
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
        }),
    );
    let model = (
        "item/tool/requestUserInput",
        json!({
            "itemId": "i",
            "questions": [{"id": "q1", "header": "Colour", "question": "Which?",
                "options": [{"label": "red", "description": ""}]}],
        }),
    );
    let filled = |content: Value| json!({"action": "accept", "content": content});
    let nothing = json!({"answers": {}});
    for ((method, params), answer, expected) in [
        (
            &server,
            filled(json!({"name": "x"})),
            filled(json!({"name": "x"})),
        ),
        (
            &server,
            json!({"action": "decline"}),
            json!({"action": "decline"}),
        ),
        // An accepted form without its fields cannot be passed on.
        (
            &server,
            json!({"action": "accept"}),
            json!({"action": "decline"}),
        ),
        (
            &model,
            filled(json!({"q1": "red"})),
            json!({"answers": {"q1": {"answers": ["red"]}}}),
        ),
        (&model, json!({"action": "decline"}), nothing.clone()),
        (&model, json!({"action": "accept"}), nothing),
    ] {
        let got = answered(method, params.clone(), answer.clone()).await;
        assert_eq!(got, expected, "{method}: {answer}");
    }
}

#[tokio::test]
async fn client_without_elicitation_gets_the_call_back_and_codex_is_declined() {
    let plan = asking("rm -rf x").on("turn/start", turns_plainly()).nth(2);
    let mut serve = Serve::plain_with(&plan, &["--approval-timeout", "1"]).await;
    let result = serve.codex().await;
    assert_ne!(result["isError"], true);
    let structured = &result["structuredContent"];
    assert_eq!(structured["status"], "waiting_approval");
    assert_eq!(structured["actions"][0]["kind"], "command");
    assert_eq!(structured["actions"][0]["command"], "rm -rf x");
    let text = structured["content"].as_str().unwrap();
    assert!(
        text.contains("rm -rf x") && text.contains("within 1 s"),
        "{text}"
    );
    assert_eq!(serve.answers(), Vec::<Value>::new());

    let thread = thread(&result);
    let busy = serve.reply(&thread).await;
    assert_eq!(code(&busy), "SESSION_BUSY");
    serve.fake.wait_for("the answer", is_answer).await;
    assert_eq!(serve.answers()[0]["result"], json!({"decision": "decline"}));
    // The turn ends by itself a moment after that.
    let mut after = serve.reply(&thread).await;
    while after["isError"] == true {
        assert_eq!(code(&after), "SESSION_BUSY");
        after = serve.reply(&thread).await;
    }
    assert_eq!(completed(&after), "again");
    serve.finish().await;
}

fn turns_plainly() -> [Action; 4] {
    [
        Action::Answer,
        Action::StartTurn,
        Action::say("again"),
        Action::EndTurn(TurnEnd::Completed),
    ]
}

#[tokio::test]
async fn client_error_as_an_answer_returns_the_call() {
    let mut serve = Serve::eliciting(&asking("touch x"), &["--approval-timeout", "1"]).await;
    let call = serve.prompt();
    let asked = elicitation(&mut serve).await;
    serve
        .client
        .respond_error(&asked["id"], -32601, "no such method");
    let result = serve.client.result(&call).await;
    assert_eq!(result["structuredContent"]["status"], "waiting_approval");
    serve.fake.wait_for("the answer", is_answer).await;
    assert_eq!(serve.answers()[0]["result"], json!({"decision": "decline"}));
    serve.finish().await;
}

#[tokio::test]
async fn dismissed_elicitation_leaves_the_question_open() {
    let mut serve = Serve::eliciting(&asking("touch x"), &[]).await;
    let call = serve.prompt();
    let asked = elicitation(&mut serve).await;
    serve
        .client
        .respond(&asked["id"], json!({"action": "cancel"}));
    let waiting = serve.client.result(&call).await;
    let structured = &waiting["structuredContent"];
    assert_eq!(structured["status"], "waiting_approval", "{waiting:#}");
    assert_eq!(structured["actions"][0]["command"], "touch x");
    assert_eq!(serve.answers(), Vec::<Value>::new());

    let session = structured["sessionId"].as_str().unwrap();
    let accept = decision(session, &structured["actions"][0], "accept");
    serve.client.call_tool("codex_check", accept).await;
    serve.fake.wait_for("the answer", is_answer).await;
    assert_eq!(serve.answers()[0]["result"], json!({"decision": "accept"}));
    serve.finish().await;
}

#[tokio::test]
async fn reason_of_a_declined_elicitation_is_in_the_log() {
    let mut serve = Serve::eliciting(&asking("touch x"), &[]).await;
    let call = serve.prompt();
    let asked = elicitation(&mut serve).await;
    let content = json!({"decision": "decline", "reason": "too risky"});
    serve.client.respond(
        &asked["id"],
        json!({"action": "accept", "content": content}),
    );
    let result = serve.client.result(&call).await;
    assert_eq!(completed(&result), "done");
    let session = &result["structuredContent"]["sessionId"];
    let poll = json!({"action": "poll", "sessionId": session, "cursor": 0,
        "maxEvents": 100, "responseMode": "full"});
    let look = serve.client.call_tool("codex_check", poll).await;
    let events = look["structuredContent"]["events"].as_array().unwrap();
    let answered = events
        .iter()
        .find(|event| event["type"] == "approval_result")
        .unwrap();
    assert_eq!(answered["data"]["denyMessage"], "too risky");
    serve.finish().await;
}

#[tokio::test]
async fn unanswered_question_is_withdrawn_and_declined() {
    let mut serve = Serve::eliciting(&asking("touch x"), &["--approval-timeout", "1"]).await;
    let call = serve.prompt();
    let asked = elicitation(&mut serve).await;
    let withdrawn = serve.client.notification("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    assert_eq!(completed(&serve.client.result(&call).await), "done");
    // Too late.
    serve
        .client
        .respond(&asked["id"], json!({"action": "accept"}));
    serve.settled().await;
    assert_eq!(serve.answers().len(), 1);
    assert_eq!(serve.answers()[0]["result"], json!({"decision": "decline"}));
    serve.finish().await;
}

#[tokio::test]
async fn two_concurrent_questions_get_their_own_answers() {
    let both = Action::AskTogether(vec![Question::approval("one"), Question::approval("two")]);
    let mut serve = Serve::eliciting(&turns([both]), &[]).await;
    let call = serve.prompt();
    let first = elicitation(&mut serve).await;
    let second = elicitation(&mut serve).await;
    assert_eq!(first["params"]["codex_command"], json!(["one"]));
    assert_eq!(second["params"]["codex_command"], json!(["two"]));
    serve
        .client
        .respond(&second["id"], json!({"action": "accept"}));
    serve.fake.wait_for("the answer", is_answer).await;
    serve
        .client
        .respond(&first["id"], json!({"action": "decline"}));
    assert_eq!(completed(&serve.client.result(&call).await), "done");
    let answers = [
        json!({"id": 1, "result": {"decision": "accept"}}),
        json!({"id": 0, "result": {"decision": "decline"}}),
    ];
    assert_eq!(serve.answers(), answers);
    serve.finish().await;
}

#[tokio::test]
async fn unknown_request_of_codex_is_refused_at_once() {
    let ask = |method: &str, params: Value| Action::Ask {
        method: method.to_owned(),
        params,
    };
    let approval = "item/commandExecution/requestApproval";
    let foreign = json!({"threadId": "019fa4e0-0000-7000-8fff-000000000000", "command": "x"});
    let plan = turns([
        ask("brand/new", json!({"a": 1})),
        ask("account/chatgptAuthTokens/refresh", json!({})),
        ask(approval, foreign),
        ask(approval, json!({"command": 7})),
    ]);
    let mut serve = Serve::eliciting(&plan, &[]).await;
    assert_eq!(completed(&serve.codex().await), "done");
    let answers = serve.answers();
    assert_eq!(answers.len(), 4);
    for answer in answers {
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
    }
    serve.finish().await;
}

#[tokio::test]
async fn dying_codex_withdraws_its_question() {
    let mut serve = Serve::eliciting(&asking("touch x"), &[]).await;
    let call = serve.prompt();
    let asked = elicitation(&mut serve).await;
    serve.kill_codex(Signal::SIGKILL);
    let withdrawn = serve.client.notification("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    let result = serve.client.result(&call).await;
    assert_eq!(code(&result), "CODEX_DIED");
    assert!(
        message(&result).contains("signal 9 (SIGKILL)"),
        "{result:#}"
    );
    serve
        .client
        .respond(&asked["id"], json!({"action": "accept"}));
    serve.settled().await;
    serve.finish().await;
}

#[tokio::test]
async fn cancelled_call_declines_its_question_and_interrupts_the_turn() {
    let mut serve = Serve::eliciting(&asking("touch x"), &[]).await;
    let call = serve.prompt();
    let asked = elicitation(&mut serve).await;
    serve.client.cancel(&call, "changed my mind");
    let withdrawn = serve.client.notification("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    serve.fake.wait_for_method("turn/interrupt").await;
    assert_eq!(serve.answers()[0]["result"], json!({"decision": "decline"}));
    serve.finish().await;
}
