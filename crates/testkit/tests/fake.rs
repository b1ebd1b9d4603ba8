//! The fake Codex does what its plan says.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails"
)]

use std::os::fd::AsRawFd;
use std::process::ExitStatus;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::fake::{self, Action, Event, FakeCodex, HELLO, Plan, Session, Stdio, TurnEnd};
use testkit::process::{Process, signal, wait_until_gone};
use testkit::wait::{wait_for, within};
use testkit::{AppServer, Home, Launch, Signal};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

const LIMIT: Duration = Duration::from_secs(30);

/// A fake Codex and a raw end of its stdin and stdout.
struct Raw {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    fake: FakeCodex,
    home: Home,
}

impl Raw {
    fn start(plan: &Plan) -> Self {
        Self::start_in(Home::new(""), plan)
    }

    #[expect(clippy::disallowed_methods, reason = "a test starts its own processes")]
    fn start_in(home: Home, plan: &Plan) -> Self {
        let fake = FakeCodex::new(&home, plan);
        let mut child = Command::new(env!("CARGO_BIN_EXE_fake-codex"))
            .arg("app-server")
            .envs(home.env())
            .envs(fake.env())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            fake,
            home,
        }
    }

    fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    async fn send(&mut self, message: Value) {
        let line = format!("{message}\n");
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).await.unwrap();
    }

    async fn line(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        let read = self.stdout.read_until(b'\n', &mut line);
        within("a line", read).await.unwrap();
        line
    }

    async fn message(&mut self) -> Value {
        serde_json::from_slice(&self.line().await).unwrap()
    }

    async fn message_of(&mut self, method: &str) -> Value {
        loop {
            let message = self.message().await;
            if message["method"] == method {
                return message;
            }
        }
    }

    /// Sends `thread/start` and `turn/start`, and returns the thread's id.
    async fn start_turn(&mut self) -> String {
        self.send(json!({"id": 1, "method": "thread/start", "params": {}}))
            .await;
        let thread = self.message().await["result"]["thread"]["id"].take();
        let params = json!({"threadId": thread, "input": [{"type": "text", "text": "hi"}]});
        self.send(json!({"id": 2, "method": "turn/start", "params": params}))
            .await;
        assert_eq!(self.message().await["method"], "thread/started");
        thread.as_str().unwrap().to_owned()
    }

    /// Closes stdin and returns the rest of stdout and the exit status.
    async fn end(mut self) -> (Vec<u8>, ExitStatus) {
        self.stdin = None;
        self.exited().await
    }

    async fn exited(&mut self) -> (Vec<u8>, ExitStatus) {
        let mut rest = Vec::new();
        let read = self.stdout.read_to_end(&mut rest);
        within("the end of stdout", read).await.unwrap();
        let status = within("the end of the fake", self.child.wait()).await;
        (rest, status.unwrap())
    }
}

fn app_server(home: &Home, fake: &FakeCodex) -> AppServer {
    let launch = Launch::new(env!("CARGO_BIN_EXE_fake-codex"))
        .args(["app-server"])
        .envs(home.env())
        .envs(fake.env());
    AppServer::start(&launch, |_| Some(json!({"decision": "decline"})))
}

#[tokio::test]
async fn fake_reports_its_version() {
    let home = Home::new("");
    for (variable, expected) in [
        (None, "codex-cli 0.169.0\n"),
        (Some("0.104.0"), "codex-cli 0.104.0\n"),
    ] {
        #[expect(clippy::disallowed_methods, reason = "a test starts its own processes")]
        let output = Command::new(env!("CARGO_BIN_EXE_fake-codex"))
            .arg("--version")
            .envs(home.env())
            .envs(variable.map(|version| (fake::VERSION, version)))
            .output()
            .await
            .unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    }
}

