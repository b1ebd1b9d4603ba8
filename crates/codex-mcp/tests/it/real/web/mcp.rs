//! MCP over HTTP.

use scripted_model::{Gate, Reply, Script, Shell};
use serde_json::{Value, json};

use super::{WebFixture, kill_hosts};
use crate::jobs::wait_for;
use crate::on_oldest_and_newest;
use crate::real::job_tools;
use crate::real::team::{make_team, put_mail};
use testkit::http::{Event, Events, Request};

on_oldest_and_newest!(client_of_http_calls_codex_and_is_asked);

const ACCEPT: &str = "application/json, text/event-stream";

/// A session of MCP over HTTP.
struct Client<'a> {
    web: &'a WebFixture,
    token: String,
    session: String,
}

fn initialize() -> Value {
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} },
        "clientInfo": { "name": "a test", "version": "1" } } })
}

fn message(web: &WebFixture, token: &str, message: &Value) -> Request {
    let request = web.request("POST", "/mcp").bearer(token);
    request.header("accept", ACCEPT).json(message)
}

impl<'a> Client<'a> {
    async fn new(web: &'a WebFixture) -> Self {
        let token = web.run(&["token", "a client"]).await;
        let begun = message(web, &token, &initialize()).send().await;
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
    stranger_has_no_such_session(&client, &accept).await;
    assert!(!web.stage.file("made.txt").exists());
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
async fn wrong_parameters_are_no_unknown_method() {
    let web = WebFixture::new(testkit::codex::newest(), Script::new()).await;
    let client = Client::new(&web).await;
    for (method, params, code) in [
        ("tools/call", json!({ "name": 5 }), -32602),
        (
            "tools/call",
            json!({ "name": "codex_status", "arguments": [] }),
            -32602,
        ),
        ("tools/unknown", json!({}), -32601),
    ] {
        let refused = client.call(1, method, params).await;
        assert_eq!(refused["error"]["code"], code, "{refused:#}");
    }
    web.finish().await;
}

#[tokio::test]
async fn answer_with_a_yes_and_a_no_is_a_no() {
    let touch = Reply::shell(Shell::escalated("touch made.txt", "it is needed"));
    let script = Script::new().otherwise([touch, Reply::say("done")]);
    let web = WebFixture::new(testkit::codex::newest(), script).await;
    let client = Client::new(&web).await;
    let arguments = json!({ "prompt": "make it", "approval-policy": "on-request",
        "cwd": web.stage.home.work() });
    let call = json!({ "name": "codex", "arguments": arguments });
    let mut events = client.begin(9, "tools/call", call).await;
    let asked = events
        .until(|event| event.data["method"] == "elicitation/create")
        .await;
    let question = &asked.data["params"];
    assert!(question["codex_command"].is_array(), "{question:#}");
    assert_eq!(question["codex_mcp_tool_call_id"], "9", "{question:#}");
    let both = json!({ "jsonrpc": "2.0", "id": asked.data["id"],
        "result": { "action": "accept", "decision": "denied" } });
    let accepted = client.message(&both).send().await;
    assert_eq!(accepted.status, 202, "{accepted:?}");
    let answer = events.until(|event| event.data["id"] == 9).await.data;
    assert_eq!(
        answer["result"]["structuredContent"]["content"], "done",
        "{answer:#}"
    );
    assert!(!web.stage.file("made.txt").exists());
    web.finish().await;
}

/// Who knows the ID of a session, and has another credential, can neither answer nor read nor end it.
async fn stranger_has_no_such_session(client: &Client<'_>, answer: &Value) {
    let web = client.web;
    let token = web.run(&["token", "another client"]).await;
    let reading = web.request("GET", "/mcp").header("accept", ACCEPT);
    let ending = web.request("DELETE", "/mcp");
    let answering = message(web, &token, answer);
    for request in [answering, reading.bearer(&token), ending.bearer(&token)] {
        let request = request.header("mcp-session-id", &client.session);
        let refused = request.send().await;
        assert_eq!(refused.status, 404, "{refused:?}");
    }
    // Nor can it by naming a session of its own beside that one.
    let own = message(web, &token, &initialize()).send().await;
    let own = own.header("mcp-session-id").unwrap();
    for ids in [[own, &client.session], [&client.session, own]] {
        let both = message(web, &token, answer);
        let both = both.header("mcp-session-id", ids[0]);
        let refused = both.header("Mcp-Session-Id", ids[1]).send().await;
        assert_eq!(refused.status, 404, "{refused:?}");
    }
}

/// A client of MCP 2026-07-28, which needs no session.
struct Stateless<'a> {
    web: &'a WebFixture,
    token: String,
    capabilities: Value,
}

impl<'a> Stateless<'a> {
    async fn new(web: &'a WebFixture, capabilities: Value) -> Self {
        let token = web.run(&["token", "a client"]).await;
        Self {
            web,
            token,
            capabilities,
        }
    }

