//! Commands of the model under one ID, for which Codex confuses the answers to its questions.

use scripted_model::{Reply, Script, Shell};
use serde_json::{Value, json};
use testkit::McpClient;

use super::fixture::RepositoryFixture;
use crate::jobs::wait_for;

const CALL_ID: &str = "call_1";

/// A session in which the model wants to create files outside of the sandbox, all in one response.
struct CallFixture {
    stage: RepositoryFixture,
    client: McpClient,
    session: String,
    events: Vec<Value>,
}

impl CallFixture {
    /// The model gives all calls this ID, if any.
    async fn creating(files: &'static [&'static str], id: Option<&'static str>) -> Self {
        let script = Script::by(move |request| {
            if !request.tool_outputs().is_empty() {
                return Reply::say("done");
            }
            let calls = files.iter().map(|file| {
                let command = format!("touch \"$HOME/{file}\"");
                Reply::shell(Shell::escalated(command, "it is needed"))
            });
            let calls = Reply::together(calls);
            match id {
                Some(id) => calls.under_call_id(id),
                None => calls,
            }
        });
        let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
        let mut client = stage.client(&["--api", "sessions"]).await;
        let arguments = json!({"prompt": "x", "sandbox": "workspace-write",
            "approvalPolicy": "on-request"});
        let started = client.call_tool("codex", arguments).await;
        let session = &started["structuredContent"]["sessionId"];
        let session = session.as_str().unwrap().to_owned();
        Self {
            stage,
            client,
            session,
            events: Vec::new(),
        }
    }

    /// Polls until this many questions are open or the turn has ended; returns the open questions.
    async fn questions(&mut self, count: usize) -> Vec<Value> {
        let poll = json!({"action": "poll", "sessionId": self.session, "maxEvents": 1000,
            "responseMode": "full", "waitMs": 5000});
        wait_for("questions, or the end of the turn", async || {
            let looked = self.client.call_tool("codex_check", poll.clone()).await;
            let look = &looked["structuredContent"];
            let events = look["events"].as_array().unwrap();
            self.events.extend(events.iter().cloned());
            let open = look["actions"].as_array().cloned().unwrap_or_default();
            (open.len() == count || look["status"] == "idle").then_some(open)
        })
        .await
    }

    async fn decide(&mut self, question: &Value, decision: &str) {
        let arguments = json!({"action": "respond_permission", "sessionId": self.session,
            "requestId": question["requestId"], "decision": decision});
        let decided = self.client.call_tool("codex_check", arguments).await;
        assert_eq!(decided["isError"], false, "{decided:#}");
    }

    async fn wait_for_end(&mut self) {
        let open = self.questions(usize::MAX).await;
        assert_eq!(open, Vec::<Value>::new());
    }

    fn has_created(&self, file: &str) -> bool {
        self.stage.home.home().join(file).exists()
    }
}

#[tokio::test]
async fn answer_to_one_command_does_not_run_another_with_the_same_id() {
    let mut calls = CallFixture::creating(&["benign", "hostile"], Some(CALL_ID)).await;
    let open = calls.questions(2).await;
    assert_eq!(open, Vec::<Value>::new());
    assert!(!calls.has_created("benign") && !calls.has_created("hostile"));
    let mut answers = calls.events.clone();
    answers.retain(|event| event["type"] == "approval_result");
    assert_eq!(answers.len(), 2, "{answers:#?}");
    for answer in answers {
        let data = &answer["data"];
        let why = data["message"].as_str().unwrap();
        assert_eq!(data["decision"], "decline", "{data:#}");
        assert!(why.contains("with the same ID"), "{why}");
    }
    calls.client.finish().await;

    // The controls: each command alone, and both with IDs of their own.
    for files in [&["benign"], &["hostile"]] {
        let mut control = CallFixture::creating(files, Some(CALL_ID)).await;
        let open = control.questions(1).await;
        control.decide(&open[0], "accept").await;
        control.wait_for_end().await;
        assert!(control.has_created(files[0]));
        control.client.finish().await;
    }
    let mut control = CallFixture::creating(&["benign", "hostile"], None).await;
    for question in control.questions(2).await {
        let command = question["command"].as_str().unwrap();
        let decision = match command.contains("benign") {
            true => "accept",
            false => "decline",
        };
        control.decide(&question, decision).await;
    }
    control.wait_for_end().await;
    assert!(control.has_created("benign") && !control.has_created("hostile"));
    control.client.finish().await;
}
