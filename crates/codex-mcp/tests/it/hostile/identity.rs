//! The identities of several servers with one name.

use serde_json::json;
use testkit::fake::Plan;
use testkit::{Home, Launch, McpClient, Signal};

use super::serve::HANDSHAKE;

async fn server(home: &Home) -> McpClient {
    let launch = Launch::new(env!("CARGO_BIN_EXE_codex-mcp"))
        .args(["serve", "--identity", "arch", "--team", "builders"])
        .envs(home.env())
        .env("CODEX_MCP_CODEX_BIN", testkit::fake::fake_codex_path())
        .envs(testkit::fake::FakeCodex::new(home, &Plan::new()).env())
        .current_dir(home.work());
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
