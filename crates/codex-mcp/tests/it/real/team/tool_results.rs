//! The real results of each tool, compared with its output schema.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use scripted_model::{Reply, Script, Shell};
use serde_json::{Value, json};
use testkit::{McpClient, schema};

use super::{CodexFixture, end_client, make_team};
use crate::real::{assert_error, structured};

/// A client that checks each result against the tool's schema.
struct SchemaCheckedClient {
    client: McpClient,
    schemas: BTreeMap<String, Value>,
    /// The members of any result of each tool.
    seen: BTreeMap<String, BTreeSet<String>>,
    /// The members of every result of each tool.
    always: BTreeMap<String, BTreeSet<String>>,
}

impl SchemaCheckedClient {
    async fn new(stage: &CodexFixture, args: &[&str]) -> Self {
        let mut client = stage.quiet_client(args).await;
        let listed = client.call("tools/list", json!({})).await;
        let tools = listed["tools"].as_array().unwrap();
        let schemas = tools.iter().map(|tool| {
            let name = tool["name"].as_str().unwrap().to_owned();
            (name, tool["outputSchema"].clone())
        });
        Self {
            client,
            schemas: schemas.collect(),
            seen: BTreeMap::new(),
            always: BTreeMap::new(),
        }
    }

    fn check(&self, tool: &str, result: &Value) {
        let schema = &self.schemas[tool];
        assert!(schema.is_object(), "{tool} has no outputSchema");
        if let Err(why) = schema::check(structured(result), schema) {
            panic!("{tool}: {why}: {result:#}");
        }
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.client.call_tool(tool, arguments).await;
        assert_ne!(result["isError"], true, "{tool}: {result:#}");
        self.check(tool, &result);
        let members = structured(&result).as_object().unwrap();
        let seen = self.seen.entry(tool.to_owned()).or_default();
        seen.extend(members.keys().cloned());
        let members: BTreeSet<String> = members.keys().cloned().collect();
        let always = self.always.entry(tool.to_owned());
        let always = always.or_insert_with(|| members.clone());
        always.retain(|name| members.contains(name));
        structured(&result).clone()
    }

    /// Checks that every tool refuses an unknown parameter in the same way.
    async fn refuse_unknown_parameters(&mut self) {
        let tools: Vec<String> = self.schemas.keys().cloned().collect();
        for tool in tools {
            let refused = self.client.call_tool(&tool, json!({ "made_up": 1 })).await;
            assert_error(&refused, "INVALID_ARGUMENT");
            self.check(&tool, &refused);
            let told = structured(&refused);
            assert_eq!(told["isError"], true, "{refused:#}");
            let names: Vec<&String> = told["error"].as_object().unwrap().keys().collect();
            assert_eq!(names, ["code", "hint", "message", "retryable"], "{tool}");
        }
    }

    /// Checks that a listed member is required if every result had it. `but` names the members that
    /// a result may lack, though none did here.
    fn assert_required_members(&self, but: &[(&str, &str)]) {
        // These tools list no required members, to keep the list of tools short.
        let spared = |tool: &str| tool.starts_with("atm_") || tool == "codex_status";
        for (tool, always) in self.always.iter().filter(|(tool, _)| !spared(tool)) {
            let schema = &self.schemas[tool];
            let listed = schema["properties"].as_object().unwrap().keys();
            let expected = listed
                .filter(|name| always.contains(*name))
                .filter(|name| !but.contains(&(tool, name)));
            let required = schema["anyOf"][0]["required"].as_array();
            let required: BTreeSet<&str> = required
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            assert_eq!(required, expected.map(String::as_str).collect(), "{tool}");
            assert!(
                required.is_empty() || schema["anyOf"][1] == json!({ "required": ["error"] }),
                "{schema:#}"
            );
        }
    }

    /// Checks that some result had each listed member.
    fn assert_all_seen(&self, tools: &[&str]) {
        for tool in tools {
            let listed = self.schemas[*tool]["properties"].as_object().unwrap();
            let seen = self.seen.get(*tool).cloned().unwrap_or_default();
            let unseen: Vec<_> = listed.keys().filter(|name| !seen.contains(*name)).collect();
            assert!(unseen.is_empty(), "{tool} never had {unseen:?}");
        }
    }
}

