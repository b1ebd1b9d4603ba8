//! Accepted prompts that have not been sent yet: they are withdrawn, or Codex dies.

use std::fs;

use serde_json::{Value, json};
use testkit::fake::{Action, HELLO, Plan, fake_codex_path};
use testkit::wait::wait_for_file;
use testkit::{Signal, write_program};

use super::super::serve::{HANDSHAKE, Serve};
use super::{Refusal, Sessions, gated, refusal, sent, structured, wait_for_thread};

const WITHDRAWN: &str = "never mind";

/// How often Codex got the withdrawn prompt, and any other.
fn prompts(sessions: &Sessions) -> (usize, usize) {
    let prompts = sent(&sessions.serve, "turn/start");
    let is_it = |prompt: &&Value| prompt["params"]["input"][0]["text"] == WITHDRAWN;
    let withdrawn = prompts.iter().filter(is_it).count();
    (withdrawn, prompts.len() - withdrawn)
}

/// A session whose prompt waits for the second Codex to resume its thread, and the call of the
/// prompt. Codex resumes the thread once the gate `first` is open, and, if asked again, once
/// `second` is.
async fn held() -> (Sessions, String, Value) {
    let plan = Plan::new()
        .on("turn/start", gated("never"))
        .in_launch(1)
        .on("thread/resume", [Action::gate("first"), Action::Proceed])
        .in_launch(2)
        .on("thread/resume", [Action::gate("second"), Action::Proceed])
        .nth(2)
        .in_launch(2);
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    sessions.serve.kill_codex(Signal::SIGKILL);
    assert_eq!(sessions.attention(&session).await["status"], "error");
    let reply = json!({"sessionId": session, "prompt": WITHDRAWN});
    let call = sessions.serve.client.request_tool("codex_reply", reply);
    sessions.serve.fake.wait_for_method("thread/resume").await;
    assert_eq!(sessions.state(&session).await["status"], "running");
    (sessions, session, call)
}

/// Lets Codex resume the thread; returns the refusal of the prompt.
async fn let_go(sessions: &mut Sessions, call: &Value) -> Refusal {
    sessions.serve.fake.open_gate("first");
    let refusal = refusal(&sessions.serve.client.result(call).await);
    sessions.serve.settled().await;
    refusal
}

#[tokio::test]
async fn interrupted_prompt_is_not_sent() {
    let (mut sessions, session, call) = held().await;
    sessions.session("interrupt", &session).await;
    assert_eq!(sessions.result(&session).await["status"], "interrupted");
    let refusal = let_go(&mut sessions, &call).await;
    assert_eq!(refusal.code, "CANCELLED", "{}", refusal.message);
    assert!(refusal.message.contains(&session), "{}", refusal.message);
    assert_eq!(sessions.state(&session).await["status"], "idle");
    assert_eq!(prompts(&sessions), (0, 1));

    sessions.reply(&session).await;
    assert_eq!(sessions.result(&session).await["output"], HELLO);
    assert_eq!(prompts(&sessions), (0, 2));
    assert_eq!(sent(&sessions.serve, "turn/interrupt"), Vec::<Value>::new());
    sessions.finish().await;
}

#[tokio::test]
async fn prompt_of_a_cancelled_session_is_not_sent() {
    let (mut sessions, session, call) = held().await;
    sessions.session("cancel", &session).await;
    let refusal = let_go(&mut sessions, &call).await;
    assert_eq!(refusal.code, "CANCELLED", "{}", refusal.message);
    let thread = sessions.get(&session).await["threadId"].clone();
    assert!(
        refusal.message.contains(thread.as_str().unwrap()),
        "{}",
        refusal.message
    );
    // The thread was loaded meanwhile, and no session uses it.
    wait_for_thread(&sessions.serve, 1, "thread/unsubscribe", &thread).await;
    let over = sessions.state(&session).await;
    assert_eq!(over["status"], "cancelled");
    assert_eq!(over["result"]["reason"], "Cancelled by user");
    assert_eq!(prompts(&sessions), (0, 1));

    sessions.serve.fake.open_gate("second");
    let resume = json!({"action": "resume", "threadId": thread, "prompt": "go on"});
    let resumed = sessions.call("codex_session", resume).await;
    let again = resumed["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(sessions.result(&again).await["output"], HELLO);
    assert_eq!(prompts(&sessions), (0, 2));
    sessions.finish().await;
}

#[tokio::test]
async fn prompt_after_a_withdrawn_one_is_kept() {
    let (mut sessions, session, call) = held().await;
    sessions.session("interrupt", &session).await;
    let next = json!({"sessionId": session, "prompt": "go on"});
    let next = sessions.serve.client.request_tool("codex_reply", next);
    let thread = sessions.get(&session).await["threadId"].clone();
    wait_for_thread(&sessions.serve, 2, "thread/resume", &thread).await;
    let refusal = let_go(&mut sessions, &call).await;
    assert_eq!(refusal.code, "CANCELLED", "{}", refusal.message);
    assert_eq!(sessions.state(&session).await["status"], "running");
    sessions.serve.fake.open_gate("second");
    structured(&sessions.serve.client.result(&next).await);
    assert_eq!(sessions.result(&session).await["output"], HELLO);
    assert_eq!(prompts(&sessions), (0, 2));
    sessions.finish().await;
}

/// The fake Codex in a shell that outlives it for a while: stdout is closed then, so that no
/// request is possible, but the process still exists.
const LINGERING: &str = r#"#!/bin/sh
[ "$1" = app-server ] || exec "$FAKE" "$@"
"$FAKE" "$@"
exec >&-
touch "$MARKS/dying"
while [ ! -e "$MARKS/prompted" ]; do sleep 0.01; done
"#;

#[tokio::test]
async fn prompt_during_codex_death_goes_to_the_next_codex() {
    let marks = tempfile::tempdir().unwrap();
    let script = marks.path().join("codex");
    write_program(&script, LINGERING);
    let serve = Serve::start_with(&Plan::new(), |launch| {
        launch
            .args(["--api", "sessions"])
            .env("CODEX_MCP_CODEX_BIN", &script)
            .env("FAKE", fake_codex_path())
            .env("MARKS", marks.path())
    });
    let mut sessions = Sessions { serve };
    let client = &mut sessions.serve.client;
    client.initialize(HANDSHAKE, json!({})).await;
    let session = sessions.start(json!({})).await;
    sessions.result(&session).await;

    sessions.serve.kill_codex(Signal::SIGKILL);
    wait_for_file(&marks.path().join("dying")).await;
    let reply = json!({"sessionId": session, "prompt": "go on"});
    let call = sessions.serve.client.request_tool("codex_reply", reply);
    sessions.serve.settled().await;
    fs::write(marks.path().join("prompted"), "").unwrap();
    structured(&sessions.serve.client.result(&call).await);
    assert_eq!(sessions.result(&session).await["output"], HELLO);
    assert_eq!(sessions.serve.fake.started().len(), 2);
    assert_eq!(sent(&sessions.serve, "turn/start").len(), 2);
    sessions.finish().await;
}
