//! Ring 2: the server in memory, with an app-server played by the test, in
//! simulated time.
//!
//! A test fails if it leaves a message to either side unread.

mod classic;
mod elicitation;
mod idle_sessions;
mod interrupts;
mod limits;
mod polling;
mod rejoined_call;
mod repeated_call;
mod sessions;
mod steering;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use codex_engine::in_memory::engine_over;
use codex_engine::{Engine, Launch, Options, ThreadTools};
use mcp_server::{Api, Decider, LineTransport, OwnThreadTools, Server, Timeouts};
use rmcp::ServiceExt;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const THREAD: &str = "0199a213-81c0-7800-8aa1-bbab2a035a53";

/// One end of a line-based connection.
struct Peer {
    name: &'static str,
    reader: BufReader<ReadHalf<DuplexStream>>,
    writer: WriteHalf<DuplexStream>,
}

impl Peer {
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

    /// Reads the next message, which must have this method.
    async fn next_is(&mut self, method: &str) -> Value {
        let message = self.next().await;
        assert_eq!(message["method"], method, "{}: {message:#}", self.name);
        message
    }

    /// Codex ends the commands of a thread and unloads it, as its session has ended.
    async fn unloads_thread(&mut self) {
        self.next_is("thread/backgroundTerminals/clean").await;
        self.next_is("thread/unsubscribe").await;
        for method in ["thread/archive", "thread/unarchive"] {
            let request = self.next_is(method).await;
            self.send(json!({"id": request["id"], "result": {}})).await;
        }
    }

    async fn assert_nothing_unread(&mut self) {
        let mut line = String::new();
        let read = tokio::time::timeout(Duration::from_secs(1), self.reader.read_line(&mut line));
        if let Ok(Ok(count)) = read.await {
            assert_eq!(count, 0, "{}: left unread: {line}", self.name);
        }
    }
}

/// A server between a client and a Codex, both played by the test.
struct MemoryServer {
    client: Peer,
    codex: Peer,
    engine: Arc<Engine>,
    next_id: i64,
    served: JoinHandle<()>,
}

impl MemoryServer {
    async fn new(capabilities: Value) -> Self {
        Self::with_api(Api::Classic, capabilities).await
    }

    async fn with_api(api: Api, capabilities: Value) -> Self {
        let mut world = Self::silent(api, Decider::Poller).await;
        world.initialize(capabilities).await;
        world
    }

    /// A server whose threads get these tools.
    async fn with_tools(tools: Arc<dyn ThreadTools>) -> Self {
        let mut world = Self::begin(Api::Classic, Decider::Poller, tools).await;
        world.initialize(json!({})).await;
        world
    }

    /// A server whose client has not sent `initialize` yet.
    async fn silent(api: Api, decider: Decider) -> Self {
        Self::begin(api, decider, Arc::new(OwnThreadTools::default())).await
    }

    async fn begin(api: Api, decider: Decider, tools: Arc<dyn ThreadTools>) -> Self {
        let timeouts = Timeouts {
            call: Duration::from_secs(300),
            approval: Duration::from_secs(60),
            stall: Duration::from_secs(300),
        };
        let (ours, codex) = tokio::io::duplex(1 << 20);
        let (reader, writer) = tokio::io::split(ours);
        let mut codex = Peer::new("codex", codex);
        let options = Options {
            launch: Launch {
                codex: None,
                line_limit: 1 << 20,
            },
            codex_home: "/nonexistent".into(),
            timeouts: timeouts.session(),
        };
        let introduced = tokio::spawn(engine_over(options, reader, writer));
        let hello = codex.next_is("initialize").await;
        let about = json!({"userAgent": "codex-mcp/0.169.0 (test)"});
        codex
            .send(json!({"id": hello["id"], "result": about}))
            .await;
        codex.next_is("initialized").await;
        let asked = codex.next_is("account/read").await;
        let account = json!({"account": null, "requiresOpenaiAuth": false});
        codex
            .send(json!({"id": asked["id"], "result": account}))
            .await;
        let engine = introduced.await.unwrap().unwrap();
        let engine = Arc::new(engine.with_tools(tools));
        engine.keep_tidy();

        let (ours, client) = tokio::io::duplex(1 << 20);
        let (reader, writer) = tokio::io::split(ours);
        let closing = CancellationToken::new();
        let transport = LineTransport::new(reader, writer, 1 << 20, closing.clone());
        let server = Server::new(Arc::clone(&engine), api, decider, timeouts, closing);
        let served = tokio::spawn(async move {
            server
                .serve(transport)
                .await
                .unwrap()
                .waiting()
                .await
                .unwrap();
        });
        Self {
            client: Peer::new("client", client),
            codex,
            engine,
            next_id: 1,
            served,
        }
    }

    async fn initialize(&mut self, capabilities: Value) {
        let params = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"},
        });
        self.request("initialize", params).await;
        self.client.next().await;
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.client.send(initialized).await;
    }

    async fn request(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.client.send(request).await;
        id
    }

    /// Calls `codex`; the played Codex accepts the prompt.
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

    /// Completes the turn and returns the client's next message.
    async fn complete_turn(&mut self) -> Value {
        self.say("done").await;
        self.end_turn("completed").await;
        self.client.next().await
    }

    async fn ask(&mut self) {
        self.ask_as(0).await;
    }

    async fn ask_as(&mut self, id: i64) {
        let params = json!({
            "threadId": THREAD, "turnId": "turn", "itemId": format!("c{id}"),
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
