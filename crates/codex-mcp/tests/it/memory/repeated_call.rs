//! MCP 2026-07-28: a call that returns Codex's question, and is repeated with the answer.

use std::time::Duration;

use mcp_server::{Api, Decider};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::MemoryServer;

/// How long the calls wait, in milliseconds.
const WAIT: u32 = 60_000;

/// The parameters of the call, which are the same each time.
fn call() -> Value {
    let prefix = "io.modelcontextprotocol";
    json!({
        "name": "codex",
        "arguments": {"prompt": "work", "wait-ms": WAIT},
        "_meta": {
            format!("{prefix}/protocolVersion"): "2026-07-28",
            format!("{prefix}/clientCapabilities"): {"elicitation": {}},
            format!("{prefix}/clientInfo"): {"name": "test", "version": "1"},
        },
    })
}

/// The parameters of the repeated call, which accept the questions in `asked`.
fn repeated_call(asked: &Value) -> Value {
    let asked = &asked["result"];
    assert_eq!(asked["resultType"], "input_required", "{asked:#}");
    let mut answers = asked["inputRequests"].clone();
    for answer in answers.as_object_mut().unwrap().values_mut() {
        *answer = json!({"action": "accept"});
    }
    let mut again = call();
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] = answers;
    again
}

#[tokio::test(start_paused = true)]
async fn repeated_call_keeps_its_wait_limit() {
    let mut world = MemoryServer::silent(Api::Classic, Decider::Poller).await;
    let params = call();
    let meta = params["_meta"].clone();
    world.call_with(params["arguments"].clone(), meta).await;
    world.start_turn().await;
    sleep(Duration::from_secs(20)).await;
    world.ask().await;
    let asked = world.client.next().await;
    sleep(Duration::from_secs(20)).await;

    let began = Instant::now();
    world.request("tools/call", repeated_call(&asked)).await;
    let answer = world.codex.next().await;
    assert_eq!(answer["result"]["decision"], "accept", "{answer:#}");
    let back = world.client.next().await;
    assert_eq!(began.elapsed(), Duration::from_millis(WAIT.into()));
    let structured = &back["result"]["structuredContent"];
    assert_eq!(structured["status"], "running", "{back:#}");
    assert_eq!(back["result"].get("isError"), None);

    // The turn goes on: an interrupt would be left unread.
    sleep(Duration::from_secs(600)).await;
    world.say("done").await;
    world.end_turn("completed").await;
    let mut look = call();
    look["name"] = "codex_check".into();
    look["arguments"] = json!({"action": "poll", "sessionId": structured["sessionId"]});
    world.request("tools/call", look).await;
    let look = world.client.next().await;
    let result = &look["result"]["structuredContent"]["result"];
    assert_eq!(result["status"], "completed", "{look:#}");
    world.finish().await;
}
