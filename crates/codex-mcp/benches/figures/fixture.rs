//! The fixture of both sides: a model, homes, servers and clients.

use std::ffi::OsString;
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use scripted_model::{Reply, Script};
use serde_json::{Value, json};
use testkit::{AppServer, Home, Launch, McpClient, codex, process};

use crate::model::{ANSWER, Model, PROMPT};
use crate::sessions::Poller;

/// The MCP version that most clients speak today.
pub(crate) const MCP_VERSION: &str = "2025-06-18";

/// Codex still writes a little after a turn, which must not fall into the measurement of the
/// other side.
const PAUSE: Duration = Duration::from_millis(20);

/// A hundred calls at once may take long on a busy machine.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(120);

/// A model, and a home for each side, so that neither side's Codex sees the
/// other's files.
pub(crate) struct Fixture {
    ours: Home,
    direct: Home,
    /// Last, so that it outlives the processes of the homes.
    _model: Model,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with_answer(Reply::say(ANSWER))
    }

    /// A fixture whose model gives another answer.
    pub(crate) fn with_answer(answer: Reply) -> Self {
        Self::with_script(Script::new().otherwise([answer]))
    }

    /// A fixture whose model plays this script.
    pub(crate) fn with_script(script: Script) -> Self {
        let model = Model::start(script);
        Self {
            ours: Home::new(model.codex_config()),
            direct: Home::new(model.codex_config()),
            _model: model,
        }
    }

    /// The variables of the processes of the other side.
    pub(crate) fn direct_env(&self) -> Vec<(OsString, OsString)> {
        self.direct.env()
    }

    /// Our side's home.
    pub(crate) fn home(&self) -> &Home {
        &self.ours
    }

    /// How our server is started.
    pub(crate) fn serve_launch(&self) -> Launch {
        Launch::new(program())
            .args(["serve"])
            .envs(self.ours.env())
            .env("CODEX_MCP_CODEX_BIN", codex_binary())
            .current_dir(self.work())
    }

    /// How Codex's app-server is started.
    pub(crate) fn direct_launch(&self) -> Launch {
        self.direct_launch_of(&codex_binary(), "app-server")
    }

    /// How a server of a Codex's is started.
    pub(crate) fn direct_launch_of(&self, codex: &Path, server: &str) -> Launch {
        Launch::new(codex)
            .args([server])
            .envs(self.direct.env())
            .current_dir(self.work())
    }

    /// A client of a server of ours with `--api sessions`, whose app-server is up.
    pub(crate) async fn poller(&self) -> Poller {
        self.poller_with(&[]).await
    }

    /// A client as [`Fixture::poller`], with more arguments for the server.
    pub(crate) async fn poller_with(&self, more: &[&str]) -> Poller {
        let launch = self.serve_launch().args(["--api", "sessions"]).args(more);
        let mut client = McpClient::start(&launch);
        client.set_time_limit(TIME_LIMIT);
        client.initialize(MCP_VERSION, json!({})).await;
        Poller::new(client, self.work())
    }

    /// A client of a warm server of ours.
    pub(crate) async fn ours(&self) -> ServeClient {
        let mut ours = ServeClient::start(&self.serve_launch());
        ours.initialize().await;
        self.hello_ours(&mut ours).await;
        ours
    }

    /// A warm app-server.
    pub(crate) async fn direct(&self) -> AppServer {
        let direct = self.fresh_direct().await;
        self.hello_direct(&direct).await;
        direct
    }

    /// An app-server that has done nothing yet.
    pub(crate) async fn fresh_direct(&self) -> AppServer {
        let direct = AppServer::start(&self.direct_launch(), |_| None);
        direct.initialize().await;
        direct
    }

    /// One call of the tool `codex`.
    pub(crate) async fn hello_ours(&self, ours: &mut ServeClient) {
        let call = self.request_hello(ours);
        ours.take_hello(&call).await;
    }

    /// Sends a call of the tool `codex`, for [`ServeClient::take_hello`].
    pub(crate) fn request_hello(&self, ours: &mut ServeClient) -> Value {
        let arguments = json!({"prompt": PROMPT, "cwd": self.work()});
        ours.0.request_tool("codex", arguments)
    }

    /// One turn in a thread of its own, as `codex` makes it.
    pub(crate) async fn hello_direct(&self, direct: &AppServer) {
        assert_eq!(self.turn_direct(direct).await, ANSWER);
    }

    /// One turn as [`Fixture::hello_direct`], with the settings of a session.
    pub(crate) async fn session_direct(&self, direct: &AppServer) {
        let settings = json!({"cwd": self.work(), "approvalPolicy": "on-request",
            "sandbox": "read-only"});
        let thread = direct.start_thread(settings).await;
        let mut notifications = direct.notifications(&thread);
        let effort = json!({"effort": "low"});
        let said = direct.turn_with(&thread, &mut notifications, PROMPT, effort);
        assert_eq!(said.await, ANSWER);
    }

    /// One turn in a thread of its own, and what Codex said in it.
    pub(crate) async fn turn_direct(&self, direct: &AppServer) -> String {
        let thread = direct.start_thread(json!({"cwd": self.work()})).await;
        let mut notifications = direct.notifications(&thread);
        direct.turn(&thread, &mut notifications, PROMPT).await
    }

    /// The memory (PSS) of all processes of both sides, in bytes.
    pub(crate) fn memory(&self) -> f64 {
        let homes = [&self.ours, &self.direct];
        let processes = homes.iter().flat_map(|home| home.processes());
        let kib = processes.filter_map(|process| process::pss_kib(process.pid));
        f64::from(u32::try_from(kib.sum::<u64>()).unwrap()) * 1024.0
    }

    /// The directory that Codex works in, on both sides.
    pub(crate) fn work(&self) -> PathBuf {
        self.ours.work()
    }
}