/// A stage with a team, whose idle worker leaves soon.
async fn stage() -> CodexFixture {
    let asks = [
        Reply::shell(Shell::escalated("touch made.txt", "it is needed")),
        Reply::say("done"),
    ];
    let script = Script::new()
        .on("ask", asks)
        .on(
            "make it",
            [Reply::shell("echo x > made.txt"), Reply::say("Done.")],
        )
        .on("hang", [Reply::shell("sleep 1000"), Reply::say("never")])
        .otherwise([Reply::say("ok")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    make_team(&stage, &["lead", "rust-1"]);
    stage.configure("worker_idle_secs = 1\nsandbox = \"danger-full-access\"");
    stage
}

#[tokio::test]
async fn results_of_every_tool_fit_its_output_schema() {
    let stage = stage().await;
    let mut classic =
        SchemaCheckedClient::new(&stage, &["--identity", "arch", "--team", "builders"]).await;
    let begun = classic.call("codex", json!({ "prompt": "x" })).await;
    let reply = json!({ "prompt": "x", "threadId": begun["threadId"] });
    classic.call("codex-reply", reply).await;
    classic
        .call("codex_review", json!({ "commit": "HEAD" }))
        .await;
    sessions(&mut classic, &begun).await;
    jobs(&mut classic, &stage).await;
    mail(&mut classic).await;
    classic.call("codex_status", json!({})).await;
    classic.call("codex_threads", json!({})).await;
    classic.refuse_unknown_parameters().await;
    let all: Vec<&str> = classic.schemas.keys().map(String::as_str).collect();
    classic.assert_all_seen(&all);
    assert_eq!(all.len(), 17, "{all:?}");
    // A run that is cancelled before Codex begins has no thread.
    classic.assert_required_members(&[("codex_run", "thread_id")]);
    end_client(&stage, classic.client).await;

    let mut sessions = SchemaCheckedClient::new(&stage, &["--api", "sessions"]).await;
    let begin = json!({ "prompt": "x", "approvalPolicy": "never", "sandbox": "read-only" });
    let begun = sessions.call("codex", begin).await;
    let wait = json!({ "action": "wait_any", "sessionIds": [begun["sessionId"]] });
    sessions.call("codex_session", wait).await;
    let reply = json!({ "prompt": "x", "sessionId": begun["sessionId"] });
    sessions.call("codex_reply", reply).await;
    sessions.refuse_unknown_parameters().await;
    sessions.assert_all_seen(&["codex", "codex_reply"]);
    sessions.assert_required_members(&[("codex_session", "status")]);
    end_client(&stage, sessions.client).await;
}

async fn sessions(checked: &mut SchemaCheckedClient, begun: &Value) {
    let session = &begun["sessionId"];
    checked
        .call("codex_session", json!({ "action": "list" }))
        .await;
    for action in ["get", "terminals"] {
        let look = json!({ "action": action, "sessionId": session });
        checked.call("codex_session", look).await;
    }
    let wait = json!({ "action": "wait_any", "sessionIds": [session] });
    checked.call("codex_session", wait).await;
    let poll = json!({ "action": "poll", "sessionId": session, "maxEvents": 50 });
    checked.call("codex_check", poll).await;

    let ask = json!({ "prompt": "ask", "sandbox": "read-only", "approval-policy": "on-request" });
    let asked = checked.call("codex", ask).await;
    assert_eq!(asked["status"], "waiting_approval", "{asked:#}");
    let poll = json!({ "action": "poll", "sessionId": asked["sessionId"] });
    let open = checked.call("codex_check", poll).await;
    let decline = json!({ "action": "respond_permission", "sessionId": asked["sessionId"],
        "requestId": open["actions"][0]["requestId"], "decision": "cancel" });
    checked.call("codex_check", decline).await;
    let cancel = json!({ "action": "cancel", "sessionId": asked["sessionId"] });
    checked.call("codex_session", cancel).await;
}

async fn jobs(checked: &mut SchemaCheckedClient, stage: &CodexFixture) {
    let work = stage.home.work();
    let call = json!({ "prompt": "x", "cwd": work });
    let job = checked.call("call_codex", call).await["job_id"].clone();
    checked.call("call_status", json!({ "job_id": job })).await;
    let wait = json!({ "job_id": job, "wait_ms": 60_000, "tail": 5 });
    let done = checked.call("call_status", wait).await;
    assert_eq!(done["response"], "ok", "{done:#}");

    let hang = json!({ "prompt": "hang", "cwd": work });
    let job = checked.call("call_codex", hang).await["job_id"].clone();
    checked.call("call_cancel", json!({ "job_id": job })).await;

    let ask = json!({ "prompt": "ask", "cwd": work, "sandbox": "read-only", "approval": "ask" });
    let job = checked.call("call_codex", ask).await["job_id"].clone();
    let wait = json!({ "job_id": job, "wait_ms": 60_000 });
    let asked = checked.call("call_status", wait).await;
    assert_eq!(asked["questions"][0]["kind"], "command", "{asked:#}");
    let no = json!({ "job_id": job, "decision": "decline" });
    checked.call("call_respond", no).await;
    checked.call("call_jobs", json!({})).await;

    let later = json!({ "task": "make it", "repo": work, "wait_ms": 0,
        "exit_criteria": { "files": ["made.txt"] } });
    let job = checked.call("codex_run", later).await["job_id"].clone();
    let wait = json!({ "job_id": job, "wait_ms": 60_000 });
    let done = checked.call("call_status", wait).await;
    assert_eq!(done["result"]["ok"], true, "{done:#}");
    fs::remove_file(work.join("made.txt")).unwrap();
    let now =
        json!({ "task": "make it", "repo": work, "exit_criteria": { "files": ["made.txt"] } });
    let done = checked.call("codex_run", now).await;
    assert_eq!(done["ok"], true, "{done:#}");
}

async fn mail(checked: &mut SchemaCheckedClient) {
    let letter = json!({ "to": "lead", "message": "hello", "summary": "s" });
    checked.call("atm_send", letter).await;
    checked
        .call("atm_broadcast", json!({ "message": "hello" }))
        .await;
    checked.call("atm_pending_count", json!({})).await;
    checked.call("atm_read", json!({})).await;
}
