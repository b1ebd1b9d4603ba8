//! The set-up that these tests share: `serve` with the fake Codex, in a home of its
//! own.

use std::process::ExitStatus;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::fake::{Action, Entry, Event, FakeCodex, Plan, TurnEnd, fake_codex_path};
use testkit::process::{Process, wait_until_gone};
use testkit::{Home, Launch, McpClient, Signal};

/// How long the processes of a server that has ended may take to be gone. The specified limit is
/// 2 s; the rest is a margin for a busy machine.
const GONE_WITHIN: Duration = Duration::from_secs(6);

/// The newest version of MCP with a handshake.
pub(super) const HANDSHAKE: &str = "2025-11-25";

/// A `codex-mcp serve`, its client and its Codex.
pub(super) struct Serve {
    pub(super) client: McpClient,
    pub(super) fake: FakeCodex,
    pub(super) home: Home,
    /// A directory that must live as long as the server.
    kept: Option<TempDir>,
}

impl Serve {
    /// Starts a server. Nothing is sent yet.
    pub(super) fn start(plan: &Plan) -> Self {
        Self::start_with(plan, |launch| launch)
    }

    /// Starts a server with other arguments or variables.
    pub(super) fn start_with(plan: &Plan, adjust: impl FnOnce(Launch) -> Launch) -> Self {
        let home = Home::new("");
        let fake = FakeCodex::new(&home, plan);
        let launch = home
            .launch(env!("CARGO_BIN_EXE_codex-mcp"))
            .args(["serve"])
            .envs(fake.env())
            .env("CODEX_MCP_CODEX_BIN", fake_codex_path());
        Self {
            client: McpClient::start(&adjust(launch)),
            fake,
            home,
            kept: None,
        }
    }

    /// Keeps a directory for as long as the server is there.
    pub(super) fn keep(&mut self, directory: TempDir) {
        self.kept = Some(directory);
    }

    /// A server whose client can't be asked anything.
    pub(super) async fn plain(plan: &Plan) -> Self {
        let mut serve = Self::start(plan);
        serve.client.initialize(HANDSHAKE, json!({})).await;
        serve
    }

    /// A server whose client can be asked, with other arguments.
    pub(super) async fn eliciting(plan: &Plan, args: &[&str]) -> Self {
        let mut serve = Self::start_with(plan, |launch| launch.args(args));
        let capabilities = json!({"elicitation": {}});
        serve.client.initialize(HANDSHAKE, capabilities).await;
        serve
    }

    /// A server whose client can't be asked anything, with other arguments.
    pub(super) async fn plain_with(plan: &Plan, args: &[&str]) -> Self {
        let mut serve = Self::start_with(plan, |launch| launch.args(args));
        serve.client.initialize(HANDSHAKE, json!({})).await;
        serve
    }

    /// Sends a `codex` call and returns its id.
    pub(super) fn prompt(&mut self) -> Value {
        self.client.request_tool("codex", json!({"prompt": "hi"}))
    }

    /// Makes a `codex` call and waits for its result.
    pub(super) async fn codex(&mut self) -> Value {
        let id = self.prompt();
        self.client.result(&id).await
    }

    /// Makes a `codex-reply` call and waits for its result.
    pub(super) async fn reply(&mut self, thread: &Value) -> Value {
        let arguments = json!({"prompt": "go on", "threadId": thread});
        self.client.call_tool("codex-reply", arguments).await
    }

    /// Waits until the server has taken in all that was sent before.
    pub(super) async fn settled(&mut self) {
        self.client.call("ping", Value::Null).await;
    }

    /// Ends the input and checks the rules of the server.
    pub(super) async fn finish(mut self) {
        self.client.close_stdin();
        let status = self.client.exited().await;
        assert!(status.success(), "{status}: {}", self.client.stderr());
        self.gone(status).await;
    }