    /// Sends a request; `name` is that of the thing that it is about.
    async fn begin(&self, method: &str, name: Option<&str>, mut params: Value) -> Events {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "a test", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let request = message(self.web, &self.token, &body)
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method);
        let request = match name {
            Some(name) => request.header("mcp-name", name),
            None => request,
        };
        request.events().await
    }

    async fn call(&self, method: &str, name: Option<&str>, params: Value) -> Value {
        let mut events = self.begin(method, name, params).await;
        events.until(|event| event.data["id"] == 1).await.data
    }

    /// Calls a tool, which must succeed; returns its structured result.
    async fn tool(&self, name: &str, arguments: Value) -> Value {
        let call = json!({ "name": name, "arguments": arguments });
        let mut answer = self.call("tools/call", Some(name), call).await;
        assert_ne!(answer["result"]["isError"], true, "{answer:#}");
        answer["result"]["structuredContent"].take()
    }
}

#[tokio::test]
async fn requests_of_2026_need_no_session() {
    let script = Script::new().otherwise([Reply::say("done")]);
    let web = WebFixture::new(testkit::codex::newest(), script).await;
    let client = Stateless::new(&web, json!({})).await;
    let discovered = client.call("server/discover", None, json!({})).await;
    assert!(
        discovered["result"]["capabilities"]["tools"].is_object(),
        "{discovered:#}"
    );
    let listed = client.call("tools/list", None, json!({})).await;
    assert!(
        listed["result"]["tools"].as_array().unwrap().len() > 5,
        "{listed:#}"
    );
    let arguments = json!({ "prompt": "p", "cwd": web.stage.home.work() });
    let call = json!({ "name": "codex", "arguments": arguments });
    let answer = client.call("tools/call", Some("codex"), call).await;
    assert_eq!(
        answer["result"]["structuredContent"]["content"], "done",
        "{answer:#}"
    );
    web.finish().await;
}

/// A member of a team under another name than the fixture's own client.
const AS_REVIEWER: [(&str, &str); 2] = [("ATM_TEAM", "builders"), ("ATM_IDENTITY", "reviewer")];

#[tokio::test]
async fn requests_of_2026_that_overlap_have_one_identity() {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("done").behind(&gate)]);
    let mut web = WebFixture::new(testkit::codex::newest(), script).await;
    make_team(&web.stage, &["lead"]);
    web.restart_with(&AS_REVIEWER).await;
    let client = Stateless::new(&web, json!({})).await;
    let identity = async || {
        let status = client.tool("codex_status", json!({})).await;
        status["identity"].as_str().unwrap().to_owned()
    };
    let first = identity().await;
    assert_eq!(first, "reviewer");
    let message = json!({ "from": "lead", "text": "Look", "read": false,
        "timestamp": "2026-11-26T10:00:00.000Z" });
    put_mail(&web.stage, &first, &[message]);
    let arguments = json!({ "prompt": "work", "cwd": web.stage.home.work() });
    let meanwhile = async {
        gate.reached(1).await;
        assert_eq!(identity().await, first);
        let pending = client.tool("atm_pending_count", json!({})).await;
        assert_eq!(pending["count"], 1, "{pending:#}");
        gate.release();
    };
    let (answer, ()) = tokio::join!(client.tool("codex", arguments), meanwhile);
    assert_eq!(answer["content"], "done", "{answer:#}");
    web.finish().await;
}

#[tokio::test]
async fn first_session_has_the_configured_identity() {
    let mut web = WebFixture::new(testkit::codex::newest(), Script::new()).await;
    make_team(&web.stage, &["lead"]);
    web.restart_with(&AS_REVIEWER).await;
    let client = Client::new(&web).await;
    let call = json!({ "name": "codex_status", "arguments": {} });
    let status = client.call(1, "tools/call", call).await;
    let identity = &status["result"]["structuredContent"]["identity"];
    assert_eq!(identity, "reviewer", "{status:#}");
    web.finish().await;
}

/// The extension of MCP for tasks.
const TASKS: &str = "io.modelcontextprotocol/tasks";

#[tokio::test]
async fn task_is_fetched_without_a_session() {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("hello").behind(&gate)]);
    let web = WebFixture::new(testkit::codex::newest(), script).await;
    let client = Stateless::new(&web, json!({ "extensions": { TASKS: {} } })).await;
    let begin = async || {
        let arguments = json!({ "prompt": "work", "cwd": web.stage.home.work() });
        let call = json!({ "name": "call_codex", "arguments": arguments });
        let created = client.call("tools/call", Some("call_codex"), call).await;
        assert_eq!(created["result"]["resultType"], "task", "{created:#}");
        created["result"]["taskId"].as_str().unwrap().to_owned()
    };
    let get = async |task: &str| {
        let state = client.call("tasks/get", Some(task), json!({ "taskId": task }));
        state.await["result"].take()
    };
    let until = async |task: &str, status: &str| {
        wait_for(status, async || {
            let state = get(task).await;
            (state["status"] == status).then_some(state)
        })
        .await
    };
    let task = begin().await;
    gate.reached(1).await;
    assert_eq!(get(&task).await["status"], "working");
    gate.release();
    let state = until(&task, "completed").await;
    let result = &state["result"]["structuredContent"];
    assert_eq!(result["response"], "hello", "{state:#}");

    let gone = json!({ "taskId": "turn_unknown" });
    let refused = client.call("tasks/get", Some("turn_unknown"), gone).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused:#}");
    web.finish().await;
}

