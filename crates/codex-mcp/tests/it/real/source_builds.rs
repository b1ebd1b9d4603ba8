//! A Codex that was built from source, which reports the version 0.0.0.

use std::path::PathBuf;

use scripted_model::{Reply, Script};
use serde_json::{Value, json};
use testkit::{McpClient, codex, write_program};
use tokio::process::Command;

use super::{CodexFixture, assert_completed, assert_error, quiet_client, structured, text};

/// A stage whose Codex has this release and reports the version of a source build.
async fn stage(release: &str) -> CodexFixture {
    let stage = CodexFixture::new(release, Script::new().otherwise([Reply::say("done")])).await;
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] || exec '{}' \"$@\"\necho codex-cli 0.0.0\n",
        codex::native_binary(release).display()
    );
    write_program(&program(&stage), &script);
    stage
}

fn program(stage: &CodexFixture) -> PathBuf {
    stage.home.root().join("codex-from-source")
}

async fn serve(stage: &CodexFixture, args: &[&str]) -> McpClient {
    let launch = stage.launch(args);
    quiet_client(&launch.env("CODEX_MCP_CODEX_BIN", program(stage))).await
}

/// The commands of Codex that `doctor` finds.
async fn commands(stage: &CodexFixture) -> Value {
    let output = Command::from(stage.home.command(env!("CARGO_BIN_EXE_codex-mcp")))
        .args(["doctor", "--json"])
        .env("CODEX_MCP_CODEX_BIN", program(stage))
        .output()
        .await
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let check = |name: &str| checks.iter().find(|check| check["name"] == name).unwrap();
    assert_eq!(check("version")["status"], "ok", "{report:#}");
    assert_eq!(check("version")["value"], "0.0.0", "{report:#}");
    check("commands")["value"].clone()
}

#[tokio::test]
async fn source_build_is_served_through_its_app_server() {
    let stage = stage(codex::newest()).await;
    assert_eq!(commands(&stage).await["app-server"], true);
    let mut client = serve(&stage, &[]).await;
    let result = client.call_tool("codex", json!({"prompt": "x"})).await;
    assert_completed(&result, "done");
    stage.finish(client).await;
}

#[tokio::test]
async fn source_build_without_an_mcp_server_is_refused_by_the_proxy() {
    let stage = stage(codex::newest()).await;
    assert_eq!(commands(&stage).await["mcp-server"], false);
    let mut client = serve(&stage, &["--backend", "mcp-server"]).await;
    let result = client.call_tool("codex", json!({"prompt": "x"})).await;
    assert_error(&result, "CODEX_DIED");
    let message = structured(&result)["error"]["message"].as_str().unwrap();
    assert!(message.contains("has no mcp-server"), "{message}");
    stage.finish(client).await;
}

#[tokio::test]
async fn source_build_with_an_mcp_server_is_served_through_it() {
    let stage = stage("0.153.4").await;
    assert_eq!(commands(&stage).await["mcp-server"], true);
    let mut client = serve(&stage, &["--backend", "mcp-server"]).await;
    let result = client.call_tool("codex", json!({"prompt": "x"})).await;
    assert_eq!(text(&result, 0), "done");
    stage.finish(client).await;
}
