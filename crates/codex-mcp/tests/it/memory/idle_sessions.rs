//! Unused sessions, and the threads that they leave.

use std::sync::Arc;
use std::time::Duration;

use agent_team::shutdown_summary;
use codex_engine::command::{SessionId, TurnRef};
use serde_json::{Value, json};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{Instant, sleep};

use super::sessions::{Sessions, thread};

const MINUTE: Duration = Duration::from_secs(60);

/// How often the engine looks for unused sessions, and so how late one may be found.
const SWEEP: Duration = MINUTE;

/// The most sessions at a time.
const SESSIONS: u32 = 1000;

/// The settings of the sessions in these tests.
fn settings() -> Value {
    json!({"model": "one", "effort": "high", "cwd": "/",
        "advanced": {"developerInstructions": "be brief", "config": {"k": 1}}})
}

async fn idle_session() -> (Sessions, String) {
    let mut sessions = Sessions::new().await;
    let session = sessions.start(1, settings()).await;
    sessions.end(1, "completed").await;
    assert_eq!(sessions.poll_events(&session).await["status"], "idle");
    (sessions, session)
}

/// The limit was over this long ago, or up to a sweep longer.
fn assert_elapsed(since: Instant, minutes: u32) {
    let limit = MINUTE * minutes;
    let took = since.elapsed();
    assert!(took >= limit && took <= limit + SWEEP, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn idle_session_is_cancelled_after_half_an_hour() {
    let (mut sessions, session) = idle_session().await;
    let used = Instant::now();
    sessions.world.codex.unloads_thread().await;
    assert_elapsed(used, 30);
    let list = sessions.list().await;
    assert_eq!(list["sessions"][0]["status"], "cancelled");
    let over = sessions.poll_events(&session).await;
    assert_eq!(over["status"], "cancelled");
    assert_eq!(over["result"]["reason"], "not used for 30 minutes");
    let reply = json!({"sessionId": session, "prompt": "work"});
    let refusal = sessions.refused("codex_reply", reply).await;
    assert!(refusal.starts_with("Error [CANCELLED]: "), "{refusal}");
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn unused_thread_is_summarised_before_its_session_ends() {
    let (mut sessions, session) = idle_session().await;
    let used = Instant::now();
    let (tell, mut told) = unbounded_channel();
    let engine = Arc::downgrade(&sessions.world.engine);
    tokio::spawn(shutdown_summary::ask_unused(engine, move |words| {
        tell.send(words).unwrap();
    }));
    sessions.accept_prompt(1).await;
    assert!(used.elapsed() < 30 * MINUTE);
    sessions.write(1, "what was done").await;
    sessions.end(1, "completed").await;
    let words = told.recv().await.unwrap();
    assert_eq!(words.thread.as_str(), thread(1));
    assert_eq!(words.summary.as_deref(), Ok("what was done"));
    sessions.world.codex.unloads_thread().await;
    assert!(used.elapsed() < 30 * MINUTE);
    assert_eq!(sessions.poll_events(&session).await["status"], "cancelled");
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn session_used_while_another_is_summarised_is_kept() {
    let (mut sessions, _) = idle_session().await;
    let used = sessions.start(2, settings()).await;
    sessions.end(2, "completed").await;
    assert_eq!(sessions.poll_events(&used).await["status"], "idle");
    let (tell, mut told) = unbounded_channel();
    let engine = Arc::downgrade(&sessions.world.engine);
    tokio::spawn(shutdown_summary::ask_unused(engine, move |words| {
        tell.send(words).unwrap();
    }));
    sessions.accept_prompt(1).await;
    prompt_again(&mut sessions, 2, &used).await;
    sessions.end(1, "completed").await;
    assert_eq!(told.recv().await.unwrap().thread.as_str(), thread(1));
    sessions.world.codex.unloads_thread().await;
    // Without the second search for unused sessions, the turn is interrupted here.
    sessions.world.codex.assert_nothing_unread().await;
    assert_eq!(sessions.poll_events(&used).await["status"], "running");
    sessions.end(2, "completed").await;
    assert_eq!(sessions.poll_events(&used).await["status"], "idle");
    assert!(told.try_recv().is_err());
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn session_is_cancelled_only_after_its_last_turn() {
    let (mut sessions, session) = idle_session().await;
    prompt_again(&mut sessions, 1, &session).await;
    sessions.end(1, "completed").await;
    assert_eq!(sessions.poll_events(&session).await["status"], "idle");
    let engine = Arc::clone(&sessions.world.engine);
    let cancel_after = |number| {
        let session = SessionId::named(&session);
        let turn = TurnRef { session, number };
        engine.cancel_after(&turn, "test").unwrap()
    };
    assert!(!cancel_after(1));
    assert_eq!(sessions.poll_events(&session).await["status"], "idle");
    // The control.
    assert!(cancel_after(2));
    sessions.world.codex.unloads_thread().await;
    assert_eq!(sessions.poll_events(&session).await["status"], "cancelled");
    sessions.finish().await;
}

/// The client prompts an idle session, and Codex begins the turn.
async fn prompt_again(sessions: &mut Sessions, number: u32, session: &str) {
    let reply = json!({"sessionId": session, "prompt": "more work"});
    let call = sessions.request("codex_reply", reply).await;
    sessions.accept_prompt(number).await;
    sessions.answer(call).await;
}

#[tokio::test(start_paused = true)]
async fn polled_session_is_kept() {
    let (mut sessions, session) = idle_session().await;
    for look in 0..10 {
        sleep(29 * MINUTE).await;
        if look % 2 == 0 {
            assert_eq!(sessions.poll_events(&session).await["status"], "idle");
        } else {
            assert_eq!(sessions.get(&session).await["status"], "idle");
        }
    }
    // A list does not count as use of a session.
    let used = Instant::now();
    sleep(29 * MINUTE).await;
    sessions.list().await;
    sessions.world.codex.unloads_thread().await;
    assert_elapsed(used, 30);
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn silent_turn_is_ended_after_four_hours() {
    let mut sessions = Sessions::new().await;
    let session = sessions.start(1, json!({})).await;
    sleep(3 * 60 * MINUTE).await;
    sessions.write(1, "still here").await;
    // Let it arrive.
    sessions.poll_events(&session).await;
    let heard = Instant::now();
    sessions.world.codex.next_is("turn/interrupt").await;
    assert_elapsed(heard, 240);
    let over = sessions.poll_events(&session).await;
    assert_eq!(over["status"], "cancelled");
    assert_eq!(over["result"]["reason"], "nothing has happened for 4 hours");
    sessions.end(1, "interrupted").await;
    sessions.world.codex.unloads_thread().await;
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn question_with_a_timeout_of_a_day_is_declined_after_a_day() {
    let mut sessions = Sessions::new().await;
    let advanced = json!({"approvalTimeoutMs": 86_400_000});
    let session = sessions.start(1, json!({"advanced": advanced})).await;
    sessions.ask(1, 0).await;
    assert_eq!(
        sessions.poll_events(&session).await["status"],
        "waiting_approval"
    );
    let asked = Instant::now();
    let answer = sessions.world.codex.next().await;
    assert_eq!(answer, json!({"id": 0, "result": {"decision": "decline"}}));
    let open = asked.elapsed();
    assert!(
        open >= 24 * 60 * MINUTE && open < 24 * 60 * MINUTE + MINUTE,
        "{open:?}"
    );
    // Its turn goes on without an answer.
    assert_eq!(sessions.get(&session).await["status"], "running");
    sessions.end(1, "completed").await;
    sessions.finish().await;
}

/// Resumes the thread, which must have its settings again; returns the new session.
async fn resume_thread(sessions: &mut Sessions) -> String {
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
    sessions.answer_thread(1, &request).await;
    sessions.accept_prompt(1).await;
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
async fn ended_session_is_forgotten_and_its_thread_is_not() {
    let (mut sessions, session) = idle_session().await;
    sessions.cancel(&session).await;
    sleep(4 * MINUTE).await;
    let list = sessions.list().await;
    assert_eq!(list["sessions"][0]["status"], "cancelled");
    sleep(MINUTE + SWEEP).await;
    let list = sessions.list().await;
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
    let again = resume_thread(&mut sessions).await;
    assert_ne!(again, session);
    assert_eq!(sessions.poll_events(&again).await["status"], "idle");
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn thread_is_resumed_before_its_session_is_forgotten() {
    let (mut sessions, session) = idle_session().await;
    sessions.cancel(&session).await;
    let again = resume_thread(&mut sessions).await;
    assert_ne!(again, session);
    // The earlier session is forgotten in time, without the later one.
    sleep(5 * MINUTE + SWEEP).await;
    let list = sessions.list().await;
    let all: Vec<&Value> = list["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["sessionId"])
        .collect();
    assert_eq!(all, [&json!(again)]);
    sessions.write(1, "text").await;
    assert_eq!(sessions.poll_events(&again).await["status"], "idle");
    sessions.finish().await;
}

/// A turn has loaded the thread again.
#[tokio::test(start_paused = true)]
async fn thread_that_is_prompted_while_it_is_unloaded_counts_as_loaded() {
    let (mut sessions, session) = idle_session().await;
    let engine = Arc::clone(&sessions.world.engine);
    let unloading = tokio::spawn(async move { engine.unload_idle(|| false).await });
    let codex = &mut sessions.world.codex;
    let list = codex.next_is("thread/backgroundTerminals/list").await;
    let none = json!({"data": []});
    codex.send(json!({"id": list["id"], "result": none})).await;
    let archive = codex.next_is("thread/archive").await;

    let reply = json!({"sessionId": session, "prompt": "more work"});
    let call = sessions.request("codex_reply", reply).await;
    let prompt = sessions.world.codex.next_is("turn/start").await;
    let error = json!({"code": -32600, "message": format!("thread not found: {}", thread(1))});
    let refusal = json!({"id": prompt["id"], "error": error});
    sessions.world.codex.send(refusal).await;
    let resume = sessions.world.codex.next_is("thread/resume").await;
    sessions.answer_thread(1, &resume).await;
    sessions.accept_prompt(1).await;
    sessions.answer(call).await;

    let codex = &mut sessions.world.codex;
    codex.send(json!({"id": archive["id"], "result": {}})).await;
    let restore = codex.next_is("thread/unarchive").await;
    codex.send(json!({"id": restore["id"], "result": {}})).await;
    unloading.await.unwrap();

    // A thread that is not loaded has no commands to end.
    let engine = Arc::clone(&sessions.world.engine);
    let id = SessionId::named(&session);
    let ending = tokio::spawn(async move { engine.end_terminals(&id).await });
    let codex = &mut sessions.world.codex;
    let clean = codex.next_is("thread/backgroundTerminals/clean").await;
    codex.send(json!({"id": clean["id"], "result": {}})).await;
    ending.await.unwrap().unwrap();
    sessions.end(1, "completed").await;
    sessions.finish().await;
}

/// Between the halves of unloading it is archived, and would stay so.
#[tokio::test(start_paused = true)]
async fn thread_is_restored_before_codex_ends() {
    let (mut sessions, session) = idle_session().await;
    let cancel = json!({"action": "cancel", "sessionId": session});
    sessions.request("codex_session", cancel).await;
    let codex = &mut sessions.world.codex;
    for method in ["thread/backgroundTerminals/clean", "thread/unsubscribe"] {
        codex.next_is(method).await;
    }
    let archive = codex.next_is("thread/archive").await;
    let engine = Arc::clone(&sessions.world.engine);
    let ending = tokio::spawn(async move { engine.shut_down().await });
    // Time passes only when nothing else can be done.
    sleep(Duration::from_millis(1)).await;
    codex.send(json!({"id": archive["id"], "result": {}})).await;
    let restore = codex.next_is("thread/unarchive").await;
    codex.send(json!({"id": restore["id"], "result": {}})).await;
    ending.await.unwrap();
}

/// A session that resumes the thread waits: Codex would unload the thread that it has just resumed.
#[tokio::test(start_paused = true)]
async fn thread_of_an_evicted_session_is_unloaded() {
    let (mut sessions, session) = idle_session().await;
    // The others are used later.
    sleep(Duration::from_secs(1)).await;
    for number in 2..=SESSIONS + 1 {
        sessions.open(number).await;
    }
    for method in ["thread/backgroundTerminals/clean", "thread/unsubscribe"] {
        sessions.world.codex.next_is(method).await;
    }
    let archive = sessions.world.codex.next_is("thread/archive").await;
    assert_eq!(archive["params"]["threadId"], thread(1));
    let get = json!({"action": "get", "sessionId": session});
    let refusal = sessions.refused("codex_session", get).await;
    assert!(
        refusal.starts_with("Error [SESSION_NOT_FOUND]: "),
        "{refusal}"
    );
    let resume = json!({"action": "resume", "threadId": thread(1)});
    let call = sessions.request("codex_session", resume).await;
    // Time passes only when nothing else can be done.
    sleep(Duration::from_millis(1)).await;
    let codex = &mut sessions.world.codex;
    codex.send(json!({"id": archive["id"], "result": {}})).await;
    let restore = codex.next_is("thread/unarchive").await;
    sleep(Duration::from_millis(1)).await;
    codex.send(json!({"id": restore["id"], "result": {}})).await;
    let request = codex.next_is("thread/resume").await;
    assert_eq!(request["params"]["developerInstructions"], "be brief");
    sessions.answer_thread(1, &request).await;
    let resumed = sessions.answer(call).await;
    assert_ne!(resumed["sessionId"], session);
    // It has taken the place of the next one, whose empty thread would be lost by unloading it.
    for method in ["thread/backgroundTerminals/clean", "thread/unsubscribe"] {
        let released = sessions.world.codex.next_is(method).await;
        assert_ne!(released["params"]["threadId"], thread(1));
    }
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn thread_is_busy_until_its_cancelled_turn_has_ended() {
    let mut sessions = Sessions::new().await;
    let session = sessions.start(1, settings()).await;
    sessions.session("cancel", &session).await;
    sessions.world.codex.next_is("turn/interrupt").await;
    let resume = json!({"action": "resume", "threadId": thread(1)});
    let refusal = sessions.refused("codex_session", resume).await;
    assert!(refusal.starts_with("Error [SESSION_BUSY]: "), "{refusal}");
    sessions.end(1, "interrupted").await;
    sessions.world.codex.unloads_thread().await;
    resume_thread(&mut sessions).await;
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn cancelled_turn_that_does_not_end_is_abandoned() {
    let mut sessions = Sessions::new().await;
    let session = sessions.start(1, settings()).await;
    let cancelled = Instant::now();
    sessions.session("cancel", &session).await;
    sessions.world.codex.next_is("turn/interrupt").await;
    sessions.world.codex.next_is("turn/interrupt").await;
    assert_eq!(cancelled.elapsed().as_secs(), 5);
    sessions.world.codex.unloads_thread().await;
    assert_eq!(cancelled.elapsed().as_secs(), 10);
    assert_eq!(sessions.poll_events(&session).await["status"], "cancelled");
    resume_thread(&mut sessions).await;
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn resumed_thread_keeps_its_limits() {
    let mut sessions = Sessions::new().await;
    let advanced = json!({"approvalTimeoutMs": 5000});
    let session = sessions.start(1, json!({"advanced": advanced})).await;
    sessions.end(1, "completed").await;
    sessions.poll_events(&session).await;
    sessions.cancel(&session).await;
    let resume = json!({"action": "resume", "threadId": thread(1), "prompt": "work"});
    let call = sessions.request("codex_session", resume).await;
    let request = sessions.world.codex.next_is("thread/resume").await;
    sessions.answer_thread(1, &request).await;
    sessions.accept_prompt(1).await;
    let resumed = sessions.answer(call).await;
    let resumed = resumed["sessionId"].as_str().unwrap().to_owned();
    let asked = Instant::now();
    sessions.ask(1, 0).await;
    sessions.poll_for_questions(&resumed, 1).await;
    sessions.world.codex.next().await;
    assert_eq!(asked.elapsed().as_secs(), 5);
    sessions.end(1, "completed").await;
    sessions.finish().await;
}
