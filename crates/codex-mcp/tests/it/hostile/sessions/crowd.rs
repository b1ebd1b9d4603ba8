//! Very many sessions at once.

use serde_json::{Value, json};
use testkit::fake::{Action, Plan, TurnEnd};

use super::{Sessions, is_name, sent, structured};

const COUNT: usize = 200;

/// Turns with a different message each.
fn counting() -> Plan {
    let mut plan = Plan::new();
    for nth in 1..=COUNT {
        let answer = Action::say(&format!("answer {nth}"));
        let actions = [
            Action::Answer,
            Action::StartTurn,
            answer,
            Action::EndTurn(TurnEnd::Completed),
        ];
        plan = plan
            .on("turn/start", actions)
            .nth(u32::try_from(nth).unwrap());
    }
    plan
}

#[tokio::test]
async fn two_hundred_sessions_get_their_own_results() {
    let mut sessions = Sessions::new(&counting()).await;
    let calls: Vec<Value> = (0..COUNT)
        .map(|number| {
            let arguments = super::beginning(json!({"model": format!("model-{number}")}));
            sessions.serve.client.request_tool("codex", arguments)
        })
        .collect();
    let mut started = Vec::new();
    for call in &calls {
        started.push(structured(&sessions.serve.client.result(call).await));
    }
    let ids: Vec<String> = started
        .iter()
        .map(|one| one["sessionId"].as_str().unwrap().to_owned())
        .collect();
    for id in &ids {
        assert!(is_name(id, "sess_", 12), "{id}");
        sessions.result(id).await;
    }

    let list = sessions.list().await;
    // Concurrent calls start in any order.
    let listed = list["sessions"].as_array().unwrap();
    assert_eq!(listed.len(), ids.len());
    for (number, id) in ids.iter().enumerate() {
        let one = listed.iter().find(|one| one["sessionId"] == **id).unwrap();
        assert_eq!(one["model"], format!("model-{number}"));
    }

    let prompted = sent(&sessions.serve, "turn/start");
    for one in &started {
        let place = prompted
            .iter()
            .position(|prompt| prompt["params"]["threadId"] == one["threadId"])
            .unwrap();
        let session = one["sessionId"].as_str().unwrap();
        let state = sessions.state(session).await;
        assert_eq!(state["result"]["output"], format!("answer {}", place + 1));
    }
    assert_eq!(sessions.serve.fake.started().len(), 1);
    sessions.finish().await;
}

/// Codex ignores the settings of a thread that it has loaded.
#[tokio::test]
async fn settings_of_the_second_of_two_racing_resumes_count() {
    let gates = ["first", "second"];
    let plan = Plan::new()
        .on("thread/resume", [Action::gate(gates[0]), Action::Answer])
        .nth(1)
        .on("thread/resume", [Action::gate(gates[1]), Action::Answer])
        .nth(2);
    let mut sessions = Sessions::new(&plan).await;
    let mut calls = Vec::new();
    for sandbox in ["workspace-write", "read-only"] {
        let resume = json!({"action": "resume", "sandbox": sandbox,
            "threadId": "019fa4e0-0000-7000-8001-00000000abcd"});
        calls.push(sessions.serve.client.request_tool("codex_session", resume));
        let fake = &sessions.serve.fake;
        fake.wait_for_nth_method(calls.len(), "thread/resume").await;
    }
    let mut ids = Vec::new();
    for (call, gate) in calls.iter().zip(gates) {
        sessions.serve.fake.open_gate(gate);
        let resumed = structured(&sessions.serve.client.result(call).await);
        ids.push(resumed["sessionId"].as_str().unwrap().to_owned());
    }
    assert_eq!(ids[0], ids[1]);
    assert_eq!(sessions.get(&ids[0]).await["sandbox"], "read-only");
    sessions.reply(&ids[0]).await;
    sessions.result(&ids[0]).await;
    let prompt = sent(&sessions.serve, "turn/start").remove(0);
    assert_eq!(prompt["params"]["sandboxPolicy"]["type"], "readOnly");
    sessions.finish().await;
}

#[tokio::test]
async fn first_of_two_hundred_sessions_is_waited_for() {
    const FIRST: usize = 137;
    let mut plan = Plan::new();
    for nth in 1..=COUNT {
        let gate = if nth == FIRST + 1 { "first" } else { "others" };
        plan = plan
            .on("turn/start", super::gated(gate))
            .nth(u32::try_from(nth).unwrap());
    }
    let mut sessions = Sessions::new(&plan).await;
    let mut ids = Vec::new();
    for _ in 0..COUNT {
        ids.push(sessions.start(json!({})).await);
    }
    let arguments = json!({"action": "wait_any", "sessionIds": ids, "waitMs": 600_000});
    let call = sessions
        .serve
        .client
        .request_tool("codex_session", arguments);
    sessions.serve.settled().await;
    assert_eq!(sessions.serve.client.response_so_far(&call), None);
    sessions.serve.fake.open_gate("first");
    let first = structured(&sessions.serve.client.result(&call).await);
    assert_eq!(first, json!({"sessionId": ids[FIRST], "status": "idle"}));
    sessions.finish().await;
}
