//! Prompts and decisions that come at the wrong time, or twice.

use serde_json::{Value, json};
use testkit::fake::{Action, Plan};

use super::super::serve::turns;
use super::{Refusal, Sessions, beginning, decision, gated, sent};

/// A session that waits for an answer to this.
pub(super) async fn asked(question: Action) -> (Sessions, String, Value) {
    let mut sessions = Sessions::new(&turns([question])).await;
    let session = sessions.start(json!({})).await;
    let question = sessions.question(&session).await;
    (sessions, session, question)
}

#[tokio::test]
async fn reply_waits_for_its_turn() {
    let plan = turns([Action::ask_approval("touch x")])
        .on("turn/start", gated("go"))
        .nth(1);
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    let reply = json!({"sessionId": session, "prompt": "too early", "model": "other"});
    let refusal = sessions.refused("codex_reply", reply.clone()).await;
    assert_eq!(refusal.code, "SESSION_BUSY");
    sessions.serve.fake.open_gate("go");
    assert_eq!(sessions.result(&session).await["output"], "done");

    sessions.reply(&session).await;
    let question = sessions.question(&session).await;
    let refusal = sessions.refused("codex_reply", reply).await;
    assert_eq!(refusal.code, "SESSION_BUSY");
    // Waiting would not help here.
    let words = refusal.message;
    assert!(
        words.contains("Answer") && words.contains("codex_check"),
        "{words}"
    );
    assert_eq!(sessions.state(&session).await["status"], "waiting_approval");
    sessions
        .call("codex_check", decision(&session, &question, "accept"))
        .await;
    assert_eq!(sessions.result(&session).await["output"], "done");

    // The settings of the refused replies have not changed.
    let whole = sessions.get(&session).await;
    assert_eq!(whole["turns"], 2);
    assert_eq!(whole["model"], "fake-model");
    let prompts = sent(&sessions.serve, "turn/start");
    assert_eq!(prompts.len(), 2, "{prompts:#?}");
    sessions.finish().await;
}

#[tokio::test]
async fn action_that_needs_a_turn_is_refused_without_one() {
    let mut sessions = Sessions::new(&Plan::new()).await;
    let session = sessions.start(json!({})).await;
    sessions.result(&session).await;
    for arguments in [
        json!({"action": "interrupt", "sessionId": session}),
        json!({"action": "steer", "sessionId": session, "prompt": "x"}),
    ] {
        let refusal = sessions.refused("codex_session", arguments).await;
        assert_eq!(refusal.code, "SESSION_NOT_RUNNING");
    }
    assert_eq!(sent(&sessions.serve, "turn/steer"), Vec::<Value>::new());
    assert_eq!(sent(&sessions.serve, "turn/interrupt"), Vec::<Value>::new());
    assert_eq!(sessions.state(&session).await["status"], "idle");
    sessions.finish().await;
}

