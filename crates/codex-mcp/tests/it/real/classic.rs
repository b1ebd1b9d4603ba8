//! `codex` and `codex-reply`, as a client uses them.

use scripted_model::{Gate, Reply, Script, Shell};
use serde_json::{Value, json};

use super::{
    CodexFixture, assert_completed, assert_error, on_each_release, structured, text, thread_of,
};
use crate::jobs::wait_for;

on_each_release!(
    thread_is_begun_and_continued,
    progress_is_sent_to_a_call_with_a_token,
    cancelled_call_interrupts_its_turn,
    timed_out_call_is_interrupted,
    many_calls_share_one_codex,
    model_errors_have_their_codes,
);

async fn thread_is_begun_and_continued(release: &str) {
    let script = Script::new().on("first", [Reply::say("one")]).on(
        "second",
        [Reply::with(|request| {
            Reply::say(format!(
                "two, after {}",
                request.assistant_messages().join(",")
            ))
        })],
    );
    let stage = CodexFixture::new(release, script).await;
    let mut client = stage.client(&[]).await;

    let begun = client.call_tool("codex", json!({"prompt": "first"})).await;
    assert_completed(&begun, "one");
    assert_eq!(text(&begun, 0), "one");
    let rest: Value = serde_json::from_str(text(&begun, 1)).unwrap();
    let thread = thread_of(&begun);
    assert_eq!(
        rest,
        json!({
            "threadId": thread,
            "sessionId": structured(&begun)["sessionId"],
            "status": "completed",
        })
    );

    for (name, thread_named) in [
        ("threadId", &*thread),
        ("conversationId", &*thread),
        ("threadId", &thread[..13]),
    ] {
        let arguments = json!({"prompt": "second", name: thread_named});
        let gone_on = client.call_tool("codex-reply", arguments).await;
        assert!(
            text(&gone_on, 0).starts_with("two, after one"),
            "{gone_on:#}"
        );
        assert_eq!(thread_of(&gone_on), thread);
    }
    stage.finish(client).await;

    // Another server finds the thread among Codex's rollouts.
    let mut client = stage.client(&[]).await;
    let arguments = json!({"prompt": "second", "threadId": thread[..13]});
    let gone_on = client.call_tool("codex-reply", arguments).await;
    assert_eq!(thread_of(&gone_on), thread, "{gone_on:#}");
    for (unknown, code) in [
        ("01234567", "THREAD_NOT_FOUND"),
        ("01234567-89ab-7def-8123-456789abcdef", "THREAD_NOT_FOUND"),
        ("nonsense", "INVALID_ARGUMENT"),
        ("0199", "INVALID_ARGUMENT"),
    ] {
        let arguments = json!({"prompt": "x", "threadId": unknown});
        let refused = client.call_tool("codex-reply", arguments).await;
        assert_error(&refused, code);
    }
    stage.finish(client).await;
}

async fn progress_is_sent_to_a_call_with_a_token(release: &str) {
    // A command that ends at once may have ended before it is reported.
    let command = "until [ -e told ]; do sleep 0.01; done";
    let script = Script::new()
        .on("wait", [Reply::shell(command), Reply::say("done")])
        .otherwise([Reply::say("done")]);
    let stage = CodexFixture::new(release, script).await;
    let mut client = stage.client(&[]).await;
    let params = json!({
        "name": "codex",
        "arguments": {"prompt": "wait"},
        "_meta": {"progressToken": "mine"},
    });
    let id = client.request("tools/call", params);
    let mut last = 0.0;
    let mut told = Vec::new();
    // The last progress says that Codex writes its final message.
    while !told
        .iter()
        .any(|message: &String| message.contains("writing"))
    {
        let progress = client.notification("notifications/progress").await;
        let progress = &progress["params"];
        assert_eq!(progress["progressToken"], "mine");
        let now = progress["progress"].as_f64().unwrap();
        assert!(now > last, "{progress}");
        last = now;
        let message = progress["message"].as_str().unwrap().to_owned();
        if message.starts_with("running ") && !message.contains("-lc") {
            std::fs::write(stage.home.work().join("told"), "").unwrap();
        }
        told.push(message);
    }
    assert!(stage.home.work().join("told").exists(), "{told:?}");
    client.ignore("notifications/progress");
    assert_completed(&client.result(&id).await, "done");

    let silent = client.call_tool("codex", json!({"prompt": "work"})).await;
    assert_completed(&silent, "done");
    stage.finish(client).await;
}

