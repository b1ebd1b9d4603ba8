//! Timed out and cancelled calls, and a Codex that dies.

use scripted_model::{Gate, Reply, Script};
use serde_json::{Value, json};
use testkit::process::{descendants, signal};
use testkit::{McpClient, Signal};

use super::super::{CodexFixture, VERSION, assert_error, structured, text, thread_of};
use super::{client, on_releases_with_mcp_server, reply};
use crate::jobs::wait_for;

on_releases_with_mcp_server!(
    timed_out_call_returns_its_text_and_the_thread_stays_usable,
    answers_match_their_calls_after_a_cancelled_one,
    late_answer_is_not_given_to_the_next_call,
    call_cancelled_before_its_turn_does_no_work,
    thread_with_a_failed_turn_refuses_further_calls,
    dead_codex_is_reported_and_not_restarted,
    end_of_input_in_a_turn_ends_the_proxy,
);

/// The number of replies after an ended call: Codex answers about half of them with the ID of that
/// call.
const REPLIES: u32 = 8;

fn script(gate: &Gate) -> Script {
    Script::new()
        .on(
            "hang",
            [Reply::stream(["So far"]).then(Reply::stream([" so good"]).behind(gate))],
        )
        .otherwise([Reply::with(|request| {
            Reply::say(format!("to {}", request.prompt()))
        })])
}

async fn timed_out_call_returns_its_text_and_the_thread_stays_usable(release: &str) {
    let gate = Gate::new();
    let stage = CodexFixture::new(release, script(&gate)).await;
    let mut client = client(&stage, &["--timeout", "3"], json!({})).await;
    let first = client.call_tool("codex", json!({"prompt": "begin"})).await;
    let thread = thread_of(&first);
    let late = client
        .call_tool("codex-reply", reply(&thread, "hang"))
        .await;
    assert_error(&late, "TIMEOUT");
    assert_eq!(structured(&late)["content"], "So far");
    assert_eq!(thread_of(&late), thread);
    for number in 0..REPLIES {
        let prompt = format!("number {number}");
        let again = client
            .call_tool("codex-reply", reply(&thread, &prompt))
            .await;
        assert_eq!(text(&again, 0), format!("to {prompt}"), "{again:#}");
    }
    stage.finish(client).await;
}

/// Codex answers at the error, and takes the end of that turn for the end of the next one.
async fn thread_with_a_failed_turn_refuses_further_calls(release: &str) {
    let script = Script::new()
        .on("fail", [Reply::error("invalid_prompt", "bad prompt")])
        .otherwise([Reply::say("ok")]);
    let stage = CodexFixture::new(release, script).await;
    let mut client = client(&stage, &[], json!({})).await;
    let first = client.call_tool("codex", json!({"prompt": "begin"})).await;
    let thread = thread_of(&first);
    let failed = client
        .call_tool("codex-reply", reply(&thread, "fail"))
        .await;
    assert!(text(&failed, 0).contains("bad prompt"), "{failed:#}");
    for _ in 0..2 {
        let next = client.call_tool("codex-reply", reply(&thread, "n")).await;
        assert_error(&next, "THREAD_OUT_OF_STEP");
    }
    let other = client.call_tool("codex", json!({"prompt": "anew"})).await;
    assert_eq!(text(&other, 0), "ok");
    stage.finish(client).await;
}

async fn answers_match_their_calls_after_a_cancelled_one(release: &str) {
    let gate = Gate::new();
    let stage = CodexFixture::new(release, script(&gate)).await;
    let mut client = client(&stage, &[], json!({})).await;
    let first = client.call_tool("codex", json!({"prompt": "begin"})).await;
    let thread = thread_of(&first);
    for round in 0..3 {
        let hanging = client.request_tool("codex-reply", reply(&thread, "hang"));
        gate.reached(round + 1).await;
        client.cancel(&hanging, "changed my mind");
        for number in 0..REPLIES {
            let prompt = format!("number {number}");
            let again = client
                .call_tool("codex-reply", reply(&thread, &prompt))
                .await;
            assert_eq!(text(&again, 0), format!("to {prompt}"), "{again:#}");
        }
        assert_eq!(client.response_so_far(&hanging), None);
    }
    stage.finish(client).await;
}

