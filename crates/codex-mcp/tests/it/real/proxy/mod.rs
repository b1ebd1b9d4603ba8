//! The proxy before the real `codex mcp-server`, in the releases that have one.

mod approvals;
mod limits;
mod passthrough;

use serde_json::{Value, json};
use testkit::McpClient;

use super::{CodexFixture, VERSION};

/// Makes a test of each release with an MCP server of its own out of
/// `async fn name(release: &str)`.
macro_rules! on_releases_with_mcp_server {
    ($($name:ident),* $(,)?) => {
        mod on_0_104_0 { $(#[tokio::test] async fn $name() { super::$name("0.104.0").await; })* }
        mod on_0_153_4 { $(#[tokio::test] async fn $name() { super::$name("0.153.4").await; })* }
    };
}
use on_releases_with_mcp_server;

const PROXY: [&str; 2] = ["--backend", "mcp-server"];

/// A client of a server with these arguments, whose Codex has started. The client ignores Codex's
/// events.
async fn client(stage: &CodexFixture, args: &[&str], capabilities: Value) -> McpClient {
    let launch = stage.launch(&PROXY).args(args.iter().copied());
    let mut client = McpClient::start(&launch);
    client.ignore("codex/event");
    client.initialize(VERSION, capabilities).await;
    client.call("ping", Value::Null).await;
    client
}

/// A client of `codex mcp-server` itself.
pub(super) async fn direct(stage: &CodexFixture, capabilities: Value) -> McpClient {
    let launch = stage
        .home
        .launch(testkit::codex::native_binary(&stage.release))
        .args(["mcp-server"]);
    let mut client = McpClient::start(&launch);
    client.ignore("codex/event");
    client.initialize(VERSION, capabilities).await;
    client
}

/// A `codex-reply` call in a thread.
fn reply(thread: &str, prompt: &str) -> Value {
    json!({"prompt": prompt, "threadId": thread})
}
