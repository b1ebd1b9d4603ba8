//! Turns that do not end when they are interrupted.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::sessions::{Sessions, poll, thread};

/// Codex has no answer to a question about permissions that ends the turn.
#[tokio::test(start_paused = true)]
async fn turn_cancelled_by_an_answer_is_given_up_if_it_does_not_end() {
    let mut sessions = Sessions::new().await;
    let session = sessions.start(1, json!({})).await;
    let params = json!({"threadId": thread(1), "turnId": "turn", "itemId": "i",
        "permissions": {"network": {"enabled": true}}});
    let method = "item/permissions/requestApproval";
    let question = json!({"id": 0, "method": method, "params": params});
    sessions.world.codex.send(question).await;
    let look = sessions.poll_for_questions(&session, 1).await;
    let cancel = json!({"action": "respond_permission", "sessionId": session,
        "requestId": look["actions"][0]["requestId"], "decision": "cancel"});
    let decided = Instant::now();
    sessions.call("codex_check", cancel).await;
    let answer = sessions.world.codex.next().await;
    assert_eq!(answer["result"], json!({"permissions": {}}));
    for seconds in [0, 5] {
        sessions.world.codex.next_is("turn/interrupt").await;
        assert_eq!(decided.elapsed(), Duration::from_secs(seconds));
    }
    let over = loop {
        let look = sessions.call("codex_check", poll(&session, 60_000)).await;
        if look["status"] != "running" {
            break look;
        }
    };
    assert_eq!(over["status"], "error", "{over:#}");
    assert_eq!(decided.elapsed(), Duration::from_secs(10));

    let reply = json!({"sessionId": session, "prompt": "work"});
    let call = sessions.request("codex_reply", reply).await;
    sessions.accept_prompt(1).await;
    sessions.answer(call).await;
    sessions.end(1, "completed").await;
    sessions.finish().await;
}

/// Codex works for nobody then.
#[tokio::test(start_paused = true)]
async fn turn_that_begins_after_it_was_given_up_is_interrupted() {
    for is_answered_first in [true, false] {
        let mut sessions = Sessions::new().await;
        let session = sessions.start(1, json!({})).await;
        sessions.end(1, "completed").await;
        assert_eq!(sessions.poll_events(&session).await["status"], "idle");
        let reply = json!({"sessionId": session, "prompt": "work"});
        let call = sessions.request("codex_reply", reply).await;
        let prompt = sessions.world.codex.next_is("turn/start").await;
        let interrupted = Instant::now();
        sessions.session("interrupt", &session).await;
        loop {
            let look = sessions.call("codex_check", poll(&session, 60_000)).await;
            if look["status"] == "error" {
                break;
            }
        }
        assert_eq!(interrupted.elapsed(), Duration::from_secs(10));

        let begun = json!({"turn": {"id": "late", "items": [], "status": "inProgress"}});
        let answer = json!({"id": prompt["id"], "result": begun});
        if is_answered_first {
            sessions.world.codex.send(answer.clone()).await;
        }
        sessions.tell(1, "turn/started", begun).await;
        let interrupt = sessions.world.codex.next_is("turn/interrupt").await;
        assert_eq!(interrupt["params"]["turnId"], "late");
        if !is_answered_first {
            sessions.world.codex.send(answer).await;
        }
        sessions.result(call).await;
        sessions.finish().await;
    }
}
