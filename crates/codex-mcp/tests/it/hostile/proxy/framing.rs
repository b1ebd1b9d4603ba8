//! Byte-exact messages, and clients that frame them with headers.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::Home;
use testkit::fake::{Action, FakeCodex, HELLO, Plan, VERSION, fake_codex_path};
use testkit::process::wait_until_gone;
use testkit::wait::within;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::{LAST, calls, write};

const LIMIT: Duration = Duration::from_secs(30);

/// A server, and the bytes that go in and out.
struct Raw {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    fake: FakeCodex,
    home: Home,
}

impl Raw {
    fn start(plan: &Plan) -> Self {
        let home = Home::new("");
        let fake = FakeCodex::new(&home, plan);
        let mut child = Command::from(home.command(env!("CARGO_BIN_EXE_codex-mcp")))
            .args(["serve", "--backend", "mcp-server"])
            .envs(fake.env())
            .env("CODEX_MCP_CODEX_BIN", fake_codex_path())
            .env(VERSION, LAST)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            fake,
            home,
        }
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stdin.write_all(bytes).await.unwrap();
    }

    /// Sends a message as a line.
    async fn line(&mut self, message: &Value) {
        self.send(format!("{message}\n").as_bytes()).await;
    }

    /// Sends a message with a header.
    async fn framed(&mut self, body: &str) {
        let header = format!("Content-Length: {}\r\n\r\n", body.len());
        self.send([header.as_bytes(), body.as_bytes()].concat().as_slice())
            .await;
    }

    async fn next_line(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        let read = self.stdout.read_until(b'\n', &mut line);
        within("a line", read).await.unwrap();
        line
    }

    /// The next line that is the answer to this.
    async fn answer(&mut self, id: &Value) -> Vec<u8> {
        loop {
            let line = self.next_line().await;
            let message: Value = serde_json::from_slice(&line).unwrap();
            if message["id"] == *id {
                return line;
            }
        }
    }

    /// The next message, which must have a header, with nothing before it.
    async fn next_framed(&mut self) -> Value {
        let header = String::from_utf8(self.next_line().await).unwrap();
        let length = header.strip_prefix("Content-Length: ").unwrap().trim();
        assert_eq!(self.next_line().await, b"\r\n");
        let mut body = vec![0; length.parse().unwrap()];
        let read = self.stdout.read_exact(&mut body);
        within("the rest of a message", read).await.unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    async fn framed_answer(&mut self, id: &Value) -> Value {
        loop {
            let message = self.next_framed().await;
            if message["id"] == *id && message.get("method").is_none() {
                return message;
            }
        }
    }

    async fn finish(mut self) {
        drop(self.stdin);
        let mut rest = Vec::new();
        let read = self.stdout.read_to_end(&mut rest);
        within("the end of stdout", read).await.unwrap();
        let status = within("the end of the server", self.child.wait())
            .await
            .unwrap();
        assert!(status.success(), "{status}");
        // A guard whose program was just ended may still be ending itself.
        let left: Vec<u32> = self.home.processes().iter().map(|it| it.pid).collect();
        assert_eq!(wait_until_gone(&left, LIMIT).await, []);
    }
}

fn prompt(id: &Value) -> Value {
    json!({
        "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": {"name": "codex", "arguments": {"prompt": "hi"}},
    })
}

fn ping(id: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "ping"})
}

#[tokio::test]
async fn answer_passes_byte_for_byte() {
    let answer = concat!(
        r#"{"result" : {"z":1.0,"a":"\u00e9\/\ud83d\ude00","b":1e3, "n":12345678901234567890,"#,
        r#""structuredContent":{"threadId":"t","content":""},"isError":false,"#,
        r#""x":1,"x":2},"jsonrpc":"2.0",  "id":"a" }"#,
        "\n"
    );
    let plan = Plan::new().on("tools/call", [write(answer.as_bytes())]);
    let mut raw = Raw::start(&plan);
    raw.line(&prompt(&json!("a"))).await;
    let line = raw.answer(&json!("a")).await;
    assert_eq!(String::from_utf8(line).unwrap(), answer);
    raw.finish().await;
}

