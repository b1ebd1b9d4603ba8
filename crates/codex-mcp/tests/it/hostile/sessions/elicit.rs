//! `--elicit`: the client's user is asked at once, if the client supports it.

use serde_json::{Value, json};
use testkit::fake::{Action, Plan};

use super::super::serve::{HANDSHAKE, Serve, elicitation, is_answer, turns};
use super::{Sessions, beginning, decision};

fn asking() -> Plan {
    turns([Action::ask_approval("touch x")])
}

#[tokio::test]
async fn client_answer_decides() {
    for (answer, decided, left) in [
        (json!({"action": "accept"}), "accept", "completed"),
        (json!({"action": "decline"}), "decline", "completed"),
        (json!({"decision": "approved"}), "accept", "completed"),
    ] {
        let mut sessions = Sessions::eliciting(&asking(), &["--elicit"]).await;
        let session = sessions.start(json!({})).await;
        let asked = elicitation(&mut sessions.serve).await;
        assert_eq!(asked["params"]["codex_command"], json!(["touch", "x"]));
        assert_eq!(
            asked["params"]["threadId"],
            sessions.get(&session).await["threadId"]
        );
        // A poller sees the question too.
        assert_eq!(sessions.question(&session).await["command"], "touch x");
        sessions.serve.client.respond(&asked["id"], answer.clone());
        let answers = sessions.answers(1).await;
        assert_eq!(
            answers[0]["result"],
            json!({"decision": decided}),
            "{answer}"
        );
        assert_eq!(sessions.result(&session).await["status"], left);

        // The client is asked in later turns too.
        sessions.reply(&session).await;
        let asked = elicitation(&mut sessions.serve).await;
        sessions
            .serve
            .client
            .respond(&asked["id"], json!({"action": "accept"}));
        sessions.answers(2).await;
        sessions.result(&session).await;
        sessions.finish().await;
    }
}

/// Accepts the question by a poll: Codex gets this one answer, and the turn ends.
async fn accepted_by_poll(mut sessions: Sessions, session: &str, question: &Value) {
    sessions
        .call("codex_check", decision(session, question, "accept"))
        .await;
    assert_eq!(sessions.result(session).await["output"], "done");
    let answers = sessions.serve.answers();
    assert_eq!(
        answers,
        [json!({"id": 0, "result": {"decision": "accept"}})]
    );
    sessions.finish().await;
}

#[tokio::test]
async fn dismissed_question_is_left_to_the_poller() {
    let mut sessions = Sessions::eliciting(&asking(), &["--elicit"]).await;
    let session = sessions.start(json!({})).await;
    let asked = elicitation(&mut sessions.serve).await;
    let question = sessions.question(&session).await;
    let dismissal = json!({"action": "cancel"});
    sessions.serve.client.respond(&asked["id"], dismissal);
    sessions.serve.settled().await;
    // A wait returns at once, although all events of the question have been read.
    let more = json!({"cursor": 0, "maxEvents": 1000});
    let read = sessions.poll(&session, more).await;
    let next = json!({"cursor": read["nextCursor"], "waitMs": 60_000});
    let look = sessions.poll(&session, next).await;
    assert_eq!(look["status"], "waiting_approval");
    accepted_by_poll(sessions, &session, &question).await;
}

#[tokio::test]
async fn question_decided_by_a_poller_is_withdrawn() {
    let mut sessions = Sessions::eliciting(&asking(), &["--elicit"]).await;
    let session = sessions.start(json!({})).await;
    let asked = elicitation(&mut sessions.serve).await;
    let question = sessions.question(&session).await;
    sessions
        .call("codex_check", decision(&session, &question, "accept"))
        .await;
    let withdrawn = sessions
        .serve
        .client
        .notification("notifications/cancelled")
        .await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    // Too late.
    sessions
        .serve
        .client
        .respond(&asked["id"], json!({"action": "decline"}));
    sessions.serve.settled().await;
    assert_eq!(sessions.result(&session).await["output"], "done");
    let answers = sessions.serve.answers();
    assert_eq!(
        answers,
        [json!({"id": 0, "result": {"decision": "accept"}})]
    );
    sessions.finish().await;
}

