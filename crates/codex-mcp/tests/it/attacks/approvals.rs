//! Clients that allow more than the operator does, by answering Codex's questions.

use job_queue::store::{InstructionProgress, JobStore, NewInstruction};
use scripted_model::{Reply, Script, ScriptedModel, Shell};
use serde_json::{Value, json};
use settings::store_access::Access;
use testkit::{Home, McpClient};
use uuid::Uuid;

use crate::jobs::{Worker, wait_for};

/// A Codex whose model asks to create a file outside of the sandbox.
struct ApprovalFixture {
    home: Home,
    _model: ScriptedModel,
}

impl ApprovalFixture {
    async fn new() -> Self {
        let replies = [
            Reply::shell(Shell::escalated("touch ../escaped", "it is needed")),
            Reply::say("done"),
        ];
        let model = ScriptedModel::start(Script::new().otherwise(replies));
        let model = model.await.unwrap();
        let config = format!("{}\nfeatures.plugins = false\n", model.codex_config());
        let home = Home::new(&config);
        Self {
            home,
            _model: model,
        }
    }

    async fn client(&self, args: &[&str], capabilities: Value) -> McpClient {
        let codex = testkit::codex::native_binary(testkit::codex::newest());
        let launch = self
            .home
            .launch(env!("CARGO_BIN_EXE_codex-mcp"))
            .args(["serve"])
            .args(args.iter().copied())
            .env("CODEX_MCP_CODEX_BIN", codex);
        McpClient::connect(&launch, crate::VERSION, capabilities).await
    }

    fn store_path(&self) -> String {
        let path = self.home.state_home().join("codex-mcp/jobs.db");
        path.to_str().unwrap().to_owned()
    }

    fn worker(&self) -> Worker {
        let codex = testkit::codex::native_binary(testkit::codex::newest());
        Worker::start(&self.home, &self.store_path(), &codex, &[])
    }

    /// Submits a job that asks; returns its ID and its question.
    async fn asking_job(&self, client: &mut McpClient) -> (String, Value) {
        let arguments = json!({
            "prompt": "x",
            "cwd": self.home.work(),
            "sandbox": "workspace-write",
            "approval": "ask",
        });
        let queued = client.call_tool("call_codex", arguments).await;
        let job = queued["structuredContent"]["job_id"].as_str().unwrap();
        let status = json!({ "job_id": job });
        let question = wait_for("the question of the job", async || {
            let result = client.call_tool("call_status", status.clone()).await;
            let seen = &result["structuredContent"];
            assert!(
                ["queued", "running"].contains(&seen["status"].as_str().unwrap()),
                "{seen:#}"
            );
            seen["questions"].get(0).cloned()
        })
        .await;
        (job.to_owned(), question)
    }

    /// Writes an answer to the store, as the server would; returns the outcome that the worker
    /// writes.
    async fn forge_answer(&self, job: &str, question: &Value, decision: &str) -> String {
        let access = Access::of(self.home.state_home().join("codex-mcp"));
        let location = self.store_path().parse().unwrap();
        let store = JobStore::open(&location, &access).await.unwrap();
        let question = question["request_id"].as_str().unwrap();
        let answer = json!({ "answer": { "question": question, "decision": decision } });
        let forged = NewInstruction {
            id: Uuid::new_v4(),
            question: Some(question.to_owned()),
            data: answer.to_string(),
        };
        store
            .instruct(&job.parse().unwrap(), &forged)
            .await
            .unwrap();
        wait_for("an outcome", async || {
            match store.progress(&forged).await.unwrap() {
                InstructionProgress::Concluded(outcome) => Some(outcome),
                _ => None,
            }
        })
        .await
    }

    async fn wait_for_end(&self, client: &mut McpClient, job: &str) {
        let arguments = json!({ "job_id": job, "wait_ms": 60_000 });
        let ended = client.call_tool("call_status", arguments).await;
        assert_eq!(
            ended["structuredContent"]["status"], "completed",
            "{ended:#}"
        );
    }

    fn has_escaped(&self) -> bool {
        self.home.root().join("escaped").exists()
    }

    fn has_rules(&self) -> bool {
        self.home.codex_home().join("rules/default.rules").exists()
    }
}

fn call_arguments() -> Value {
    json!({"prompt": "x", "sandbox": "workspace-write", "approval-policy": "on-request"})
}

