//! `--api classic`: a call that returns early is followed by checks.

use serde_json::{Value, json};
use testkit::fake::{Action, HELLO, Plan, TurnEnd};

use super::super::serve::{Serve, completed, is_answer, turns};
use super::{decision, gated, refusal, sent, structured};

async fn check(serve: &mut Serve, arguments: Value) -> Value {
    structured(&serve.client.call_tool("codex_check", arguments).await)
}

/// Waits until the session no longer runs, and returns its state.
async fn attention(serve: &mut Serve, session: &str) -> Value {
    let any = json!({"action": "wait_any", "sessionIds": [session], "waitMs": 20_000});
    let first = structured(&serve.client.call_tool("codex_session", any).await);
    assert_eq!(first["sessionId"], session, "{first:#}");
    let poll = json!({"action": "poll", "sessionId": session});
    check(serve, poll).await
}

/// The session of a call that returned early.
fn early(result: &Value, status: &str) -> String {
    assert_ne!(result["isError"], true, "{result:#}");
    let structured = &result["structuredContent"];
    assert_eq!(structured["status"], status, "{result:#}");
    let session = structured["sessionId"].as_str().unwrap();
    // Clients that read only text find the session there.
    let text = result["content"].to_string();
    assert!(text.contains(session), "{result:#}");
    session.to_owned()
}