#[tokio::test]
async fn fake_without_a_plan_behaves() {
    let home = Home::new("");
    let fake = FakeCodex::new(&home, &Plan::new());
    let server = app_server(&home, &fake);

    let initialized = server.initialize().await;
    assert_eq!(
        initialized["userAgent"],
        "testkit/0.169.0 (Linux; x86_64) unknown"
    );
    assert_eq!(server.hello_turn("hi").await, HELLO);
    // Thread started; turn active, started, prompt twice, message, two deltas,
    // message, usage, idle, completed.
    assert_eq!(server.notifications_seen(), 12);
    let turn = &fake.received()[3];
    assert_eq!(turn["method"], "turn/start");
    assert_eq!(turn["params"]["input"][0]["text"], "hi");
    let unknown = server.request("no/such", json!({})).await.unwrap_err();
    assert_eq!(unknown["code"], -32600);
}

#[tokio::test]
async fn turns_run_side_by_side_and_can_be_interrupted() {
    let home = Home::new("");
    let plan = Plan::new()
        .on("turn/start", [Action::Answer, Action::StartTurn])
        .nth(1);
    let server = app_server(&home, &FakeCodex::new(&home, &plan));
    let stuck = server.start_thread(json!({})).await;
    let mut seen = server.notifications(&stuck);
    let input = json!({"threadId": stuck, "input": []});

    let first = server.call("turn/start", input.clone()).await;
    let steered = server.call("turn/start", input.clone()).await;
    assert_eq!(first["turn"]["id"], steered["turn"]["id"]);
    assert_eq!(server.hello_turn("meanwhile").await, HELLO);
    assert_eq!(
        server.call("turn/interrupt", input.clone()).await,
        json!({})
    );
    let ended = loop {
        let notification = seen.recv().await.unwrap();
        if notification["method"] == "turn/completed" {
            break notification["params"]["turn"].clone();
        }
    };
    assert_eq!(
        (&ended["id"], &ended["status"]),
        (&first["turn"]["id"], &json!("interrupted"))
    );
    let error = server.request("turn/interrupt", input).await.unwrap_err();
    assert_eq!(error["message"], "no active turn to interrupt");
}

#[tokio::test]
async fn fake_asks_and_logs_the_answer() {
    let home = Home::new("");
    let plan = Plan::new().on(
        "turn/start",
        [
            Action::Answer,
            Action::StartTurn,
            Action::ask_approval("rm -rf /"),
            Action::Ask {
                method: "no/such/request".to_owned(),
                params: json!({}),
            },
            Action::say("done"),
            Action::EndTurn(TurnEnd::Completed),
        ],
    );
    let fake = FakeCodex::new(&home, &plan);
    let server = app_server(&home, &fake);

    assert_eq!(server.hello_turn("hi").await, "done");
    let answers: Vec<Value> = fake
        .received()
        .into_iter()
        .filter(|message| message.get("method").is_none())
        .collect();
    assert_eq!(
        answers,
        [
            json!({"id": 0, "result": {"decision": "decline"}}),
            json!({"id": 1, "result": {"decision": "decline"}}),
        ]
    );
}

#[tokio::test]
#[should_panic(expected = "no answer to thread/start (it closed stdout)\n--- stderr\na hint\n")]
async fn dying_server_fails_waiting_requests() {
    let home = Home::new("");
    let plan = Plan::new().on(
        "thread/start",
        [
            Action::WriteStderr {
                text: "a hint".to_owned(),
            },
            Action::Exit { code: 1 },
        ],
    );
    let server = app_server(&home, &FakeCodex::new(&home, &plan));
    server.initialize().await;
    server.start_thread(json!({})).await;
}

#[tokio::test]
async fn approval_names_thread_turn_and_item() {
    let plan = Plan::new().on("turn/start", [Action::Answer, Action::ask_approval("true")]);
    let mut raw = Raw::start(&plan);
    let thread = raw.start_turn().await;
    let turn = raw.message().await["result"]["turn"]["id"].take();

    let asked = raw.message().await;
    assert_eq!(asked["method"], "item/commandExecution/requestApproval");
    assert_eq!(asked["id"], 0);
    assert_eq!(asked["params"]["threadId"], thread.as_str());
    assert_eq!(asked["params"]["turnId"], turn);
    assert_eq!(asked["params"]["command"], "true");
    assert!(asked["params"]["itemId"].is_string());
}