/// A turn that is cancelled at its last message has often ended already.
async fn late_answer_is_not_given_to_the_next_call(release: &str) {
    let stage = CodexFixture::new(release, script(&Gate::new())).await;
    let launch = stage.launch(&super::PROXY);
    let mut client = McpClient::connect(&launch, VERSION, json!({})).await;
    client.ignore("notifications/tools/list_changed");
    let message_of = async |client: &mut McpClient, call: &Value| {
        loop {
            let event = client.notification("codex/event").await;
            let params = &event["params"];
            if params["_meta"]["requestId"] == *call && params["msg"]["type"] == "agent_message" {
                return;
            }
        }
    };
    let first = client.request_tool("codex", json!({"prompt": "begin"}));
    message_of(&mut client, &first).await;
    let thread = thread_of(&client.result(&first).await);
    for round in 0..10 {
        let prompt = format!("unwanted {round}");
        let unwanted = client.request_tool("codex-reply", reply(&thread, &prompt));
        message_of(&mut client, &unwanted).await;
        client.cancel(&unwanted, "enough");
        let prompt = format!("wanted {round}");
        let wanted = client.request_tool("codex-reply", reply(&thread, &prompt));
        let answer = client.result(&wanted).await;
        assert_eq!(text(&answer, 0), format!("to {prompt}"), "{answer:#}");
    }
    client.ignore("codex/event");
    stage.finish(client).await;
}

async fn call_cancelled_before_its_turn_does_no_work(release: &str) {
    let gate = Gate::new();
    let stage = CodexFixture::new(release, script(&gate)).await;
    let mut client = client(&stage, &[], json!({})).await;
    let first = client.call_tool("codex", json!({"prompt": "begin"})).await;
    let thread = thread_of(&first);
    let unwanted = client.request_tool("codex-reply", reply(&thread, "hang"));
    client.cancel(&unwanted, "changed my mind");
    // The thread may be busy until the turn has ended; it ends although the model never answers.
    let again = wait_for("the end of the turn", async || {
        let reply = reply(&thread, "go on");
        let again = client.call_tool("codex-reply", reply).await;
        let is_busy = structured(&again)["error"]["code"] == "SESSION_BUSY";
        (!is_busy).then_some(again)
    })
    .await;
    assert_eq!(text(&again, 0), "to go on", "{again:#}");
    stage.finish(client).await;
}

async fn dead_codex_is_reported_and_not_restarted(release: &str) {
    let gate = Gate::new();
    let stage = CodexFixture::new(release, script(&gate)).await;
    let mut client = client(&stage, &[], json!({})).await;
    let hanging = client.request_tool("codex", json!({"prompt": "hang"}));
    gate.reached(1).await;
    // The first descendant is the guard, the second Codex.
    signal(descendants(client.pid())[1], Signal::SIGKILL);
    let failed = client.result(&hanging).await;
    assert_error(&failed, "CODEX_DIED");
    let next = client.call_tool("codex", json!({"prompt": "x"})).await;
    assert_error(&next, "CODEX_DIED");
    let message = structured(&next)["error"]["message"].as_str().unwrap();
    assert!(message.contains("signal 9"), "{message}");
    let status = client.call_tool("codex_status", json!({})).await;
    assert_eq!(structured(&status)["codex"]["state"], "gone", "{status:#}");
    assert_eq!(stage.model.requests().len(), 1);
    stage.finish(client).await;
}

async fn end_of_input_in_a_turn_ends_the_proxy(release: &str) {
    let gate = Gate::new();
    let stage = CodexFixture::new(release, script(&gate)).await;
    let mut client = client(&stage, &[], json!({})).await;
    let hanging = client.request_tool("codex", json!({"prompt": "hang"}));
    gate.reached(1).await;
    client.close_stdin();
    let failed = client.result(&hanging).await;
    assert_error(&failed, "SHUTTING_DOWN");
    stage.finish(client).await;
}
