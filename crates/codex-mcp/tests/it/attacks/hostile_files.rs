//! Files of a repository that block or never end: named pipes and devices.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use job_queue::logic::JobState;
use job_queue::store::{JobStore, NewJob, Request};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use settings::store_access::Access;
use testkit::client::TIME_LIMIT;
use testkit::fake::{FakeCodex, Plan, fake_codex_path};
use testkit::process::{signal, wait_channel, wait_until_gone};
use testkit::wait::wait_for_blocking;
use testkit::{Home, Launch, McpClient, Signal, write_program};

use crate::jobs::{Worker, wait_until};

const HANDSHAKE: &str = "2025-11-25";

/// The exit code of a process that SIGTERM has ended, as shells have it.
const ENDED_BY_SIGTERM: i32 = 128 + 15;

/// A named pipe, and the control: a `cat` of it, which waits for a writer.
struct NamedPipe {
    cat: Child,
}

impl NamedPipe {
    fn at(path: &Path) -> Self {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        mkfifo(path, Mode::S_IRWXU).unwrap();
        let cat = Command::new("cat").arg(path).stdout(Stdio::null()).spawn();
        Self { cat: cat.unwrap() }
    }

    /// Ends the control, which must not have returned.
    fn finish(mut self) {
        let ended = self.cat.try_wait().unwrap();
        assert_eq!(ended, None, "a plain open of the pipe returns");
    }
}

impl Drop for NamedPipe {
    fn drop(&mut self) {
        self.cat.kill().unwrap();
        self.cat.wait().unwrap();
    }
}

/// A home with the fake Codex.
struct FakeCodexFixture {
    home: Home,
    fake: FakeCodex,
}

impl FakeCodexFixture {
    fn new() -> Self {
        let home = Home::new("");
        let fake = FakeCodex::new(&home, &Plan::new());
        Self { home, fake }
    }

    fn serve(&self, args: &[&str]) -> Launch {
        self.home
            .launch(env!("CARGO_BIN_EXE_codex-mcp"))
            .args(["serve"])
            .args(args.iter().copied())
            .envs(self.fake.env())
            .env("CODEX_MCP_CODEX_BIN", fake_codex_path())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(env!("CARGO_BIN_EXE_codex-mcp"));
        command
            .args(args)
            .envs(self.fake.env())
            .env("CODEX_MCP_CODEX_BIN", fake_codex_path())
            .stdin(Stdio::null());
        command
    }
}

#[tokio::test]
async fn pipe_as_git_head_blocks_neither_calls_nor_shutdown() {
    let stage = FakeCodexFixture::new();
    fs::remove_file(stage.home.work().join(".git/HEAD")).unwrap_or_default();
    let pipe = NamedPipe::at(&stage.home.work().join(".git/HEAD"));
    let mut client = McpClient::connect(&stage.serve(&[]), HANDSHAKE, json!({})).await;
    let call = client.request_tool("codex", json!({"prompt": "hi"}));
    let ping = client.request("ping", Value::Null);
    client.response(&ping).await;
    let answered_first = client.response_so_far(&call);
    // The call works, or reports why not.
    let answer = match answered_first {
        Some(answer) => answer,
        None => client.response(&call).await,
    };
    assert!(answer.get("result").is_some(), "{answer:#}");
    pipe.finish();
    client.signal(Signal::SIGTERM);
    client.exited().await;
    assert_eq!(stage.home.processes(), []);
    client.finish().await;
}

#[tokio::test]
async fn run_with_a_pipe_as_prompt_file_fails_and_names_it() {
    let stage = FakeCodexFixture::new();
    let prompt = stage.home.root().join("prompt.md");
    let pipe = NamedPipe::at(&prompt);
    let config = stage.home.atm_home().join(".config/atm/config.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    let path = prompt.display();
    let text = format!("[plugins.codex-mcp]\nextra_instructions_file = \"{path}\"\n");
    fs::write(&config, text).unwrap();
    let args = ["run", "--until", "files=x", "--json", "work"];
    let output = stage.command(&args).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{stdout}");
    assert!(
        stdout.contains("prompt.md is not a regular file"),
        "{stdout}"
    );
    pipe.finish();
}

#[tokio::test]
async fn run_with_a_pipe_as_template_fails_and_names_it() {
    let stage = FakeCodexFixture::new();
    let nudge = ".codex-mcp/prompts/nudge.md";
    let pipe = NamedPipe::at(&stage.home.work().join(nudge));
    // Templates of untrusted repositories are not opened, so the test trusts this one; `trust`
    // refuses it.
    let work = stage.home.work().canonicalize().unwrap();
    let trusted = format!("[projects.{work:?}]\ntrust_level = \"trusted\"\n");
    fs::write(stage.home.codex_home().join("config.toml"), trusted).unwrap();
    let refused = stage.command(&["trust"]).output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains("nudge.md is not a regular file"), "{told}");
    let args = ["run", "--until", "files=x", "--json", "work"];
    let output = stage.command(&args).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{told}");
    assert!(told.contains("nudge.md is not a regular file"), "{told}");
    pipe.finish();
}

