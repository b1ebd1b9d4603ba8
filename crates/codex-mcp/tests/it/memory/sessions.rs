//! Sessions of several threads, with a Codex that is played by the test.

use std::sync::Arc;

use codex_engine::command::StartThread;
use mcp_server::Api;
use serde_json::{Value, json};

use super::{MemoryServer, turn};

/// The ID of the thread with this number.
pub(super) fn thread(number: u32) -> String {
    format!("0199a213-81c0-7800-8aa1-{number:012}")
}

/// A server with `--api sessions`.
pub(super) struct Sessions {
    pub(super) world: MemoryServer,
}

impl Sessions {
    pub(super) async fn new() -> Self {
        let world = MemoryServer::with_api(Api::Sessions, json!({})).await;
        Self { world }
    }

    /// Begins a call and returns its id.
    pub(super) async fn request(&mut self, tool: &str, arguments: Value) -> i64 {
        let params = json!({"name": tool, "arguments": arguments});
        self.world.request("tools/call", params).await
    }

    /// The result of a call, which must be the client's next message.
    pub(super) async fn result(&mut self, id: i64) -> Value {
        let response = self.world.client.next().await;
        assert_eq!(response["id"], id, "{response:#}");
        response["result"].clone()
    }

    /// The structured content of a call, which must not be refused.
    pub(super) async fn answer(&mut self, id: i64) -> Value {
        let result = self.result(id).await;
        assert_eq!(result["isError"], false, "{result:#}");
        result["structuredContent"].clone()
    }

    pub(super) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.request(tool, arguments).await;
        self.answer(id).await
    }

    /// The text of a refusal.
    pub(super) async fn refused(&mut self, tool: &str, arguments: Value) -> String {
        let id = self.request(tool, arguments).await;
        let result = self.result(id).await;
        assert_eq!(result["isError"], true, "{result:#}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Starts a session whose thread has this number. Its turn has started, and no event was read.
    pub(super) async fn start(&mut self, number: u32, more: Value) -> String {
        let mut arguments = json!({"prompt": "work", "approvalPolicy": "on-request",
            "sandbox": "read-only"});
        let more = more.as_object().unwrap().clone();
        arguments.as_object_mut().unwrap().extend(more);
        let call = self.request("codex", arguments).await;
        let start = self.world.codex.next_is("thread/start").await;
        self.answer_thread(number, &start).await;
        self.accept_prompt(number).await;
        let started = self.answer(call).await;
        started["sessionId"].as_str().unwrap().to_owned()
    }

    /// Opens a session that has no turn, and whose thread has this number.
    pub(super) async fn open(&mut self, number: u32) {
        let engine = Arc::clone(&self.world.engine);
        let opening = tokio::spawn(async move { engine.start(StartThread::default()).await });
        let start = self.world.codex.next_is("thread/start").await;
        self.answer_thread(number, &start).await;
        opening.await.unwrap().unwrap();
    }

    /// Answers Codex's request that opens a thread.
    pub(super) async fn answer_thread(&mut self, number: u32, request: &Value) {
        let thread = json!({"thread": {"id": thread(number)}});
        let answer = json!({"id": request["id"], "result": thread});
        self.world.codex.send(answer).await;
    }

    /// Codex takes a prompt and starts the turn.
    pub(super) async fn accept_prompt(&mut self, number: u32) {
        let prompt = self.world.codex.next_is("turn/start").await;
        assert_eq!(prompt["params"]["threadId"], thread(number));
        let begun = json!({"turn": turn("inProgress")});
        self.tell(number, "turn/started", begun.clone()).await;
        let answer = json!({"id": prompt["id"], "result": begun});
        self.world.codex.send(answer).await;
    }

    pub(super) async fn tell(&mut self, number: u32, method: &str, mut params: Value) {
        params["threadId"] = thread(number).into();
        let news = json!({"method": method, "params": params});
        self.world.codex.send(news).await;
    }

    /// Codex writes a piece of a message.
    pub(super) async fn write(&mut self, number: u32, text: &str) {
        let delta = json!({"turnId": "turn", "itemId": "m", "delta": text});
        self.tell(number, "item/agentMessage/delta", delta).await;
    }

    pub(super) async fn end(&mut self, number: u32, status: &str) {
        self.tell(number, "turn/completed", json!({"turn": turn(status)}))
            .await;
    }

    /// Codex asks whether a command may run.
    pub(super) async fn ask(&mut self, number: u32, id: i64) {
        let params = json!({"threadId": thread(number), "turnId": "turn", "itemId": format!("c{id}"),
            "command": "touch x", "cwd": "/repo"});
        let method = "item/commandExecution/requestApproval";
        let question = json!({"id": id, "method": method, "params": params});
        self.world.codex.send(question).await;
    }

    /// Polls once and takes all events.
    pub(super) async fn poll_events(&mut self, session: &str) -> Value {
        self.call("codex_check", poll(session, 0)).await
    }

    /// Polls until `open` questions are open.
    pub(super) async fn poll_for_questions(&mut self, session: &str, open: usize) -> Value {
        loop {
            let look = self.call("codex_check", poll(session, 60_000)).await;
            if look["actions"].as_array().map_or(0, Vec::len) == open {
                return look;
            }
        }
    }

    /// Cancels a session without a turn.
    pub(super) async fn cancel(&mut self, session: &str) {
        let cancel = json!({"action": "cancel", "sessionId": session});
        let call = self.request("codex_session", cancel).await;
        self.world.codex.unloads_thread().await;
        self.answer(call).await;
    }

    pub(super) async fn get(&mut self, session: &str) -> Value {
        self.session("get", session).await
    }

    /// All sessions, as `codex_session` lists them.
    pub(super) async fn list(&mut self) -> Value {
        self.call("codex_session", json!({"action": "list"})).await
    }

    pub(super) async fn session(&mut self, action: &str, session: &str) -> Value {
        let arguments = json!({"action": action, "sessionId": session, "includeSensitive": true});
        self.call("codex_session", arguments).await
    }

    /// Checks that a call gets no answer now. A second of simulated time passes.
    pub(super) async fn assert_nothing_unread(&mut self) {
        self.world.client.assert_nothing_unread().await;
    }

    pub(super) async fn finish(self) {
        self.world.finish().await;
    }
}

/// The arguments of a poll that takes all events and waits up to `wait` milliseconds.
pub(super) fn poll(session: &str, wait: u64) -> Value {
    json!({"action": "poll", "sessionId": session, "maxEvents": 1000, "responseMode": "full",
        "waitMs": wait})
}

/// The events of a poll that have this method.
pub(super) fn events_of(look: &Value, method: &str) -> Vec<Value> {
    let events = look["events"].as_array().unwrap();
    let of_method = |event: &&Value| event["data"]["method"] == method;
    events.iter().filter(of_method).cloned().collect()
}
