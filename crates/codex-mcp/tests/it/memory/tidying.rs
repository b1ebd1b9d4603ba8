//! Sessions that nobody uses any more.

use std::sync::Arc;
use std::time::Duration;

use agent_team::shutdown_summary;
use serde_json::{Value, json};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{Instant, sleep};

use super::sessions::{Sessions, thread};

const MINUTE: Duration = Duration::from_secs(60);

/// How often unused sessions are looked for, so by how much later than at its
/// limit one is found.
const SWEEP: Duration = MINUTE;

/// What the sessions of these tests are started with.
fn settings() -> Value {
    json!({"model": "one", "effort": "high", "cwd": "/",
        "advanced": {"developerInstructions": "be brief", "config": {"k": 1}}})
}

async fn idle() -> (Sessions, String) {
    let mut sessions = Sessions::new().await;
    let session = sessions.start(1, settings()).await;
    sessions.end(1, "completed").await;
    assert_eq!(sessions.look(&session).await["status"], "idle");
    (sessions, session)
}

/// Waits until Codex is told this, which must be after so many minutes, but for
/// the time between two sweeps.
async fn told_after(sessions: &mut Sessions, since: Instant, minutes: u32, method: &str) {
    sessions.world.codex.next_is(method).await;
    let limit = MINUTE * minutes;
    let took = since.elapsed();
    assert!(took >= limit && took <= limit + SWEEP, "{method}: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_is_cancelled_after_half_an_hour() {
    let (mut sessions, session) = idle().await;
    let used = Instant::now();
    told_after(&mut sessions, used, 30, "thread/backgroundTerminals/clean").await;
    sessions.world.codex.next_is("thread/unsubscribe").await;
    let list = sessions
        .call("codex_session", json!({"action": "list"}))
        .await;
    assert_eq!(list["sessions"][0]["status"], "cancelled");
    let over = sessions.look(&session).await;
    assert_eq!(over["status"], "cancelled");
    assert_eq!(over["result"]["reason"], "not used for 30 minutes");
    let reply = json!({"sessionId": session, "prompt": "work"});
    let refusal = sessions.refused("codex_reply", reply).await;
    assert!(refusal.starts_with("Error [CANCELLED]: "), "{refusal}");
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn unused_thread_is_summarised_before_its_session_ends() {
    let (mut sessions, session) = idle().await;
    let used = Instant::now();
    let (tell, mut told) = unbounded_channel();
    let engine = Arc::downgrade(&sessions.world.engine);
    tokio::spawn(shutdown_summary::ask_unused(engine, move |words| {
        tell.send(words).unwrap();
    }));
    sessions.prompted(1).await;
    assert!(used.elapsed() < 30 * MINUTE);
    sessions.write(1, "what was done").await;
    sessions.end(1, "completed").await;
    let words = told.recv().await.unwrap();
    assert_eq!(words.thread.as_str(), thread(1));
    assert_eq!(words.summary.as_deref(), Ok("what was done"));
    for method in ["thread/backgroundTerminals/clean", "thread/unsubscribe"] {
        sessions.world.codex.next_is(method).await;
    }
    assert!(used.elapsed() < 30 * MINUTE);
    assert_eq!(sessions.look(&session).await["status"], "cancelled");
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_looked_into_is_kept() {
    let (mut sessions, session) = idle().await;
    for look in 0..10 {
        sleep(29 * MINUTE).await;
        if look % 2 == 0 {
            assert_eq!(sessions.look(&session).await["status"], "idle");
        } else {
            assert_eq!(sessions.get(&session).await["status"], "idle");
        }
    }
    // A list is no interest in one of them.
    let used = Instant::now();
    sleep(29 * MINUTE).await;
    sessions
        .call("codex_session", json!({"action": "list"}))
        .await;
    told_after(&mut sessions, used, 30, "thread/backgroundTerminals/clean").await;
    sessions.world.codex.next_is("thread/unsubscribe").await;
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_of_which_nothing_is_heard_is_ended_after_four_hours() {
    let mut sessions = Sessions::new().await;
    let session = sessions.start(1, json!({})).await;
    sleep(3 * 60 * MINUTE).await;
    sessions.write(1, "still here").await;
    // Let it arrive.
    sessions.look(&session).await;
    let heard = Instant::now();
    told_after(&mut sessions, heard, 240, "turn/interrupt").await;
    let over = sessions.look(&session).await;
    assert_eq!(over["status"], "cancelled");
    assert_eq!(over["result"]["reason"], "nothing has happened for 4 hours");
    sessions.end(1, "interrupted").await;
    sessions
        .world
        .codex
        .next_is("thread/backgroundTerminals/clean")
        .await;
    sessions.world.codex.next_is("thread/unsubscribe").await;
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_question_that_may_stay_open_for_days_does_not() {
    let mut sessions = Sessions::new().await;
    let advanced = json!({"approvalTimeoutMs": 86_400_000});
    let session = sessions.start(1, json!({"advanced": advanced})).await;
    sessions.ask(1, 0).await;
    assert_eq!(sessions.look(&session).await["status"], "waiting_approval");
    let asked = Instant::now();
    let answer = sessions.world.codex.next().await;
    assert_eq!(answer, json!({"id": 0, "result": {"decision": "decline"}}));
    told_after(&mut sessions, asked, 240, "turn/interrupt").await;
    assert_eq!(sessions.get(&session).await["status"], "cancelled");
    sessions.end(1, "interrupted").await;
    sessions
        .world
        .codex
        .next_is("thread/backgroundTerminals/clean")
        .await;
    sessions.world.codex.next_is("thread/unsubscribe").await;
    sessions.finish().await;
}

/// Takes the thread up again, which must bring its settings back; returns the new
/// session.
async fn resumed(sessions: &mut Sessions) -> String {
    let resume = json!({"action": "resume", "threadId": thread(1), "prompt": "work",
        "model": "two"});
    let call = sessions.request("codex_session", resume).await;
    let request = sessions.world.codex.next_is("thread/resume").await;
    let params = &request["params"];
    for (name, value) in [
        ("threadId", json!(thread(1))),
        ("model", json!("two")),
        ("cwd", json!("/")),
        ("approvalPolicy", json!("on-request")),
        ("sandbox", json!("read-only")),
        ("developerInstructions", json!("be brief")),
    ] {
        assert_eq!(params[name], value, "{name}: {params:#}");
    }
    assert_eq!(params["config"]["k"], 1, "{params:#}");
    sessions.opened(1, &request).await;
    sessions.prompted(1).await;
    let session = sessions.answer(call).await["sessionId"].clone();
    let session = session.as_str().unwrap().to_owned();
    let whole = sessions.get(&session).await;
    assert_eq!(
        (&whole["effort"], &whole["model"]),
        (&json!("high"), &json!("two"))
    );
    sessions.end(1, "completed").await;
    session
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_over_is_forgotten_and_its_thread_is_not() {
    let (mut sessions, session) = idle().await;
    sessions.session("cancel", &session).await;
    sessions
        .world
        .codex
        .next_is("thread/backgroundTerminals/clean")
        .await;
    sessions.world.codex.next_is("thread/unsubscribe").await;
    sleep(4 * MINUTE).await;
    let list = sessions
        .call("codex_session", json!({"action": "list"}))
        .await;
    assert_eq!(list["sessions"][0]["status"], "cancelled");
    sleep(MINUTE + SWEEP).await;
    let list = sessions
        .call("codex_session", json!({"action": "list"}))
        .await;
    assert_eq!(list, json!({"sessions": []}));
    for (tool, arguments) in [
        (
            "codex_reply",
            json!({"sessionId": session, "prompt": "work"}),
        ),
        (
            "codex_check",
            json!({"action": "poll", "sessionId": session}),
        ),
        (
            "codex_session",
            json!({"action": "get", "sessionId": session}),
        ),
        (
            "codex_session",
            json!({"action": "cancel", "sessionId": session}),
        ),
    ] {
        let refusal = sessions.refused(tool, arguments).await;
        assert!(
            refusal.starts_with("Error [SESSION_NOT_FOUND]: "),
            "{refusal}"
        );
    }
    let again = resumed(&mut sessions).await;
    assert_ne!(again, session);
    assert_eq!(sessions.look(&again).await["status"], "idle");
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_thread_is_taken_up_before_its_session_is_forgotten() {
    let (mut sessions, session) = idle().await;
    sessions.session("cancel", &session).await;
    sessions
        .world
        .codex
        .next_is("thread/backgroundTerminals/clean")
        .await;
    sessions.world.codex.next_is("thread/unsubscribe").await;
    let again = resumed(&mut sessions).await;
    assert_ne!(again, session);
    // The one before goes when its time comes, and takes nothing with it.
    sleep(5 * MINUTE + SWEEP).await;
    let list = sessions
        .call("codex_session", json!({"action": "list"}))
        .await;
    let all: Vec<&Value> = list["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["sessionId"])
        .collect();
    assert_eq!(all, [&json!(again)]);
    sessions.write(1, "text").await;
    assert_eq!(sessions.look(&again).await["status"], "idle");
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_thread_whose_turn_is_still_being_ended_waits() {
    let mut sessions = Sessions::new().await;
    let session = sessions.start(1, settings()).await;
    sessions.session("cancel", &session).await;
    sessions.world.codex.next_is("turn/interrupt").await;
    let resume = json!({"action": "resume", "threadId": thread(1)});
    let refusal = sessions.refused("codex_session", resume).await;
    assert!(refusal.starts_with("Error [SESSION_BUSY]: "), "{refusal}");
    sessions.end(1, "interrupted").await;
    sessions
        .world
        .codex
        .next_is("thread/backgroundTerminals/clean")
        .await;
    sessions.world.codex.next_is("thread/unsubscribe").await;
    resumed(&mut sessions).await;
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_that_does_not_end_is_given_up() {
    let mut sessions = Sessions::new().await;
    let session = sessions.start(1, settings()).await;
    sessions.session("cancel", &session).await;
    sessions.world.codex.next_is("turn/interrupt").await;
    let ignored = Instant::now();
    sessions.world.codex.next_is("turn/interrupt").await;
    assert_eq!(ignored.elapsed().as_secs(), 5);
    sessions
        .world
        .codex
        .next_is("thread/backgroundTerminals/clean")
        .await;
    sessions.world.codex.next_is("thread/unsubscribe").await;
    assert_eq!(ignored.elapsed().as_secs(), 10);
    assert_eq!(sessions.look(&session).await["status"], "cancelled");
    resumed(&mut sessions).await;
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_thread_that_is_taken_up_again_keeps_its_limits() {
    let mut sessions = Sessions::new().await;
    let advanced = json!({"approvalTimeoutMs": 5000});
    let session = sessions.start(1, json!({"advanced": advanced})).await;
    sessions.end(1, "completed").await;
    sessions.look(&session).await;
    sessions.session("cancel", &session).await;
    sessions
        .world
        .codex
        .next_is("thread/backgroundTerminals/clean")
        .await;
    sessions.world.codex.next_is("thread/unsubscribe").await;
    let resume = json!({"action": "resume", "threadId": thread(1), "prompt": "work"});
    let call = sessions.request("codex_session", resume).await;
    let request = sessions.world.codex.next_is("thread/resume").await;
    sessions.opened(1, &request).await;
    sessions.prompted(1).await;
    let resumed = sessions.answer(call).await;
    let resumed = resumed["sessionId"].as_str().unwrap().to_owned();
    let asked = Instant::now();
    sessions.ask(1, 0).await;
    sessions.look_for(&resumed, 1).await;
    sessions.world.codex.next().await;
    assert_eq!(asked.elapsed().as_secs(), 5);
    sessions.end(1, "completed").await;
    sessions.finish().await;
}
