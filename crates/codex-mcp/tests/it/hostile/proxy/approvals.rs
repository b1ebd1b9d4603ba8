//! Approval requests of the child during a call.

use serde_json::{Value, json};
use testkit::Signal;
use testkit::fake::{Action, HELLO, Plan, Question, TurnEnd, VERSION};
use testkit::wait::wait_for;

use super::super::serve::{Serve, elicitation};
use super::{
    HANDSHAKE, calls, code, content, eliciting, end, is_answer, message, plain, silent, status,
    thread,
};

fn asking() -> Plan {
    calls([Action::elicit_approval("touch x")])
}

fn denied() -> Value {
    json!({"denied": {"rejection": "declined by the user"}})
}

#[tokio::test]
async fn question_of_the_child_passes_unchanged() {
    let mut serve = eliciting(&asking(), &[]).await;
    let call = serve.prompt();
    let asked = elicitation(&mut serve).await;
    let Question { params, .. } = Question::elicitation("touch x");
    for (name, value) in params.as_object().unwrap() {
        assert_eq!(asked["params"][name], *value);
    }
    assert_eq!(asked["params"]["codex_mcp_tool_call_id"], call.to_string());
    assert_eq!(status(&mut serve).await["openQuestions"], 1);
    serve
        .client
        .respond(&asked["id"], json!({"action": "accept"}));
    let result = serve.client.result(&call).await;
    assert_eq!(asked["params"]["threadId"], thread(&result));
    assert_eq!(status(&mut serve).await["openQuestions"], 0);
    serve.finish().await;
}

#[tokio::test]
async fn answer_reaches_the_child_in_both_forms() {
    let mut serve = eliciting(&asking(), &[]).await;
    for (answer, decision) in [
        (json!({"action": "accept"}), json!("approved")),
        (
            json!({"action": "accept", "content": {}}),
            json!("approved"),
        ),
        (json!({"action": "decline"}), denied()),
        (
            json!({"action": "cancel", "decision": "abort"}),
            json!("abort"),
        ),
        (json!({"action": "made up"}), denied()),
        (json!({"decision": "approved"}), json!("approved")),
        (
            json!({"action": "accept", "decision": "denied"}),
            json!("denied"),
        ),
    ] {
        let call = serve.prompt();
        let asked = elicitation(&mut serve).await;
        serve.client.respond(&asked["id"], answer.clone());
        assert_eq!(content(&serve.client.result(&call).await), "done");
        let last = serve.answers().pop().unwrap();
        assert_eq!(last["id"], asked["id"]);
        let mut expected = answer;
        expected["decision"] = decision;
        assert_eq!(last["result"], expected);
    }
    serve.finish().await;
}

#[tokio::test]
async fn nonsense_answer_blocks_nothing() {
    let mut serve = eliciting(&asking(), &[]).await;
    for answer in [
        json!({}),
        json!("yes"),
        json!([true]),
        Value::Null,
        json!({"action": 7}),
    ] {
        let call = serve.prompt();
        let asked = elicitation(&mut serve).await;
        serve.client.respond(&asked["id"], answer.clone());
        assert_eq!(content(&serve.client.result(&call).await), "done");
        let last = serve.answers().pop().unwrap();
        assert_ne!(last["result"]["decision"], "approved", "{answer}");
    }
    serve.finish().await;
}

#[tokio::test]
async fn decline_for_an_old_codex_is_a_word() {
    let mut serve = Serve::start_with(&asking(), |launch| {
        super::through(launch, &[]).env(VERSION, "0.104.0")
    });
    serve.client.ignore("codex/event");
    let capabilities = json!({"elicitation": {}});
    serve.client.initialize(HANDSHAKE, capabilities).await;
    let call = serve.prompt();
    let asked = elicitation(&mut serve).await;
    serve
        .client
        .respond(&asked["id"], json!({"action": "decline"}));
    serve.client.result(&call).await;
    let result = json!({"action": "decline", "decision": "denied"});
    assert_eq!(serve.answers()[0]["result"], result);
    serve.finish().await;
}

