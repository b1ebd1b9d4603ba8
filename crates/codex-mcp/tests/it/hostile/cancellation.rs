//! Calls that are cancelled by the client or time out.

use serde_json::{Value, json};
use testkit::fake::{Action, HELLO, Plan, Question, TurnEnd};

use super::serve::{Serve, code, completed, is_answer, message, stuck, thread};

/// Cancels a call and checks that it gets no result, but at most an error.
async fn cancel(serve: &mut Serve, call: &Value) {
    let params = json!({"requestId": call});
    serve.client.notify("notifications/cancelled", params);
    serve.settled().await;
}

/// Ends a server one of whose calls was cancelled.
async fn finish(mut serve: Serve, cancelled: &Value) {
    serve.client.close_stdin();
    serve.client.exited().await;
    let late = serve.client.response_so_far(cancelled);
    serve.client.abandon(cancelled);
    let success = late.is_some_and(|late| late["result"]["isError"] != true);
    assert!(!success, "a cancelled call succeeded");
    serve.finish().await;
}

#[tokio::test]
async fn cancelled_call_interrupts_its_turn_and_thread_continues() {
    let plan = stuck("half").on("turn/start", [Action::Proceed]).nth(2);
    let mut serve = Serve::plain(&plan).await;
    let call = serve.prompt();
    let start = serve.fake.wait_for_method("turn/start").await;
    cancel(&mut serve, &call).await;
    let interrupt = serve.fake.wait_for_method("turn/interrupt").await;
    let thread = &start["params"]["threadId"];
    assert_eq!(&interrupt["params"]["threadId"], thread);
    assert!(interrupt["params"]["turnId"].is_string());
    let mut next = serve.reply(thread).await;
    while next["isError"] == true {
        assert_eq!(code(&next), "SESSION_BUSY");
        next = serve.reply(thread).await;
    }
    assert_eq!(completed(&next), HELLO);
    finish(serve, &call).await;
}

#[tokio::test]
async fn cancellation_before_turn_start_waits_for_the_start() {
    let unknown = Question {
        method: "brand/new".to_owned(),
        params: json!({}),
    };
    let plan = Plan::new().on(
        "turn/start",
        [
            Action::Answer,
            Action::gate("cancelled"),
            // Messages from before the turn's start are read before the answer to this.
            Action::AskTogether(vec![unknown]),
            Action::StartTurn,
        ],
    );
    let mut serve = Serve::plain(&plan).await;
    let call = serve.prompt();
    serve.fake.wait_for_method("turn/start").await;
    cancel(&mut serve, &call).await;
    serve.fake.open_gate("cancelled");
    serve.fake.wait_for_method("turn/interrupt").await;
    let received = serve.fake.received();
    let place = |fits: &dyn Fn(&Value) -> bool| received.iter().position(fits).unwrap();
    let answer = place(&|message| message.get("method").is_none());
    let interrupt = place(&|message| message["method"] == "turn/interrupt");
    assert!(answer < interrupt, "{received:#?}");
    finish(serve, &call).await;
}

#[tokio::test]
async fn call_cancelled_while_its_turn_starts_is_interrupted() {
    let begin = [Action::gate("begin"), Action::Answer, Action::StartTurn];
    let mut serve = Serve::plain(&Plan::new().on("turn/start", begin)).await;
    let call = serve.prompt();
    serve.fake.wait_for_method("turn/start").await;
    cancel(&mut serve, &call).await;
    serve.fake.open_gate("begin");
    serve.fake.wait_for_method("turn/interrupt").await;
    finish(serve, &call).await;
}

#[tokio::test]
async fn call_cancelled_before_its_prompt_sends_none() {
    for slow in ["initialize", "thread/start"] {
        let begin = [Action::gate("begin"), Action::Answer];
        let mut serve = Serve::plain(&Plan::new().on(slow, begin).nth(1)).await;
        let call = serve.prompt();
        serve.fake.wait_for_method(slow).await;
        cancel(&mut serve, &call).await;
        serve.fake.open_gate("begin");
        assert_eq!(completed(&serve.codex().await), HELLO);
        let prompts = serve
            .methods()
            .iter()
            .filter(|method| *method == "turn/start")
            .count();
        assert_eq!(prompts, 1, "{slow}");
        finish(serve, &call).await;
    }
}

#[tokio::test]
async fn cancelled_call_does_not_affect_others() {
    let plan = Plan::new().on(
        "turn/start",
        [
            Action::Answer,
            Action::StartTurn,
            Action::gate("go"),
            Action::say("done"),
            Action::EndTurn(TurnEnd::Completed),
        ],
    );
    let mut serve = Serve::plain(&plan).await;
    let calls: Vec<Value> = (0..3).map(|_| serve.prompt()).collect();
    serve.fake.wait_for_nth_method(3, "turn/start").await;
    cancel(&mut serve, &calls[1]).await;
    serve.fake.wait_for_method("turn/interrupt").await;
    serve.fake.open_gate("go");
    for call in [&calls[0], &calls[2]] {
        assert_eq!(completed(&serve.client.result(call).await), "done");
    }
    finish(serve, &calls[1]).await;
}

