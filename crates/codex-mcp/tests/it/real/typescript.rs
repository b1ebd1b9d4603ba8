//! A client on the official TypeScript library of MCP.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::CodexFixture;

/// The limit of each call.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A client, and a server that it has started.
pub(super) struct TypeScriptClient {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    /// The tools of the server.
    pub(super) tools: Vec<Value>,
}

impl TypeScriptClient {
    /// Starts a client of `codex-mcp serve` with these arguments, and more variables.
    pub(super) async fn start(
        stage: &CodexFixture,
        args: &[&str],
        variables: &[(&str, String)],
    ) -> Self {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/real/typescript-client.mjs");
        let codex = testkit::codex::native_binary(&stage.release);
        let mut process = Command::new("node")
            .arg(script)
            .arg(testkit::typescript::library())
            .args([env!("CARGO_BIN_EXE_codex-mcp"), "serve"])
            .args(args)
            .env_clear()
            .envs(stage.home.env())
            .env("CODEX_MCP_CODEX_BIN", codex)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .current_dir(stage.home.work())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut client = Self {
            input: process.stdin.take().unwrap(),
            output: BufReader::new(process.stdout.take().unwrap()).lines(),
            process,
            tools: Vec::new(),
        };
        let listed = client.line().await;
        client.tools = listed["tools"].as_array().unwrap().clone();
        client
    }

    async fn line(&mut self) -> Value {
        let line = timeout(TIME_LIMIT, self.output.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("the client does not answer"));
        let line = line
            .unwrap()
            .unwrap_or_else(|| panic!("the client has failed"));
        serde_json::from_str(&line).unwrap()
    }

    /// The result of a tool.
    pub(super) async fn call(&mut self, name: &str, arguments: Value) -> Value {
        let call = json!({ "name": name, "arguments": arguments });
        self.input
            .write_all(format!("{call}\n").as_bytes())
            .await
            .unwrap();
        self.line().await
    }

    /// Ends the client with its server.
    pub(super) async fn finish(self) {
        drop(self.input);
        let mut process = self.process;
        let ended = timeout(TIME_LIMIT, process.wait()).await;
        let ended = ended.unwrap_or_else(|_| panic!("the client does not end"));
        assert!(ended.unwrap().success());
    }
}
