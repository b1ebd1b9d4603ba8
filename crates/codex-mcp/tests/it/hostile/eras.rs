//! The versions of MCP, and what may come before the handshake.

use serde_json::{Value, json};
use testkit::fake::{Action, HELLO, Plan};

use super::serve::{HANDSHAKE, Serve, completed};

const STATELESS: &str = "2026-07-28";

#[tokio::test]
async fn protocol_version_with_a_handshake_is_served() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut serve = Serve::start(&Plan::new());
        let server = serve.client.initialize(version, json!({})).await;
        assert_eq!(server["protocolVersion"], version);
        assert_eq!(server["serverInfo"]["name"], "codex-mcp");
        let tools = serve.client.call("tools/list", json!({})).await;
        assert_eq!(tools["tools"][0]["name"], "codex");
        assert_eq!(completed(&serve.codex().await), HELLO);
        serve.finish().await;
    }
}

#[tokio::test]
async fn unknown_protocol_version_is_answered_with_a_served_one() {
    for version in ["1999-01-01", "2999-01-01", "nonsense"] {
        let mut serve = Serve::start(&Plan::new());
        let server = serve.client.initialize(version, json!({})).await;
        assert_eq!(server["protocolVersion"], HANDSHAKE);
        serve.finish().await;
    }
}

#[tokio::test]
async fn request_without_a_handshake_is_served() {
    let mut serve = Serve::start(&Plan::new());
    serve.client.describe_each_request(STATELESS, json!({}));
    let about = serve.client.call("server/discover", json!({})).await;
    let versions = about["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&STATELESS.into()), "{about:#}");
    let tools = serve.client.call("tools/list", json!({})).await;
    assert_eq!(tools["tools"][0]["name"], "codex");
    assert_eq!(completed(&serve.codex().await), HELLO);
    serve.finish().await;
}

#[tokio::test]
async fn initialize_and_tools_list_do_not_wait_for_codex() {
    let plan = Plan::new().on("initialize", [Action::Hang]);
    for stateless in [false, true] {
        let mut serve = Serve::start(&plan);
        if stateless {
            serve.client.describe_each_request(STATELESS, json!({}));
        } else {
            serve.client.initialize(HANDSHAKE, json!({})).await;
        }
        let tools = serve.client.call("tools/list", json!({})).await;
        assert_eq!(tools["tools"].as_array().unwrap().len(), 13);
        serve.fake.wait_for_method("initialize").await;
        serve.finish().await;
    }
}

#[tokio::test]
async fn call_before_the_handshake_is_refused() {
    let mut serve = Serve::start(&Plan::new());
    let early = serve.prompt();
    let error = serve.client.error(&early).await;
    assert_eq!(error["code"], -32602);
    serve.client.initialize(HANDSHAKE, json!({})).await;
    assert_eq!(completed(&serve.codex().await), HELLO);
    serve.finish().await;
}

/// Clients probe before they decide on an era, and give up probes.
#[tokio::test]
async fn input_before_the_handshake_does_not_end_the_server() {
    let stray = [
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
        json!({"jsonrpc": "2.0", "method": "notifications/made-up"}),
        json!({"jsonrpc": "2.0", "id": 3, "result": {}}),
        json!({"jsonrpc": "2.0", "id": 3, "error": {"code": 1, "message": "no"}}),
    ];
    let probes: [(&str, Value); 4] = [
        ("none", Value::Null),
        ("ping", json!({})),
        ("server/discover", json!({})),
        (
            "tools/list",
            json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "1999-01-01"}}),
        ),
    ];
    for (method, params) in probes {
        for message in &stray {
            let mut serve = Serve::start(&Plan::new());
            if method != "none" {
                let probe = serve.client.request(method, params.clone());
                serve.client.response(&probe).await;
            }
            serve.client.send(message);
            serve.client.initialize(HANDSHAKE, json!({})).await;
            serve.client.call("tools/list", json!({})).await;
            serve.finish().await;
        }
    }
}

#[tokio::test]
async fn second_handshake_is_answered() {
    let mut serve = Serve::plain(&Plan::new()).await;
    let again = serve.client.initialize("2024-11-05", json!({})).await;
    assert_eq!(again["serverInfo"]["name"], "codex-mcp");
    assert_eq!(completed(&serve.codex().await), HELLO);
    serve.finish().await;
}
