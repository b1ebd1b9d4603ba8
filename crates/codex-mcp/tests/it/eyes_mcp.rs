//! `codex-mcp eyes-mcp` with an MCP client.

use std::fs;
use std::os::unix::fs::symlink;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use testkit::{Home, Launch, McpClient};

use crate::png::png;

fn picture() -> Vec<u8> {
    png("error")
}

struct Fixture {
    home: Home,
}

impl Fixture {
    fn new() -> Self {
        let home = Home::new("");
        fs::create_dir(home.work().join("screens")).unwrap();
        fs::write(home.work().join("screens/error.png"), picture()).unwrap();
        Self { home }
    }

    async fn client(&self, args: &[&str]) -> McpClient {
        let launch = self
            .home
            .launch(env!("CARGO_BIN_EXE_codex-mcp"))
            .args(["eyes-mcp"])
            .args(args.iter().copied());
        McpClient::connect(&launch, crate::VERSION, json!({})).await
    }

    fn queue(&self) -> String {
        let file = self.home.work().join(".codex-eyes/requests.jsonl");
        fs::read_to_string(file).unwrap_or_default()
    }
}

async fn asked(client: &mut McpClient, arguments: Value) -> Value {
    client.call_tool("request_image", arguments).await
}

/// The text of a refusal.
async fn refused(client: &mut McpClient, arguments: Value) -> String {
    let id = client.request_tool("request_image", arguments);
    let error = client.error(&id).await;
    assert_eq!(error["code"], -32602, "{error}");
    error["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn tool_is_described() {
    let fixture = Fixture::new();
    for answer in ["picture", "later"] {
        let mut client = fixture.client(&["--answer", answer]).await;
        let listed = client.call("tools/list", json!({})).await;
        let [tool] = listed["tools"].as_array().unwrap().as_slice() else {
            panic!("{listed}")
        };
        assert_eq!(tool["name"], "request_image");
        assert_eq!(tool["annotations"]["readOnlyHint"], true);
        let schema = &tool["inputSchema"];
        assert_eq!(schema["properties"]["path"]["type"], "string");
        assert_eq!(schema["properties"].as_object().unwrap().len(), 1);
        assert_eq!(schema["required"], json!(["path"]));
        assert_eq!(schema["additionalProperties"], false);
        assert!(client.finish().await.success());
    }
}

#[tokio::test]
async fn answer_is_the_picture() {
    let fixture = Fixture::new();
    let root = fixture.home.work().join("screens");
    let root = root.to_str().unwrap();
    let mut client = fixture
        .client(&["--answer", "picture", "--root", root])
        .await;
    for path in ["error.png", "./screens/error.png"] {
        let shown = asked(&mut client, json!({ "path": path })).await;
        assert_eq!(
            shown["content"],
            json!([{ "type": "image", "mimeType": "image/png", "data": STANDARD.encode(picture()) }])
        );
    }
    assert_eq!(fixture.queue(), "");
    assert!(client.finish().await.success());
}

#[tokio::test]
async fn request_is_queued_and_codex_told_to_wait() {
    let fixture = Fixture::new();
    let mut client = fixture.client(&["--answer", "later"]).await;
    let before = epoch_millis();
    for _ in 0..2 {
        let told = asked(&mut client, json!({ "path": "screens/error.png" })).await;
        let [block] = told["content"].as_array().unwrap().as_slice() else {
            panic!("{told}")
        };
        assert_eq!(block["type"], "text");
        let words = block["text"].as_str().unwrap();
        assert!(
            words.contains("print exactly <<WAITING_FOR_IMAGE>>"),
            "{words}"
        );
    }
    let queue = fixture.queue();
    let lines: Vec<&str> = queue.split_inclusive('\n').collect();
    assert_eq!(lines.len(), 2);
    for line in lines {
        let request: Value = line.parse().unwrap();
        let ts = request["ts"].as_u64().unwrap();
        assert!((before..=epoch_millis()).contains(&ts), "{line}");
        let expected = format!("{{\"ts\":{ts},\"path\":\"./screens/error.png\"}}\n");
        assert_eq!(line, expected);
    }
    assert!(client.finish().await.success());
}

fn epoch_millis() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    since.as_millis().try_into().unwrap()
}

#[tokio::test]
async fn file_that_is_no_picture_of_the_repository_is_refused() {
    let fixture = Fixture::new();
    let work = fixture.home.work();
    symlink("/etc/passwd", work.join("passwd.png")).unwrap();
    fs::write(work.join("words.png"), "words").unwrap();
    let directory = work.display();
    let missing = format!("file does not exist: ./nothing.png, relative to {directory}");
    for answer in ["picture", "later"] {
        let mut client = fixture.client(&["--answer", answer]).await;
        for (arguments, why) in [
            (json!({ "path": "" }), "path must be a non-empty string"),
            (json!({ "path": 7 }), "path must be a non-empty string"),
            (json!({ "path": null }), "path must be a non-empty string"),
            (
                json!({ "path": "/a.png" }),
                "path must be relative to repository root",
            ),
            (
                json!({ "path": "../a.png" }),
                "path traversal is not allowed",
            ),
            (
                json!({ "path": "README.md" }),
                "unsupported extension, allowed .png, .jpg, .jpeg, .webp",
            ),
            (
                json!({ "path": work.join("screens/error.png") }),
                "path must be relative to repository root: write it as ./directory/name.png, here \
                 ./screens/error.png",
            ),
            (json!({ "path": "nothing.png" }), missing.as_str()),
            (
                json!({ "path": "passwd.png" }),
                "leads out of the repository",
            ),
            (json!({ "path": "words.png" }), "is not a PNG picture"),
            (json!({}), "path must be a non-empty string"),
            (
                json!({ "path": "screens/error.png", "more": 1 }),
                "unknown field `more`",
            ),
        ] {
            let told = refused(&mut client, arguments.clone()).await;
            assert!(told.contains(why), "{arguments}: {told}");
        }
        let id = client.request_tool("another", json!({}));
        let error = client.error(&id).await;
        assert_eq!(error["code"], -32602, "{error}");
        // The server still answers.
        asked(&mut client, json!({ "path": "screens/error.png" })).await;
        assert!(client.finish().await.success());
    }
    assert_eq!(fixture.queue().lines().count(), 1);
}

#[tokio::test]
async fn picture_size_is_bounded_and_the_bound_too() {
    let fixture = Fixture::new();
    let mut client = fixture
        .client(&["--answer", "picture", "--max-image-bytes", "10"])
        .await;
    let told = refused(&mut client, json!({ "path": "screens/error.png" })).await;
    let size = picture().len();
    assert!(
        told.contains(&format!("it has {size} bytes and may have 10")),
        "{told}"
    );
    assert!(client.finish().await.success());
    let launch = Launch::new(env!("CARGO_BIN_EXE_codex-mcp"))
        .args(["eyes-mcp", "--max-image-bytes", "100000001"])
        .envs(fixture.home.env());
    let mut wrong = McpClient::start(&launch);
    assert_eq!(wrong.exited().await.code(), Some(2));
}