#[tokio::test]
async fn timed_out_question_is_withdrawn() {
    let args = ["--elicit", "--approval-timeout", "1"];
    let mut sessions = Sessions::eliciting(&asking(), &args).await;
    let session = sessions.start(json!({})).await;
    let asked = elicitation(&mut sessions.serve).await;
    let withdrawn = sessions
        .serve
        .client
        .notification("notifications/cancelled")
        .await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    assert_eq!(
        sessions.answers(1).await[0]["result"],
        json!({"decision": "decline"})
    );
    assert_eq!(sessions.result(&session).await["output"], "done");
    sessions.finish().await;
}

#[tokio::test]
async fn cancelled_session_withdraws_its_question() {
    let mut sessions = Sessions::eliciting(&asking(), &["--elicit"]).await;
    let session = sessions.start(json!({})).await;
    let asked = elicitation(&mut sessions.serve).await;
    sessions.session("cancel", &session).await;
    let withdrawn = sessions
        .serve
        .client
        .notification("notifications/cancelled")
        .await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    sessions.finish().await;
}

#[tokio::test]
async fn client_error_leaves_the_question_to_the_poller() {
    let mut sessions = Sessions::eliciting(&asking(), &["--elicit"]).await;
    let session = sessions.start(json!({})).await;
    let asked = elicitation(&mut sessions.serve).await;
    sessions
        .serve
        .client
        .respond_error(&asked["id"], -32601, "no such method");
    sessions.serve.settled().await;
    let question = sessions.question(&session).await;
    accepted_by_poll(sessions, &session, &question).await;
}

/// Checks that the client is not asked: an unexpected request would fail the client.
async fn nobody_is_asked(mut sessions: Sessions) {
    let session = sessions.start(json!({})).await;
    let question = sessions.question(&session).await;
    sessions.serve.settled().await;
    sessions
        .call("codex_check", decision(&session, &question, "accept"))
        .await;
    assert_eq!(sessions.result(&session).await["output"], "done");
    sessions.finish().await;
}

#[tokio::test]
async fn client_is_not_asked_without_the_flag() {
    nobody_is_asked(Sessions::eliciting(&asking(), &[]).await).await;
}

#[tokio::test]
async fn client_without_elicitation_is_not_asked() {
    nobody_is_asked(Sessions::with(&asking(), &["--elicit"]).await).await;
    // A client with URL elicitation only cannot be shown a question.
    let mut serve = Serve::start_with(&asking(), |launch| {
        launch.args(["--api", "sessions", "--elicit"])
    });
    let pages = json!({"elicitation": {"url": {}}});
    serve.client.initialize(HANDSHAKE, pages).await;
    nobody_is_asked(Sessions { serve }).await;
}

#[tokio::test]
async fn client_without_a_handshake_is_not_asked() {
    let mut serve = Serve::start_with(&asking(), |launch| {
        launch.args(["--api", "sessions", "--elicit"])
    });
    serve
        .client
        .describe_each_request("2026-07-28", json!({"elicitation": {}}));
    // This version has no ping, and its results have a `resultType`.
    let started = serve.client.call_tool("codex", beginning(json!({}))).await;
    assert_eq!(started["isError"], false, "{started:#}");
    let session = started["structuredContent"]["sessionId"].clone();
    let any = json!({"action": "wait_any", "sessionIds": [session]});
    let first = serve.client.call_tool("codex_session", any).await;
    assert_eq!(first["structuredContent"]["status"], "waiting_approval");
    let poll = json!({"action": "poll", "sessionId": session});
    let look = serve.client.call_tool("codex_check", poll).await;
    let question = &look["structuredContent"]["actions"][0];
    let accept = decision(session.as_str().unwrap(), question, "accept");
    serve.client.call_tool("codex_check", accept).await;
    serve.fake.wait_for("the answer", is_answer).await;
    assert_eq!(serve.answers()[0]["result"], json!({"decision": "accept"}));
    serve.finish().await;
}
