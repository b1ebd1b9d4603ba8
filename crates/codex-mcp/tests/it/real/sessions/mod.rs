//! `--api sessions` on the real Codex.

mod approvals;
mod results;
mod threads;

use serde_json::{Value, json};
use testkit::McpClient;

use super::{CodexFixture, structured};
use crate::jobs::wait_for;

/// A client of `--api sessions`, with its most frequent calls.
pub(in crate::real) struct Poller {
    pub(in crate::real) client: McpClient,
}

impl Poller {
    pub(in crate::real) async fn new(stage: &CodexFixture, args: &[&str]) -> Self {
        let args: Vec<&str> = ["--api", "sessions"].iter().chain(args).copied().collect();
        Self {
            client: stage.client(&args).await,
        }
    }

    /// Calls a tool, which must succeed; returns its structured content.
    pub(in crate::real) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.client.call_tool(tool, arguments).await;
        assert_eq!(result["isError"], false, "{result:#}");
        let text: Value =
            serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(&text, structured(&result));
        text
    }

    /// Calls a tool, which must refuse; returns the error code.
    pub(in crate::real) async fn refused(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.client.call_tool(tool, arguments).await;
        assert_eq!(result["isError"], true, "{result:#}");
        assert_eq!(structured(&result)["isError"], true);
        let code = structured(&result)["error"]["code"].as_str().unwrap();
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with(&format!("Error [{code}]: ")), "{text}");
        code.to_owned()
    }

    pub(in crate::real) async fn start(&mut self, prompt: &str, more: Value) -> String {
        let mut arguments = json!({"prompt": prompt, "approvalPolicy": "on-request",
            "sandbox": "read-only"});
        let more = more.as_object().unwrap().clone();
        arguments.as_object_mut().unwrap().extend(more);
        let started = self.call("codex", arguments).await;
        started["sessionId"].as_str().unwrap().to_owned()
    }

    /// Polls until `seen` holds; returns the last poll and all events.
    pub(in crate::real) async fn until(
        &mut self,
        session: &str,
        seen: impl Fn(&Value) -> bool,
    ) -> (Value, Vec<Value>) {
        let mut events = Vec::new();
        let look = wait_for("a state of the session", async || {
            let arguments = json!({"action": "poll", "sessionId": session, "maxEvents": 1000,
                "responseMode": "full", "waitMs": 5000});
            let look = self.call("codex_check", arguments).await;
            assert_eq!(look.get("cursorResetTo"), None, "{look:#}");
            events.extend(look["events"].as_array().unwrap().iter().cloned());
            seen(&look).then_some(look)
        })
        .await;
        (look, events)
    }

    pub(in crate::real) async fn until_idle(&mut self, session: &str) -> (Value, Vec<Value>) {
        self.until(session, |look| look["status"] == "idle").await
    }

    /// Polls with these options until the session has this state, also while there is no host; returns
    /// what the poll shows.
    pub(in crate::real) async fn until_state(
        &mut self,
        session: &str,
        state: &str,
        options: Value,
    ) -> Value {
        let mut poll = json!({"action": "poll", "sessionId": session, "waitMs": 1000});
        let options = options.as_object().unwrap().clone();
        poll.as_object_mut().unwrap().extend(options);
        wait_for(&format!("the state {state}"), async || {
            let seen = self.client.call_tool("codex_check", poll.clone()).await;
            let shown = structured(&seen);
            let is_lost = shown["error"]["code"] == "HOST_LOST";
            assert!(is_lost || seen["isError"] == false, "{seen:#}");
            (shown["status"] == state).then(|| shown.clone())
        })
        .await
    }

    /// Waits for a question of the session, and returns it.
    pub(in crate::real) async fn question(&mut self, session: &str) -> Value {
        let (look, _) = self
            .until(session, |look| look["status"] == "waiting_approval")
            .await;
        look["actions"][0].clone()
    }

    pub(in crate::real) async fn decide(
        &mut self,
        session: &str,
        question: &Value,
        decision: &str,
    ) -> Value {
        let arguments = json!({"action": "respond_permission", "sessionId": session,
            "requestId": question["requestId"], "decision": decision});
        self.call("codex_check", arguments).await
    }

    pub(in crate::real) async fn session(&mut self, action: &str, session: &str) -> Value {
        let arguments = json!({"action": action, "sessionId": session});
        self.call("codex_session", arguments).await
    }

    /// The details of a session.
    pub(in crate::real) async fn get(&mut self, session: &str) -> Value {
        let get = json!({"action": "get", "sessionId": session, "includeSensitive": true});
        self.call("codex_session", get).await
    }

    pub(in crate::real) async fn reply(
        &mut self,
        session: &str,
        prompt: &str,
        more: Value,
    ) -> Value {
        let mut arguments = json!({"sessionId": session, "prompt": prompt});
        let more = more.as_object().unwrap().clone();
        arguments.as_object_mut().unwrap().extend(more);
        self.call("codex_reply", arguments).await
    }
}