#[tokio::test]
async fn cancelled_session_takes_no_input_but_can_be_read() {
    for question in [None, Some(Action::ask_approval("touch x"))] {
        let plan = match &question {
            Some(question) => turns([question.clone()]),
            None => Plan::new(),
        };
        let mut sessions = Sessions::new(&plan).await;
        let session = sessions.start(json!({})).await;
        let open = sessions.attention(&session).await["actions"][0].clone();
        sessions.session("cancel", &session).await;
        let over = sessions.state(&session).await;
        assert_eq!(over["status"], "cancelled");
        assert_eq!(over["result"]["status"], "cancelled");
        assert_eq!(over["result"]["reason"], "Cancelled by user");
        assert!(over["result"]["turnId"].is_string(), "{over:#}");
        assert_eq!(over.get("pollInterval"), None);
        assert_eq!(over.get("actions"), None);

        let whole = sessions.get(&session).await;
        let thread = whole["threadId"].as_str().unwrap();
        for (tool, arguments) in [
            (
                "codex_reply",
                json!({"sessionId": session, "prompt": "go on"}),
            ),
            (
                "codex_session",
                json!({"action": "interrupt", "sessionId": session}),
            ),
            (
                "codex_session",
                json!({"action": "fork", "sessionId": session}),
            ),
            (
                "codex_session",
                json!({"action": "steer", "sessionId": session, "prompt": "x"}),
            ),
            (
                "codex_check",
                json!({"action": "respond_permission", "sessionId": session,
                    "requestId": "req_00000000", "decision": "accept"}),
            ),
        ] {
            let Refusal { code, message } = sessions.refused(tool, arguments).await;
            assert_eq!(code, "CANCELLED", "{message}");
            // The message names the thread, so that it can be resumed.
            assert!(message.contains(thread), "{message}");
        }
        if question.is_some() {
            // The question was declined with the session and cannot be accepted later.
            let late = decision(&session, &open, "accept");
            assert_eq!(
                sessions.refused("codex_check", late).await.code,
                "CANCELLED"
            );
            let answers = sessions.answers(1).await;
            assert_eq!(answers.len(), 1);
            assert_eq!(answers[0]["result"], json!({"decision": "decline"}));
        }
        assert_eq!(whole["status"], "cancelled");
        assert_eq!(whole["cancelledReason"], "Cancelled by user");
        assert_eq!(whole["pendingRequestCount"], 0);
        sessions.session("cancel", &session).await;
        assert_eq!(
            sessions.get(&session).await["cancelledAt"],
            whole["cancelledAt"]
        );
        let ends = sessions.events_of(&session, "result").await;
        let cancelled: Vec<&Value> = ends
            .iter()
            .filter(|event| event["data"]["status"] == "cancelled")
            .collect();
        assert_eq!(cancelled.len(), 1, "{ends:#?}");
        sessions.finish().await;
    }
}

#[tokio::test]
async fn second_answer_is_refused_and_codex_gets_one() {
    let (mut sessions, session, question) = asked(Action::ask_approval("touch x")).await;
    let accept = decision(&session, &question, "accept");
    sessions.call("codex_check", accept.clone()).await;
    for again in [accept, decision(&session, &question, "decline")] {
        let refusal = sessions.refused("codex_check", again).await;
        assert_eq!(refusal.code, "REQUEST_NOT_FOUND");
    }
    assert_eq!(sessions.result(&session).await["output"], "done");
    let answers = sessions.answers(1).await;
    assert_eq!(
        answers,
        [json!({"id": 0, "result": {"decision": "accept"}})]
    );
    let structured = sessions.events_of(&session, "approval_result").await;
    assert_eq!(structured.len(), 1, "{structured:#?}");
    assert_eq!(structured[0]["data"]["requestId"], question["requestId"]);
    assert_eq!(structured[0]["data"]["decision"], "accept");
    sessions.finish().await;
}

#[tokio::test]
async fn racing_answers_are_taken_once() {
    let (mut sessions, session, question) = asked(Action::ask_approval("touch x")).await;
    let calls: Vec<Value> = (0..20)
        .map(|number| {
            let word = if number % 2 == 0 { "accept" } else { "decline" };
            let arguments = decision(&session, &question, word);
            sessions.serve.client.request_tool("codex_check", arguments)
        })
        .collect();
    let mut taken = 0;
    for call in calls {
        let result = sessions.serve.client.result(&call).await;
        if result["isError"] == false {
            taken += 1;
        } else {
            assert_eq!(super::refusal(&result).code, "REQUEST_NOT_FOUND");
        }
    }
    assert_eq!(taken, 1);
    sessions.result(&session).await;
    assert_eq!(sessions.serve.answers().len(), 1);
    sessions.finish().await;
}

#[tokio::test]
async fn answer_after_the_timeout_is_refused() {
    let plan = turns([Action::ask_approval("touch x"), Action::gate("go")]);
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions
        .start(json!({"advanced": {"approvalTimeoutMs": 1}}))
        .await;
    let answers = sessions.answers(1).await;
    assert_eq!(answers[0]["result"], json!({"decision": "decline"}));
    let asked = sessions.events_of(&session, "approval_request").await;
    let question = &asked[0]["data"];
    let refusal = sessions
        .refused("codex_check", decision(&session, question, "accept"))
        .await;
    assert_eq!(refusal.code, "REQUEST_NOT_FOUND");
    let structured = sessions.events_of(&session, "approval_result").await;
    assert_eq!(structured[0]["data"]["timeout"], true);
    assert_eq!(structured[0]["data"]["decision"], "decline");
    assert_eq!(sessions.state(&session).await["status"], "running");
    sessions.serve.fake.open_gate("go");
    assert_eq!(sessions.result(&session).await["output"], "done");
    assert_eq!(sessions.serve.answers().len(), 1);
    sessions.finish().await;
}

