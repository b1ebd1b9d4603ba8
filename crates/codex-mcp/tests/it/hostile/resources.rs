//! The resources of the server.

use serde_json::{Value, json};
use testkit::fake::{Action, Plan};

use super::serve::{HANDSHAKE, Serve};

const NAMES: [&str; 8] = [
    "server-info",
    "compat-report",
    "config",
    "gotchas",
    "quickstart",
    "errors",
    "threads",
    "jobs",
];

/// Those that every server has, whatever has happened; their texts are not short.
const FIXED: usize = 6;

fn uri(name: &str) -> String {
    format!("codex-mcp:///{name}")
}

/// Reads a resource and returns its only content.
async fn read(serve: &mut Serve, name: &str) -> Value {
    let uri = uri(name);
    let read = serve.client.call("resources/read", json!({"uri": uri}));
    let read = read.await;
    let contents = read["contents"].as_array().unwrap();
    assert_eq!(contents.len(), 1, "{read:#}");
    assert_eq!(contents[0]["uri"], uri);
    contents[0].clone()
}

async fn read_json(serve: &mut Serve, name: &str) -> Value {
    let content = read(serve, name).await;
    assert_eq!(content["mimeType"], "application/json");
    serde_json::from_str(content["text"].as_str().unwrap()).unwrap()
}

async fn read_markdown(serve: &mut Serve, name: &str) -> String {
    let content = read(serve, name).await;
    assert_eq!(content["mimeType"], "text/markdown");
    content["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn resources_are_listed_and_read_with_any_tools() {
    for api in ["classic", "sessions"] {
        let mut serve = Serve::start_with(&Plan::new(), |launch| launch.args(["--api", api]));
        let about = serve.client.initialize(HANDSHAKE, json!({})).await;
        assert!(about["capabilities"]["resources"].is_object(), "{about:#}");
        let listed = serve.client.call("resources/list", json!({})).await;
        let listed = listed["resources"].as_array().unwrap();
        let uris: Vec<&str> = listed
            .iter()
            .map(|one| one["uri"].as_str().unwrap())
            .collect();
        assert_eq!(uris, NAMES.map(uri));
        for (name, listed) in NAMES.iter().zip(listed) {
            let content = read(&mut serve, name).await;
            assert_eq!(content["mimeType"], listed["mimeType"]);
            if !NAMES[..FIXED].contains(name) {
                continue;
            }
            let text = content["text"].as_str().unwrap();
            assert!(
                (200..13_000).contains(&text.len()),
                "{name}: {}",
                text.len()
            );
        }
        let report = read_json(&mut serve, "compat-report").await;
        assert_eq!(read_json(&mut serve, "threads").await["threads"], json!([]));
        assert_eq!(read_json(&mut serve, "jobs").await["jobs"], json!([]));
        assert_eq!(report["toolCounts"]["core"], 13);
        assert_eq!(report["runtimeWarnings"], json!([]));
        assert_eq!(read_json(&mut serve, "server-info").await["api"], api);
        serve.finish().await;
    }
}

#[tokio::test]
async fn missing_resource_is_named_beside_the_existing_ones() {
    let mut serve = Serve::plain(&Plan::new()).await;
    for name in [
        "codex-mcp:///nope",
        "",
        "file:///etc/passwd",
        "codex-mcp:///config/",
    ] {
        let read = serve.client.request("resources/read", json!({"uri": name}));
        let error = serve.client.error(&read).await;
        assert_eq!(error["code"], -32002, "{error}");
        assert_eq!(error["data"]["uri"], name);
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("codex-mcp:///quickstart"), "{message}");
    }
    serve.finish().await;

    // MCP 2026-07-28 has no code of its own for it.
    let mut serve = Serve::start(&Plan::new());
    serve.client.describe_each_request("2026-07-28", json!({}));
    let read = serve.client.request("resources/read", json!({"uri": "x"}));
    assert_eq!(serve.client.error(&read).await["code"], -32602);
    serve.finish().await;
}

#[tokio::test]
async fn info_does_not_wait_for_codex() {
    let gate = Action::Gate {
        name: "introduced".to_owned(),
    };
    let plan = Plan::new().on("initialize", [gate, Action::Answer]);
    let mut serve = Serve::plain_with(&plan, &["--api", "sessions"]).await;
    serve.fake.wait_for_method("initialize").await;
    let before = read_json(&mut serve, "server-info").await;
    assert_eq!(before["codexCliVersion"], Value::Null);
    assert_eq!(before["activeSessions"], 0);
    assert_eq!(before["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(before["resources"].as_array().unwrap().len(), NAMES.len());
    assert!(before.get("node").is_none());

    serve.fake.open_gate("introduced");
    let start = json!({"prompt": "hi", "approvalPolicy": "never", "sandbox": "read-only"});
    let first = serve.client.call_tool("codex", start.clone()).await;
    serve.client.call_tool("codex", start).await;
    let after = read_json(&mut serve, "server-info").await;
    assert_eq!(after["codexCliVersion"], "0.169.0");
    assert_eq!(after["activeSessions"], 2);

    let session = &first["structuredContent"]["sessionId"];
    let cancel = json!({"action": "cancel", "sessionId": session});
    serve.client.call_tool("codex_session", cancel).await;
    let report = read_json(&mut serve, "compat-report").await;
    assert_eq!(report["runtime"]["activeSessions"], 1);
    serve.finish().await;
}

#[tokio::test]
async fn quickstart_calls_are_understood() {
    for api in ["sessions", "classic"] {
        let mut serve = Serve::plain_with(&Plan::new(), &["--api", api]).await;
        let text = read_markdown(&mut serve, "quickstart").await;
        let (sessions, classic) = text.split_once("## `--api classic`").unwrap();
        let part = match api {
            "sessions" => sessions,
            _ => classic,
        };
        let blocks = part.split("```json\n").skip(1);
        let calls: Vec<&str> = blocks.map(|one| one.split("```").next().unwrap()).collect();
        assert!(calls.len() >= 3, "{calls:?}");
        for call in calls {
            let call = call.replace("/path/to/project", &serve.home.work().to_string_lossy());
            let call: Value = serde_json::from_str(&call).unwrap();
            let result = serve.client.call("tools/call", call.clone()).await;
            // The sessions in the example do not exist.
            let text = result["content"][0]["text"].as_str().unwrap();
            assert!(!text.contains("INVALID_ARGUMENT"), "{call}: {text}");
        }
        serve.finish().await;
    }
}