/// The resource that changes with each job.
const JOBS: &str = "codex-mcp:///jobs";

fn is_update(event: &Event) -> bool {
    event.data["method"] == "notifications/resources/updated" && event.data["params"]["uri"] == JOBS
}

#[tokio::test]
async fn subscription_of_a_session_outlives_its_host() {
    let script = Script::new().otherwise([Reply::say("done")]);
    let web = WebFixture::new(testkit::codex::newest(), script).await;
    let client = Client::new(&web).await;
    let subscribed = client
        .call(1, "resources/subscribe", json!({ "uri": JOBS }))
        .await;
    assert!(subscribed["result"].is_object(), "{subscribed:#}");
    let stream = web.request("GET", "/mcp").bearer(&client.token);
    let stream = stream.header("accept", "text/event-stream");
    let stream = stream.header("mcp-session-id", &client.session);
    let mut news = stream.events().await;
    // Nothing has changed yet: the report comes from the next host, without a message of the client.
    kill_hosts(&web).await;
    web.output(&["jobs", "submit", "work"]).await;
    news.until(is_update).await;
    web.finish().await;
}

#[tokio::test]
async fn call_of_a_killed_host_gets_its_answer_or_says_that_it_is_lost() {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("done").behind(&gate)]);
    let stage = job_tools::stage(testkit::codex::newest(), script).await;
    let web = WebFixture::on(stage).await;
    let client = Client::new(&web).await;
    let work = web.stage.home.work();
    let arguments = json!({ "prompt": "work", "cwd": work });
    let call = json!({ "name": "codex", "arguments": arguments });
    let mut turn = client.begin(1, "tools/call", call).await;
    let arguments = json!({ "task": "work", "repo": work, "wait_ms": 600_000 });
    let call = json!({ "name": "codex_run", "arguments": arguments });
    let mut run = client.begin(2, "tools/call", call).await;
    gate.reached(2).await;
    kill_hosts(&web).await;
    let lost = run.until(|event| event.data["id"] == 2).await.data;
    let error = &lost["result"]["structuredContent"]["error"];
    assert_eq!(error["code"], "HOST_LOST", "{lost:#}");
    assert_eq!(error["retryable"], false, "{lost:#}");
    let hint = error["hint"].as_str().unwrap();
    assert!(hint.contains("call_jobs"), "{hint}");
    gate.release();
    let answer = turn.until(|event| event.data["id"] == 1).await.data;
    assert_eq!(
        answer["result"]["structuredContent"]["content"], "done",
        "{answer:#}"
    );
    web.finish().await;
}

#[tokio::test]
async fn subscription_of_2026_is_a_stream() {
    let script = Script::new().otherwise([Reply::say("done")]);
    let web = WebFixture::new(testkit::codex::newest(), script).await;
    let client = Stateless::new(&web, json!({})).await;
    let subscribed = json!([JOBS, "codex-mcp:///unknown"]);
    let filter = json!({ "notifications": { "resourceSubscriptions": subscribed } });
    let mut news = client.begin("subscriptions/listen", None, filter).await;
    let acknowledged = "notifications/subscriptions/acknowledged";
    let accepted = news
        .until(|event| event.data["method"] == acknowledged)
        .await;
    let accepted = &accepted.data["params"]["notifications"];
    assert_eq!(accepted["resourceSubscriptions"], json!([JOBS]));
    web.output(&["jobs", "submit", "work"]).await;
    let update = news.until(is_update).await.data;
    let meta = &update["params"]["_meta"];
    assert_eq!(
        meta["io.modelcontextprotocol/subscriptionId"], 1,
        "{update:#}"
    );
    drop(news);
    web.finish().await;
}

#[tokio::test]
async fn resource_that_a_client_has_listed_can_be_subscribed_to() {
    let web = WebFixture::new(testkit::codex::newest(), Script::new()).await;
    make_team(&web.stage, &["lead"]);
    let client = Stateless::new(&web, json!({})).await;
    let mail = "codex-mcp:///mail";
    let has_mail = async || {
        let listed = client.call("resources/list", None, json!({})).await;
        let resources = listed["result"]["resources"].as_array().unwrap();
        resources.iter().any(|one| one["uri"] == mail)
    };
    assert!(!has_mail().await);
    web.stage.configure("team = \"builders\"");
    assert!(has_mail().await);
    let filter = json!({ "notifications": { "resourceSubscriptions": [mail] } });
    let mut news = client.begin("subscriptions/listen", None, filter).await;
    let accepted = news
        .until(|event| event.data["method"] == "notifications/subscriptions/acknowledged")
        .await;
    let accepted = &accepted.data["params"]["notifications"];
    assert_eq!(accepted["resourceSubscriptions"], json!([mail]));
    drop(news);
    web.finish().await;
}