/// Has Codex ask, answers with this decision, and returns the result of the answer.
async fn answer_question(client: &mut McpClient, more: Value) -> Value {
    let asked = client.call_tool("codex", call_arguments()).await;
    let asked = &asked["structuredContent"];
    assert_eq!(asked["status"], "waiting_approval", "{asked:#}");
    let mut answer = json!({
        "action": "respond_permission",
        "sessionId": asked["sessionId"],
        "requestId": asked["actions"][0]["requestId"],
    });
    let more = more.as_object().unwrap().clone();
    answer.as_object_mut().unwrap().extend(more);
    let result = client.call_tool("codex_check", answer.clone()).await;
    if result["isError"] == true {
        answer["decision"] = "decline".into();
        client.call_tool("codex_check", answer).await;
    }
    let wait = json!({"action": "poll", "sessionId": asked["sessionId"], "waitMs": 30_000});
    wait_for("the end of the turn", async || {
        let look = client.call_tool("codex_check", wait.clone()).await;
        (look["structuredContent"]["status"] != "running").then_some(())
    })
    .await;
    result
}

#[tokio::test]
async fn client_cannot_allow_commands_to_leave_a_bounded_sandbox() {
    let stage = ApprovalFixture::new().await;
    let mut client = stage
        .client(&["--max-sandbox", "workspace-write"], json!({}))
        .await;
    for decision in ["accept", "acceptForSession"] {
        let refused = answer_question(&mut client, json!({ "decision": decision })).await;
        let words = refused["structuredContent"].to_string();
        assert_eq!(refused["isError"], true, "{refused:#}");
        assert!(words.contains("max_sandbox"), "{words}");
        assert!(!stage.has_escaped());
    }
    client.finish().await;

    let bounds = ["--max-sandbox", "workspace-write"];
    let mut client = stage.client(&bounds, json!({"elicitation": {}})).await;
    let call = client.request_tool("codex", call_arguments());
    let question = client.server_request("elicitation/create").await;
    let accept = json!({"action": "accept", "content": {"decision": "accept"}});
    client.respond(&question["id"], accept);
    let result = client.result(&call).await;
    assert_eq!(
        result["structuredContent"]["status"], "completed",
        "{result:#}"
    );
    assert!(!stage.has_escaped());
    client.finish().await;

    let mut control = stage.client(&[], json!({})).await;
    answer_question(&mut control, json!({ "decision": "accept" })).await;
    assert!(stage.has_escaped());
    control.finish().await;
}

/// The worker that runs the job has no bounds: it may have been started by another server.
#[tokio::test]
async fn job_keeps_the_bound_of_its_submitter() {
    let stage = ApprovalFixture::new().await;
    let worker = stage.worker();
    let bounds = ["--max-sandbox", "workspace-write"];
    let mut bounded = stage.client(&bounds, json!({})).await;
    let mut free = stage.client(&[], json!({})).await;

    let (job, asked) = stage.asking_job(&mut bounded).await;
    assert_eq!(asked["decisions"], json!(["decline", "cancel"]));
    let accept = json!({ "job_id": job, "decision": "accept" });
    for client in [&mut bounded, &mut free] {
        let refused = client.call_tool("call_respond", accept.clone()).await;
        assert_eq!(refused["isError"], true, "{refused:#}");
    }
    let forged = stage.forge_answer(&job, &asked, "accept").await;
    let by = "max_sandbox (--max-sandbox of the job's submitter) forbids";
    assert!(forged.contains(by), "{forged}");
    let decline = json!({ "job_id": job, "decision": "decline" });
    let declined = bounded.call_tool("call_respond", decline.clone()).await;
    assert_ne!(declined["isError"], true, "{declined:#}");
    stage.wait_for_end(&mut bounded, &job).await;
    assert!(!stage.has_escaped());

    let (job, asked) = stage.asking_job(&mut free).await;
    let accept = json!({ "job_id": job, "decision": "accept" });
    let steer = json!({ "job_id": job, "steer": "touch ../escaped" });
    for answer in [accept.clone(), steer] {
        let refused = bounded.call_tool("call_respond", answer).await;
        let words = refused["structuredContent"].to_string();
        assert!(words.contains("OUT_OF_BOUNDS"), "{refused:#}");
    }
    assert!(!stage.has_escaped());
    let control = free.call_tool("call_respond", accept).await;
    assert_ne!(control["isError"], true, "{asked:#}: {control:#}");
    stage.wait_for_end(&mut free, &job).await;
    assert!(stage.has_escaped());
    bounded.finish().await;
    free.finish().await;
    worker.finish().await;
}

#[tokio::test]
async fn rule_of_a_client_allows_no_more_than_codex_has_proposed() {
    let stage = ApprovalFixture::new().await;
    let mut client = stage.client(&[], json!({})).await;
    let rule = |words: &[&str]| json!({"decision": "acceptWithExecpolicyAmendment", "execpolicyAmendment": words});
    let refused = answer_question(&mut client, rule(&["/bin/bash"])).await;
    assert_eq!(refused["isError"], true, "{refused:#}");
    assert!(!stage.has_escaped() && !stage.has_rules());
    client.finish().await;
}
