//! Figures of `--api sessions`.

pub(crate) mod behind;
pub(crate) mod idle;
pub(crate) mod polled;
pub(crate) mod tools;
pub(crate) mod torrent;

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::McpClient;

use crate::model::PROMPT;

/// A client that starts sessions and looks into them.
pub(crate) struct Poller {
    pub(crate) client: McpClient,
    work: PathBuf,
}

impl Poller {
    pub(crate) fn new(client: McpClient, work: PathBuf) -> Self {
        Self { client, work }
    }

    /// Calls a tool; the text of the answer is what most clients read.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let mut result = self.client.call_tool(tool, arguments).await;
        assert_eq!(result["isError"], false, "{result:#}");
        result["structuredContent"].take()
    }

    /// Starts a session and returns its name.
    pub(crate) async fn start(&mut self) -> String {
        let arguments = json!({"prompt": PROMPT, "cwd": self.work,
            "approvalPolicy": "on-request", "sandbox": "read-only"});
        let started = self.call("codex", arguments).await;
        started["sessionId"].as_str().unwrap().to_owned()
    }

    /// Begins the next turn of a session.
    pub(crate) async fn reply(&mut self, session: &str) {
        let arguments = json!({"sessionId": session, "prompt": PROMPT});
        self.call("codex_reply", arguments).await;
    }

    /// Looks into a session.
    pub(crate) async fn poll(&mut self, session: &str, more: Value) -> Value {
        let mut arguments = json!({"action": "poll", "sessionId": session});
        let more = more.as_object().unwrap().clone();
        arguments.as_object_mut().unwrap().extend(more);
        self.call("codex_check", arguments).await
    }

    /// Waits until a session is idle.
    pub(crate) async fn wait(&mut self, session: &str) {
        let arguments = json!({"action": "wait_any", "sessionIds": [session], "waitMs": 120_000});
        let first = self.call("codex_session", arguments).await;
        assert_eq!(first["status"], "idle", "{first:#}");
    }

    pub(crate) async fn finish(self) {
        assert!(self.client.finish().await.success());
    }
}