#[tokio::test]
async fn fake_answers_wrongly_as_planned() {
    let plan = Plan::new()
        .on("initialize", [Action::AnswerTwice, Action::AnswerUnknownId])
        .on("thread/start", [Action::overloaded()])
        .on("thread/list", [Action::Hang])
        .on(
            "model/list",
            [
                Action::garbage(),
                Action::HalfAnswer,
                Action::Exit { code: 7 },
            ],
        );
    let mut raw = Raw::start(&plan);

    raw.send(json!({"id": 1, "method": "initialize", "params": {}}))
        .await;
    assert_eq!(raw.message().await, raw.message().await);
    assert_eq!(raw.message().await["id"], 987_654_321);
    raw.send(json!({"id": 2, "method": "thread/start", "params": {}}))
        .await;
    assert_eq!(raw.message().await["error"]["code"], -32001);
    raw.send(json!({"id": 3, "method": "thread/list", "params": {}}))
        .await;
    raw.send(json!({"id": 4, "method": "model/list", "params": {}}))
        .await;
    assert!(String::from_utf8(raw.line().await).is_err());
    let (rest, status) = raw.exited().await;
    let whole = json!({"id": 4, "result": {"data": [], "nextCursor": null}});
    assert_eq!(rest, format!("{whole}\n").as_bytes()[..rest.len()]);
    assert!(!rest.is_empty() && !rest.ends_with(b"\n"));
    assert_eq!(status.code(), Some(7));
}

#[tokio::test]
async fn fake_floods_and_writes_giant_lines() {
    let plan = Plan::new().on(
        "turn/start",
        [
            Action::Flood {
                notifications: 10_000,
            },
            Action::GiantLine { bytes: 3_000_000 },
            Action::Answer,
        ],
    );
    let mut raw = Raw::start(&plan);
    raw.start_turn().await;

    for number in 0..10_000 {
        let delta = raw.message().await;
        assert_eq!(delta["method"], "item/agentMessage/delta");
        assert_eq!(delta["params"]["delta"], format!("{number} "));
    }
    let giant = raw.line().await;
    assert_eq!(giant.len(), 3_000_000);
    let giant: Value = serde_json::from_slice(&giant).unwrap();
    assert_eq!(giant["method"], "item/agentMessage/delta");
    assert_eq!(raw.message().await["id"], 2);
    let (rest, status) = raw.end().await;
    assert!(rest.is_empty() && status.success());
}

#[tokio::test]
async fn fake_ignores_eof_and_sigterm() {
    let plan = Plan::new().at_start([Action::IgnoreSigterm, Action::IgnoreEof]);
    let mut raw = Raw::start(&plan);
    raw.send(json!({"id": 1, "method": "initialize", "params": {}}))
        .await;
    raw.message().await;

    raw.stdin = None;
    raw.fake
        .wait_for("the end", |entry| entry.event == Event::Eof)
        .await;
    signal(raw.pid(), Signal::SIGTERM);
    raw.fake
        .wait_for("a SIGTERM", |entry| entry.event == Event::Sigterm)
        .await;
    assert!(!Process::read(raw.pid()).unwrap().is_zombie());
    signal(raw.pid(), Signal::SIGKILL);
    let (_, status) = raw.exited().await;
    assert_eq!(status.code(), None);
}

#[tokio::test]
async fn fake_kills_itself_once_and_behaves_afterwards() {
    let plan = Plan::new()
        .on(
            "turn/start",
            [Action::Kill {
                signal: Signal::SIGKILL as i32,
            }],
        )
        .in_launch(1);
    let mut first = Raw::start(&plan);
    first.start_turn().await;
    let (rest, status) = first.exited().await;
    assert_eq!((rest, status.code()), (vec![], None));

    let mut second = Raw::start_in(first.home, &plan);
    second.start_turn().await;
    let completed = second.message_of("turn/completed").await;
    assert_eq!(completed["params"]["turn"]["status"], "completed");
}