#[tokio::test]
async fn follow_up_tools_are_listed() {
    let mut serve = Serve::plain(&Plan::new()).await;
    let tools = serve.client.call("tools/list", json!({})).await;
    let names: Vec<&Value> = tools["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["name"])
        .collect();
    assert_eq!(
        json!(names),
        json!([
            "codex",
            "codex-reply",
            "codex_session",
            "codex_check",
            "codex_review",
            "codex_status",
            "call_codex",
            "call_status",
            "call_jobs",
            "call_cancel",
            "call_respond",
            "codex_run",
            "codex_threads"
        ])
    );
    serve.finish().await;
}

#[tokio::test]
async fn call_that_returns_early_leaves_its_turn_running() {
    for wait in [json!(0), json!(1), json!(50)] {
        let plan = Plan::new().on("turn/start", gated("go")).nth(1);
        let mut serve = Serve::plain(&plan).await;
        let arguments = json!({"prompt": "hi", "wait-ms": wait});
        let result = serve.client.call_tool("codex", arguments).await;
        let session = early(&result, "running");
        let thread = result["structuredContent"]["threadId"].clone();
        let busy = serve.reply(&thread).await;
        assert_eq!(super::super::serve::code(&busy), "SESSION_BUSY");
        serve.fake.open_gate("go");
        let done = attention(&mut serve, &session).await;
        assert_eq!(done["status"], "idle");
        assert_eq!(done["result"]["output"], "done");
        assert_eq!(sent(&serve, "turn/interrupt"), Vec::<Value>::new());

        // The thread continues as any other.
        assert_eq!(completed(&serve.reply(&thread).await), HELLO);
        serve.finish().await;
    }
}

#[tokio::test]
async fn call_that_waits_long_enough_returns_the_result() {
    let mut serve = Serve::plain(&Plan::new()).await;
    let arguments = json!({"prompt": "hi", "wait-ms": 60_000});
    let result = serve.client.call_tool("codex", arguments).await;
    assert_eq!(completed(&result), HELLO);
    serve.finish().await;
}

#[tokio::test]
async fn reply_may_return_early_too() {
    let plan = Plan::new().on("turn/start", gated("go")).nth(2);
    let mut serve = Serve::plain(&plan).await;
    let first = serve.codex().await;
    let session = first["structuredContent"]["sessionId"].clone();
    let thread = first["structuredContent"]["threadId"].clone();
    let arguments = json!({"prompt": "go on", "threadId": thread, "wait-ms": 0});
    let result = serve.client.call_tool("codex-reply", arguments).await;
    assert_eq!(json!(early(&result, "running")), session);
    serve.fake.open_gate("go");
    let session = session.as_str().unwrap().to_owned();
    assert_eq!(
        attention(&mut serve, &session).await["result"]["output"],
        "done"
    );
    serve.finish().await;
}

#[tokio::test]
async fn wrong_wait_time_is_refused() {
    let mut serve = Serve::plain(&Plan::new()).await;
    for bad in [
        json!(-1),
        json!(0.5),
        json!(1e300),
        json!("1"),
        json!(86_400_001),
    ] {
        for (tool, more) in [
            ("codex", json!({})),
            ("codex-reply", json!({"threadId": "x"})),
        ] {
            let arguments = super::join(json!({"prompt": "hi", "wait-ms": bad}), more);
            let result = serve.client.call_tool(tool, arguments).await;
            assert_eq!(
                super::super::serve::code(&result),
                "INVALID_ARGUMENT",
                "{bad}"
            );
            let message = super::super::serve::message(&result);
            assert!(message.contains("wait-ms"), "{message}");
        }
    }
    assert_eq!(completed(&serve.codex().await), HELLO);
    serve.finish().await;
}

#[tokio::test]
async fn question_of_a_returned_call_is_decided_by_a_check() {
    for (word, actions) in [("accept", 1), ("decline", 1), ("cancel", 1)] {
        let mut serve = Serve::plain(&turns([Action::ask_approval("touch x")])).await;
        let result = serve.codex().await;
        let session = early(&result, "waiting_approval");
        let open = result["structuredContent"]["actions"].as_array().unwrap();
        assert_eq!(open.len(), actions);
        assert_eq!(open[0]["kind"], "command");
        let look = check(&mut serve, json!({"action": "poll", "sessionId": session})).await;
        assert_eq!(look["status"], "waiting_approval");
        assert_eq!(look["actions"][0]["requestId"], open[0]["requestId"]);

        let mut wrong = decision(&session, &open[0], "acceptWithExecpolicyAmendment");
        wrong["execpolicyAmendment"] = json!(["touch"]);
        let refused = serve.client.call_tool("codex_check", wrong).await;
        assert_eq!(refusal(&refused).code, "INVALID_ARGUMENT");
        check(&mut serve, decision(&session, &open[0], word)).await;
        serve.fake.wait_for("the answer", is_answer).await;
        assert_eq!(serve.answers()[0]["result"], json!({"decision": word}));
        let done = attention(&mut serve, &session).await;
        assert_eq!(
            (&done["status"], &done["result"]["output"]),
            (&json!("idle"), &json!("done"))
        );
        serve.finish().await;
    }
}

#[tokio::test]
async fn session_of_a_classic_call_can_be_cancelled() {
    let plan = Plan::new().on("turn/start", gated("never")).nth(1);
    let mut serve = Serve::plain(&plan).await;
    let arguments = json!({"prompt": "hi", "wait-ms": 0});
    let result = serve.client.call_tool("codex", arguments).await;
    let session = early(&result, "running");
    let cancel = json!({"action": "cancel", "sessionId": session});
    structured(&serve.client.call_tool("codex_session", cancel).await);
    serve.fake.wait_for_method("thread/unsubscribe").await;
    let thread = &result["structuredContent"]["threadId"];
    assert_eq!(completed(&serve.reply(thread).await), HELLO);
    serve.finish().await;
}

/// The session is cancelled while a call waits for its turn.
#[tokio::test]
async fn call_of_a_cancelled_session_returns() {
    let plan = Plan::new()
        .on(
            "turn/start",
            [Action::Answer, Action::StartTurn, Action::say("So far.")],
        )
        .on(
            "turn/interrupt",
            [Action::Answer, Action::EndTurn(TurnEnd::Interrupted)],
        );
    let mut serve = Serve::plain(&plan).await;
    let call = serve.prompt();
    serve.fake.wait_for_method("turn/start").await;
    let list = json!({"action": "list"});
    let list = structured(&serve.client.call_tool("codex_session", list).await);
    let session = &list["sessions"][0]["sessionId"];
    let cancel = json!({"action": "cancel", "sessionId": session});
    structured(&serve.client.call_tool("codex_session", cancel).await);
    let result = serve.client.result(&call).await;
    assert_eq!(super::super::serve::code(&result), "INTERRUPTED");
    assert_eq!(result["structuredContent"]["content"], "So far.");
    serve.finish().await;
}
