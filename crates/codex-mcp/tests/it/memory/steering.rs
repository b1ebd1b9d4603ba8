//! Messages for the running turn.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::sessions::Sessions;

/// Codex refuses to steer a turn whose start it has not reported.
#[tokio::test(start_paused = true)]
async fn message_waits_for_the_start_of_its_turn() {
    let mut sessions = Sessions::new().await;
    let session = sessions.start(1, json!({})).await;
    sessions.end(1, "completed").await;
    assert_eq!(sessions.poll_events(&session).await["status"], "idle");
    let reply = json!({"sessionId": session, "prompt": "work"});
    let replied = sessions.request("codex_reply", reply).await;
    // Time passes only when nothing else can be done.
    sleep(Duration::from_millis(1)).await;
    let steer = json!({"action": "steer", "sessionId": session, "prompt": "and that"});
    let steered = sessions.request("codex_session", steer).await;
    sleep(Duration::from_millis(1)).await;
    sessions.accept_prompt(1).await;
    sessions.answer(replied).await;
    let codex = &mut sessions.world.codex;
    let request = codex.next_is("turn/steer").await;
    assert_eq!(request["params"]["input"][0]["text"], "and that");
    let response = json!({"id": request["id"], "result": {"turnId": "turn"}});
    codex.send(response).await;
    sessions.answer(steered).await;
    sessions.end(1, "completed").await;
    sessions.finish().await;
}
