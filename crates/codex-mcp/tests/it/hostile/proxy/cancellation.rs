//! Calls that are cancelled by the client or time out.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::fake::{Action, HELLO, Plan};
use testkit::wait::within;
use tokio::time::sleep;

use super::super::serve::Serve;
use super::{
    code, content, eliciting, end, is_answer, message, plain, said, silent, status, stuck, thread,
};

/// Cancels a call, which may get no answer from here on.
async fn cancel(serve: &mut Serve, call: &Value) {
    let params = json!({"requestId": call, "reason": "changed my mind"});
    serve.client.notify("notifications/cancelled", params);
    let seen = serve.fake.wait_for_method("notifications/cancelled").await;
    assert_eq!(seen["params"]["requestId"], *call);
    assert_eq!(seen["params"]["reason"], "changed my mind");
}

/// Ends a server one of whose calls was cancelled, and never answered.
async fn finish(mut serve: Serve, cancelled: &Value) {
    serve.client.close_stdin();
    let status = serve.client.exited().await;
    assert!(status.success(), "{status}");
    assert_eq!(serve.client.response_so_far(cancelled), None);
    serve.client.abandon(cancelled);
    serve.gone(status).await;
}

/// A server whose client checks notifications.
async fn attentive(plan: &Plan, args: &[&str]) -> Serve {
    let mut serve = Serve::start_with(plan, |launch| super::through(launch, args));
    let version = super::HANDSHAKE;
    serve.client.initialize(version, json!({})).await;
    serve
}

#[tokio::test]
async fn cancelled_call_gets_no_answer_and_its_thread_continues() {
    let plan = stuck("half").on("tools/call", [Action::Proceed]).nth(2);
    let mut serve = attentive(&plan, &[]).await;
    let call = serve.prompt();
    let begun = serve.client.notification("codex/event").await;
    let thread = begun["params"]["_meta"]["threadId"].clone();
    said(&mut serve, "half").await;
    serve.client.ignore("codex/event");
    cancel(&mut serve, &call).await;
    assert_eq!(content(&serve.reply(&thread).await), HELLO);
    finish(serve, &call).await;
}

#[tokio::test]
async fn late_answer_of_a_cancelled_call_is_dropped() {
    let late = [Action::StartTurn, Action::gate("late")]
        .into_iter()
        .chain(end("late"))
        .collect::<Vec<_>>();
    let plan = Plan::new()
        .on("notifications/cancelled", [Action::Hang])
        .on("tools/call", late)
        .nth(1);
    let mut serve = plain(&plan, &[]).await;
    let call = serve.prompt();
    serve.fake.wait_for_method("tools/call").await;
    cancel(&mut serve, &call).await;
    serve.fake.open_gate("late");
    assert_eq!(content(&serve.codex().await), HELLO);
    finish(serve, &call).await;
}

#[tokio::test]
async fn answer_under_a_cancelled_id_reaches_its_call() {
    let under = |id: u64| {
        let answer = Action::AnswerUnder { id: json!(id) };
        [Action::StartTurn, Action::say("go on"), answer]
    };
    let plan = stuck("half")
        .on("tools/call", under(2))
        .nth(2)
        .on("tools/call", under(3))
        .nth(3);
    let mut serve = attentive(&plan, &[]).await;
    let call = serve.prompt();
    assert_eq!(call, 2);
    said(&mut serve, "half").await;
    let begun = serve.client.notification("codex/event").await;
    let thread = begun["params"]["_meta"]["threadId"].clone();
    serve.client.ignore("codex/event");
    cancel(&mut serve, &call).await;
    for _ in 0..2 {
        assert_eq!(content(&serve.reply(&thread).await), "go on");
    }
    finish(serve, &call).await;
}

#[tokio::test]
async fn cancelled_call_does_not_affect_others() {
    let begin = [Action::StartTurn, Action::gate("go")];
    let plan = begin.into_iter().chain(end("done")).collect::<Vec<_>>();
    let mut serve = plain(&Plan::new().on("tools/call", plan), &[]).await;
    let calls: Vec<Value> = (0..3).map(|_| serve.prompt()).collect();
    serve.fake.wait_for_nth_method(3, "tools/call").await;
    cancel(&mut serve, &calls[1]).await;
    serve.fake.open_gate("go");
    for call in [&calls[0], &calls[2]] {
        assert_eq!(content(&serve.client.result(call).await), "done");
    }
    finish(serve, &calls[1]).await;
}

#[tokio::test]
async fn other_requests_can_be_cancelled_too() {
    let plan = Plan::new().on("ping", [Action::Hang]);
    let mut serve = plain(&plan, &[]).await;
    let ping = serve.client.request("ping", json!({}));
    serve.fake.wait_for_method("ping").await;
    cancel(&mut serve, &ping).await;
    finish(serve, &ping).await;
}

