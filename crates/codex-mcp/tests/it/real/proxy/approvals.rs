//! Codex's questions, to clients with and without elicitation.

use scripted_model::{Reply, Script, Shell};
use serde_json::{Value, json};

use super::super::{CodexFixture, assert_error, structured, text, thread_of};
use super::{client, on_releases_with_mcp_server, reply};
use crate::jobs::wait_for;

on_releases_with_mcp_server!(
    standard_and_codex_answers_are_both_understood,
    answer_that_ends_the_turn_ends_the_call,
    question_is_declined_and_returned_without_elicitation,
    unanswered_question_is_declined,
);

/// A model that reports the outcome of its command.
fn script() -> Script {
    Script::new()
        .on(
            "touch",
            [
                Reply::shell(Shell::escalated("touch made.txt", "it is needed")),
                Reply::with(|request| {
                    let output = request.tool_outputs().last().map(|it| it.text.clone());
                    Reply::say(format!("Codex said: {}", output.unwrap_or_default()))
                }),
            ],
        )
        .otherwise([Reply::with(|request| {
            Reply::say(format!("after {}", request.assistant_messages().join(",")))
        })])
}

fn arguments() -> Value {
    json!({"prompt": "touch it", "sandbox": "read-only", "approval-policy": "on-request"})
}

async fn standard_and_codex_answers_are_both_understood(release: &str) {
    let stage = CodexFixture::new(release, script()).await;
    let mut client = client(&stage, &[], json!({"elicitation": {}})).await;
    for (answer, made) in [
        (json!({"action": "decline"}), false),
        (json!({"action": "accept", "content": {}}), true),
        (json!({"decision": "approved"}), true),
    ] {
        let call = client.request_tool("codex", arguments());
        let question = client.server_request("elicitation/create").await;
        assert_eq!(question["params"]["codex_elicitation"], "exec-approval");
        client.respond(&question["id"], answer.clone());
        let result = client.result(&call).await;
        assert!(text(&result, 0).starts_with("Codex said: "), "{result:#}");
        let file = stage.file("made.txt");
        assert_eq!(file.exists(), made, "{answer}: {result:#}");
        let _ = std::fs::remove_file(file);
    }
    stage.finish(client).await;
}

/// Codex itself never answers such a call.
async fn answer_that_ends_the_turn_ends_the_call(release: &str) {
    let stage = CodexFixture::new(release, script()).await;
    let mut client = client(&stage, &[], json!({"elicitation": {}})).await;
    for answer in [
        json!({"action": "cancel", "decision": "abort"}),
        json!({"decision": "abort"}),
    ] {
        let call = client.request_tool("codex", arguments());
        let question = client.server_request("elicitation/create").await;
        client.respond(&question["id"], answer);
        let result = client.result(&call).await;
        assert_error(&result, "INTERRUPTED");
        let arguments = reply(&thread_of(&result), "and now?");
        let again = client.call_tool("codex-reply", arguments).await;
        assert!(text(&again, 0).starts_with("after"), "{again:#}");
    }
    assert!(!stage.file("made.txt").exists());
    stage.finish(client).await;
}

async fn question_is_declined_and_returned_without_elicitation(release: &str) {
    let stage = CodexFixture::new(release, script()).await;
    let mut client = client(&stage, &[], json!({})).await;
    let result = client.call_tool("codex", arguments()).await;
    assert_eq!(
        structured(&result)["status"],
        "waiting_approval",
        "{result:#}"
    );
    let action = &structured(&result)["actions"][0];
    assert_eq!(action["codex_elicitation"], "exec-approval", "{action:#}");
    assert_eq!(action["decision"], "decline");
    let thread = thread_of(&result);

    // Until the turn has ended, the thread is busy.
    let again = wait_for("the end of the turn", async || {
        let reply = reply(&thread, "and now?");
        let again = client.call_tool("codex-reply", reply).await;
        let is_busy = structured(&again)["error"]["code"] == "SESSION_BUSY";
        (!is_busy).then_some(again)
    })
    .await;
    // The command was declined.
    assert!(
        text(&again, 0).starts_with("after Codex said: "),
        "{again:#}"
    );
    assert!(!stage.file("made.txt").exists());
    stage.finish(client).await;
}

async fn unanswered_question_is_declined(release: &str) {
    let stage = CodexFixture::new(release, script()).await;
    let args = ["--approval-timeout", "1"];
    let mut client = client(&stage, &args, json!({"elicitation": {}})).await;
    let call = client.request_tool("codex", arguments());
    let question = client.server_request("elicitation/create").await;
    let withdrawn = client.notification("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    let result = client.result(&call).await;
    assert!(text(&result, 0).starts_with("Codex said: "), "{result:#}");
    assert!(!stage.file("made.txt").exists());
    stage.finish(client).await;
}