#[tokio::test]
async fn timed_out_call_is_interrupted_and_keeps_the_messages() {
    let delta = Action::Notify {
        method: "item/agentMessage/delta".to_owned(),
        params: json!({"itemId": "m2", "delta": "And the sec"}),
    };
    let plan = Plan::new()
        .on(
            "turn/start",
            [
                Action::Answer,
                Action::StartTurn,
                Action::say("The first half."),
                delta,
            ],
        )
        .on("turn/start", [Action::Proceed])
        .nth(2);
    let mut serve = Serve::plain_with(&plan, &["--timeout", "1"]).await;
    let result = serve.codex().await;
    assert_eq!(code(&result), "TIMEOUT");
    let structured = &result["structuredContent"];
    assert_eq!(structured["status"], "timeout");
    assert_eq!(structured["content"], "The first half.\n\nAnd the sec");
    assert_eq!(structured["error"]["retryable"], true);
    assert!(message(&result).contains("1 s"), "{result:#}");
    let text = result["content"][1]["text"].as_str().unwrap();
    assert!(text.contains("And the sec"), "{text}");
    serve.fake.wait_for_method("turn/interrupt").await;
    assert_eq!(completed(&serve.reply(&thread(&result)).await), HELLO);
    serve.finish().await;
}

/// Codex had completed it when it got the interrupt.
#[tokio::test]
async fn turn_that_completes_at_its_time_limit_is_answered() {
    let complete = [Action::Answer, Action::EndTurn(TurnEnd::Completed)];
    let plan = stuck("done").on("turn/interrupt", complete);
    let mut serve = Serve::plain_with(&plan, &["--timeout", "1"]).await;
    assert_eq!(completed(&serve.codex().await), "done");
    serve.finish().await;
}

#[tokio::test]
async fn codex_that_ignores_the_interrupt_does_not_block_the_call() {
    let plan = stuck("half").on("turn/interrupt", [Action::Hang]);
    let mut serve = Serve::plain_with(&plan, &["--timeout", "1"]).await;
    let result = serve.codex().await;
    assert_eq!(code(&result), "TIMEOUT");
    assert_eq!(result["structuredContent"]["content"], "half");
    let busy = serve.reply(&thread(&result)).await;
    assert_eq!(code(&busy), "SESSION_BUSY");
    serve.finish().await;
}

#[tokio::test]
async fn question_open_at_the_timeout_is_withdrawn_and_declined() {
    let plan = super::serve::turns([Action::ask_approval("touch x"), Action::gate("never")]);
    let mut serve = Serve::eliciting(&plan, &["--timeout", "1"]).await;
    let call = serve.prompt();
    let asked = serve.client.server_request("elicitation/create").await;
    let withdrawn = serve.client.notification("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    let result = serve.client.result(&call).await;
    assert_eq!(code(&result), "TIMEOUT");
    serve.fake.wait_for("the answer", is_answer).await;
    serve.finish().await;
}

#[tokio::test]
async fn cancelling_an_answered_call_has_no_effect() {
    let mut serve = Serve::plain(&Plan::new()).await;
    let call = serve.prompt();
    assert_eq!(completed(&serve.client.result(&call).await), HELLO);
    cancel(&mut serve, &call).await;
    assert_eq!(completed(&serve.codex().await), HELLO);
    assert!(!serve.methods().contains(&"turn/interrupt".to_owned()));
    serve.finish().await;
}

#[tokio::test]
async fn second_concurrent_prompt_for_a_thread_is_refused() {
    let plan = Plan::new().on("thread/resume", [Action::gate("both"), Action::Answer]);
    let mut serve = Serve::plain(&plan).await;
    let arguments = json!({"prompt": "x", "threadId": "019fa4e0-0000-7000-8001-00000000abcd"});
    let calls = [(); 2].map(|()| serve.client.request_tool("codex-reply", arguments.clone()));
    serve.fake.wait_for_nth_method(2, "thread/resume").await;
    serve.fake.open_gate("both");
    let mut busy = 0;
    for call in &calls {
        let result = serve.client.result(call).await;
        if result["isError"] == true {
            assert_eq!(code(&result), "SESSION_BUSY");
            busy += 1;
        } else {
            assert_eq!(completed(&result), HELLO);
        }
    }
    assert!(busy < 2, "nobody was served");
    serve.finish().await;
}