/// It waits no longer, after which its ID can be used again.
#[tokio::test]
async fn cancelled_call_that_waits_for_a_job_ends() {
    let mut serve = plain(&Plan::new(), &[]).await;
    // No worker can be started, so that the job stays queued.
    let log = serve.home.state_home().join("codex-mcp/worker.log");
    std::fs::create_dir_all(log).unwrap();
    let arguments = json!({"prompt": "work", "cwd": serve.home.work()});
    let submitted = serve.client.call_tool("call_codex", arguments).await;
    let job = &submitted["structuredContent"]["job_id"];
    let arguments = json!({"job_id": job, "wait_ms": 600_000});
    let call = serve.client.request_tool("call_status", arguments);
    status(&mut serve).await;
    let params = json!({"requestId": call});
    serve.client.notify("notifications/cancelled", params);
    let params = json!({"name": "codex_status"});
    let again = json!({"jsonrpc": "2.0", "id": call, "method": "tools/call", "params": params});
    let served = async {
        loop {
            serve.client.send(&again);
            let answer = serve.client.response(&call).await;
            if answer["result"].is_object() {
                return;
            }
            assert_eq!(answer["error"]["code"], -32600, "{answer}");
            sleep(Duration::from_millis(50)).await;
        }
    };
    within("the end of the cancelled call", served).await;
    serve.finish().await;
}

#[tokio::test]
async fn cancelled_call_gets_no_failure_when_the_child_dies() {
    let plan = stuck("half").on("notifications/cancelled", [Action::Hang]);
    let mut serve = plain(&plan, &[]).await;
    let call = serve.prompt();
    serve.fake.wait_for_method("tools/call").await;
    cancel(&mut serve, &call).await;
    serve.kill_codex(testkit::Signal::SIGKILL);
    assert_eq!(code(&serve.codex().await), "CODEX_DIED");
    finish(serve, &call).await;
}

#[tokio::test]
async fn timed_out_call_is_cancelled_and_keeps_the_messages() {
    let delta = Action::Flood { notifications: 3 };
    let begin = [Action::StartTurn, Action::say("The first half."), delta];
    let plan = Plan::new()
        .on("tools/call", begin)
        .on("tools/call", [Action::Proceed])
        .nth(2);
    let mut serve = plain(&plan, &["--timeout", "1"]).await;
    let call = serve.prompt();
    let result = serve.client.result(&call).await;
    assert_eq!(code(&result), "TIMEOUT");
    assert!(message(&result).contains("1 s"), "{result:#}");
    let structured = &result["structuredContent"];
    assert_eq!(structured["error"]["retryable"], true);
    assert_eq!(structured["content"], "The first half.\n\n0 1 2 ");
    let seen = serve.fake.wait_for_method("notifications/cancelled").await;
    assert_eq!(seen["params"]["requestId"], call);
    assert_eq!(content(&serve.reply(&thread(&result)).await), HELLO);
    serve.finish().await;
}

#[tokio::test]
async fn child_that_ignores_cancellation_does_not_block_the_call() {
    let plan = stuck("half").on("notifications/cancelled", [Action::Hang]);
    let mut serve = plain(&plan, &["--timeout", "1"]).await;
    let calls: Vec<Value> = (0..3).map(|_| serve.prompt()).collect();
    for call in &calls {
        let result = serve.client.result(call).await;
        assert_eq!(code(&result), "TIMEOUT");
    }
    assert_eq!(status(&mut serve).await["calls"]["inFlight"], 0);
    serve.finish().await;
}

#[tokio::test]
async fn question_open_at_the_timeout_is_withdrawn_and_declined() {
    let plan = super::calls([Action::elicit_approval("touch x")]);
    let mut serve = eliciting(&plan, &["--timeout", "1"]).await;
    let call = serve.prompt();
    let asked = serve.client.server_request("elicitation/create").await;
    let withdrawn = serve.client.notification("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    assert_eq!(code(&serve.client.result(&call).await), "TIMEOUT");
    serve.fake.wait_for("the answer", is_answer).await;
    assert_eq!(serve.answers()[0]["result"]["action"], "decline");
    serve.finish().await;
}

#[tokio::test]
async fn cancelling_an_answered_call_has_no_effect() {
    let mut serve = silent(&Plan::new(), &[]);
    let call = serve.prompt();
    assert_eq!(content(&serve.client.result(&call).await), HELLO);
    cancel(&mut serve, &call).await;
    assert_eq!(content(&serve.codex().await), HELLO);
    serve.finish().await;
}
