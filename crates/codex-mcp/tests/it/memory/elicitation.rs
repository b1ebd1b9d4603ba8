//! `--elicit`: polls while the user has an open question.

use std::time::Duration;

use mcp_server::{Api, Decider};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::MemoryServer;
use super::sessions::{Sessions, poll};

const MINUTE: u64 = 60_000;

#[tokio::test(start_paused = true)]
async fn poll_waits_for_a_question_that_the_user_answers() {
    let mut world = MemoryServer::silent(Api::Sessions, Decider::User).await;
    world.initialize(json!({"elicitation": {}})).await;
    let mut sessions = Sessions { world };
    let session = sessions.start(1, json!({})).await;
    sessions.ask(1, 0).await;
    let asked = sessions.world.client.next_is("elicitation/create").await;
    // The question ends one poll, and only one.
    let look = sessions.poll_events(&session).await;
    assert_eq!(look["status"], "waiting_approval");
    assert_eq!(look["actions"][0]["command"], "touch x");

    let began = Instant::now();
    let call = sessions
        .request("codex_check", poll(&session, 5 * MINUTE))
        .await;
    sessions.assert_nothing_unread().await;
    sleep(Duration::from_secs(29)).await;
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}});
    sessions.world.client.send(answer).await;
    let look = sessions.answer(call).await;
    assert_eq!(began.elapsed(), Duration::from_secs(30));
    assert_eq!(look["status"], "running");
    assert_eq!(look["events"][0]["type"], "approval_result");
    let answer = sessions.world.codex.next().await;
    assert_eq!(answer["result"]["decision"], "accept");

    // A poll with an unanswered question returns when the time of the question is up.
    sessions.ask(1, 1).await;
    sessions.world.client.next_is("elicitation/create").await;
    sessions.poll_events(&session).await;
    let began = Instant::now();
    let call = sessions
        .request("codex_check", poll(&session, 5 * MINUTE))
        .await;
    // The question is withdrawn, and the poll answered, in either order.
    let client = &mut sessions.world.client;
    let mut came = [client.next().await, client.next().await];
    assert_eq!(began.elapsed(), Duration::from_secs(60));
    came.sort_by_key(|message| message["id"] == call);
    assert_eq!(came[0]["method"], "notifications/cancelled", "{came:#?}");
    let look = &came[1]["result"]["structuredContent"];
    assert_eq!(look["events"][0]["data"]["timeout"], true, "{came:#?}");
    let answer = sessions.world.codex.next().await;
    assert_eq!(answer["result"]["decision"], "decline");
    sessions.end(1, "completed").await;
    sessions.finish().await;
}
