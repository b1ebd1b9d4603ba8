//! Cancelled sessions, also at the moment in which their turn ends.

use serde_json::{Value, json};
use testkit::fake::{Action, HELLO, Plan, TurnEnd};

use super::{Sessions, gated, sent, wait_for_thread};

async fn thread_of(sessions: &mut Sessions, session: &str) -> Value {
    sessions.get(session).await["threadId"].clone()
}

/// Checks that a session was cancelled, and that its thread was unsubscribed once.
async fn is_over(sessions: &mut Sessions, session: &str) {
    let thread = thread_of(sessions, session).await;
    wait_for_thread(&sessions.serve, 1, "thread/unsubscribe", &thread).await;
    let over = sessions.state(session).await;
    assert_eq!(over["status"], "cancelled");
    assert_eq!(over["result"]["status"], "cancelled");
    assert_eq!(over["result"]["reason"], "Cancelled by user");
    assert_eq!(over.get("actions"), None);
    sessions.serve.settled().await;
    let of_thread = |message: &Value| message["params"]["threadId"] == thread;
    let let_go = sent(&sessions.serve, "thread/unsubscribe");
    assert_eq!(let_go.iter().filter(|one| of_thread(one)).count(), 1);
}

/// Resumes the thread, which must work as before.
async fn continues(sessions: &mut Sessions, session: &str) {
    let thread = thread_of(sessions, session).await;
    let arguments = json!({"action": "resume", "threadId": thread, "prompt": "go on"});
    let resumed = sessions.call("codex_session", arguments).await;
    let again = resumed["sessionId"].as_str().unwrap();
    assert_ne!(again, session);
    assert_eq!(resumed["threadId"], thread);
    assert_eq!(sessions.result(again).await["output"], HELLO);
    // The earlier session stays cancelled.
    assert_eq!(sessions.state(session).await["status"], "cancelled");
}

#[tokio::test]
async fn ended_turn_is_not_interrupted() {
    let mut sessions = Sessions::new(&Plan::new()).await;
    let session = sessions.start(json!({})).await;
    sessions.result(&session).await;
    sessions.session("cancel", &session).await;
    is_over(&mut sessions, &session).await;
    assert_eq!(sent(&sessions.serve, "turn/interrupt"), Vec::<Value>::new());
    continues(&mut sessions, &session).await;
    sessions.finish().await;
}

#[tokio::test]
async fn result_of_a_turn_outlives_its_session() {
    let mut sessions = Sessions::new(&Plan::new()).await;
    let session = sessions.start(json!({})).await;
    let before = sessions.result(&session).await;
    sessions.session("cancel", &session).await;
    let over = sessions.state(&session).await["result"].clone();
    assert_eq!(over["status"], "cancelled");
    assert_eq!(over["reason"], "Cancelled by user");
    for name in ["output", "turnId", "usage"] {
        assert!(!before[name].is_null(), "{name}: {before:#}");
        assert_eq!(over[name], before[name], "{name}");
    }
    sessions.finish().await;
}

#[tokio::test]
async fn turn_that_ends_before_its_interrupt_stays_cancelled() {
    let too_late = Action::Error {
        code: -32600,
        message: "no active turn to interrupt".to_owned(),
    };
    for interrupted in [
        // Codex has ended the turn before it reads the interrupt.
        vec![
            Action::say("done"),
            Action::EndTurn(TurnEnd::Completed),
            too_late,
        ],
        // Codex ends the turn as interrupted, before or after its answer.
        vec![Action::EndTurn(TurnEnd::Interrupted), Action::Answer],
        vec![Action::Answer, Action::EndTurn(TurnEnd::Interrupted)],
        vec![
            Action::Answer,
            Action::EndTurn(TurnEnd::Failed("no".to_owned())),
        ],
    ] {
        let plan = Plan::new()
            .on("turn/start", gated("never"))
            .nth(1)
            .on("turn/interrupt", interrupted);
        let mut sessions = Sessions::new(&plan).await;
        let session = sessions.start(json!({})).await;
        sessions.session("cancel", &session).await;
        is_over(&mut sessions, &session).await;
        let results = sessions.events_of(&session, "result").await;
        assert_eq!(results.len(), 1, "{results:#?}");
        assert_eq!(results[0]["data"]["status"], "cancelled");
        continues(&mut sessions, &session).await;
        sessions.finish().await;
    }
}