async fn cancelled_call_interrupts_its_turn(release: &str) {
    let gate = Gate::new();
    let script = Script::new()
        .on("first", [Reply::say("one")])
        .on("hang", [Reply::say("never").behind(&gate)])
        .otherwise([Reply::say("back")]);
    let stage = CodexFixture::new(release, script).await;
    let mut client = stage.client(&[]).await;
    let begun = client.call_tool("codex", json!({"prompt": "first"})).await;
    let thread = thread_of(&begun);

    let id = client.request_tool("codex-reply", json!({"prompt": "hang", "threadId": thread}));
    gate.reached(1).await;
    client.cancel(&id, "no longer wanted");
    let back = wait_for("the end of the turn", async || {
        let arguments = json!({"prompt": "and now?", "threadId": thread});
        let result = client.call_tool("codex-reply", arguments).await;
        let is_busy = structured(&result)["error"]["code"] == "SESSION_BUSY";
        (!is_busy).then_some(result)
    })
    .await;
    assert_completed(&back, "back");
    stage.finish(client).await;
}

async fn timed_out_call_is_interrupted(release: &str) {
    let gate = Gate::new();
    let script = Script::new()
        .on(
            "slow",
            [
                Reply::say("so far").then(Reply::shell("true")),
                Reply::say("never").behind(&gate),
            ],
        )
        .otherwise([Reply::say("back")]);
    let stage = CodexFixture::new(release, script).await;
    let mut client = stage.client(&["--timeout", "4"]).await;
    let late = client.call_tool("codex", json!({"prompt": "slow"})).await;
    assert_error(&late, "TIMEOUT");
    assert_eq!(structured(&late)["status"], "timeout");
    assert_eq!(structured(&late)["content"], "so far");
    assert!(text(&late, 1).contains("so far"));
    assert!(text(&late, 2).contains(&thread_of(&late)));

    let arguments = json!({"prompt": "and now?", "threadId": thread_of(&late)});
    assert_completed(&client.call_tool("codex-reply", arguments).await, "back");
    stage.finish(client).await;
}

async fn many_calls_share_one_codex(release: &str) {
    let script = Script::new().otherwise([Reply::with(|request| {
        Reply::say(format!("echo {}", request.prompt()))
    })]);
    let stage = CodexFixture::new(release, script).await;
    let mut client = stage.client(&[]).await;
    let ids: Vec<Value> = (0..20)
        .map(|n| client.request_tool("codex", json!({"prompt": format!("number {n}")})))
        .collect();
    for (n, id) in ids.iter().enumerate() {
        assert_completed(&client.result(id).await, &format!("echo number {n}"));
    }
    // Each app-server has one guard; Codex has started the other processes itself.
    let guards = stage.home.processes().into_iter();
    let guards = guards.filter(|process| process.command.contains(" guard "));
    assert_eq!(guards.count(), 1);
    stage.finish(client).await;
}

async fn model_errors_have_their_codes(release: &str) {
    let script = Script::new().on("too often", [Reply::fail(429, "{}")]).on(
        "wrong",
        [
            Reply::shell(Shell::new("exit 3")),
            Reply::fail(400, "{\"error\":{\"message\":\"no\"}}"),
        ],
    );
    let stage = CodexFixture::new(release, script).await;
    let mut client = stage.client(&[]).await;
    let limited = client
        .call_tool("codex", json!({"prompt": "too often"}))
        .await;
    assert_error(&limited, "RATE_LIMITED");
    assert_eq!(structured(&limited)["error"]["retryable"], true);
    let failed = client.call_tool("codex", json!({"prompt": "wrong"})).await;
    assert_error(&failed, "TURN_FAILED");
    assert!(!thread_of(&failed).is_empty());
    stage.finish(client).await;
}
