//! A call that the client's relay repeats after its host was killed: it waits for the turn that it
//! has begun.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{MemoryServer, THREAD};

/// How long the calls wait, in milliseconds: for longer than progress is silent.
const WAIT: u32 = 15_000;

/// A server with the turn of a call. Returns the ID of the call.
async fn with_turn(meta: Value) -> (MemoryServer, i64) {
    let mut world = MemoryServer::new(json!({})).await;
    let call = json!({"prompt": "work", "wait-ms": WAIT});
    let id = world.call_with(call, meta).await;
    world.start_turn().await;
    (world, id)
}

/// Repeats a call, as the relay does.
async fn repeat(world: &mut MemoryServer, id: i64, arguments: Value, mut meta: Value) {
    meta["codex-mcp/repeated"] = true.into();
    let params = json!({"name": "codex", "arguments": arguments, "_meta": meta});
    let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    world.client.send(call).await;
}

/// The progress of a call until it returns, while its turn continues.
async fn progress_until_return(world: &mut MemoryServer) -> Vec<f64> {
    let mut progress = Vec::new();
    loop {
        let message = world.client.next().await;
        if message["method"] != "notifications/progress" {
            let status = &message["result"]["structuredContent"]["status"];
            assert_eq!(status, "running", "{message:#}");
            return progress;
        }
        progress.push(message["params"]["progress"].as_f64().unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn repeated_call_keeps_its_wait_under_each_name() {
    let (mut world, id) = with_turn(json!({})).await;
    progress_until_return(&mut world).await;
    for name in ["wait-ms", "wait_ms", "waitMs"] {
        let began = Instant::now();
        let call = json!({"prompt": "work", name: WAIT});
        repeat(&mut world, id, call, json!({})).await;
        progress_until_return(&mut world).await;
        assert_eq!(began.elapsed(), Duration::from_millis(WAIT.into()));
    }
    // The turn continues: an interrupt would be left unread.
    world.say("done").await;
    world.end_turn("completed").await;
    world.finish().await;
}

/// Codex has refused the prompt, and the host is killed before its client learns that.
#[tokio::test(start_paused = true)]
async fn repeated_call_without_a_turn_and_an_outcome_is_lost() {
    let mut world = MemoryServer::new(json!({})).await;
    let call = json!({"prompt": "work"});
    let params = json!({"name": "codex", "arguments": call});
    let id = world.request("tools/call", params).await;
    let start = world.codex.next_is("thread/start").await;
    let thread = json!({"thread": {"id": THREAD}});
    let opened = json!({"id": start["id"], "result": thread});
    world.codex.send(opened).await;
    let prompt = world.codex.next_is("turn/start").await;
    let error = json!({"code": -32000, "message": "not now"});
    let refused = json!({"id": prompt["id"], "error": error});
    world.codex.send(refused).await;
    assert_eq!(world.client.next().await["result"]["isError"], true);

    let began = Instant::now();
    repeat(&mut world, id, call, json!({})).await;
    let lost = world.client.next().await;
    let error = &lost["result"]["structuredContent"]["error"];
    assert_eq!(error["code"], "HOST_LOST", "{lost:#}");
    assert_eq!(began.elapsed(), Duration::ZERO);
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn progress_of_a_repeated_call_increases() {
    let meta = json!({"progressToken": 7});
    let (mut world, id) = with_turn(meta.clone()).await;
    let mut progress = progress_until_return(&mut world).await;
    assert!(!progress.is_empty());
    let call = json!({"prompt": "work", "wait-ms": WAIT});
    repeat(&mut world, id, call, meta).await;
    let again = progress_until_return(&mut world).await;
    assert!(!again.is_empty());
    progress.extend(again);
    let increases = progress.is_sorted_by(|one, next| one < next);
    assert!(increases, "{progress:?}");
    world.say("done").await;
    world.end_turn("completed").await;
    world.finish().await;
}
