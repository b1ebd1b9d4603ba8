//! Ring 2: the front in memory, with an app-server played by the test, in
//! simulated time.
//!
//! Nothing that either side is sent may be left unread: a test that ends with
//! something unread fails.

use std::sync::Arc;
use std::time::Duration;

use codex_mcp::engine::in_memory::engine_over;
use codex_mcp::engine::{Launch, Options};
use codex_mcp::mcp::{Api, Decider, Front, LineTransport, Patience};
use rmcp::ServiceExt;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const THREAD: &str = "0199a213-81c0-7800-8aa1-bbab2a035a53";

/// One end of a line-based connection.
struct End {
    name: &'static str,
    reader: BufReader<ReadHalf<DuplexStream>>,
    writer: WriteHalf<DuplexStream>,
}

impl End {
    fn new(name: &'static str, stream: DuplexStream) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        Self {
            name,
            reader: BufReader::new(reader),
            writer,
        }
    }

    async fn send(&mut self, message: Value) {
        let line = format!("{message}\n");
        self.writer.write_all(line.as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        let mut line = String::new();
        self.reader.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{}: {error}: {line}", self.name))
    }

    /// What comes next has to be this method.
    async fn next_is(&mut self, method: &str) -> Value {
        let message = self.next().await;
        assert_eq!(message["method"], method, "{}: {message:#}", self.name);
        message
    }

    async fn assert_nothing_unread(&mut self) {
        let mut line = String::new();
        let read = tokio::time::timeout(Duration::from_secs(1), self.reader.read_line(&mut line));
        if let Ok(Ok(count)) = read.await {
            assert_eq!(count, 0, "{}: left unread: {line}", self.name);
        }
    }
}

/// A front between a client and a Codex, both played by the test.
struct World {
    client: End,
    codex: End,
    next_id: i64,
    served: JoinHandle<()>,
}

impl World {
    async fn new(capabilities: Value) -> Self {
        Self::with_api(Api::Classic, capabilities).await
    }

    async fn with_api(api: Api, capabilities: Value) -> Self {
        let patience = Patience {
            call: Duration::from_secs(300),
            approval: Duration::from_secs(60),
            stall: Duration::from_secs(300),
        };
        let (ours, codex) = tokio::io::duplex(1 << 20);
        let (reader, writer) = tokio::io::split(ours);
        let mut codex = End::new("codex", codex);
        let options = Options {
            launch: Launch {
                codex: None,
                line_limit: 1 << 20,
            },
            codex_home: "/nonexistent".into(),
            patience: patience.session(),
        };
        let introduced = tokio::spawn(engine_over(options, reader, writer));
        let hello = codex.next_is("initialize").await;
        let about = json!({"userAgent": "codex-mcp/0.169.0 (test)"});
        codex
            .send(json!({"id": hello["id"], "result": about}))
            .await;
        codex.next_is("initialized").await;
        let engine = Arc::new(introduced.await.unwrap().unwrap());
        engine.keep_tidy();

        let (ours, client) = tokio::io::duplex(1 << 20);
        let (reader, writer) = tokio::io::split(ours);
        let closing = CancellationToken::new();
        let transport = LineTransport::new(reader, writer, 1 << 20, closing.clone());
        let front = Front::new(engine, api, Decider::Poller, patience, closing);
        let served = tokio::spawn(async move {
            front
                .serve(transport)
                .await
                .unwrap()
                .waiting()
                .await
                .unwrap();
        });
        let mut world = Self {
            client: End::new("client", client),
            codex,
            next_id: 1,
            served,
        };
        let params = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"},
        });
        world.request("initialize", params).await;
        world.client.next().await;
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        world.client.send(initialized).await;
        world
    }

    async fn request(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.client.send(request).await;
        id
    }

    /// Calls `codex`; Codex takes the prompt.
    async fn call(&mut self, meta: Value) -> i64 {
        self.call_with(json!({"prompt": "work"}), meta).await
    }

    async fn call_with(&mut self, arguments: Value, meta: Value) -> i64 {
        let params = json!({"name": "codex", "arguments": arguments, "_meta": meta});
        let id = self.request("tools/call", params).await;
        let start = self.codex.next_is("thread/start").await;
        let thread = json!({"thread": {"id": THREAD}});
        self.codex
            .send(json!({"id": start["id"], "result": thread}))
            .await;
        let prompt = self.codex.next_is("turn/start").await;
        assert_eq!(prompt["params"]["input"][0]["text"], "work");
        let turn = json!({"turn": turn("inProgress")});
        self.codex
            .send(json!({"id": prompt["id"], "result": turn}))
            .await;
        id
    }

    async fn tell(&mut self, method: &str, mut params: Value) {
        params["threadId"] = THREAD.into();
        self.codex
            .send(json!({"method": method, "params": params}))
            .await;
    }

    async fn start_turn(&mut self) {
        self.tell("turn/started", json!({"turn": turn("inProgress")}))
            .await;
    }

    async fn end_turn(&mut self, status: &str) {
        self.tell("turn/completed", json!({"turn": turn(status)}))
            .await;
    }

    async fn say(&mut self, text: &str) {
        let item = json!({"type": "agentMessage", "id": "m", "text": text});
        self.tell("item/completed", json!({"turnId": "turn", "item": item}))
            .await;
    }

    /// Ends the turn as it should end and returns what the client gets.
    async fn done(&mut self) -> Value {
        self.say("done").await;
        self.end_turn("completed").await;
        self.client.next().await
    }

    async fn ask(&mut self) {
        self.ask_as(0).await;
    }

    async fn ask_as(&mut self, id: i64) {
        let params = json!({
            "threadId": THREAD, "turnId": "turn", "itemId": "c",
            "command": "touch x", "cwd": "/repo",
        });
        let method = "item/commandExecution/requestApproval";
        self.codex
            .send(json!({"id": id, "method": method, "params": params}))
            .await;
    }

    async fn finish(mut self) {
        self.client.assert_nothing_unread().await;
        self.codex.assert_nothing_unread().await;
        self.client.writer.shutdown().await.unwrap();
        self.served.await.unwrap();
    }
}

