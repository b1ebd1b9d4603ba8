//! A client on the official TypeScript library of MCP.

use std::path::Path;

use serde_json::{Value, json};
use tokio::process::Command;

use super::CodexFixture;
use super::json_lines::LineClient;

/// A client, and a server that it has started.
pub(super) struct TypeScriptClient {
    client: LineClient,
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
        let mut client = LineClient::start(
            Command::from(stage.home.command("node"))
                .arg(script)
                .arg(testkit::typescript::library())
                .args([env!("CARGO_BIN_EXE_codex-mcp"), "serve"])
                .args(args)
                .env("CODEX_MCP_CODEX_BIN", codex)
                .envs(variables.iter().map(|(name, value)| (name, value))),
        );
        let listed = client.line().await;
        let tools = listed["tools"].as_array().unwrap().clone();
        Self { client, tools }
    }

    /// The result of a tool.
    pub(super) async fn call(&mut self, name: &str, arguments: Value) -> Value {
        let call = json!({ "name": name, "arguments": arguments });
        self.client.ask(&call).await
    }

    /// Ends the client with its server.
    pub(super) async fn finish(self) {
        self.client.finish().await;
    }
}