#[tokio::test]
async fn unanswered_question_is_declined_in_time() {
    let mut serve = eliciting(&asking(), &["--approval-timeout", "1"]).await;
    let call = serve.prompt();
    let asked = elicitation(&mut serve).await;
    let withdrawn = serve.client.notification("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    assert_eq!(content(&serve.client.result(&call).await), "done");
    let no = json!({"action": "decline", "decision": denied()});
    assert_eq!(serve.answers()[0]["result"], no);
    // Too late.
    serve
        .client
        .respond(&asked["id"], json!({"action": "accept"}));
    assert_eq!(status(&mut serve).await["openQuestions"], 0);
    serve.finish().await;
}

/// Checks that a call returned a question that the client could not be asked.
async fn came_back(serve: &mut Serve, call: &Value) -> Value {
    let result = serve.client.result(call).await;
    assert_ne!(result["isError"], true, "{result:#}");
    let structured = &result["structuredContent"];
    assert_eq!(structured["status"], "waiting_approval");
    let action = &structured["actions"][0];
    assert_eq!(action["type"], "approval");
    assert_eq!(action["codex_command"], json!(["/bin/sh", "-c", "touch x"]));
    let text = structured["content"].as_str().unwrap();
    assert!(text.contains("Allow Codex to run `touch x`?"), "{text}");
    serve.fake.wait_for("the answer", is_answer).await;
    let no = json!({"action": "decline", "decision": denied()});
    assert_eq!(serve.answers()[0]["result"], no);
    result
}

/// A turn that asks, and continues when the test opens a gate.
fn going_on() -> Plan {
    let ask = [Action::StartTurn, Action::elicit_approval("touch x")];
    let goes_on = [Action::gate("go on")].into_iter().chain(end("late"));
    let turn = ask.into_iter().chain(goes_on).collect::<Vec<_>>();
    Plan::new().on("tools/call", turn).nth(1)
}

#[tokio::test]
async fn call_of_a_client_without_elicitation_returns_the_question() {
    let mut serve = plain(&going_on(), &[]).await;
    let call = serve.prompt();
    let result = came_back(&mut serve, &call).await;
    let status = status(&mut serve).await;
    assert_eq!(status["calls"]["inFlight"], 0);
    assert_eq!(status["activeThreads"], 1);

    let busy = serve.reply(&thread(&result)).await;
    assert_eq!(code(&busy), "SESSION_BUSY");
    serve.fake.open_gate("go on");
    let mut next = serve.reply(&thread(&result)).await;
    while next["isError"] == true {
        assert_eq!(code(&next), "SESSION_BUSY");
        next = serve.reply(&thread(&result)).await;
    }
    assert_eq!(content(&next), HELLO);
    serve.finish().await;
}

#[tokio::test]
async fn client_that_refuses_elicitation_gets_its_call_back() {
    let mut serve = eliciting(&going_on(), &[]).await;
    let call = serve.prompt();
    let asked = elicitation(&mut serve).await;
    serve.client.respond_error(&asked["id"], -32601, "not here");
    came_back(&mut serve, &call).await;
    serve.finish().await;
}

/// An answer that is not parsed declines, rather than leave the question open.
#[tokio::test]
async fn answer_of_too_many_values_declines_its_question() {
    let mut serve = eliciting(&going_on(), &[]).await;
    let call = serve.prompt();
    let asked = elicitation(&mut serve).await;
    let answer = json!({"action": "accept", "content": vec![0; 60_000]});
    serve.client.respond(&asked["id"], answer);
    came_back(&mut serve, &call).await;
    serve.finish().await;
}

#[tokio::test]
async fn abandoned_turn_is_ended_in_time() {
    let mut serve = plain(&going_on(), &["--timeout", "1"]).await;
    let call = serve.prompt();
    let result = came_back(&mut serve, &call).await;
    let seen = serve.fake.wait_for_method("notifications/cancelled").await;
    assert_eq!(seen["params"]["requestId"], call);
    let next = serve.reply(&thread(&result)).await;
    assert_eq!(content(&next), HELLO);
    serve.finish().await;
}

#[tokio::test]
async fn question_without_a_call_is_declined() {
    let ask = |params: Value| Action::Ask {
        method: "elicitation/create".to_owned(),
        params,
    };
    let plan = calls([
        ask(json!({"message": "?", "requestedSchema": {}})),
        ask(json!({"codex_mcp_tool_call_id": "999"})),
        ask(json!({"codex_mcp_tool_call_id": 7})),
        ask(json!({"threadId": 7})),
    ]);
    let mut serve = plain(&plan, &[]).await;
    assert_eq!(content(&serve.codex().await), "done");
    let no = json!({"action": "decline", "decision": denied()});
    assert_eq!(serve.answers().len(), 4);
    for answer in serve.answers() {
        assert_eq!(answer["result"], no);
    }
    serve.finish().await;
}

#[tokio::test]
async fn client_with_url_elicitation_only_is_not_asked() {
    let mut serve = silent(&going_on(), &[]);
    let capabilities = json!({"elicitation": {"url": {}}});
    serve.client.initialize(HANDSHAKE, capabilities).await;
    let call = serve.prompt();
    came_back(&mut serve, &call).await;
    serve.finish().await;
}

#[tokio::test]
async fn question_withdrawn_by_the_child_is_closed() {
    let ask = [Action::StartTurn, Action::elicit_approval("touch x")];
    let withdraw = Action::Notify {
        method: "notifications/cancelled".to_owned(),
        params: json!({"requestId": 0}),
    };
    let plan = Plan::new()
        .on("tools/call", [withdraw, Action::Proceed])
        .on("tools/call", ask)
        .nth(1);
    let mut serve = eliciting(&plan, &[]).await;
    let call = serve.prompt();
    let asked = elicitation(&mut serve).await;
    assert_eq!(asked["id"], 0);
    serve.codex().await;
    let withdrawn = serve.client.notification("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], 0);
    assert_eq!(status(&mut serve).await["openQuestions"], 0);
    serve.client.close_stdin();
    assert_eq!(code(&serve.client.result(&call).await), "SHUTTING_DOWN");
    serve.finish().await;
}

#[tokio::test]
async fn two_concurrent_questions_get_their_own_answers() {
    let both = ["one", "two"].map(Question::elicitation).to_vec();
    let plan = calls([Action::AskTogether(both)]);
    let mut serve = eliciting(&plan, &[]).await;
    let call = serve.prompt();
    let first = elicitation(&mut serve).await;
    let second = elicitation(&mut serve).await;
    assert_eq!(first["params"]["codex_command"][2], "one");
    for (asked, action) in [(&second, "accept"), (&first, "decline")] {
        let answer = json!({"action": action});
        serve.client.respond(&asked["id"], answer);
    }
    assert_eq!(content(&serve.client.result(&call).await), "done");
    let answers = serve.answers();
    assert_eq!(answers[0]["id"], second["id"]);
    assert_eq!(answers[0]["result"]["decision"], "approved");
    assert_eq!(answers[1]["id"], first["id"]);
    assert_eq!(answers[1]["result"]["decision"], denied());
    serve.finish().await;
}

#[tokio::test]
async fn dying_child_withdraws_its_question() {
    let mut serve = eliciting(&asking(), &[]).await;
    let call = serve.prompt();
    let asked = elicitation(&mut serve).await;
    serve.kill_codex(Signal::SIGKILL);
    let withdrawn = serve.client.notification("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    let result = serve.client.result(&call).await;
    assert_eq!(code(&result), "CODEX_DIED");
    assert!(message(&result).contains("SIGKILL"), "{result:#}");
    serve
        .client
        .respond(&asked["id"], json!({"action": "accept"}));
    status(&mut serve).await;
    serve.finish().await;
}

#[tokio::test]
async fn turn_that_ends_withdraws_its_question() {
    let ask = [Action::StartTurn, Action::elicit_approval("touch x")];
    // The child answers the call as soon as another call arrives.
    let end = [
        Action::AnswerUnder { id: json!(2) },
        Action::EndTurn(TurnEnd::Completed),
        Action::Proceed,
    ];
    let plan = Plan::new()
        .on("tools/call", end)
        .on("tools/call", ask)
        .nth(1);
    let mut serve = eliciting(&plan, &[]).await;
    let call = serve.prompt();
    assert_eq!(call, 2);
    let asked = elicitation(&mut serve).await;
    serve.codex().await;
    serve.client.result(&call).await;
    let withdrawn = serve.client.notification("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    serve.finish().await;
}

#[tokio::test]
async fn cancelled_call_declines_its_question_and_cancels_the_child_call() {
    let mut serve = eliciting(&asking(), &[]).await;
    let call = serve.prompt();
    let asked = elicitation(&mut serve).await;
    serve.client.cancel(&call, "changed my mind");
    let withdrawn = serve.client.notification("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    serve.fake.wait_for_method("notifications/cancelled").await;
    // The answer follows right after the cancellation.
    wait_for("the answer", async || {
        (!serve.answers().is_empty()).then_some(())
    })
    .await;
    assert_eq!(serve.answers()[0]["result"]["action"], "decline");
    serve.finish().await;
}
