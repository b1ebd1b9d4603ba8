//! Clients that allow more than the operator does, by answering Codex's questions.

use scripted_model::{Reply, Script, ScriptedModel, Shell};
use serde_json::{Value, json};
use testkit::{Home, Launch, McpClient};

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
        let launch = Launch::new(env!("CARGO_BIN_EXE_codex-mcp"))
            .args(["serve"])
            .args(args.iter().copied())
            .envs(self.home.env())
            .env("CODEX_MCP_CODEX_BIN", codex)
            .current_dir(self.home.work());
        let mut client = McpClient::start(&launch);
        client.initialize("2025-06-18", capabilities).await;
        client
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
    loop {
        let look = client.call_tool("codex_check", wait.clone()).await;
        if look["structuredContent"]["status"] != "running" {
            return result;
        }
    }
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
