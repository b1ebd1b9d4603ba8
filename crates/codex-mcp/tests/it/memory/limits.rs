//! What happens to a question that nobody answers, and to a turn that is silent.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::sessions::{Sessions, poll, told};

const STALLED: &str = "codex-mcp/stalled";

async fn started(advanced: Value) -> (Sessions, String) {
    let mut sessions = Sessions::new().await;
    let session = sessions.start(1, json!({"advanced": advanced})).await;
    sessions.look(&session).await;
    (sessions, session)
}

/// Waits for the next stall and returns its event.
async fn stall(sessions: &mut Sessions, session: &str) -> Value {
    let look = sessions.call("codex_check", poll(session, 3_600_000)).await;
    let stalls = told(&look, STALLED);
    assert_eq!(stalls.len(), 1, "{look:#}");
    stalls[0].clone()
}

async fn done(mut sessions: Sessions) {
    sessions.end(1, "completed").await;
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_question_is_declined_when_its_time_is_up() {
    for (advanced, seconds) in [
        (json!({}), 60),
        (json!({"approvalTimeoutMs": 5000}), 5),
        (
            json!({"approvalTimeoutMs": 7_200_000, "stallTimeoutMs": 1000}),
            7200,
        ),
    ] {
        let (mut sessions, session) = started(advanced).await;
        let asked = Instant::now();
        sessions.ask(1, 7).await;
        let question = sessions.look_for(&session, 1).await["actions"][0].clone();
        let answer = sessions.world.codex.next().await;
        assert_eq!(answer, json!({"id": 7, "result": {"decision": "decline"}}));
        assert_eq!(asked.elapsed().as_secs(), seconds);
        let look = sessions.look(&session).await;
        assert_eq!(look["status"], "running");
        let result = look["events"].as_array().unwrap().last().unwrap();
        assert_eq!(result["type"], "approval_result");
        assert_eq!(result["data"]["timeout"], true);
        assert_eq!(result["data"]["decision"], "decline");
        assert_eq!(result["data"]["requestId"], question["requestId"]);
        done(sessions).await;
    }
}

#[tokio::test(start_paused = true)]
async fn question_that_a_late_poller_finds_has_its_whole_time() {
    let (mut sessions, session) = started(json!({})).await;
    let look = sessions.look(&session).await;
    assert_eq!(look["pollInterval"], 60_000);
    sessions.ask(1, 0).await;
    sleep(Duration::from_secs(60)).await;
    let found = Instant::now();
    sessions.look_for(&session, 1).await;
    let answer = sessions.world.codex.next().await;
    assert_eq!(answer["result"]["decision"], "decline");
    assert_eq!(found.elapsed().as_secs(), 60);
    done(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn question_that_nobody_sees_is_declined_after_the_next_look_was_due() {
    let (mut sessions, _) = started(json!({})).await;
    let asked = Instant::now();
    sessions.ask(1, 0).await;
    let answer = sessions.world.codex.next().await;
    assert_eq!(answer["result"]["decision"], "decline");
    assert_eq!(asked.elapsed().as_secs(), 120);
    done(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn poll_hint_is_long_where_nothing_is_asked() {
    let mut sessions = Sessions::new().await;
    let never = json!({"approvalPolicy": "never"});
    let session = sessions.start(1, never).await;
    assert_eq!(sessions.look(&session).await["pollInterval"], 120_000);
    done(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn a_user_question_times_out_with_no_answers() {
    let (mut sessions, _) = started(json!({})).await;
    let params = json!({"threadId": super::sessions::thread(1), "turnId": "turn", "itemId": "i",
        "questions": [{"id": "a", "header": "A", "question": "?"}]});
    let question = json!({"id": 3, "method": "item/tool/requestUserInput", "params": params});
    sessions.world.codex.send(question).await;
    let answer = sessions.world.codex.next().await;
    assert_eq!(answer, json!({"id": 3, "result": {"answers": {}}}));
    done(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn each_question_has_its_own_time() {
    let (mut sessions, session) = started(json!({})).await;
    let began = Instant::now();
    let mut look = Value::Null;
    for (id, open) in [(0, 1), (1, 2), (2, 3)] {
        sessions.ask(1, id).await;
        look = sessions.look_for(&session, open).await;
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
    done(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_turn_is_told_once() {
    for (advanced, seconds) in [(json!({}), 300), (json!({"stallTimeoutMs": 20_000}), 20)] {
        let (mut sessions, session) = started(advanced).await;
        let began = Instant::now();
        let event = stall(&mut sessions, &session).await;
        assert_eq!(began.elapsed().as_secs(), seconds);
        assert_eq!(event["type"], "progress");
        assert_eq!(event["data"]["stalledForMs"], seconds * 1000);
        assert_eq!(sessions.get(&session).await["stalledForMs"], seconds * 1000);
        // Small readers are told too.
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
        done(sessions).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_heard_is_not_stalled() {
    let (mut sessions, session) = started(json!({"stallTimeoutMs": 20_000})).await;
    for _ in 0..5 {
        sleep(Duration::from_secs(19)).await;
        sessions.write(1, "text ").await;
    }
    let look = sessions.look(&session).await;
    assert_eq!(told(&look, STALLED), Vec::<Value>::new());
    assert_eq!(sessions.get(&session).await.get("stalledForMs"), None);
    let heard = Instant::now();
    stall(&mut sessions, &session).await;
    assert_eq!(heard.elapsed().as_secs(), 20);
    done(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_falls_silent_again_is_told_again() {
    let (mut sessions, session) = started(json!({"stallTimeoutMs": 20_000})).await;
    for _ in 0..3 {
        let began = Instant::now();
        stall(&mut sessions, &session).await;
        assert_eq!(began.elapsed().as_secs(), 20);
        sessions.write(1, "text").await;
        sessions.look(&session).await;
        assert_eq!(sessions.get(&session).await.get("stalledForMs"), None);
    }
    done(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_waits_for_an_answer_is_not_stalled() {
    let limits = json!({"stallTimeoutMs": 1000, "approvalTimeoutMs": 60_000});
    let (mut sessions, session) = started(limits).await;
    sessions.ask(1, 0).await;
    sleep(Duration::from_secs(59)).await;
    let look = sessions.look(&session).await;
    assert_eq!(look["status"], "waiting_approval");
    assert_eq!(told(&look, STALLED), Vec::<Value>::new());
    assert_eq!(sessions.get(&session).await.get("stalledForMs"), None);
    sessions.world.codex.next().await;
    // From the answer on it may be silent as long as any other.
    let answered = Instant::now();
    sessions.look(&session).await;
    stall(&mut sessions, &session).await;
    assert_eq!(answered.elapsed().as_secs(), 1);
    done(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_at_nothing_is_not_stalled() {
    let (mut sessions, session) = started(json!({"stallTimeoutMs": 1000})).await;
    sessions.end(1, "completed").await;
    sleep(Duration::from_secs(600)).await;
    let look = sessions.look(&session).await;
    assert_eq!(told(&look, STALLED), Vec::<Value>::new());
    assert_eq!(sessions.get(&session).await.get("stalledForMs"), None);
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_resumed_may_have_other_limits() {
    let (mut sessions, session) = started(json!({})).await;
    sessions.end(1, "completed").await;
    let resume = json!({"action": "resume", "threadId": super::sessions::thread(1),
        "prompt": "work", "advanced": {"approvalTimeoutMs": 5000}});
    let call = sessions.request("codex_session", resume).await;
    sessions.prompted(1).await;
    assert_eq!(sessions.answer(call).await["sessionId"], session);
    let asked = Instant::now();
    sessions.ask(1, 0).await;
    sessions.look_for(&session, 1).await;
    sessions.world.codex.next().await;
    assert_eq!(asked.elapsed().as_secs(), 5);
    done(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn the_limits_hold_in_every_turn() {
    let (mut sessions, session) = started(json!({})).await;
    for turn in 0..3 {
        let asked = Instant::now();
        sessions.ask(1, turn).await;
        sessions.look_for(&session, 1).await;
        sessions.world.codex.next().await;
        assert_eq!(asked.elapsed().as_secs(), 60, "{turn}");
        sessions.end(1, "completed").await;
        sessions.look(&session).await;
        let reply = json!({"sessionId": session, "prompt": "work"});
        let call = sessions.request("codex_reply", reply).await;
        sessions.prompted(1).await;
        sessions.answer(call).await;
        sessions.look(&session).await;
    }
    let silent = Instant::now();
    stall(&mut sessions, &session).await;
    assert_eq!(silent.elapsed().as_secs(), 300);
    done(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_silent_after_an_answer_is_told_in_time() {
    let limits = json!({"stallTimeoutMs": 20_000, "approvalTimeoutMs": 3_600_000});
    let (mut sessions, session) = started(limits).await;
    sessions.ask(1, 0).await;
    let look = sessions.look(&session).await;
    let accept = json!({"action": "respond_permission", "sessionId": session,
        "requestId": look["actions"][0]["requestId"], "decision": "accept", "maxEvents": 9});
    sessions.call("codex_check", accept).await;
    sessions.world.codex.next().await;
    let answered = Instant::now();
    stall(&mut sessions, &session).await;
    assert_eq!(answered.elapsed().as_secs(), 20);
    done(sessions).await;
}
