//! Calls of `--api classic`, which wait for the end of a turn.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use super::{MemoryServer, THREAD, turn};

fn error_code(response: &Value) -> &str {
    let error = &response["result"]["structuredContent"]["error"];
    error["code"]
        .as_str()
        .unwrap_or_else(|| panic!("{response:#}"))
}

#[tokio::test(start_paused = true)]
async fn silent_turn_is_reported_every_ten_seconds() {
    let mut world = MemoryServer::new(json!({})).await;
    world.call(json!({"progressToken": 7})).await;
    world.start_turn().await;
    let began = Instant::now();
    for n in 1..=5_u32 {
        let progress = world.client.next_is("notifications/progress").await;
        assert_eq!(progress["params"]["progress"], f64::from(n));
        assert_eq!(progress["params"]["message"], format!("thinking, {n}0 s"));
        assert_eq!(began.elapsed().as_secs(), u64::from(n) * 10);
    }
    let response = world.complete_turn().await;
    assert_eq!(response["result"]["structuredContent"]["content"], "done");
    world.finish().await;
}

/// The model chooses the words, so the message is bounded and shows hidden characters escaped.
#[tokio::test(start_paused = true)]
async fn progress_names_the_current_step_and_its_time() {
    let mut world = MemoryServer::new(json!({})).await;
    world.call(json!({"progressToken": 7})).await;
    world.start_turn().await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let command = format!("/bin/sh -c 'make \u{1b}[31m\n {}'", "x".repeat(1000));
    let item = json!({"type": "commandExecution", "id": "c", "command": command});
    let told = json!({"turnId": "turn", "item": item});
    world.tell("item/started", told.clone()).await;
    let mut messages = Vec::new();
    for _ in 0..2 {
        let progress = world.client.next_is("notifications/progress").await;
        let message = progress["params"]["message"].as_str().unwrap();
        messages.push(message.to_owned());
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.tell("item/completed", told).await;
    let progress = world.client.next_is("notifications/progress").await;
    assert_eq!(progress["params"]["message"], "thinking, 8 s");
    let running = messages[0].clone();
    assert!(
        running.starts_with("running make \\u{1b}[31m xxx"),
        "{running}"
    );
    assert!(running.len() <= 200 && running.ends_with(" …"), "{running}");
    assert_eq!(messages[1], format!("{running}, 10 s"));
    world.complete_turn().await;
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn progress_reports_that_codex_is_silent() {
    let mut world = MemoryServer::new(json!({})).await;
    let prompt = json!({"prompt": "work", "wait-ms": 400_000});
    world.call_with(prompt, json!({"progressToken": 7})).await;
    world.start_turn().await;
    let mut messages = Vec::new();
    for _ in 0..31 {
        let progress = world.client.next_is("notifications/progress").await;
        let message = progress["params"]["message"].as_str().unwrap();
        messages.push(message.to_owned());
    }
    assert_eq!(messages[28], "thinking, 4 min 50 s");
    let silent = |message: &String| message.starts_with("no event from Codex (thinking)");
    assert_eq!(messages.iter().filter(|message| silent(message)).count(), 2);
    world.tell("thread/tokenUsage/updated", usage()).await;
    let progress = world.client.next_is("notifications/progress").await;
    let message = progress["params"]["message"].as_str().unwrap();
    assert!(message.starts_with("thinking, 5 min "), "{message}");
    world.complete_turn().await;
    world.finish().await;
}

fn usage() -> Value {
    let tokens = json!({"totalTokens": 1, "inputTokens": 1, "cachedInputTokens": 0,
        "outputTokens": 0, "reasoningOutputTokens": 0});
    json!({"turnId": "turn", "tokenUsage": {"total": tokens, "last": tokens}})
}

#[tokio::test(start_paused = true)]
async fn call_without_a_token_gets_no_progress() {
    let mut world = MemoryServer::new(json!({})).await;
    world.call(json!({})).await;
    world.start_turn().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let response = world.complete_turn().await;
    assert_eq!(response["result"]["structuredContent"]["content"], "done");
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn call_ends_at_its_deadline_even_if_codex_ignores_the_interrupt() {
    let mut world = MemoryServer::new(json!({})).await;
    let began = Instant::now();
    world.call(json!({})).await;
    world.start_turn().await;
    world.say("so far").await;
    let interrupt = world.codex.next_is("turn/interrupt").await;
    assert_eq!(
        interrupt["params"],
        json!({"threadId": THREAD, "turnId": "turn"})
    );
    assert_eq!(began.elapsed().as_secs(), 300);
    let response = world.client.next().await;
    assert_eq!(error_code(&response), "TIMEOUT");
    assert_eq!(response["result"]["structuredContent"]["content"], "so far");
    assert_eq!(response["result"]["structuredContent"]["threadId"], THREAD);
    assert_eq!(began.elapsed().as_secs(), 303);
    world.finish().await;
}

/// Codex behaves so when a review cannot begin.
#[tokio::test(start_paused = true)]
async fn call_fails_with_an_error_after_which_codex_is_silent() {
    for starts in [false, true] {
        let mut world = MemoryServer::new(json!({})).await;
        world.call(json!({})).await;
        if starts {
            world.start_turn().await;
        }
        let told = Instant::now();
        let error = json!({"message": "this is no repository", "codexErrorInfo": "other"});
        let params = json!({"turnId": "turn", "willRetry": false, "error": error});
        world.tell("error", params).await;
        let response = world.client.next().await;
        assert_eq!(error_code(&response), "TURN_FAILED");
        let content = response["result"]["content"].to_string();
        assert!(content.contains("this is no repository"), "{response:#}");
        assert_eq!(told.elapsed().as_secs(), 10);
        if starts {
            world.codex.next_is("turn/interrupt").await;
            let clean = "thread/backgroundTerminals/clean";
            world.codex.next_is(clean).await;
        }
        world.finish().await;
    }
}

#[tokio::test(start_paused = true)]
async fn interrupt_waits_until_the_turn_has_started() {
    let mut world = MemoryServer::new(json!({})).await;
    let id = world.call(json!({})).await;
    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": id}});
    world.client.send(cancelled).await;
    world.codex.assert_nothing_unread().await;
    world.start_turn().await;
    world.codex.next_is("turn/interrupt").await;
    world.end_turn("interrupted").await;
    world
        .codex
        .next_is("thread/backgroundTerminals/clean")
        .await;
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn unanswerable_question_is_returned_and_declined_after_a_minute() {
    let mut world = MemoryServer::new(json!({})).await;
    world.call(json!({})).await;
    world.start_turn().await;
    let asked = Instant::now();
    world.ask().await;
    let response = world.client.next().await;
    assert_eq!(
        response["result"]["structuredContent"]["status"],
        "waiting_approval"
    );
    let answer = world.codex.next().await;
    assert_eq!(answer, json!({"id": 0, "result": {"decision": "decline"}}));
    assert_eq!(asked.elapsed().as_secs(), 60);
    world.end_turn("completed").await;
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn question_ignored_by_the_client_is_declined_and_withdrawn() {
    let mut world = MemoryServer::new(json!({"elicitation": {}})).await;
    world.call(json!({})).await;
    world.start_turn().await;
    world.ask().await;
    let question = world.client.next_is("elicitation/create").await;
    let answer = world.codex.next().await;
    assert_eq!(answer["result"]["decision"], "decline");
    let withdrawn = world.client.next_is("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    // A late answer must not reach Codex.
    let late = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}});
    world.client.send(late).await;
    world.codex.assert_nothing_unread().await;
    let response = world.complete_turn().await;
    assert_eq!(response["result"]["structuredContent"]["content"], "done");
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn end_of_input_ends_a_call_with_an_answer() {
    let mut world = MemoryServer::new(json!({})).await;
    world.call(json!({})).await;
    world.start_turn().await;
    // Let the turn's start arrive first.
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.client.writer.shutdown().await.unwrap();
    world.codex.next_is("turn/interrupt").await;
    world.end_turn("interrupted").await;
    let response = world.client.next().await;
    assert_eq!(error_code(&response), "SHUTTING_DOWN");
    world
        .codex
        .next_is("thread/backgroundTerminals/clean")
        .await;
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn late_answer_to_a_timed_out_question_is_ignored() {
    let mut world = MemoryServer::new(json!({"elicitation": {}})).await;
    world.call(json!({})).await;
    world.start_turn().await;
    world.ask_as(0).await;
    let first = world.client.next_is("elicitation/create").await;
    world.codex.next().await;
    world.client.next_is("notifications/cancelled").await;
    // Some clients answer a withdrawn request with an error.
    let error = json!({"code": -32800, "message": "cancelled"});
    let late = json!({"jsonrpc": "2.0", "id": first["id"], "error": error});
    world.client.send(late).await;
    world.ask_as(1).await;
    let second = world.client.next_is("elicitation/create").await;
    let answer = json!({"jsonrpc": "2.0", "id": second["id"], "result": {"action": "accept"}});
    world.client.send(answer).await;
    let answer = world.codex.next().await;
    assert_eq!(answer, json!({"id": 1, "result": {"decision": "accept"}}));
    world.complete_turn().await;
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn turn_whose_call_returned_early_is_interrupted_after_four_hours() {
    let mut world = MemoryServer::new(json!({})).await;
    let began = Instant::now();
    world.call(json!({})).await;
    world.start_turn().await;
    world.ask().await;
    world.client.next().await;
    assert_eq!(world.codex.next().await["result"]["decision"], "decline");
    world.codex.next_is("turn/interrupt").await;
    assert_eq!(began.elapsed().as_secs(), 4 * 60 * 60);
    world.end_turn("interrupted").await;
    world.codex.unloads_thread().await;
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn thread_whose_turn_cannot_be_interrupted_can_be_used_again() {
    let mut world = MemoryServer::new(json!({})).await;
    let id = world.call(json!({})).await;
    world.start_turn().await;
    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": id}});
    world.client.send(cancelled).await;
    world.codex.next_is("turn/interrupt").await;
    let ignored = Instant::now();
    world.codex.next_is("turn/interrupt").await;
    assert_eq!(ignored.elapsed().as_secs(), 5);
    tokio::time::sleep(Duration::from_secs(6)).await;

    let arguments = json!({"prompt": "work", "threadId": THREAD});
    let params = json!({"name": "codex-reply", "arguments": arguments});
    world.request("tools/call", params).await;
    let prompt = world.codex.next_is("turn/start").await;
    let next = json!({"turn": {"id": "next", "items": [], "status": "inProgress"}});
    let answer = json!({"id": prompt["id"], "result": next});
    world.codex.send(answer).await;
    world.tell("turn/started", next.clone()).await;
    world.say("back").await;
    // The late end of the old turn must not end the new one.
    world.end_turn("interrupted").await;
    let ended = json!({"turn": {"id": "next", "items": [], "status": "completed"}});
    world.tell("turn/completed", ended).await;
    let response = world.client.next().await;
    assert_eq!(response["result"]["structuredContent"]["content"], "back");
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn unused_thread_is_released_and_resumed_with_its_settings() {
    let mut world = MemoryServer::new(json!({})).await;
    let arguments = json!({"prompt": "work", "sandbox": "read-only"});
    world.call_with(arguments, json!({})).await;
    world.start_turn().await;
    world.complete_turn().await;
    tokio::time::sleep(Duration::from_secs(29 * 60)).await;
    world.codex.assert_nothing_unread().await;
    tokio::time::sleep(Duration::from_secs(3 * 60)).await;
    world.codex.unloads_thread().await;

    let arguments = json!({"prompt": "work", "threadId": THREAD});
    let params = json!({"name": "codex-reply", "arguments": arguments});
    world.request("tools/call", params).await;
    let resume = world.codex.next_is("thread/resume").await;
    assert_eq!(resume["params"]["sandbox"], "read-only");
    let thread = json!({"thread": {"id": THREAD}});
    let answer = json!({"id": resume["id"], "result": thread});
    world.codex.send(answer).await;
    let prompt = world.codex.next_is("turn/start").await;
    let answer = json!({"id": prompt["id"], "result": {"turn": turn("inProgress")}});
    world.codex.send(answer).await;
    world.start_turn().await;
    let response = world.complete_turn().await;
    assert_eq!(response["result"]["structuredContent"]["content"], "done");
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn call_returns_after_its_wait_and_the_turn_continues() {
    // 400 s is longer than the default limit of a call.
    for seconds in [0, 2, 400] {
        let mut world = MemoryServer::new(json!({})).await;
        let began = Instant::now();
        let arguments = json!({"prompt": "work", "wait-ms": seconds * 1000});
        world.call_with(arguments, json!({})).await;
        world.start_turn().await;
        let response = world.client.next().await;
        assert_eq!(began.elapsed().as_secs(), seconds);
        let structured = &response["result"]["structuredContent"];
        assert_eq!(structured["status"], "running");
        assert_eq!(structured["threadId"], THREAD);
        let poll = json!({"action": "poll", "sessionId": structured["sessionId"],
            "waitMs": 60_000, "pollOptions": {"includeEvents": false}});
        let params = json!({"name": "codex_check", "arguments": poll});
        world.request("tools/call", params).await;
        let response = world.complete_turn().await;
        let look = &response["result"]["structuredContent"];
        assert_eq!(
            (&look["status"], &look["result"]["output"]),
            (&json!("idle"), &json!("done"))
        );
        world.finish().await;
    }
}

#[tokio::test(start_paused = true)]
async fn call_that_returns_with_an_open_question_says_so() {
    let mut world = MemoryServer::new(json!({"elicitation": {}})).await;
    let arguments = json!({"prompt": "work", "wait-ms": 5000});
    world.call_with(arguments, json!({})).await;
    world.start_turn().await;
    world.ask().await;
    let question = world.client.next_is("elicitation/create").await;
    let withdrawn = world.client.next_is("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    let response = world.client.next().await;
    let structured = &response["result"]["structuredContent"];
    assert_eq!(structured["status"], "waiting_approval", "{response:#}");
    assert_eq!(structured["actions"][0]["command"], "touch x");
    assert_eq!(world.codex.next().await["result"]["decision"], "decline");
    world.end_turn("completed").await;
    world.finish().await;
}

/// A slow MCP server of the user can delay the beginning of a thread.
#[tokio::test(start_paused = true)]
async fn call_reports_progress_before_the_turn_has_begun() {
    let mut world = MemoryServer::new(json!({})).await;
    let began = Instant::now();
    let params = json!({"name": "codex", "arguments": {"prompt": "work"},
        "_meta": {"progressToken": "p"}});
    world.request("tools/call", params).await;
    let start = world.codex.next_is("thread/start").await;
    let mut told = Vec::new();
    for nth in 1..=2_u64 {
        let progress = world.client.next_is("notifications/progress").await;
        let message = format!("opening the thread, {nth}0 s");
        assert_eq!(progress["params"]["message"], message);
        told.push(progress);
        assert_eq!(began.elapsed().as_secs(), nth * 10);
    }
    let thread = json!({"thread": {"id": THREAD}});
    let answer = json!({"id": start["id"], "result": thread});
    world.codex.send(answer).await;
    let prompt = world.codex.next_is("turn/start").await;
    let answer = json!({"id": prompt["id"], "result": {"turn": turn("inProgress")}});
    world.codex.send(answer).await;
    world.start_turn().await;
    told.push(world.client.next_is("notifications/progress").await);
    // MCP requires that the number rises over the whole call.
    let numbers: Vec<Option<f64>> = told
        .iter()
        .map(|one| one["params"]["progress"].as_f64())
        .collect();
    assert_eq!(numbers, [Some(1.0), Some(2.0), Some(3.0)]);
    world.complete_turn().await;
    world.finish().await;
}
