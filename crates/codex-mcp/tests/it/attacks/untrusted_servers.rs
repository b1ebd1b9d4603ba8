//! MCP servers of a repository that the user does not trust (C2), with the real Codex.

use std::fs;

use scripted_model::{Reply, Script};
use serde_json::{Value, json};
use testkit::AppServer;

use super::fixture::RepositoryFixture;
use crate::{on_each_release, trust};

on_each_release!(
    servers_of_an_untrusted_repository_are_not_started,
    jobs_start_no_server_of_an_untrusted_repository,
);

/// C2. The controls are a user who trusts the repository, and Codex itself.
async fn servers_of_an_untrusted_repository_are_not_started(release: &str) {
    let script = Script::new().otherwise([Reply::say("done")]);
    let stage = RepositoryFixture::new(release, script).await;
    stage.bring_server();
    let config = stage.home.codex_home().join("config.toml");
    let before = fs::read_to_string(&config).unwrap();
    let calls = [
        json!({ "prompt": "x" }),
        json!({ "prompt": "x", "sandbox": "workspace-write" }),
        json!({ "prompt": "x", "sandbox": "danger-full-access" }),
        json!({ "prompt": "x", "config": { "sandbox_mode": "workspace-write" } }),
        json!({ "prompt": "x", "sandbox": "workspace-write", "config": { "projects": {
            stage.home.work().to_str().unwrap(): { "trust_level": "trusted" } } } }),
    ];
    let mut client = stage.client(&[]).await;
    for (number, call) in calls.iter().enumerate() {
        let result = client.call_tool("codex", call.clone()).await;
        assert_ne!(result["isError"], true, "{result:#}");
        let warnings = result["structuredContent"]["warnings"].to_string();
        let is_told = warnings.contains("codex-mcp trust");
        assert_eq!(is_told, number == 0, "{warnings}");
    }
    let status = client.call_tool("codex_status", json!({})).await;
    assert!(status.to_string().contains("codex-mcp trust"), "{status}");
    client.finish().await;

    let mut client = stage.client(&["--api", "sessions"]).await;
    for sandbox in ["workspace-write", "danger-full-access"] {
        let call = json!({ "prompt": "x", "approvalPolicy": "never", "sandbox": sandbox });
        let result = client.call_tool("codex", call).await;
        let session = &result["structuredContent"]["sessionId"];
        let wait = json!({ "action": "wait_any", "sessionIds": [session] });
        let waited = client.call_tool("codex_session", wait).await;
        assert_eq!(waited["structuredContent"]["status"], "idle", "{result:#}");
    }
    client.finish().await;
    let (_, result, stderr) = stage.run(&["x", "--sandbox", "workspace-write"]).await;
    assert!(
        result["warnings"].to_string().contains("codex-mcp trust"),
        "{result:#}\n{stderr}"
    );
    assert!(!stage.was_attacked());
    assert_eq!(
        fs::read_to_string(&config).unwrap(),
        before,
        "nothing is recorded"
    );

    trust(&stage.home, &stage.home.work());
    let mut client = stage.client(&[]).await;
    let call = client.call_tool("codex", calls[1].clone()).await;
    assert_eq!(
        call["structuredContent"]["warnings"],
        Value::Null,
        "{call:#}"
    );
    stage.wait_until_attacked().await;
    client.finish().await;
    if release != "0.104.0" {
        fs::write(&config, &before).unwrap();
        let server = AppServer::real(release, &stage.home).await;
        let start = json!({ "cwd": stage.home.work(), "sandbox": "workspace-write" });
        server.start_thread(start).await;
        stage.wait_until_attacked().await;
    }
}

async fn jobs_start_no_server_of_an_untrusted_repository(release: &str) {
    let script = Script::new().otherwise([Reply::say("done")]);
    let stage = RepositoryFixture::new(release, script).await;
    stage.bring_server();
    let config = stage.home.codex_home().join("config.toml");
    let before = fs::read_to_string(&config).unwrap();
    let submit = [
        "jobs",
        "submit",
        "--wait",
        "--sandbox",
        "workspace-write",
        "x",
    ];
    let output = stage.codex_mcp(&submit).await;
    assert!(output.status.success(), "{output:?}");
    assert!(!stage.was_attacked(), "{output:?}");
    assert_eq!(fs::read_to_string(&config).unwrap(), before);

    trust(&stage.home, &stage.home.work());
    let output = stage.codex_mcp(&submit).await;
    assert!(output.status.success(), "{output:?}");
    stage.wait_until_attacked().await;
}