#[tokio::test]
async fn fake_leaves_processes_behind() {
    let spawn = |session, stdio| Action::SpawnSleep {
        seconds: 600,
        session,
        stdio,
    };
    let plan = Plan::new().at_start([
        spawn(Session::Own, Stdio::Inherited),
        spawn(Session::Shared, Stdio::Null),
        Action::Exit { code: 0 },
    ]);
    let mut raw = Raw::start(&plan);
    let status = within("the end of the fake", raw.child.wait()).await;
    assert!(status.unwrap().success());

    // One that has just begun shows its environment a moment later.
    let left: Vec<u32> = wait_for("both processes", async || {
        let processes = raw.home.processes();
        let pids = processes.iter().map(|process| process.pid).collect();
        (processes.len() == 2).then_some(pids)
    })
    .await;
    let mut spawned: Vec<u32> = raw
        .fake
        .log()
        .iter()
        .filter_map(|entry| match entry.event {
            Event::Spawned(pid) => Some(pid),
            _ => None,
        })
        .collect();
    let inheriting = spawned[0];
    spawned.sort_unstable();
    assert_eq!(
        {
            let mut left = left.clone();
            left.sort_unstable();
            left
        },
        spawned
    );

    // The one with the inherited stdout keeps it open.
    let file = |process: &str, number: i32| {
        std::fs::read_link(format!("/proc/{process}/fd/{number}")).unwrap()
    };
    let ours = file("self", raw.stdout.get_ref().as_raw_fd());
    assert_eq!(file(&inheriting.to_string(), 1), ours);
    drop(raw);
    assert_eq!(wait_until_gone(&left, LIMIT).await, []);
}

#[tokio::test]
async fn mcp_server_exists_up_to_0_153() {
    let home = Home::new("");
    let fake = FakeCodex::new(&home, &Plan::new());
    let launch = Launch::new(env!("CARGO_BIN_EXE_fake-codex"))
        .args(["mcp-server"])
        .envs(home.env())
        .envs(fake.env());

    let mut gone = testkit::McpClient::start(&launch);
    assert_eq!(gone.exited().await.code(), Some(1));
    assert_eq!(gone.stderr(), "Error: stdin is not a terminal\n");

    let mut client = testkit::McpClient::start(&launch.env(fake::VERSION, "0.153.4"));
    let server = client.initialize("2025-06-18", json!({})).await;
    assert_eq!(server["serverInfo"]["version"], "0.153.4");
    client.ignore("codex/event");
    let first = client.call_tool("codex", json!({"prompt": "hi"})).await;
    assert_eq!(first["content"][0]["text"], HELLO);
    let thread = &first["structuredContent"]["threadId"];
    let reply = json!({"prompt": "again", "threadId": thread});
    let second = client.call_tool("codex-reply", reply).await;
    assert_eq!(
        second["structuredContent"],
        json!({"threadId": thread, "content": HELLO})
    );
    let unanswered = client.request("resources/list", json!({}));
    client.abandon(&unanswered);
    assert!(client.finish().await.success());
}

#[tokio::test]
async fn mcp_server_asks_and_heeds_cancellations() {
    let home = Home::new("");
    let ask = [Action::StartTurn, Action::elicit_approval("touch x")];
    let plan = Plan::new().on("tools/call", ask).nth(1);
    let fake = FakeCodex::new(&home, &plan);
    let launch = Launch::new(env!("CARGO_BIN_EXE_fake-codex"))
        .args(["mcp-server"])
        .envs(home.env())
        .envs(fake.env())
        .env(fake::VERSION, "0.153.4");
    let mut client = testkit::McpClient::start(&launch);
    client.initialize("2025-06-18", json!({})).await;

    let call = client.request_tool("codex", json!({"prompt": "hi"}));
    let asked = client.server_request("elicitation/create").await;
    let params = &asked["params"];
    assert_eq!(params["codex_mcp_tool_call_id"], call.to_string());
    let thread = params["threadId"].clone();
    client.cancel(&call, "changed my mind");
    let aborted = client
        .wait_for("the end of the turn", |message| {
            message["params"]["msg"]["type"] == "turn_aborted"
        })
        .await;
    assert_eq!(aborted["params"]["_meta"]["requestId"], call);

    client.ignore("codex/event");
    let reply = json!({"prompt": "again", "threadId": thread});
    let next = client.call_tool("codex-reply", reply).await;
    assert_eq!(next["structuredContent"]["threadId"], thread);
    assert_eq!(next["structuredContent"]["content"], HELLO);
    assert!(client.finish().await.success());
}
