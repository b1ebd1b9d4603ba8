//! The identities of several servers with one name.

use std::fs;

use serde_json::json;
use testkit::fake::Plan;
use testkit::{Home, McpClient, Signal};

use super::serve::HANDSHAKE;

async fn server(home: &Home) -> McpClient {
    let launch = home
        .launch(env!("CARGO_BIN_EXE_codex-mcp"))
        .args(["serve", "--identity", "arch", "--team", "builders"])
        .env("CODEX_MCP_CODEX_BIN", testkit::fake::fake_codex_path())
        .envs(testkit::fake::FakeCodex::new(home, &Plan::new()).env());
    McpClient::connect(&launch, HANDSHAKE, json!({})).await
}

async fn identity(client: &mut McpClient) -> String {
    let status = client.call_tool("codex_status", json!({})).await;
    let status = &status["structuredContent"];
    assert_eq!(status["team"], "builders");
    status["identity"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn second_server_gets_a_number_and_killed_identity_is_free() {
    let home = Home::new("");
    let note = |name: &str| {
        let directory = home.atm_home().join(".config/atm/codex-sessions");
        directory.join(name).join("identity.lock")
    };
    let mut first = server(&home).await;
    assert_eq!(identity(&mut first).await, "arch");
    let mut second = server(&home).await;
    assert_eq!(identity(&mut second).await, "arch-2");
    let told = "another server or agent is arch; this one is arch-2";
    assert!(second.stderr().contains(told), "{}", second.stderr());
    assert!(note("arch").exists() && note("arch-2").exists());

    first.signal(Signal::SIGKILL);
    first.exited().await;
    drop(first);
    let mut third = server(&home).await;
    assert_eq!(identity(&mut third).await, "arch");
    for client in [second, third] {
        assert!(client.finish().await.success());
    }
    assert!(!note("arch").exists() && !note("arch-2").exists());
}

#[tokio::test]
async fn status_warns_of_a_team_that_does_not_exist() {
    let home = Home::new("");
    let warnings = async || {
        let mut client = server(&home).await;
        let status = client.call_tool("codex_status", json!({})).await;
        assert!(client.finish().await.success());
        status["structuredContent"]["warnings"].to_string()
    };
    let told = warnings().await;
    assert!(told.contains("there is no team builders"), "{told}");
    let team = home.atm_home().join(".claude/teams/builders");
    fs::create_dir_all(&team).unwrap();
    fs::write(team.join("config.json"), r#"{"members": []}"#).unwrap();
    let told = warnings().await;
    assert!(!told.contains("there is no team"), "{told}");
}
