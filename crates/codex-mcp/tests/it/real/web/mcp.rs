//! MCP over HTTP.

use scripted_model::{Reply, Script, Shell};
use serde_json::{Value, json};

use super::WebFixture;
use crate::on_each_release;
use testkit::http::{Events, Request};

on_each_release!(client_of_http_calls_codex_and_is_asked);

const ACCEPT: &str = "application/json, text/event-stream";

/// A session of MCP over HTTP.
struct Client<'a> {
    web: &'a WebFixture,
    token: String,
    session: String,
}

fn message(web: &WebFixture, token: &str, message: &Value) -> Request {
    let request = web.request("POST", "/mcp").bearer(token);
    request.header("accept", ACCEPT).json(message)
}

impl<'a> Client<'a> {
    async fn new(web: &'a WebFixture) -> Self {
        let token = web.run(&["token", "a client"]).await;
        let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "a test", "version": "1" } } });
        let begun = message(web, &token, &initialize).send().await;
        assert_eq!(begun.status, 200, "{begun:?}");
        assert!(begun.body.contains("\"codex-mcp\""), "{begun:?}");
        let session = begun.header("mcp-session-id").unwrap().to_owned();
        let client = Self {
            web,
            token,
            session,
        };
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let accepted = client.message(&initialized).send().await;
        assert_eq!(accepted.status, 202, "{accepted:?}");
        client
    }

    fn message(&self, body: &Value) -> Request {
        let request = message(self.web, &self.token, body);
        request.header("mcp-session-id", &self.session)
    }

    async fn begin(&self, id: u32, method: &str, params: Value) -> Events {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.message(&request).events().await
    }

    async fn call(&self, id: u32, method: &str, params: Value) -> Value {
        let mut events = self.begin(id, method, params).await;
        events.until(|event| event.data["id"] == id).await.data
    }
}

async fn client_of_http_calls_codex_and_is_asked(release: &str) {
    let touch = Reply::shell(Shell::escalated("touch made.txt", "it is needed"));
    let script = Script::new().otherwise([touch, Reply::say("done")]);
    let web = WebFixture::new(release, script).await;
    let client = Client::new(&web).await;
    let tools = client.call(1, "tools/list", json!({})).await;
    let tools = tools["result"]["tools"].as_array().unwrap();
    for name in ["codex", "codex-reply", "codex_run", "call_codex"] {
        assert!(tools.iter().any(|tool| tool["name"] == name), "{name}");
    }
    let arguments = json!({ "prompt": "make it", "approval-policy": "on-request",
        "cwd": web.stage.home.work() });
    let call = json!({ "name": "codex", "arguments": arguments, "_meta": { "progressToken": 7 } });
    let mut events = client.begin(2, "tools/call", call).await;
    let asked = events
        .until(|event| event.data["method"] == "elicitation/create")
        .await;
    let question = asked.data["params"]["message"].as_str().unwrap();
    assert!(question.contains("touch made.txt"), "{question}");
    let accept = json!({ "jsonrpc": "2.0", "id": asked.data["id"],
        "result": { "action": "accept", "content": { "decision": "accept" } } });
    let accepted = client.message(&accept).send().await;
    assert_eq!(accepted.status, 202, "{accepted:?}");
    let answer = events.until(|event| event.data["id"] == 2).await.data;
    assert_eq!(
        answer["result"]["structuredContent"]["content"], "done",
        "{answer:#}"
    );
    assert!(web.stage.file("made.txt").exists());
    web.finish().await;
}

#[tokio::test]
async fn requests_of_2026_need_no_session() {
    let script = Script::new().otherwise([Reply::say("done")]);
    let web = WebFixture::new(testkit::codex::newest(), script).await;
    let token = web.run(&["token", "a client"]).await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "a test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let send = async |method: &str, name: Option<&str>, mut params: Value| {
        params["_meta"] = meta.clone();
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let request = message(&web, &token, &body)
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method);
        let request = match name {
            Some(name) => request.header("mcp-name", name),
            None => request,
        };
        request
            .events()
            .await
            .until(|event| event.data["id"] == 1)
            .await
            .data
    };
    let discovered = send("server/discover", None, json!({})).await;
    assert!(
        discovered["result"]["capabilities"]["tools"].is_object(),
        "{discovered:#}"
    );
    let listed = send("tools/list", None, json!({})).await;
    assert!(
        listed["result"]["tools"].as_array().unwrap().len() > 5,
        "{listed:#}"
    );
    let arguments = json!({ "prompt": "p", "cwd": web.stage.home.work() });
    let call = json!({ "name": "codex", "arguments": arguments });
    let answer = send("tools/call", Some("codex"), call).await;
    assert_eq!(
        answer["result"]["structuredContent"]["content"], "done",
        "{answer:#}"
    );
    web.finish().await;
}