/// A client of ours and its server.
pub(crate) struct ServeClient(McpClient);

impl ServeClient {
    /// Calls a tool of ours and returns its structured result.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let mut result = self.0.call_tool(tool, arguments).await;
        assert_ne!(result["isError"], true, "{result:#}");
        result["structuredContent"].take()
    }

    pub(crate) fn start(launch: &Launch) -> Self {
        let mut client = McpClient::start(launch);
        client.set_time_limit(TIME_LIMIT);
        Self(client)
    }

    /// Makes a request and returns its result.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        self.0.call(method, params).await
    }

    pub(crate) async fn initialize(&mut self) {
        self.0.initialize(MCP_VERSION, json!({})).await;
    }

    pub(crate) async fn take_hello(&mut self, call: &Value) {
        let result = self.0.result(call).await;
        assert_eq!(result["structuredContent"]["content"], ANSWER, "{result:#}");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.pid()
    }

    pub(crate) async fn finish(self) {
        assert!(self.0.finish().await.success());
    }
}

/// The variable with the codex-mcp that is measured, in place of the one that cargo builds with the
/// bench.
const PROGRAM: &str = "CODEX_MCP_BENCH_PROGRAM";

/// The codex-mcp that is measured.
pub(crate) fn program() -> PathBuf {
    let built = || env!("CARGO_BIN_EXE_codex-mcp").into();
    std::env::var_os(PROGRAM).map_or_else(built, PathBuf::from)
}

/// The native binary of the release that is measured.
pub(crate) fn codex_binary() -> PathBuf {
    static BINARY: LazyLock<PathBuf> = LazyLock::new(|| codex_binary_of(codex::newest()));
    BINARY.clone()
}

/// The native binary of a release: a copy, as the memory of the original would be shared with each
/// Codex that a test or another bench has running meanwhile.
pub(crate) fn codex_binary_of(release: &str) -> PathBuf {
    let original = codex::native_binary(release);
    let package = original.ancestors().nth(2).unwrap();
    let all = testkit::target_dir().join("bench-codex");
    let copy = all.join(release);
    if !copy.is_dir() {
        fs::create_dir_all(&all).unwrap();
        let draft = tempfile::tempdir_in(&all).unwrap();
        let copied = Command::new("cp")
            .arg("-r")
            .arg(package)
            .arg(draft.path())
            .status();
        assert!(copied.unwrap().success());
        let name = package.file_name().unwrap();
        fs::rename(draft.path().join(name), &copy).unwrap();
    }
    copy.join(original.strip_prefix(package).unwrap())
}

/// The duration of a future in seconds, measured after a pause.
pub(crate) async fn seconds(something: impl Future<Output = ()>) -> f64 {
    tokio::time::sleep(PAUSE).await;
    let start = Instant::now();
    something.await;
    start.elapsed().as_secs_f64()
}
