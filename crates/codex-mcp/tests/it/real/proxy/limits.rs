//! Calls that take too long, that nobody wants any more, and Codexes that die.

use scripted_model::{Gate, Reply, Script};
use serde_json::{Value, json};
use testkit::process::descendants;
use testkit::{McpClient, Signal};

use super::super::{Stage, VERSION, assert_error, structured, text, thread_of};
use super::{client, on_releases_with_mcp_server, reply};

on_releases_with_mcp_server!(
    a_call_that_takes_too_long_tells_what_was_said_and_leaves_a_usable_thread,
    answers_find_their_calls_after_a_cancelled_one,
    an_answer_that_comes_too_late_is_not_the_next_calls,
    a_call_that_is_cancelled_before_its_turn_begins_does_no_work,
    a_thread_whose_turn_failed_is_not_answered_wrongly,
    a_dead_codex_is_reported_and_not_started_again,
    it_ends_in_the_middle_of_a_turn,
);

/// How many replies a thread is given after a call that was ended: about half of
/// them come back under the id of that call.
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

async fn a_call_that_takes_too_long_tells_what_was_said_and_leaves_a_usable_thread(release: &str) {
    let gate = Gate::new();
    let stage = Stage::new(release, script(&gate)).await;
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

/// Codex answers at the error, and has the end of that turn before it when the next
/// prompt comes.
async fn a_thread_whose_turn_failed_is_not_answered_wrongly(release: &str) {
    let script = Script::new()
        .on("fail", [Reply::error("invalid_prompt", "bad prompt")])
        .otherwise([Reply::say("ok")]);
    let stage = Stage::new(release, script).await;
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

async fn answers_find_their_calls_after_a_cancelled_one(release: &str) {
    let gate = Gate::new();
    let stage = Stage::new(release, script(&gate)).await;
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

/// Cancelled when its last message shows, a turn has often ended already.
async fn an_answer_that_comes_too_late_is_not_the_next_calls(release: &str) {
    let stage = Stage::new(release, script(&Gate::new())).await;
    let launch = stage.launch(&super::PROXY);
    let mut client = McpClient::start(&launch);
    client.initialize(VERSION, json!({})).await;
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

async fn a_call_that_is_cancelled_before_its_turn_begins_does_no_work(release: &str) {
    let gate = Gate::new();
    let stage = Stage::new(release, script(&gate)).await;
    let mut client = client(&stage, &[], json!({})).await;
    let first = client.call_tool("codex", json!({"prompt": "begin"})).await;
    let thread = thread_of(&first);
    let unwanted = client.request_tool("codex-reply", reply(&thread, "hang"));
    client.cancel(&unwanted, "changed my mind");
    // Until the turn has ended, the thread may be busy; it ends though the model
    // never answers.
    let again = loop {
        let again = client
            .call_tool("codex-reply", reply(&thread, "go on"))
            .await;
        match structured(&again)["error"]["code"].as_str() {
            Some("SESSION_BUSY") => tokio::task::yield_now().await,
            _ => break again,
        }
    };
    assert_eq!(text(&again, 0), "to go on", "{again:#}");
    stage.finish(client).await;
}

async fn a_dead_codex_is_reported_and_not_started_again(release: &str) {
    let gate = Gate::new();
    let stage = Stage::new(release, script(&gate)).await;
    let mut client = client(&stage, &[], json!({})).await;
    let hanging = client.request_tool("codex", json!({"prompt": "hang"}));
    gate.reached(1).await;
    // The guard comes first, then what it guards.
    kill(descendants(client.pid())[1]);
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

async fn it_ends_in_the_middle_of_a_turn(release: &str) {
    let gate = Gate::new();
    let stage = Stage::new(release, script(&gate)).await;
    let mut client = client(&stage, &[], json!({})).await;
    let hanging = client.request_tool("codex", json!({"prompt": "hang"}));
    gate.reached(1).await;
    client.close_stdin();
    let failed = client.result(&hanging).await;
    assert_error(&failed, "SHUTTING_DOWN");
    stage.finish(client).await;
}

fn kill(pid: u32) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
    nix::sys::signal::kill(pid, Signal::SIGKILL).unwrap();
}
