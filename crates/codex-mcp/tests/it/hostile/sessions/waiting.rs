//! Waiting calls, and the events that end them.

use serde_json::{Value, json};
use testkit::Signal;
use testkit::fake::Plan;
use testkit::wait::wait_for;

use super::super::serve::{Serve, turns};
use super::{Sessions, decision, gated, refusal, structured};

/// Longer than a test may take, so a wait of this length ends with an event only.
const LONG: u64 = 600_000;

/// A session that runs until the gate `go` is opened, all its events read.
async fn running() -> (Sessions, String) {
    let plan = Plan::new().on("turn/start", gated("go"));
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    read_all(&mut sessions, &session).await;
    (sessions, session)
}

/// Reads until the turn has started and nothing more is under way.
async fn read_all(sessions: &mut Sessions, session: &str) {
    wait_for("the start of the turn", async || {
        let more = json!({"maxEvents": 1000, "responseMode": "full", "waitMs": LONG});
        let look = sessions.poll(session, more).await;
        let mut events = look["events"].as_array().unwrap().iter();
        let has_started = events.any(|event| event["data"]["method"] == "turn/started");
        has_started.then_some(())
    })
    .await;
}

fn wait(session: &str) -> Value {
    json!({"action": "poll", "sessionId": session, "waitMs": LONG, "maxEvents": 1000})
}

#[tokio::test]
async fn cancelled_wait_has_no_effect() {
    let (mut sessions, session) = running().await;
    let any = json!({"action": "wait_any", "sessionIds": [session], "waitMs": LONG});
    let client = &mut sessions.serve.client;
    let calls = [
        client.request_tool("codex_check", wait(&session)),
        client.request_tool("codex_session", any),
    ];
    sessions.serve.settled().await;
    for call in &calls {
        sessions.serve.client.cancel(call, "no longer of interest");
    }
    sessions.serve.settled().await;
    assert_eq!(sessions.state(&session).await["status"], "running");
    sessions.serve.fake.open_gate("go");
    assert_eq!(sessions.result(&session).await["output"], "done");
    assert_eq!(
        super::sent(&sessions.serve, "turn/interrupt"),
        Vec::<Value>::new()
    );
    sessions.finish().await;
}

#[tokio::test]
async fn several_clients_may_wait_for_one_session() {
    let (mut sessions, session) = running().await;
    let calls: Vec<Value> = (0..20)
        .map(|_| {
            sessions
                .serve
                .client
                .request_tool("codex_check", wait(&session))
        })
        .collect();
    sessions.serve.settled().await;
    for call in &calls {
        assert_eq!(sessions.serve.client.response_so_far(call), None);
    }
    sessions.serve.fake.open_gate("go");
    for call in &calls {
        structured(&sessions.serve.client.result(call).await);
    }
    assert_eq!(sessions.result(&session).await["output"], "done");
    sessions.finish().await;
}

/// Ends the server in the middle of waits, which are answered.
async fn ends(end: impl FnOnce(&mut Serve)) {
    let (mut sessions, session) = running().await;
    let any = json!({"action": "wait_any", "sessionIds": [session], "waitMs": LONG});
    let client = &mut sessions.serve.client;
    let calls = [
        client.request_tool("codex_check", wait(&session)),
        client.request_tool("codex_session", any),
    ];
    sessions.serve.settled().await;
    let mut serve = sessions.serve;
    end(&mut serve);
    for call in &calls {
        assert_eq!(refusal(&serve.client.result(call).await).code, "CANCELLED");
    }
    let status = serve.client.exited().await;
    assert!(status.success(), "{status}");
    serve.gone(status).await;
}

#[tokio::test]
async fn end_of_input_ends_a_wait_and_the_server() {
    ends(|serve| serve.client.close_stdin()).await;
}

#[tokio::test]
async fn sigterm_ends_a_wait_and_the_server() {
    ends(|serve| serve.client.signal(Signal::SIGTERM)).await;
}

#[tokio::test]
async fn end_of_input_ends_sessions_in_every_phase() {
    let plan = turns([testkit::fake::Action::ask_approval("touch x")])
        .on("turn/start", gated("never"))
        .nth(1);
    let mut sessions = Sessions::new(&plan).await;
    sessions.start(json!({})).await;
    let waiting = sessions.start(json!({})).await;
    sessions.question(&waiting).await;
    let done = sessions.start(json!({})).await;
    let open = sessions.question(&done).await;
    sessions
        .call("codex_check", decision(&done, &open, "accept"))
        .await;
    sessions.result(&done).await;
    sessions.finish().await;
}

#[tokio::test]
async fn wait_ends_when_its_session_is_cancelled() {
    let (mut sessions, session) = running().await;
    let call = sessions
        .serve
        .client
        .request_tool("codex_check", wait(&session));
    sessions.serve.settled().await;
    sessions.session("cancel", &session).await;
    let look = structured(&sessions.serve.client.result(&call).await);
    assert_eq!(look["status"], "cancelled");
    sessions.finish().await;
}
