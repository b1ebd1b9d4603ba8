//! Streams that can't carry the protocol, and `CODEX_MCP_STDIO_MODE`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::pty::{OpenptyResult, openpty};
use serde_json::{Value, json};
use testkit::fake::{FakeCodex, HELLO, Plan, fake_codex_path};
use testkit::process::{signal, wait_until_gone};
use testkit::wait::wait_for_blocking;
use testkit::{Home, Signal};

use super::serve::{HANDSHAKE, Serve, completed};

/// The hint for a person at a terminal.
const FRIENDLY: &str = "waiting for MCP messages from this terminal";

/// How long the processes of a server that has ended may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(6);

/// A `serve` before its start, whose streams can be chosen; each is a pipe by default.
struct Program {
    home: Home,
    command: Command,
}

impl Program {
    fn new(mode: &str) -> Self {
        let home = Home::new("");
        let fake = FakeCodex::new(&home, &Plan::new());
        let mut command = home.command(env!("CARGO_BIN_EXE_codex-mcp"));
        command
            .arg("serve")
            .envs(fake.env())
            .env("CODEX_MCP_CODEX_BIN", fake_codex_path())
            .env("CODEX_MCP_STDIO_MODE", mode)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self { home, command }
    }

    fn stdin(mut self, stream: impl AsFd) -> Self {
        self.command.stdin(copy(&stream));
        self
    }

    fn stdout(mut self, stream: impl AsFd) -> Self {
        self.command.stdout(copy(&stream));
        self
    }

    fn stderr(mut self, stream: impl AsFd) -> Self {
        self.command.stderr(copy(&stream));
        self
    }

    /// Both go to the same stream.
    fn stdout_and_stderr(self, stream: impl AsFd) -> Self {
        self.stdout(&stream).stderr(stream)
    }

    /// Starts the server. The chosen streams are then open in the server only.
    fn start(mut self) -> Started {
        let child = self.command.spawn().unwrap();
        Started {
            child,
            home: self.home,
        }
    }
}

fn copy(stream: &impl AsFd) -> OwnedFd {
    stream.as_fd().try_clone_to_owned().unwrap()
}

struct Started {
    child: Child,
    home: Home,
}

impl Started {
    /// Waits for the exit, returns status and stderr, and checks that no process is left.
    async fn ended(mut self) -> (ExitStatus, String) {
        drop(self.child.stdin.take());
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut said).unwrap();
        }
        let status = self.child.wait().unwrap();
        let pids: Vec<u32> = self.home.processes().iter().map(|one| one.pid).collect();
        assert_eq!(wait_until_gone(&pids, GONE_WITHIN).await, []);
        assert!(!said.contains("panicked"), "{said}");
        (status, said)
    }
}

/// Reads until these words have come.
fn read_until(stream: &mut impl Read, words: &str) -> String {
    let mut said = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let text = String::from_utf8_lossy(&said).into_owned();
        if text.contains(words) {
            return text;
        }
        let read = stream.read(&mut chunk).unwrap();
        assert!(read > 0, "no {words:?} in {text}");
        said.extend_from_slice(&chunk[..read]);
    }
}

fn terminal() -> (File, OwnedFd) {
    let OpenptyResult { master, slave } = openpty(None, None).unwrap();
    (File::from(master), slave)
}

#[tokio::test]
async fn terminal_user_is_told_that_serve_waits_for_messages() {
    for mode in ["auto", "", "nonsense"] {
        let (mut screen, terminal) = terminal();
        let program = Program::new(mode).stdin(&terminal);
        let started = program.stdout_and_stderr(&terminal).start();
        let said = read_until(&mut screen, FRIENDLY);
        assert!(said.contains("Ctrl-C ends it"), "{said}");
        assert!(!said.contains("INFO"), "{said}");
        assert!(!said.contains("stdout is a terminal"), "{said}");
        assert_eq!(said.contains("not auto, strict or off"), mode == "nonsense");
        signal(started.child.id(), Signal::SIGINT);
        assert_eq!(started.ended().await.0.code(), Some(130));
    }
}

/// The hint is printed also for `eyes-mcp` started by hand, but not for one of a wrapper.
#[tokio::test]
async fn eyes_mcp_tells_a_terminal_user_too() {
    let home = Home::new("");
    let started = |mode: &str, more: &[&str]| {
        let (screen, terminal) = terminal();
        let mut command = home.command(env!("CARGO_BIN_EXE_codex-mcp"));
        command
            .arg("eyes-mcp")
            .args(more)
            .env("CODEX_MCP_STDIO_MODE", mode)
            .stdin(copy(&terminal))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        (screen, command.spawn().unwrap())
    };
    let (_screen, mut child) = started("auto", &[]);
    read_until(child.stderr.as_mut().unwrap(), FRIENDLY);
    child.kill().unwrap();
    child.wait().unwrap();
    let (_screen, child) = started("strict", &[]);
    let refused = child.wait_with_output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let (mut screen, child) = started("strict", &["--wrapper", "w"]);
    // Ctrl-D ends the input.
    screen.write_all(b"\x04").unwrap();
    let unasked = child.wait_with_output().unwrap();
    let said = String::from_utf8(unasked.stderr).unwrap();
    assert!(!said.contains("terminal"), "{said}");
}

