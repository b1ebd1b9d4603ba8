//! Which of Codex's servers is used.

use serde_json::json;
use testkit::fake::{Event, HELLO, Plan, VERSION};

use super::super::serve::{HANDSHAKE, Serve, completed};
use super::content;

/// Whether the Codex that was started last was started as this.
fn started_as(serve: &Serve, word: &str) -> bool {
    let args = serve.fake.log().into_iter().rev();
    let mut args = args.filter_map(|entry| match entry.event {
        Event::Started { args, .. } => Some(args),
        _ => None,
    });
    args.next().unwrap().iter().any(|arg| arg == word)
}

fn start(version: &str, args: &[&str]) -> Serve {
    let mut serve = Serve::start_with(&Plan::new(), |launch| {
        launch.args(args).env(VERSION, version)
    });
    serve.client.ignore("codex/event");
    serve
}

/// A server that doesn't start says why, once, and never starts Codex.
async fn refused(version: &str, args: &[&str], words: &[&str]) {
    let mut serve = start(version, args);
    let status = serve.client.exited().await;
    assert_eq!(status.code(), Some(1), "{args:?} {version}");
    let said = serve.client.stderr();
    assert_eq!(said.matches("ERROR").count(), 1, "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?}: {said}");
    }
    assert!(serve.fake.started().is_empty());
    serve.gone(status).await;
}

#[tokio::test]
async fn an_old_codex_is_served_through_its_mcp_server() {
    let mut serve = start("0.71.0", &[]);
    serve.client.initialize(HANDSHAKE, json!({})).await;
    assert_eq!(content(&serve.codex().await), HELLO);
    assert!(started_as(&serve, "mcp-server"));
    serve.finish().await;
}

#[tokio::test]
async fn a_codex_with_both_is_served_through_its_app_server() {
    for version in ["0.72.0", "0.153.4"] {
        let mut serve = start(version, &["--backend", "auto"]);
        serve.client.initialize(HANDSHAKE, json!({})).await;
        assert_eq!(completed(&serve.codex().await), HELLO);
        assert!(started_as(&serve, "app-server"));
        serve.finish().await;
    }
}

#[tokio::test]
async fn a_codex_without_an_mcp_server_is_refused_at_once() {
    let wanted = ["--backend", "mcp-server"];
    refused("0.154.0", &wanted, &["0.154.0", "--backend mcp-server"]).await;
}

#[tokio::test]
async fn sessions_need_an_app_server() {
    let auto = ["--api", "sessions"];
    refused("0.71.0", &auto, &["--api sessions", "0.71.0"]).await;
    let proxied = ["--api", "sessions", "--backend", "mcp-server"];
    refused("0.153.4", &proxied, &["--api sessions", "app-server"]).await;

    let mut serve = start("0.153.4", &auto);
    serve.client.initialize(HANDSHAKE, json!({})).await;
    let list = serve.client.call("tools/list", json!({})).await;
    assert!(list.to_string().contains("codex_check"), "{list}");
    serve.finish().await;
}

#[tokio::test]
async fn no_codex_at_all_is_said_at_once() {
    let nowhere = ["--backend", "mcp-server", "--codex-bin", "/no/such/codex"];
    refused("0.153.4", &nowhere, &["/no/such/codex", "npm install"]).await;
}
