//! `--elicit`: looking in while the user has a question before them.

use std::time::Duration;

use mcp_server::{Api, Decider};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::World;
use super::sessions::{Sessions, poll};

const MINUTE: u64 = 60_000;

#[tokio::test(start_paused = true)]
async fn a_question_that_the_user_has_is_waited_for() {
    let mut world = World::silent(Api::Sessions, Decider::User).await;
    world.shake_hands(json!({"elicitation": {}})).await;
    let mut sessions = Sessions { world };
    let session = sessions.start(1, json!({})).await;
    sessions.ask(1, 0).await;
    let asked = sessions.world.client.next_is("elicitation/create").await;
    // That there is a question is news, once.
    let look = sessions.look(&session).await;
    assert_eq!(look["status"], "waiting_approval");
    assert_eq!(look["actions"][0]["command"], "touch x");

    let began = Instant::now();
    let call = sessions
        .request("codex_check", poll(&session, 5 * MINUTE))
        .await;
    sessions.nothing_comes().await;
    sleep(Duration::from_secs(29)).await;
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}});
    sessions.world.client.send(answer).await;
    let look = sessions.answer(call).await;
    assert_eq!(began.elapsed(), Duration::from_secs(30));
    assert_eq!(look["status"], "running");
    assert_eq!(look["events"][0]["type"], "approval_result");
    let answer = sessions.world.codex.next().await;
    assert_eq!(answer["result"]["decision"], "accept");

    // Nor does an unanswered one come back before its time is up.
    sessions.ask(1, 1).await;
    sessions.world.client.next_is("elicitation/create").await;
    sessions.look(&session).await;
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
