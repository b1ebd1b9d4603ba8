//! Questions that nobody answers, and turns that are silent.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::sessions::{Sessions, events_of, poll};

const STALLED: &str = "codex-mcp/stalled";

async fn started_session(advanced: Value) -> (Sessions, String) {
    let mut sessions = Sessions::new().await;
    let session = sessions.start(1, json!({"advanced": advanced})).await;
    sessions.poll_events(&session).await;
    (sessions, session)
}

/// Waits for the next stall and returns its event.
async fn next_stall(sessions: &mut Sessions, session: &str) -> Value {
    let look = sessions.call("codex_check", poll(session, 3_600_000)).await;
    let stalls = events_of(&look, STALLED);
    assert_eq!(stalls.len(), 1, "{look:#}");
    stalls[0].clone()
}

async fn finish(mut sessions: Sessions) {
    sessions.end(1, "completed").await;
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn question_is_declined_when_its_time_is_up() {
    for (advanced, seconds) in [
        (json!({}), 60),
        (json!({"approvalTimeoutMs": 5000}), 5),
        (
            json!({"approvalTimeoutMs": 7_200_000, "stallTimeoutMs": 1000}),
            7200,
        ),
    ] {
        let (mut sessions, session) = started_session(advanced).await;
        let asked = Instant::now();
        sessions.ask(1, 7).await;
        let question = sessions.poll_for_questions(&session, 1).await["actions"][0].clone();
        let answer = sessions.world.codex.next().await;
        assert_eq!(answer, json!({"id": 7, "result": {"decision": "decline"}}));
        assert_eq!(asked.elapsed().as_secs(), seconds);
        let look = sessions.poll_events(&session).await;
        assert_eq!(look["status"], "running");
        let result = look["events"].as_array().unwrap().last().unwrap();
        assert_eq!(result["type"], "approval_result");
        assert_eq!(result["data"]["timeout"], true);
        assert_eq!(result["data"]["decision"], "decline");
        assert_eq!(result["data"]["requestId"], question["requestId"]);
        finish(sessions).await;
    }
}

#[tokio::test(start_paused = true)]
async fn question_found_by_a_late_poll_has_its_whole_time() {
    let (mut sessions, session) = started_session(json!({})).await;
    let look = sessions.poll_events(&session).await;
    assert_eq!(look["pollInterval"], 60_000);
    sessions.ask(1, 0).await;
    sleep(Duration::from_secs(60)).await;
    let found = Instant::now();
    sessions.poll_for_questions(&session, 1).await;
    let answer = sessions.world.codex.next().await;
    assert_eq!(answer["result"]["decision"], "decline");
    assert_eq!(found.elapsed().as_secs(), 60);
    finish(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn unseen_question_is_declined_after_the_next_poll_was_due() {
    let (mut sessions, _) = started_session(json!({})).await;
    let asked = Instant::now();
    sessions.ask(1, 0).await;
    let answer = sessions.world.codex.next().await;
    assert_eq!(answer["result"]["decision"], "decline");
    assert_eq!(asked.elapsed().as_secs(), 120);
    finish(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn poll_interval_is_long_where_nothing_is_asked() {
    let mut sessions = Sessions::new().await;
    let never = json!({"approvalPolicy": "never"});
    let session = sessions.start(1, never).await;
    assert_eq!(
        sessions.poll_events(&session).await["pollInterval"],
        120_000
    );
    finish(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn user_question_times_out_with_no_answers() {
    let (mut sessions, _) = started_session(json!({})).await;
    let params = json!({"threadId": super::sessions::thread(1), "turnId": "turn", "itemId": "i",
        "questions": [{"id": "a", "header": "A", "question": "?"}]});
    let question = json!({"id": 3, "method": "item/tool/requestUserInput", "params": params});
    sessions.world.codex.send(question).await;
    let answer = sessions.world.codex.next().await;
    assert_eq!(answer, json!({"id": 3, "result": {"answers": {}}}));
    finish(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn each_question_has_its_own_time() {
    let (mut sessions, session) = started_session(json!({})).await;
    let began = Instant::now();
    let mut look = Value::Null;
    for (id, open) in [(0, 1), (1, 2), (2, 3)] {
        sessions.ask(1, id).await;
        look = sessions.poll_for_questions(&session, open).await;
        sleep(Duration::from_secs(10)).await;
    }
    let respond = json!({"action": "respond_permission", "sessionId": session,
        "requestId": look["actions"][1]["requestId"], "decision": "accept"});
    sessions.call("codex_check", respond).await;
    for (id, decision, seconds) in [(1, "accept", 30), (0, "decline", 60), (2, "decline", 80)] {
        let answer = sessions.world.codex.next().await;
        assert_eq!(answer, json!({"id": id, "result": {"decision": decision}}));
        assert_eq!(began.elapsed().as_secs(), seconds);
    }
    finish(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn silent_turn_is_reported_once() {
    for (advanced, seconds) in [(json!({}), 300), (json!({"stallTimeoutMs": 20_000}), 20)] {
        let (mut sessions, session) = started_session(advanced).await;
        let began = Instant::now();
        let event = next_stall(&mut sessions, &session).await;
        assert_eq!(began.elapsed().as_secs(), seconds);
        assert_eq!(event["type"], "progress");
        assert_eq!(event["data"]["stalledForMs"], seconds * 1000);
        assert_eq!(sessions.get(&session).await["stalledForMs"], seconds * 1000);
        // A poll with default options has the stall too.
        let again = json!({"action": "poll", "sessionId": session, "cursor": event["id"]});
        let again = sessions.call("codex_check", again).await;
        assert_eq!(again["events"][0]["data"]["stalledForMs"], seconds * 1000);

        let look = sessions
            .call("codex_check", poll(&session, 3_600_000))
            .await;
        assert_eq!(look["events"], json!([]));
        assert_eq!(look["status"], "running");
        let silent = (seconds + 3600) * 1000;
        assert_eq!(sessions.get(&session).await["stalledForMs"], silent);
        finish(sessions).await;
    }
}

#[tokio::test(start_paused = true)]
async fn turn_with_output_is_not_stalled() {
    let (mut sessions, session) = started_session(json!({"stallTimeoutMs": 20_000})).await;
    for _ in 0..5 {
        sleep(Duration::from_secs(19)).await;
        sessions.write(1, "text ").await;
    }
    let look = sessions.poll_events(&session).await;
    assert_eq!(events_of(&look, STALLED), Vec::<Value>::new());
    assert_eq!(sessions.get(&session).await.get("stalledForMs"), None);
    let heard = Instant::now();
    next_stall(&mut sessions, &session).await;
    assert_eq!(heard.elapsed().as_secs(), 20);
    finish(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn turn_that_stalls_again_is_reported_again() {
    let (mut sessions, session) = started_session(json!({"stallTimeoutMs": 20_000})).await;
    for _ in 0..3 {
        let began = Instant::now();
        next_stall(&mut sessions, &session).await;
        assert_eq!(began.elapsed().as_secs(), 20);
        sessions.write(1, "text").await;
        sessions.poll_events(&session).await;
        assert_eq!(sessions.get(&session).await.get("stalledForMs"), None);
    }
    finish(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn turn_that_waits_for_an_answer_is_not_stalled() {
    let limits = json!({"stallTimeoutMs": 1000, "approvalTimeoutMs": 60_000});
    let (mut sessions, session) = started_session(limits).await;
    sessions.ask(1, 0).await;
    sleep(Duration::from_secs(59)).await;
    let look = sessions.poll_events(&session).await;
    assert_eq!(look["status"], "waiting_approval");
    assert_eq!(events_of(&look, STALLED), Vec::<Value>::new());
    assert_eq!(sessions.get(&session).await.get("stalledForMs"), None);
    sessions.world.codex.next().await;
    // The stall timeout begins anew with the answer.
    let answered = Instant::now();
    sessions.poll_events(&session).await;
    next_stall(&mut sessions, &session).await;
    assert_eq!(answered.elapsed().as_secs(), 1);
    finish(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn idle_session_is_not_stalled() {
    let (mut sessions, session) = started_session(json!({"stallTimeoutMs": 1000})).await;
    sessions.end(1, "completed").await;
    sleep(Duration::from_secs(600)).await;
    let look = sessions.poll_events(&session).await;
    assert_eq!(events_of(&look, STALLED), Vec::<Value>::new());
    assert_eq!(sessions.get(&session).await.get("stalledForMs"), None);
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn resumed_session_may_have_other_limits() {
    let (mut sessions, session) = started_session(json!({})).await;
    sessions.end(1, "completed").await;
    let resume = json!({"action": "resume", "threadId": super::sessions::thread(1),
        "prompt": "work", "advanced": {"approvalTimeoutMs": 5000}});
    let call = sessions.request("codex_session", resume).await;
    sessions.accept_prompt(1).await;
    assert_eq!(sessions.answer(call).await["sessionId"], session);
    let asked = Instant::now();
    sessions.ask(1, 0).await;
    sessions.poll_for_questions(&session, 1).await;
    sessions.world.codex.next().await;
    assert_eq!(asked.elapsed().as_secs(), 5);
    finish(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn limits_hold_in_every_turn() {
    let (mut sessions, session) = started_session(json!({})).await;
    for turn in 0..3 {
        let asked = Instant::now();
        sessions.ask(1, turn).await;
        sessions.poll_for_questions(&session, 1).await;
        sessions.world.codex.next().await;
        assert_eq!(asked.elapsed().as_secs(), 60, "{turn}");
        sessions.end(1, "completed").await;
        sessions.poll_events(&session).await;
        let reply = json!({"sessionId": session, "prompt": "work"});
        let call = sessions.request("codex_reply", reply).await;
        sessions.accept_prompt(1).await;
        sessions.answer(call).await;
        sessions.poll_events(&session).await;
    }
    let silent = Instant::now();
    next_stall(&mut sessions, &session).await;
    assert_eq!(silent.elapsed().as_secs(), 300);
    finish(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn turn_that_stalls_after_an_answer_is_reported_in_time() {
    let limits = json!({"stallTimeoutMs": 20_000, "approvalTimeoutMs": 3_600_000});
    let (mut sessions, session) = started_session(limits).await;
    sessions.ask(1, 0).await;
    let look = sessions.poll_events(&session).await;
    let accept = json!({"action": "respond_permission", "sessionId": session,
        "requestId": look["actions"][0]["requestId"], "decision": "accept", "maxEvents": 9});
    sessions.call("codex_check", accept).await;
    sessions.world.codex.next().await;
    let answered = Instant::now();
    next_stall(&mut sessions, &session).await;
    assert_eq!(answered.elapsed().as_secs(), 20);
    finish(sessions).await;
}