#[tokio::test]
async fn question_belongs_to_one_session_only() {
    let plan = turns([Action::ask_approval("touch x")]);
    let mut sessions = Sessions::new(&plan).await;
    let one = sessions.start(json!({})).await;
    let other = sessions.start(json!({})).await;
    let of_one = sessions.question(&one).await;
    let of_other = sessions.question(&other).await;
    assert_ne!(of_one["requestId"], of_other["requestId"]);
    let refusal = sessions
        .refused("codex_check", decision(&other, &of_one, "accept"))
        .await;
    assert_eq!(refusal.code, "REQUEST_NOT_FOUND");
    assert_eq!(sessions.serve.answers(), Vec::<Value>::new());
    for (session, question) in [(&one, &of_one), (&other, &of_other)] {
        sessions
            .call("codex_check", decision(session, question, "accept"))
            .await;
        assert_eq!(sessions.result(session).await["output"], "done");
    }
    assert_eq!(sessions.serve.answers().len(), 2);
    sessions.finish().await;
}

#[tokio::test]
async fn settings_of_a_reply_persist() {
    let plan = Plan::new().on("turn/start", gated("go"));
    let mut sessions = Sessions::new(&plan).await;
    let started = sessions
        .call("codex", beginning(json!({"model": "one"})))
        .await;
    let session = started["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(
        (&started["status"], &started["pollInterval"]),
        (&json!("running"), &json!(60_000))
    );
    sessions.serve.fake.open_gate("go");
    sessions.result(&session).await;
    let reply = json!({"sessionId": session, "prompt": "go on", "model": "two",
        "approvalPolicy": "never", "sandbox": "danger-full-access", "effort": "high",
        "summary": "concise", "personality": "friendly"});
    sessions.call("codex_reply", reply).await;
    sessions.result(&session).await;
    let whole = sessions.get(&session).await;
    for (name, value) in [
        ("model", "two"),
        ("approvalPolicy", "never"),
        ("sandbox", "danger-full-access"),
        ("effort", "high"),
        ("summary", "concise"),
        ("personality", "friendly"),
    ] {
        assert_eq!(whole[name], value, "{name}");
    }
    sessions.reply(&session).await;
    sessions.result(&session).await;
    assert_eq!(sessions.get(&session).await["model"], "two");
    let prompts = sent(&sessions.serve, "turn/start");
    assert_eq!(prompts[0]["params"]["effort"], "low");
    assert_eq!(prompts[1]["params"]["model"], "two");
    assert_eq!(prompts[2]["params"]["effort"], "high");
    sessions.finish().await;
}

#[tokio::test]
async fn one_of_racing_replies_is_taken() {
    let plan = Plan::new().on("turn/start", gated("go")).nth(2);
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    sessions.result(&session).await;
    let calls: Vec<Value> = (0..20)
        .map(|number| {
            let reply = json!({"sessionId": session, "prompt": format!("reply {number}")});
            sessions.serve.client.request_tool("codex_reply", reply)
        })
        .collect();
    let mut taken = 0;
    for call in calls {
        let result = sessions.serve.client.result(&call).await;
        if result["isError"] == false {
            taken += 1;
        } else {
            assert_eq!(super::refusal(&result).code, "SESSION_BUSY");
        }
    }
    assert_eq!(taken, 1);
    sessions.serve.fake.open_gate("go");
    assert_eq!(sessions.result(&session).await["output"], "done");
    assert_eq!(sent(&sessions.serve, "turn/start").len(), 2);
    sessions.finish().await;
}
