//! Groups of tools: `serve --tools`.

use scripted_model::{Reply, Script};
use serde_json::json;
use testkit::McpClient;

use super::{CodexFixture, VERSION};

fn ok_model() -> Script {
    Script::new().otherwise([Reply::say("ok")])
}

async fn names(client: &mut McpClient) -> Vec<String> {
    let listed = client.call("tools/list", json!({})).await;
    let tools = listed["tools"].as_array().unwrap();
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
    names.map(str::to_owned).collect()
}

#[tokio::test]
async fn only_chosen_tool_groups_are_listed_and_callable() {
    let stage = CodexFixture::new(testkit::codex::newest(), ok_model()).await;
    for (groups, expected) in [
        (
            "runs",
            [
                "codex_review",
                "codex_status",
                "call_status",
                "call_cancel",
                "codex_run",
            ]
            .as_slice(),
        ),
        ("team", &["codex_status", "codex_threads"]),
        (
            "sessions,team",
            &[
                "codex",
                "codex-reply",
                "codex_session",
                "codex_check",
                "codex_status",
                "codex_threads",
            ],
        ),
    ] {
        let mut client = stage.client(&["--tools", groups]).await;
        assert_eq!(names(&mut client).await, expected, "{groups}");
        client.call_tool("codex_status", json!({})).await;
        let id = client.request_tool("call_codex", json!({ "prompt": "x", "cwd": "/" }));
        let error = client.error(&id).await;
        assert_eq!(error["code"], -32602, "{error}");
        stage.finish(client).await;
    }
}

#[tokio::test]
async fn instructions_name_only_the_served_tools() {
    let stage = CodexFixture::new(testkit::codex::newest(), ok_model()).await;
    let mut client = McpClient::start(&stage.launch(&["--tools", "runs"]));
    let initialized = client.initialize(VERSION, json!({})).await;
    let told = initialized["instructions"].as_str().unwrap();
    assert!(
        told.contains("codex_run") && !told.contains("call_codex"),
        "{told}"
    );
    stage.finish(client).await;
}

/// The proxy serves the tools of Codex's own server, whatever groups are chosen.
#[tokio::test]
async fn proxy_serves_groups_of_our_own_tools() {
    let stage = CodexFixture::new("0.153.4", ok_model()).await;
    let args = ["--backend", "mcp-server", "--tools"];
    let mut client = stage
        .quiet_client(&[args.as_slice(), &["sessions,team"]].concat())
        .await;
    let names = names(&mut client).await;
    assert!(names.contains(&"codex".to_owned()), "{names:?}");
    assert!(names.contains(&"codex_threads".to_owned()), "{names:?}");
    assert!(!names.contains(&"call_codex".to_owned()), "{names:?}");
    assert!(client.finish().await.success());

    let mut refused = McpClient::start(&stage.launch(&[args.as_slice(), &["jobs"]].concat()));
    assert!(!refused.exited().await.success());
}