#[tokio::test]
async fn answer_of_10_mb_passes_byte_for_byte() {
    let text = "\u{e9}\"\\\n".repeat(1_000_000);
    let answer = [Action::StartTurn, Action::say(&text), Action::Answer];
    let mut raw = Raw::start(&Plan::new().on("tools/call", answer));
    raw.line(&prompt(&json!("a"))).await;
    let line = raw.answer(&json!("a")).await;
    assert!(line.len() > 10_000_000, "{}", line.len());
    let message: Value = serde_json::from_slice(&line).unwrap();
    assert!(message["result"]["structuredContent"]["content"] == text);
    // The fake writes JSON as serde_json does.
    assert!(format!("{message}\n").into_bytes() == line);
    raw.finish().await;
}

#[tokio::test]
async fn call_reaches_the_child_unchanged() {
    let mut raw = Raw::start(&Plan::new());
    let arguments = json!({"prompt": "\u{e9}\u{2028}\n", "config": {"a": 1.0, "b": null}});
    let mut call = prompt(&json!("a"));
    // The proxy adds members to calls of `codex`.
    call["params"]["name"] = "codex-reply".into();
    call["params"]["arguments"] = arguments;
    call["params"]["_meta"] = json!({"progressToken": 7, "x": {}});
    call["extra"] = json!(true);
    raw.line(&call).await;
    raw.answer(&json!("a")).await;
    assert_eq!(raw.fake.wait_for_method("tools/call").await, call);
    raw.finish().await;
}

#[tokio::test]
async fn client_with_framed_messages_gets_framed_answers() {
    let mut raw = Raw::start(&calls([]));
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    raw.framed(&initialize.to_string()).await;
    let answer = raw.framed_answer(&json!(0)).await;
    assert_eq!(answer["result"]["protocolVersion"], "2025-06-18");
    raw.framed(&serde_json::to_string_pretty(&prompt(&json!(1))).unwrap())
        .await;
    let answer = raw.framed_answer(&json!(1)).await;
    assert_eq!(answer["result"]["structuredContent"]["content"], "done");
    raw.framed("not JSON").await;
    let refusal = raw.framed_answer(&Value::Null).await;
    assert_eq!(refusal["error"]["code"], -32700);
    let seen = raw.fake.wait_for_method("tools/call").await;
    let sent = prompt(&json!(1));
    assert_eq!(seen["id"], sent["id"]);
    let prompt_of = |call: &Value| call["params"]["arguments"]["prompt"].clone();
    assert_eq!(prompt_of(&seen), prompt_of(&sent));
    raw.finish().await;
}

#[tokio::test]
async fn headers_of_any_kind_and_in_pieces_are_understood() {
    let mut raw = Raw::start(&Plan::new());
    let body = serde_json::to_string_pretty(&ping("a")).unwrap();
    let length = body.len();
    let whole = format!(
        "content-length:{length}\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n\
         {body}Content-Length: {length}\n\n{body}"
    )
    .replacen("\"a\"", "\"b\"", 1);
    for byte in whole.as_bytes() {
        raw.send(&[*byte]).await;
    }
    for id in ["b", "a"] {
        let answer = raw.framed_answer(&json!(id)).await;
        assert_eq!(answer["result"], json!({}));
    }
    raw.finish().await;
}

#[tokio::test]
async fn framed_message_over_the_limit_is_refused_and_the_next_served() {
    const LENGTH: usize = 17 * 1024 * 1024;
    let mut raw = Raw::start(&Plan::new());
    raw.framed(&"x".repeat(LENGTH)).await;
    let refusal = raw.framed_answer(&Value::Null).await;
    assert_eq!(refusal["error"]["code"], -32600);
    raw.framed(&prompt(&json!("next")).to_string()).await;
    let answer = raw.framed_answer(&json!("next")).await;
    assert_eq!(answer["result"]["structuredContent"]["content"], HELLO);
    raw.finish().await;
}

#[tokio::test]
async fn unterminated_framed_message_does_not_delay_shutdown() {
    let mut raw = Raw::start(&Plan::new());
    raw.framed(&ping("a").to_string()).await;
    raw.framed_answer(&json!("a")).await;
    raw.send(b"Content-Length: 1000\r\n\r\n{\"jsonrpc\":").await;
    raw.finish().await;
}
