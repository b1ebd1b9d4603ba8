//! The MCP project's own conformance suite against `codex-mcp serve`. The suite speaks only HTTP, so
//! there is a bridge between them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use scripted_model::{Reply, Script};
use testkit::conformance::scenario;
use tokio::process::Command;

use super::CodexFixture;
use super::json_lines::LineClient;

/// The scenarios of [`web::conformance`](super::web) that are not about HTTP.
const SCENARIOS: [&str; 5] = [
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "prompts-list",
];

/// Gives every message the same answer.
const BAD_SERVER: &str = r#"while read -r _; do echo '{"jsonrpc":"2.0","id":0,"result":{}}'; done"#;

/// Starts the bridge to a server with these arguments.
async fn bridge(stage: &CodexFixture, args: &[&str]) -> (LineClient, SocketAddr) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/real/stdio-bridge.mjs");
    let codex = testkit::codex::native_binary(&stage.release);
    let mut bridge = LineClient::start(
        Command::from(stage.home.command("node"))
            .arg(script)
            .arg(testkit::typescript::library())
            .args(args)
            .env("CODEX_MCP_CODEX_BIN", codex),
    );
    let port = bridge.line().await["port"].as_u64().unwrap();
    let address = (Ipv4Addr::LOCALHOST, port.try_into().unwrap()).into();
    (bridge, address)
}

#[tokio::test]
async fn scenarios_of_the_conformance_suite_pass_over_stdio() {
    let script = Script::new().otherwise([Reply::say("done")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let server = [env!("CARGO_BIN_EXE_codex-mcp"), "serve"];
    let (bridge, address) = bridge(&stage, &server).await;
    let home = stage.home.home();
    for name in SCENARIOS {
        let output = scenario(name, address, "none", &home).await;
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{name}: {text}");
        assert!(text.contains("0 failed, 0 warnings"), "{name}: {text}");
    }
    bridge.finish().await;
    stage.until_processes_end().await;
}

/// The control: the suite sees that a server answers with nothing.
#[tokio::test]
async fn conformance_suite_sees_a_bad_server_on_stdio() {
    let script = Script::new().otherwise([Reply::say("done")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let (bridge, address) = bridge(&stage, &["sh", "-c", BAD_SERVER]).await;
    let output = scenario("tools-list", address, "none", &stage.home.home()).await;
    assert!(!output.status.success(), "{output:?}");
    bridge.finish().await;
}