fn turn(status: &str) -> Value {
    json!({"id": "turn", "items": [], "status": status, "error": null})
}

fn error_code(response: &Value) -> &str {
    let error = &response["result"]["structuredContent"]["error"];
    error["code"]
        .as_str()
        .unwrap_or_else(|| panic!("{response:#}"))
}

#[tokio::test(start_paused = true)]
async fn a_silent_turn_is_told_of_every_ten_seconds() {
    let mut world = World::new(json!({})).await;
    world.call(json!({"progressToken": 7})).await;
    world.start_turn().await;
    let began = Instant::now();
    for n in 1..=5_u32 {
        let progress = world.client.next_is("notifications/progress").await;
        assert_eq!(progress["params"]["progress"], f64::from(n));
        assert_eq!(began.elapsed().as_secs(), u64::from(n) * 10);
    }
    let response = world.done().await;
    assert_eq!(response["result"]["structuredContent"]["content"], "done");
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_token_nothing_is_told() {
    let mut world = World::new(json!({})).await;
    world.call(json!({})).await;
    world.start_turn().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let response = world.done().await;
    assert_eq!(response["result"]["structuredContent"]["content"], "done");
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_deadline_even_if_codex_does_not_heed_the_interrupt() {
    let mut world = World::new(json!({})).await;
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

#[tokio::test(start_paused = true)]
async fn an_interrupt_waits_until_the_turn_has_started() {
    let mut world = World::new(json!({})).await;
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
async fn a_question_nobody_can_answer_comes_back_and_is_declined_after_a_minute() {
    let mut world = World::new(json!({})).await;
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
async fn a_question_the_client_sits_on_is_declined_and_withdrawn() {
    let mut world = World::new(json!({"elicitation": {}})).await;
    world.call(json!({})).await;
    world.start_turn().await;
    world.ask().await;
    let question = world.client.next_is("elicitation/create").await;
    let answer = world.codex.next().await;
    assert_eq!(answer["result"]["decision"], "decline");
    let withdrawn = world.client.next_is("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    // Too late: Codex must not hear of it.
    let late = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}});
    world.client.send(late).await;
    world.codex.assert_nothing_unread().await;
    let response = world.done().await;
    assert_eq!(response["result"]["structuredContent"]["content"], "done");
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_input_ends_a_call_with_an_answer() {
    let mut world = World::new(json!({})).await;
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
async fn a_question_that_timed_out_does_not_spoil_the_next_one() {
    let mut world = World::new(json!({"elicitation": {}})).await;
    world.call(json!({})).await;
    world.start_turn().await;
    world.ask_as(0).await;
    let first = world.client.next_is("elicitation/create").await;
    world.codex.next().await;
    world.client.next_is("notifications/cancelled").await;
    // Some clients answer what was withdrawn, with an error.
    let error = json!({"code": -32800, "message": "cancelled"});
    let late = json!({"jsonrpc": "2.0", "id": first["id"], "error": error});
    world.client.send(late).await;
    world.ask_as(1).await;
    let second = world.client.next_is("elicitation/create").await;
    let answer = json!({"jsonrpc": "2.0", "id": second["id"], "result": {"action": "accept"}});
    world.client.send(answer).await;
    let answer = world.codex.next().await;
    assert_eq!(answer, json!({"id": 1, "result": {"decision": "accept"}}));
    world.done().await;
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_call_came_back_early_does_not_run_for_ever() {
    let mut world = World::new(json!({})).await;
    let began = Instant::now();
    world.call(json!({})).await;
    world.start_turn().await;
    world.ask().await;
    world.client.next().await;
    assert_eq!(world.codex.next().await["result"]["decision"], "decline");
    world.codex.next_is("turn/interrupt").await;
    assert_eq!(began.elapsed().as_secs(), 4 * 60 * 60);
    world.end_turn("interrupted").await;
    world
        .codex
        .next_is("thread/backgroundTerminals/clean")
        .await;
    world.codex.next_is("thread/unsubscribe").await;
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_thread_whose_turn_cannot_be_interrupted_can_be_used_again() {
    let mut world = World::new(json!({})).await;
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
    // The old turn ends at last, which is nobody's business any more.
    world.end_turn("interrupted").await;
    let ended = json!({"turn": {"id": "next", "items": [], "status": "completed"}});
    world.tell("turn/completed", ended).await;
    let response = world.client.next().await;
    assert_eq!(response["result"]["structuredContent"]["content"], "back");
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_thread_nobody_uses_is_let_go_and_taken_up_with_its_settings() {
    let mut world = World::new(json!({})).await;
    let arguments = json!({"prompt": "work", "sandbox": "read-only"});
    world.call_with(arguments, json!({})).await;
    world.start_turn().await;
    world.done().await;
    tokio::time::sleep(Duration::from_secs(29 * 60)).await;
    world.codex.assert_nothing_unread().await;
    tokio::time::sleep(Duration::from_secs(3 * 60)).await;
    world.codex.next_is("thread/unsubscribe").await;

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
    let response = world.done().await;
    assert_eq!(response["result"]["structuredContent"]["content"], "done");
    world.finish().await;
}