/// The control is the last picture, which is taken.
#[tokio::test]
async fn picture_that_is_no_regular_file_or_endless_is_refused() {
    let stage = FakeCodexFixture::new();
    let path = |name: &str| stage.home.work().join(name);
    let pipe = NamedPipe::at(&path("pipe.png"));
    symlink("/dev/zero", path("zero.png")).unwrap();
    fs::create_dir(path("directory.png")).unwrap();
    let mut sparse = File::create(path("sparse.png")).unwrap();
    sparse.write_all(b"\x89PNG\r\n\x1a\n").unwrap();
    sparse.set_len(3 << 30).unwrap();
    fs::write(path("good.png"), b"\x89PNG\r\n\x1a\n").unwrap();
    let launch = stage.serve(&["--api", "sessions"]);
    let mut client = McpClient::connect(&launch, HANDSHAKE, json!({})).await;
    for (name, why) in [
        ("pipe.png", "is not a file"),
        ("zero.png", "is not a file"),
        ("directory.png", "is not a file"),
        ("sparse.png", "has more than"),
        ("good.png", ""),
    ] {
        let arguments = json!({
            "prompt": "look",
            "approvalPolicy": "never",
            "sandbox": "read-only",
            "advanced": {"images": [name]},
        });
        let result = client.call_tool("codex", arguments).await;
        assert_eq!(result["isError"] == true, !why.is_empty(), "{result:#}");
        assert!(result.to_string().contains(why), "{result:#}");
    }
    let turn = stage.fake.wait_for_method("turn/start").await;
    let shown = turn_image(&turn);
    // Codex gets a copy, which no one can replace.
    assert_ne!(shown, path("good.png"));
    // The copy is where no sandbox can write; in a temporary directory every sandbox can.
    assert!(shown.starts_with(stage.home.state_home()), "{shown:?}");
    assert_eq!(fs::read(&shown).unwrap(), b"\x89PNG\r\n\x1a\n");
    pipe.finish();
    client.close_stdin();
    client.exited().await;
    assert!(!shown.exists());
    client.finish().await;
}

/// The picture in a `turn/start`.
fn turn_image(params: &Value) -> PathBuf {
    let input = params["params"]["input"].as_array().unwrap();
    let image = input.iter().find(|one| one["type"] == "localImage");
    image.unwrap()["path"].as_str().unwrap().into()
}

#[tokio::test]
async fn job_in_a_directory_with_a_pipe_does_not_freeze_the_worker() {
    let stage = FakeCodexFixture::new();
    let odd = stage.home.root().join("odd");
    fs::create_dir_all(odd.join(".git")).unwrap();
    let pipe = NamedPipe::at(&odd.join(".git/HEAD"));
    let codex = stage.home.root().join("failing-codex");
    write_program(&codex, FAILING);
    let path = stage.home.state_home().join("jobs.db");
    let location = path.to_str().unwrap();
    let access = Access::of(stage.home.state_home().join("codex-mcp"));
    let store = JobStore::open(&location.parse().unwrap(), &access)
        .await
        .unwrap();
    let worker = Worker::start(&stage.home, location, &codex, &[]);
    let submit = async |directory: &Path| {
        let request = Request::new("work", directory.to_str().unwrap());
        store.submit(&NewJob::new(request)).await.unwrap()
    };
    let (first, second) = (submit(&odd).await, submit(&stage.home.work()).await);
    for job in [second, first] {
        wait_until(&store, &job, JobState::Failed).await;
    }
    pipe.finish();
    worker.finish().await;
}

/// A Codex that fails at once.
const FAILING: &str = "#!/bin/sh\n[ \"$1\" = --version ] && exec echo codex-cli 0.169.0\nexit 3\n";

/// The log is written on the runtime's thread, which a full pipe blocks for ever. The exit code of
/// the signal shows that the thread was blocked: a graceful end has code 0.
#[tokio::test]
async fn blocked_runtime_does_not_outlive_a_signal() {
    let stage = FakeCodexFixture::new();
    let mut server = stage
        .command(&["serve"])
        .env("CODEX_MCP_LOG", "trace")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    stage.fake.wait_for_method("initialize").await;
    let codex = stage.fake.started();
    let mut stdin = server.stdin.take().unwrap();
    let mut stdout = server.stdout.take().unwrap();
    let mut buffer = [0; 4096];
    stdin.write_all(HELLO.as_bytes()).unwrap();
    assert_ne!(stdout.read(&mut buffer).unwrap(), 0);
    // Nobody reads the log. The writer thread ends with the server.
    let writer = std::thread::spawn(move || while stdin.write_all(NOTICE).is_ok() {});
    let reader = std::thread::spawn(move || while stdout.read(&mut buffer).is_ok_and(|n| n > 0) {});
    wait_until_blocked(server.id());
    signal(server.id(), Signal::SIGTERM);
    let status = server.wait().unwrap();
    assert_eq!(status.code(), Some(ENDED_BY_SIGTERM));
    writer.join().unwrap();
    reader.join().unwrap();
    assert_eq!(wait_until_gone(&codex, TIME_LIMIT).await, []);
}

const HELLO: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"#,
    r#""2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}"#,
    "\n"
);

/// A notification that is logged and has no answer.
const NOTICE: &[u8] =
    b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":7}}\n";

/// Waits until the main thread of a process sleeps in a write to a pipe.
fn wait_until_blocked(pid: u32) {
    wait_for_blocking("the server blocks in a write to a pipe", || {
        let channel = wait_channel(pid);
        (channel.contains("pipe") && channel.contains("write")).then_some(())
    });
}