#[tokio::test]
async fn turns_that_end_while_being_cancelled_stay_cancelled() {
    const COUNT: usize = 40;
    let mut plan = Plan::new();
    for nth in 1..=COUNT {
        plan = plan
            .on("turn/start", gated("go"))
            .nth(u32::try_from(nth).unwrap());
    }
    let mut sessions = Sessions::new(&plan).await;
    let mut all = Vec::new();
    for _ in 0..COUNT {
        all.push(sessions.start(json!({})).await);
    }
    sessions.serve.fake.open_gate("go");
    let calls: Vec<Value> = all
        .iter()
        .map(|session| {
            let arguments = json!({"action": "cancel", "sessionId": session});
            sessions
                .serve
                .client
                .request_tool("codex_session", arguments)
        })
        .collect();
    for call in calls {
        super::structured(&sessions.serve.client.result(&call).await);
    }
    for session in &all {
        is_over(&mut sessions, session).await;
    }
    continues(&mut sessions, &all[0]).await;
    sessions.finish().await;
}

#[tokio::test]
async fn session_is_cancelled_while_it_begins() {
    let plan = Plan::new()
        .on("turn/start", [Action::gate("slow"), Action::Proceed])
        .nth(1);
    let mut sessions = Sessions::new(&plan).await;
    let call = sessions
        .serve
        .client
        .request_tool("codex", super::beginning(json!({})));
    sessions.serve.fake.wait_for_method("turn/start").await;
    let list = sessions.list().await;
    let session = list["sessions"][0]["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(list["sessions"][0]["status"], "running");
    sessions.session("cancel", &session).await;
    sessions.serve.fake.open_gate("slow");
    let started = super::structured(&sessions.serve.client.result(&call).await);
    assert_eq!(started["status"], "cancelled");
    is_over(&mut sessions, &session).await;
    continues(&mut sessions, &session).await;
    sessions.finish().await;
}

#[tokio::test]
async fn start_continues_after_its_caller_disconnects() {
    let plan = Plan::new().on("thread/start", [Action::gate("slow"), Action::Proceed]);
    let mut sessions = Sessions::new(&plan).await;
    let call = sessions
        .serve
        .client
        .request_tool("codex", super::beginning(json!({})));
    sessions.serve.fake.wait_for_method("thread/start").await;
    sessions.serve.client.cancel(&call, "impatient");
    sessions.serve.settled().await;
    sessions.serve.fake.open_gate("slow");
    sessions.serve.fake.wait_for_method("turn/start").await;
    let list = sessions.list().await;
    let session = list["sessions"][0]["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(sessions.result(&session).await["output"], HELLO);
    sessions.finish().await;
}

#[tokio::test]
async fn interrupted_session_takes_a_reply() {
    let plan = Plan::new().on("turn/start", gated("never")).nth(1);
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    sessions.session("interrupt", &session).await;
    assert_eq!(sessions.result(&session).await["status"], "interrupted");
    sessions.reply(&session).await;
    let result = sessions.result(&session).await;
    assert_eq!(
        (&result["status"], &result["output"]),
        (&json!("completed"), &json!(HELLO))
    );
    sessions.finish().await;
}

#[tokio::test]
async fn failed_turn_leaves_a_session_that_takes_a_reply() {
    let end = TurnEnd::FailedFor("You've hit it.".to_owned(), json!("usageLimitExceeded"));
    let actions = [
        Action::Answer,
        Action::StartTurn,
        Action::say("So far."),
        Action::EndTurn(end),
    ];
    let plan = Plan::new().on("turn/start", actions).nth(1);
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    let result = sessions.result(&session).await;
    assert_eq!(result["status"], "failed");
    assert_eq!(result["output"], "So far.");
    assert_eq!(result["error"], "You've hit it.");
    assert_eq!(result["turnError"]["codexErrorInfo"], "usageLimitExceeded");
    sessions.reply(&session).await;
    let result = sessions.result(&session).await;
    assert_eq!(
        (&result["status"], &result["output"]),
        (&json!("completed"), &json!(HELLO))
    );
    assert_eq!(result.get("error"), None);
    sessions.finish().await;
}

#[tokio::test]
async fn question_in_a_cancelled_turn_is_declined_at_once() {
    let late = [
        Action::Answer,
        Action::ask_approval("touch x"),
        Action::EndTurn(TurnEnd::Interrupted),
    ];
    for action in ["cancel", "interrupt"] {
        let plan = Plan::new()
            .on("turn/start", gated("never"))
            .on("turn/interrupt", late.clone());
        let mut sessions = Sessions::new(&plan).await;
        let session = sessions.start(json!({})).await;
        sessions.session(action, &session).await;
        let answers = sessions.answers(1).await;
        assert_eq!(answers[0]["result"], json!({"decision": "decline"}));
        sessions.attention(&session).await;
        let asked = sessions.events_of(&session, "approval_request").await;
        assert_eq!(asked, Vec::<Value>::new());
        sessions.finish().await;
    }
}
