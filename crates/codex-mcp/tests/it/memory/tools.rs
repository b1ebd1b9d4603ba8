//! Calls of our own tools at moments that real processes hardly meet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use codex_engine::{Reply, ThreadTools, ToolInvocation};
use codex_protocol::codex::DynamicTool;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{MemoryServer, THREAD};

const CHILD: &str = "0199a213-81c0-7800-8aa1-bbab2a035a54";

/// A tool that never answers, and counts its calls that were dropped.
#[derive(Default)]
struct SilentTool {
    called: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
    needs_approval: bool,
}

struct DropCounter(Arc<AtomicUsize>);

impl Drop for DropCounter {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl ThreadTools for SilentTool {
    fn describe(&self) -> Vec<DynamicTool> {
        Vec::new()
    }

    fn needs_approval(&self, _: &str) -> bool {
        self.needs_approval
    }

    fn call(&self, _: ToolInvocation) -> BoxFuture<'static, Reply> {
        self.called.fetch_add(1, Ordering::Relaxed);
        let call = DropCounter(Arc::clone(&self.dropped));
        Box::pin(async move {
            let _call = call;
            std::future::pending().await
        })
    }
}

async fn call(world: &mut MemoryServer, id: i64, params: Value) {
    let call = json!({ "id": id, "method": "item/tool/call", "params": params });
    world.codex.send(call).await;
}

fn of_thread(thread: &str) -> Value {
    json!({ "threadId": thread, "turnId": "turn", "callId": "c", "tool": "x", "arguments": {} })
}

/// Codex announces the sub-agent.
async fn announce_child(world: &mut MemoryServer) {
    let item = json!({"type": "collabAgentToolCall", "id": "i", "receiverThreadIds": [CHILD]});
    let params = json!({"turnId": "turn", "item": item});
    world.tell("item/completed", params).await;
}

/// Checks that the call with this ID is refused, with `why` in the text.
async fn assert_refused(world: &mut MemoryServer, id: i64, why: &str) {
    let answer = world.codex.next().await;
    assert_eq!(answer["id"], id, "{answer}");
    assert_eq!(answer["result"]["success"], false, "{answer}");
    let told = answer["result"]["contentItems"][0]["text"]
        .as_str()
        .unwrap();
    assert!(told.contains(why), "{told}");
}

#[tokio::test(start_paused = true)]
async fn call_that_nobody_can_answer_is_refused_at_once() {
    let tools = Arc::new(SilentTool::default());
    let mut world = MemoryServer::with_tools(tools.clone()).await;
    call(&mut world, 0, of_thread(THREAD)).await;
    assert_refused(&mut world, 0, "no session").await;

    world.call(json!({})).await;
    world.start_turn().await;
    call(&mut world, 1, of_thread("another")).await;
    assert_refused(&mut world, 1, "no session").await;
    call(&mut world, 2, json!({ "threadId": THREAD })).await;
    assert_refused(&mut world, 2, "missing field `tool`").await;
    world.complete_turn().await;
    call(&mut world, 3, of_thread(THREAD)).await;
    assert_refused(&mut world, 3, "the turn is over").await;
    assert_eq!(tools.called.load(Ordering::Relaxed), 0);
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn open_call_is_dropped_with_its_turn_and_not_answered() {
    let tools = Arc::new(SilentTool::default());
    let mut world = MemoryServer::with_tools(tools.clone()).await;
    world.call(json!({})).await;
    world.start_turn().await;
    for id in 0..2 {
        call(&mut world, id, of_thread(THREAD)).await;
    }
    let counts = || {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        (count(&tools.called), count(&tools.dropped))
    };
    while counts().0 < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(counts(), (2, 0));
    world.complete_turn().await;
    while counts().1 < 2 {
        tokio::task::yield_now().await;
    }
    world.finish().await;
}

/// The turn of the sub-agent goes on, and Codex waits for the answer to its call.
#[tokio::test(start_paused = true)]
async fn open_call_of_a_subagent_is_refused_when_the_turn_of_its_session_ends() {
    let tools = Arc::new(SilentTool::default());
    let mut world = MemoryServer::with_tools(tools.clone()).await;
    world.call(json!({})).await;
    world.start_turn().await;
    announce_child(&mut world).await;
    call(&mut world, 0, of_thread(CHILD)).await;
    while tools.called.load(Ordering::Relaxed) < 1 {
        tokio::task::yield_now().await;
    }
    world.complete_turn().await;
    assert_refused(&mut world, 0, "not known whether the call was executed").await;
    assert_eq!(tools.dropped.load(Ordering::Relaxed), 1);
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn unapproved_subagent_call_is_reported_as_not_executed() {
    let tools = Arc::new(SilentTool {
        needs_approval: true,
        ..SilentTool::default()
    });
    let mut world = MemoryServer::with_tools(tools.clone()).await;
    world.call(json!({})).await;
    world.start_turn().await;
    announce_child(&mut world).await;
    call(&mut world, 0, of_thread(CHILD)).await;
    // The client cannot be asked, so that its call ends with the question.
    let asked = world.client.next().await;
    let status = &asked["result"]["structuredContent"]["status"];
    assert_eq!(status, "waiting_approval", "{asked}");
    world.end_turn("completed").await;
    let why = "x was not called: the turn of the thread that started this agent has ended";
    assert_refused(&mut world, 0, why).await;
    assert_eq!(tools.called.load(Ordering::Relaxed), 0);
    world.finish().await;
}