    /// Sends a signal that ends the server as the end of its input does.
    pub(super) async fn finish_by(mut self, signal: Signal) {
        self.client.signal(signal);
        let status = self.client.exited().await;
        assert!(status.success(), "{status}: {}", self.client.stderr());
        self.gone(status).await;
    }

    /// Kills the server. Open requests stay without a response.
    pub(super) async fn kill(mut self, open: &[Value]) {
        self.client.signal(Signal::SIGKILL);
        let status = self.client.exited().await;
        for id in open {
            self.client.abandon(id);
        }
        self.gone(status).await;
    }

    /// Checks the exit and the remains of a server.
    pub(super) async fn gone(self, status: ExitStatus) {
        self.no_process_left().await;
        let stderr = self.client.stderr();
        assert!(!stderr.contains("panicked"), "{stderr}");
        assert_eq!(self.client.finish().await, status);
    }

    async fn no_process_left(&self) {
        let pids: Vec<u32> = self.home.processes().iter().map(|one| one.pid).collect();
        assert_eq!(wait_until_gone(&pids, GONE_WITHIN).await, []);
        assert_eq!(self.home.processes(), []);
    }

    /// Kills the Codex that was started last.
    pub(super) fn kill_codex(&self, signal: Signal) {
        testkit::process::signal(*self.fake.started().last().unwrap(), signal);
    }

    /// The answers to Codex's questions so far, oldest first.
    pub(super) fn answers(&self) -> Vec<Value> {
        let answered = |message: &Value| message.get("method").is_none();
        self.fake.received().into_iter().filter(answered).collect()
    }

    /// The methods of the requests that Codex got so far, oldest first.
    pub(super) fn methods(&self) -> Vec<String> {
        self.fake
            .received()
            .iter()
            .filter_map(|message| Some(message["method"].as_str()?.to_owned()))
            .collect()
    }
}

/// A question as the client gets it.
pub(super) async fn elicitation(serve: &mut Serve) -> Value {
    serve.client.server_request("elicitation/create").await
}

/// Whether an entry of the fake's log is an answer to a question of its own.
pub(super) fn is_answer(entry: &Entry) -> bool {
    matches!(&entry.event, Event::Received(message) if message.get("method").is_none())
}

/// The processes among these that still run.
pub(super) async fn left_of(pids: &[u32]) -> Vec<Process> {
    wait_until_gone(pids, GONE_WITHIN).await
}

/// The code of a tool's error.
pub(super) fn code(result: &Value) -> &str {
    assert_eq!(result["isError"], true, "{result:#}");
    let code = &result["structuredContent"]["error"]["code"];
    code.as_str().unwrap()
}

/// The message of a tool's error.
pub(super) fn message(result: &Value) -> &str {
    let message = &result["structuredContent"]["error"]["message"];
    message.as_str().unwrap()
}

/// The final message of a turn that completed.
pub(super) fn completed(result: &Value) -> &str {
    let structured = &result["structuredContent"];
    assert_eq!(structured["status"], "completed", "{result:#}");
    structured["content"].as_str().unwrap()
}

/// The thread that a result names.
pub(super) fn thread(result: &Value) -> Value {
    let thread = &result["structuredContent"]["threadId"];
    assert!(thread.is_string(), "{result:#}");
    thread.clone()
}

/// A turn with these actions between its start and its end.
pub(super) fn turn(actions: impl IntoIterator<Item = Action>) -> Vec<Action> {
    [Action::Answer, Action::StartTurn]
        .into_iter()
        .chain(actions)
        .chain([Action::say("done"), Action::EndTurn(TurnEnd::Completed)])
        .collect()
}

/// A plan whose turns have these actions between start and end.
pub(super) fn turns(actions: impl IntoIterator<Item = Action>) -> Plan {
    Plan::new().on("turn/start", turn(actions))
}

/// A plan whose turns hang after this message.
pub(super) fn stuck(said: &str) -> Plan {
    Plan::new().on(
        "turn/start",
        [Action::Answer, Action::StartTurn, Action::say(said)],
    )
}
