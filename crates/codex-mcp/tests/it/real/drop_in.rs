//! Our server compared with `codex mcp-server`, in the releases that have it.

use scripted_model::{Patch, Reply, Script, Shell};
use serde_json::{Value, json};

use super::proxy::direct;
use super::{CodexFixture, text};

fn properties(tools: &Value, name: &str) -> Vec<String> {
    let tools = tools["tools"].as_array().unwrap();
    let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
    let properties = tool["inputSchema"]["properties"].as_object().unwrap();
    properties.keys().cloned().collect()
}

/// Our tools have all parameters of Codex's server, and the same call has the same result in all
/// members that Codex's result has.
async fn parameters_and_results_match_mcp_server(release: &str) {
    let stage = CodexFixture::new(release, Script::new().otherwise([Reply::say("hello")])).await;
    let mut theirs = direct(&stage, json!({})).await;
    let mut ours = stage.client(&[]).await;
    let their_tools = theirs.call("tools/list", json!({})).await;
    let our_tools = ours.call("tools/list", json!({})).await;
    for tool in ["codex", "codex-reply"] {
        let ours = properties(&our_tools, tool);
        for parameter in properties(&their_tools, tool) {
            assert!(ours.contains(&parameter), "{tool}: {parameter}");
        }
    }

    let arguments = json!({"prompt": "hi", "sandbox": "read-only", "approval-policy": "never"});
    let mut threads = Vec::new();
    for client in [&mut theirs, &mut ours] {
        let result = client.call_tool("codex", arguments.clone()).await;
        assert_eq!(text(&result, 0), "hello");
        assert_eq!(result["structuredContent"]["content"], "hello");
        threads.push(
            result["structuredContent"]["threadId"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    for (client, thread) in [(&mut theirs, &threads[0]), (&mut ours, &threads[1])] {
        let arguments = json!({"prompt": "again", "threadId": thread});
        let result = client.call_tool("codex-reply", arguments).await;
        assert_eq!(text(&result, 0), "hello");
        assert_eq!(result["structuredContent"]["threadId"], **thread);
    }
    theirs.finish().await;
    // Nothing but time ends the commands of a Codex that is gone.
    stage.finish_with_worker(ours).await;
}

/// Members that differ from thread to thread, the text of the question, and the form, which Codex
/// leaves empty.
const DIFFERING_MEMBERS: [&str; 6] = [
    "threadId",
    "message",
    "requestedSchema",
    "codex_event_id",
    "codex_call_id",
    "codex_mcp_tool_call_id",
];

/// Our elicitations have all members of those of Codex's server, with the same values.
async fn elicitations_match_mcp_server(release: &str) {
    let script = Script::new()
        .on(
            "touch",
            [
                Reply::shell(Shell::escalated("touch made.txt", "it is needed")),
                Reply::say("done"),
            ],
        )
        .on(
            "patch",
            [
                Reply::patch(Patch::new().add("made.txt", "hello")),
                Reply::say("done"),
            ],
        );
    let stage = CodexFixture::new(release, script).await;
    let mut theirs = direct(&stage, json!({"elicitation": {}})).await;
    let mut ours = stage.asking_client(&[]).await;
    for prompt in ["touch", "patch"] {
        let arguments =
            json!({"prompt": prompt, "sandbox": "read-only", "approval-policy": "on-request"});
        let mut asked = Vec::new();
        for client in [&mut theirs, &mut ours] {
            let id = client.request_tool("codex", arguments.clone());
            let question = client.server_request("elicitation/create").await;
            client.respond(&question["id"], json!({"decision": "denied"}));
            client.result(&id).await;
            asked.push(question["params"].as_object().unwrap().clone());
        }
        for (name, value) in &asked[0] {
            let ours = asked[1].get(name);
            assert!(
                ours.is_some(),
                "{prompt}: {name} is missing: {:#?}",
                asked[1]
            );
            if !DIFFERING_MEMBERS.contains(&name.as_str()) {
                assert_eq!(ours, Some(value), "{prompt}: {name}");
            }
        }
    }
    theirs.finish().await;
    // Nothing but time ends the commands of a Codex that is gone.
    stage.finish_with_worker(ours).await;
}

#[tokio::test]
async fn elicitations_match_mcp_server_on_0_104_0() {
    elicitations_match_mcp_server("0.104.0").await;
}

#[tokio::test]
async fn elicitations_match_mcp_server_on_0_153_4() {
    elicitations_match_mcp_server("0.153.4").await;
}

#[tokio::test]
async fn parameters_and_results_match_mcp_server_on_0_104_0() {
    parameters_and_results_match_mcp_server("0.104.0").await;
}

#[tokio::test]
async fn parameters_and_results_match_mcp_server_on_0_153_4() {
    parameters_and_results_match_mcp_server("0.153.4").await;
}
