//! `codex-mcp setup` with the real Codex as the client.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use scripted_model::{Reply, Script};
use serde_json::{Value, json};
use testkit::Home;
use tokio::process::Command;
use tokio::time::timeout;

use super::CodexFixture;
use crate::on_oldest_and_newest;
use crate::setup::Setup;

/// The limit of each wait.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A script whose model calls a tool of ours, and says what it answered.
fn calling() -> Script {
    let arguments = json!({ "prompt": "without a thread" });
    Script::new().otherwise([
        Reply::mcp("codex", "codex_reply", arguments),
        Reply::with(|request| {
            let outputs = request.tool_outputs();
            let output = outputs.last().map(|output| output.text.clone());
            Reply::say(output.unwrap_or_default())
        }),
    ])
}

/// Where nobody can be asked, Codex cancels the calls of a tool unless the entry approves them.
async fn codex_exec_calls_a_tool_by_the_entry_of_setup(release: &str) {
    let fixture = CodexFixture::new(release, calling()).await;
    let codex = testkit::codex::native_binary(release);
    let config = fixture.home.codex_home().join("config.toml");
    let before = fs::read_to_string(&config).unwrap();
    let mut setup = Setup::new(&fixture.home, release);
    setup.install("codex", &codex);
    let done = setup.json(&["codex", "--yes"]);
    let change = &done["changes"][0];
    assert_eq!(
        (&change["action"], change.get("note")),
        (&json!("add"), None),
        "{done:#}"
    );
    assert!(done["checks"][0]["tools"].is_number(), "{done:#}");

    let shown = run(&fixture, &["mcp", "get", "codex", "--json"]).await;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(
        shown["transport"]["command"],
        env!("CARGO_BIN_EXE_codex-mcp"),
        "{shown:#}"
    );
    let said = run(&fixture, &["exec", "call it"]).await;
    assert!(said.contains("threadId is missing"), "{said}");

    let done = setup.json(&["codex", "--remove", "--yes"]);
    assert_eq!(done["changes"][0]["action"], "restore", "{done:#}");
    assert_eq!(fs::read_to_string(&config).unwrap(), before);
    // Codex does not pass on what keeps the servers of tests from starting one.
    fixture.stop_hosts().await;
    fixture.until_processes_end().await;
}

/// Where there is no file, Codex itself makes it.
async fn own_command_of_codex_makes_the_file(release: &str) {
    let home = Home::new("");
    let config = home.codex_home().join("config.toml");
    fs::remove_file(&config).unwrap();
    let mut setup = Setup::new(&home, release);
    setup.install("codex", &testkit::codex::native_binary(release));
    let done = setup.json(&["codex", "--yes"]);
    assert_eq!(done["changes"][0].get("note"), None, "{done:#}");
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.contains("[mcp_servers.codex]"), "{text}");
    setup.json(&["codex", "--remove", "--yes"]);
    assert!(!config.exists());
}

/// What Codex prints for these arguments.
pub(super) async fn run(fixture: &CodexFixture, args: &[&str]) -> String {
    let codex = testkit::codex::native_binary(&fixture.release);
    let run = Command::from(fixture.home.command(codex))
        .args(args)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let ended = timeout(TIME_LIMIT, run).await;
    let output = ended.unwrap_or_else(|_| panic!("Codex does not end: {args:?}"));
    let output = output.unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

on_oldest_and_newest!(
    codex_exec_calls_a_tool_by_the_entry_of_setup,
    own_command_of_codex_makes_the_file,
);
