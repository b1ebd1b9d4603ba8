//! A client on the official Python library of MCP. The library comes from PyPI, which not every
//! machine reaches: `cargo xtask peers` installs it and runs these tests.

use std::path::Path;

use scripted_model::{Reply, Script, Shell};
use serde_json::{Value, json};
use tokio::process::Command;

use super::json_lines::LineClient;
use super::{CodexFixture, assert_completed, assert_error, thread_of};

/// The version with a handshake that the library asks for.
pub(super) const LEGACY: (&str, &str) = ("legacy", "2025-11-25");

/// The version without a handshake, which the library prefers.
pub(super) const MODERN: (&str, &str) = ("auto", "2026-07-28");

/// The model of all tests.
pub(super) fn model() -> Script {
    let touch = Reply::shell(Shell::escalated("touch made.txt", "it is needed"));
    Script::new()
        .on("touch", [touch, Reply::say("done")])
        .otherwise([Reply::say("back")])
}

/// Has a client of this era do everything with the server that `connection` names.
pub(super) async fn assert_works(stage: &CodexFixture, era: (&str, &str), connection: &[&str]) {
    let (mode, version) = era;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/real/python-client.py");
    let codex = testkit::codex::native_binary(&stage.release);
    let mut client = LineClient::start(
        Command::from(stage.home.command(testkit::python::with_library()))
            .arg(script)
            .arg(mode)
            .args(connection)
            .env("CODEX_MCP_CODEX_BIN", codex)
            .env("PYTHONDONTWRITEBYTECODE", "1"),
    );
    let offers = client.line().await;
    assert_eq!(offers["version"], version, "{offers:#}");
    assert_offers(&offers);
    assert_calls(stage, &mut client).await;
    client.finish().await;
}

fn assert_offers(offers: &Value) {
    let names = |kind: &str| -> Vec<&str> {
        let all = offers[kind].as_array().unwrap().iter();
        all.map(|one| one["name"].as_str().unwrap()).collect()
    };
    assert_eq!(offers["server"]["name"], "codex-mcp", "{offers:#}");
    for tool in ["codex", "codex-reply", "codex_status"] {
        assert!(names("tools").contains(&tool), "{:?}", names("tools"));
    }
    assert!(
        names("prompts").contains(&"delegate"),
        "{:?}",
        names("prompts")
    );
    assert!(!names("resources").is_empty());
    let text = offers["quickstart"]["contents"][0]["text"].as_str();
    assert!(text.unwrap().contains("codex_check"), "{offers:#}");
}

async fn assert_calls(stage: &CodexFixture, client: &mut LineClient) {
    let touch = json!({ "prompt": "touch", "sandbox": "read-only", "approval-policy": "on-request",
        "cwd": stage.home.work() });
    let called = call(client, "codex", touch).await;
    assert_completed(&called["result"], "done");
    assert!(stage.file("made.txt").exists());
    let asked = called["asked"].as_array().unwrap();
    assert_eq!(asked.len(), 1, "{asked:#?}");
    assert!(
        asked[0].to_string().contains("touch made.txt"),
        "{asked:#?}"
    );
    let progress = called["progress"].as_array().unwrap();
    assert!(!progress.is_empty(), "{called:#}");

    let more = json!({ "prompt": "more", "threadId": thread_of(&called["result"]) });
    let more = call(client, "codex-reply", more).await;
    assert_completed(&more["result"], "back");
    assert_eq!(more["asked"], json!([]), "{more:#}");
    let empty = call(client, "codex", json!({ "prompt": "" })).await;
    assert_error(&empty["result"], "INVALID_ARGUMENT");
}

async fn call(client: &mut LineClient, name: &str, arguments: Value) -> Value {
    let call = json!({ "name": name, "arguments": arguments });
    client.ask(&call).await
}

async fn assert_works_over_stdio(era: (&str, &str)) {
    let stage = CodexFixture::new(testkit::codex::newest(), model()).await;
    let server = ["stdio", env!("CARGO_BIN_EXE_codex-mcp"), "serve"];
    assert_works(&stage, era, &server).await;
    stage.until_processes_end().await;
}

#[tokio::test]
#[ignore = "needs the Python library of MCP; run `cargo xtask peers`"]
async fn python_library_works_over_stdio_with_a_handshake() {
    assert_works_over_stdio(LEGACY).await;
}

#[tokio::test]
#[ignore = "needs the Python library of MCP; run `cargo xtask peers`"]
async fn python_library_works_over_stdio_without_a_handshake() {
    assert_works_over_stdio(MODERN).await;
}