#[tokio::test]
async fn strict_refuses_a_terminal_and_off_ignores_it() {
    for (stdin_too, found) in [
        (true, "stdin is a terminal"),
        (false, "stdout is a terminal"),
    ] {
        let started = |mode: &str| {
            let (screen, terminal) = terminal();
            let mut program = Program::new(mode).stdout(&terminal);
            if stdin_too {
                program = program.stdin(&terminal);
            }
            (screen, program.start())
        };
        let (_screen, refused) = started(" STRICT ");
        let (status, said) = refused.ended().await;
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains("CODEX_MCP_STDIO_MODE is strict"), "{said}");
        assert!(said.contains(found), "{said}");
        assert!(said.contains("Let an MCP client start codex-mcp"), "{said}");

        let (_screen, unchecked) = started("off");
        if stdin_too {
            send_when_it_runs(&unchecked);
        }
        let (status, said) = unchecked.ended().await;
        assert!(status.success(), "{said}");
        assert!(!said.contains("terminal"), "{said}");
    }
}

/// The end of input on a terminal must be typed, so the server is ended by a signal.
fn send_when_it_runs(started: &Started) {
    let pid = started.child.id();
    wait_for_blocking("the process of Codex", || {
        (started.home.processes().len() >= 2).then_some(())
    });
    signal(pid, Signal::SIGTERM);
}

#[tokio::test]
async fn terminal_as_stdout_is_warned_of() {
    let (_screen, terminal) = terminal();
    let started = Program::new("auto").stdout(&terminal).start();
    let (status, said) = started.ended().await;
    assert!(status.success(), "{said}");
    assert!(said.contains("WARN"), "{said}");
    assert!(said.contains("stdout is a terminal"), "{said}");
    assert!(!said.contains(FRIENDLY), "{said}");
}

#[tokio::test]
async fn log_that_would_mix_with_the_protocol_is_not_written() {
    let (mut output, both) = io::pipe().unwrap();
    let mut program = Program::new("auto").stdout_and_stderr(both);
    program.command.env("CODEX_MCP_LOG", "trace");
    let mut started = program.start();
    let mut stdin = started.child.stdin.take().unwrap();
    for message in [
        initialize(),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        request(
            2,
            "tools/call",
            json!({"name": "codex", "arguments": {"prompt": "hi"}}),
        ),
        request(
            3,
            "resources/read",
            json!({"uri": "codex-mcp:///compat-report"}),
        ),
    ] {
        writeln!(stdin, "{message}").unwrap();
    }
    let said = read_until(&mut output, HELLO);
    drop(stdin);
    let (status, _) = started.ended().await;
    assert!(status.success());

    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    let lines = [said, rest].concat();
    let messages: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect();
    let report = messages.iter().find(|message| message["id"] == 3).unwrap();
    let report = report["result"]["contents"][0]["text"].as_str().unwrap();
    let report: Value = serde_json::from_str(report).unwrap();
    let warning = report["runtimeWarnings"][0].as_str().unwrap();
    assert!(warning.contains("2>&1"), "{warning}");
}

fn initialize() -> Value {
    request(
        1,
        "initialize",
        json!({
            "protocolVersion": HANDSHAKE, "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }),
    )
}

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

#[tokio::test]
async fn strict_refuses_a_log_that_would_mix_with_the_protocol() {
    let (pipe, writer) = io::pipe().unwrap();
    let (socket, other_end) = UnixStream::pair().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("output");
    let file = File::create(&path).unwrap();
    let outputs: [(OwnedFd, Box<dyn Read>); 3] = [
        (writer.into(), Box::new(pipe)),
        (other_end.into(), Box::new(socket)),
        (file.into(), Box::new(File::open(&path).unwrap())),
    ];
    for (both, mut output) in outputs {
        let started = Program::new("strict").stdout_and_stderr(both).start();
        let (status, _) = started.ended().await;
        let mut said = String::new();
        output.read_to_string(&mut said).unwrap();
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains("Leave out `2>&1`"), "{said}");
    }
}

#[tokio::test]
async fn strict_accepts_separate_streams() {
    let mut serve = Serve::start_with(&Plan::new(), |launch| {
        launch.env("CODEX_MCP_STDIO_MODE", "strict")
    });
    serve.client.initialize(HANDSHAKE, json!({})).await;
    assert_eq!(completed(&serve.codex().await), HELLO);
    serve.finish().await;

    // Discarded output mixes with nothing.
    let nowhere = File::options().write(true).open("/dev/null").unwrap();
    let started = Program::new("strict").stdout_and_stderr(nowhere).start();
    assert!(started.ended().await.0.success());
}

#[tokio::test]
async fn unknown_mode_is_warned_of_and_means_auto() {
    let mut serve = Serve::start_with(&Plan::new(), |launch| {
        launch.env("CODEX_MCP_STDIO_MODE", "paranoid")
    });
    serve.client.initialize(HANDSHAKE, json!({})).await;
    let uri = json!({"uri": "codex-mcp:///server-info"});
    let info = serve.client.call("resources/read", uri).await;
    let info: Value = serde_json::from_str(info["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(info["stdioMode"], "auto");
    let said = serve.client.stderr();
    assert!(
        said.contains("\"paranoid\", not auto, strict or off"),
        "{said}"
    );
    serve.finish().await;
}
