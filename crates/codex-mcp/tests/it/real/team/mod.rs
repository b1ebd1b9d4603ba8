//! Members of teams, with the real Codex on both backends.

mod mail;
mod mail_answers;
mod records;
mod shutdown_summary;
mod threads;
mod tool_results;

use std::fs;
use std::path::PathBuf;

use scripted_model::{Reply, Script};
use serde_json::{Value, json};
use testkit::McpClient;

use super::{CodexFixture, structured};
use crate::jobs::wait_for;

pub(super) use threads::send_mail;

/// The team's directory.
fn team_directory(stage: &CodexFixture) -> PathBuf {
    stage.home.atm_home().join(".claude/teams/builders")
}

/// The directory with the registry, audit and summaries of an identity.
fn identity_directory(stage: &CodexFixture, identity: &str) -> PathBuf {
    let directory = stage.home.atm_home().join(".config/atm/codex-sessions");
    directory.join(identity)
}

/// Creates the team `builders` with these members, as Claude Code does.
pub(super) fn make_team(stage: &CodexFixture, members: &[&str]) {
    let directory = team_directory(stage);
    fs::create_dir_all(directory.join("inboxes")).unwrap();
    let members: Vec<Value> = members
        .iter()
        .map(|name| {
            json!({
                "agentId": format!("{name}@builders"),
                "name": name,
                "agentType": "general-purpose",
                "model": "m",
                "joinedAt": 1_700_000_000_000_u64,
                "cwd": "/tmp",
                "isActive": true,
                "made_up": [1.50],
            })
        })
        .collect();
    let config = json!({
        "name": "builders",
        "createdAt": 1_700_000_000_000_u64,
        "leadAgentId": "lead@builders",
        "leadSessionId": "x",
        "members": members,
        "made_up": {"kept": true},
    });
    fs::write(directory.join("config.json"), config.to_string()).unwrap();
}

fn members(stage: &CodexFixture) -> Vec<Value> {
    let text = fs::read_to_string(team_directory(stage).join("config.json")).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(config["made_up"], json!({"kept": true}));
    config["members"].as_array().unwrap().clone()
}

pub(super) fn inbox_file(stage: &CodexFixture, agent: &str) -> PathBuf {
    team_directory(stage).join(format!("inboxes/{agent}.json"))
}

pub(super) fn inbox(stage: &CodexFixture, agent: &str) -> Vec<Value> {
    match fs::read_to_string(inbox_file(stage, agent)) {
        Ok(text) => serde_json::from_str(&text).unwrap(),
        Err(_) => Vec::new(),
    }
}

pub(super) fn put_mail(stage: &CodexFixture, agent: &str, messages: &[Value]) {
    fs::write(inbox_file(stage, agent), json!(messages).to_string()).unwrap();
}

fn message(from: &str, text: &str, id: Option<&str>) -> Value {
    let mut message = json!({
        "from": from,
        "text": text,
        "timestamp": "2026-02-18T10:00:00Z",
        "read": false,
        "color": "blue",
    });
    if let Some(id) = id {
        message["message_id"] = id.into();
    }
    message
}

/// Waits for a condition.
async fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    wait_for(what, async || so().then_some(())).await;
}

/// Waits until all processes have ended. Unlike the fixture's method, this ends no host.
async fn wait_until_processes_end(stage: &CodexFixture) {
    wait_until("the end of all processes", || {
        stage.home.processes().is_empty()
    })
    .await;
}

/// The newest Codex on the default backend, and the last one with an MCP server on
/// the proxy.
async fn on_both_backends(
    script: impl Fn() -> Script,
    check: impl AsyncFn(&CodexFixture, &[&str]),
) {
    for (release, backend) in [
        (testkit::codex::newest(), "app-server"),
        ("0.153.4", "mcp-server"),
    ] {
        let stage = CodexFixture::new(release, script()).await;
        make_team(&stage, &["lead", "rust-1"]);
        let args = ["--backend", backend, "--identity", "arch", "--team"];
        check(&stage, &[args.as_slice(), &["builders"]].concat()).await;
    }
}

fn ok_model() -> Script {
    Script::new().otherwise([Reply::say("ok")])
}

/// Ends a client. A Codex that was still starting exits a moment later.
async fn end_client(stage: &CodexFixture, client: McpClient) {
    assert!(client.finish().await.success());
    wait_until_processes_end(stage).await;
}

/// Calls a tool, which must succeed; returns its structured content.
async fn call_ok(client: &mut McpClient, tool: &str, arguments: Value) -> Value {
    let result = client.call_tool(tool, arguments).await;
    assert!(
        result.get("isError").is_none_or(|it| it == false),
        "{result:#}"
    );
    structured(&result).clone()
}
