//! The death of Codex with open sessions.

use serde_json::{Value, json};
use testkit::Signal;
use testkit::fake::{Action, HELLO, Plan};

use super::super::serve::turn;
use super::{Sessions, decision, gated, sent};

/// The causes of death of a test's first Codex, and how each is reported.
fn deaths() -> [(Action, &'static str); 4] {
    let by = |signal: Signal| Action::Kill {
        signal: signal as i32,
    };
    [
        (Action::Exit { code: 0 }, "Codex exited with code 0"),
        (Action::Exit { code: 7 }, "Codex exited with code 7"),
        (by(Signal::SIGKILL), "signal 9 (SIGKILL)"),
        (by(Signal::SIGSEGV), "signal 11 (SIGSEGV)"),
    ]
}

#[tokio::test]
async fn codex_death_in_a_turn_is_reported_and_the_session_continues() {
    for (death, words) in deaths() {
        let actions = [
            Action::Answer,
            Action::StartTurn,
            Action::say("So far."),
            death,
        ];
        let plan = Plan::new().on("turn/start", actions).in_launch(1);
        let mut sessions = Sessions::new(&plan).await;
        let session = sessions.start(json!({})).await;
        let lost = sessions.attention(&session).await;
        assert_eq!(lost["status"], "error", "{words}");
        assert_eq!(lost["result"]["status"], "error");
        let structured = |value: &Value| value.as_str().unwrap().contains(words);
        assert!(structured(&lost["result"]["error"]), "{words}: {lost:#}");
        assert_eq!(lost["result"]["output"], "So far.");
        let whole = sessions.get(&session).await;
        assert!(structured(&whole["error"]), "{words}: {whole:#}");
        let ends = sessions.events_of(&session, "result").await;
        assert!(structured(&ends[0]["data"]["error"]), "{words}: {ends:#?}");

        sessions.reply(&session).await;
        let result = sessions.result(&session).await;
        assert_eq!(result["output"], HELLO);
        assert_eq!(sessions.serve.fake.started().len(), 2);
        let whole = sessions.get(&session).await;
        assert_eq!(whole.get("error"), None, "{whole:#}");
        sessions.finish().await;
    }
}

/// A session with a completed turn, a running one, and one that waits for an answer.
async fn three() -> (Sessions, [String; 3], Value) {
    let asking = turn([Action::ask_approval("touch x")]);
    let plan = Plan::new()
        .on("turn/start", gated("never"))
        .nth(2)
        .in_launch(1)
        .on("turn/start", asking)
        .nth(3)
        .in_launch(1);
    let mut sessions = Sessions::new(&plan).await;
    let idle = sessions.start(json!({})).await;
    sessions.result(&idle).await;
    let running = sessions.start(json!({})).await;
    let waiting = sessions.start(json!({})).await;
    let question = sessions.question(&waiting).await;
    (sessions, [idle, running, waiting], question)
}

#[tokio::test]
async fn codex_death_is_reported_to_every_session() {
    let (mut sessions, all, question) = three().await;
    sessions.serve.kill_codex(Signal::SIGKILL);
    let words = "signal 9 (SIGKILL)";
    for session in &all[1..] {
        let lost = sessions.attention(session).await;
        assert_eq!(lost["status"], "error");
        assert_eq!(lost.get("pollInterval"), None);
        assert!(
            lost["result"]["error"].as_str().unwrap().contains(words),
            "{lost:#}"
        );
    }
    let idle = sessions.state(&all[0]).await;
    assert_eq!(idle["status"], "error");
    // The result of its turn is kept.
    assert_eq!(idle["result"]["output"], HELLO);
    let errors = sessions.events_of(&all[0], "error").await;
    assert!(
        errors[0]["data"]["message"]
            .as_str()
            .unwrap()
            .contains(words),
        "{errors:#?}"
    );
    for session in &all {
        let whole = sessions.get(session).await;
        assert!(
            whole["error"].as_str().unwrap().contains(words),
            "{whole:#}"
        );
    }

    // No Codex is left to read an answer.
    let closed = sessions.events_of(&all[2], "approval_result").await;
    assert_eq!(closed[0]["data"]["requestId"], question["requestId"]);
    let late = decision(&all[2], &question, "accept");
    assert_eq!(
        sessions.refused("codex_check", late).await.code,
        "REQUEST_NOT_FOUND"
    );
    for arguments in [
        json!({"action": "interrupt", "sessionId": all[1]}),
        json!({"action": "steer", "sessionId": all[1], "prompt": "x"}),
    ] {
        let refusal = sessions.refused("codex_session", arguments).await;
        assert_eq!(refusal.code, "SESSION_NOT_RUNNING");
    }

    assert_eq!(
        sessions.serve.fake.started().len(),
        1,
        "started again unasked"
    );
    for session in &all {
        sessions.reply(session).await;
        assert_eq!(sessions.result(session).await["output"], HELLO);
    }
    assert_eq!(sessions.serve.fake.started().len(), 2);
    assert_eq!(sent(&sessions.serve, "thread/resume").len(), 3);
    sessions.finish().await;
}

#[tokio::test]
async fn session_in_error_can_be_cancelled_and_forked() {
    let (mut sessions, all, _) = three().await;
    sessions.serve.kill_codex(Signal::SIGTERM);
    assert_eq!(sessions.attention(&all[1]).await["status"], "error");
    sessions.session("cancel", &all[1]).await;
    assert_eq!(sessions.state(&all[1]).await["status"], "cancelled");
    let fork = sessions.session("fork", &all[0]).await;
    let forked = fork["sessionId"].as_str().unwrap().to_owned();
    sessions.reply(&forked).await;
    assert_eq!(sessions.result(&forked).await["output"], HELLO);
    assert_eq!(sessions.get(&all[0]).await["status"], "error");
    sessions.finish().await;
}

#[tokio::test]
async fn thread_is_resumed_with_all_its_settings() {
    let mut sessions = Sessions::new(&Plan::new()).await;
    let directory = sessions.serve.home.work().join("directory");
    std::fs::create_dir(&directory).unwrap();
    let started = json!({"model": "one", "approvalPolicy": "never", "cwd": directory,
        "sandbox": "read-only", "effort": "high",
        "advanced": {"developerInstructions": "be brief", "baseInstructions": "be",
            "config": {"k": 1}}});
    let session = sessions.start(started).await;
    sessions.result(&session).await;
    let reply = json!({"sessionId": session, "prompt": "x", "model": "two",
        "approvalPolicy": "on-request", "sandbox": "danger-full-access"});
    sessions.call("codex_reply", reply).await;
    sessions.result(&session).await;
    let before = sessions.get(&session).await;

    sessions.serve.kill_codex(Signal::SIGKILL);
    let any = json!({"action": "wait_any", "sessionIds": [session]});
    while sessions.state(&session).await["status"] != "error" {
        sessions.call("codex_session", any.clone()).await;
    }
    sessions.reply(&session).await;
    sessions.result(&session).await;
    let resumed = &sent(&sessions.serve, "thread/resume")[0]["params"];
    assert_eq!(resumed["threadId"], before["threadId"]);
    for (name, value) in [
        ("model", json!("two")),
        ("approvalPolicy", json!("on-request")),
        ("sandbox", json!("danger-full-access")),
        ("cwd", json!(directory)),
        ("baseInstructions", json!("be")),
    ] {
        assert_eq!(resumed[name], value, "{name}: {resumed:#}");
    }
    let instructions = resumed["developerInstructions"].as_str().unwrap();
    assert!(
        instructions.starts_with("be brief\n\nSession context"),
        "{instructions}"
    );
    assert_eq!(resumed["config"]["k"], 1);
    let prompts = sent(&sessions.serve, "turn/start");
    assert_eq!(prompts[2]["params"]["effort"], "high");
    let after = sessions.get(&session).await;
    for name in [
        "model",
        "approvalPolicy",
        "sandbox",
        "cwd",
        "effort",
        "config",
        "threadId",
    ] {
        assert_eq!(after[name], before[name], "{name}");
    }
    sessions.finish().await;
}

#[tokio::test]
async fn codex_death_at_thread_start_is_reported() {
    for method in ["thread/start", "turn/start"] {
        let plan = Plan::new()
            .on(method, [Action::Exit { code: 3 }])
            .in_launch(1);
        let mut sessions = Sessions::new(&plan).await;
        let refusal = sessions.refused("codex", super::beginning(json!({}))).await;
        assert_eq!(refusal.code, "INTERNAL", "{method}");
        assert!(
            refusal.message.contains("exited with code 3"),
            "{}",
            refusal.message
        );
        let list = sessions.list().await;
        for one in list["sessions"].as_array().unwrap() {
            assert_eq!(one["status"], "cancelled", "{method}: {list:#}");
        }
        let session = sessions.start(json!({})).await;
        assert_eq!(sessions.result(&session).await["output"], HELLO);
        sessions.finish().await;
    }
}

/// Codex writes a thread into its file with the first turn: the next Codex does not know it.
#[tokio::test]
async fn new_thread_that_is_lost_with_its_codex_is_told_from_an_unknown_one() {
    let refuse = |message: &str| Action::Error {
        code: -32600,
        message: message.to_owned(),
    };
    let plan = Plan::new()
        .on("turn/start", [refuse("thread not found: x")])
        .on(
            "thread/resume",
            [refuse("no rollout found for thread id x")],
        );
    let mut sessions = Sessions::new(&plan).await;
    let refusal = sessions.refused("codex", super::beginning(json!({}))).await;
    assert_eq!(refusal.code, "INTERNAL");
    assert!(
        refusal.message.contains("had its first turn"),
        "{}",
        refusal.message
    );
    sessions.finish().await;
}

#[tokio::test]
async fn wait_ends_when_codex_dies() {
    let plan = Plan::new().on("turn/start", gated("never"));
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    let any = json!({"action": "wait_any", "sessionIds": [session], "waitMs": 600_000});
    let call = sessions.serve.client.request_tool("codex_session", any);
    sessions.serve.settled().await;
    sessions.serve.kill_codex(Signal::SIGKILL);
    let first = super::structured(&sessions.serve.client.result(&call).await);
    assert_eq!(first["sessionId"], session);
    assert_eq!(first["status"], "error");
    sessions.finish().await;
}

#[tokio::test]
async fn failed_restart_leaves_the_session_in_error() {
    // Each attempt to start it again is three.
    let plan = (2..=4).fold(
        Plan::new().on("turn/start", gated("never")),
        |plan, launch| plan.at_start([Action::Exit { code: 5 }]).in_launch(launch),
    );
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    sessions.serve.kill_codex(Signal::SIGKILL);
    let lost = sessions.attention(&session).await;
    let reply = json!({"sessionId": session, "prompt": "go on"});
    let refusal = sessions.refused("codex_reply", reply).await;
    assert_eq!(refusal.code, "APP_SERVER_START_FAILED");
    assert!(
        refusal.message.contains("exited with code 5"),
        "{}",
        refusal.message
    );
    let still = sessions.state(&session).await;
    assert_eq!(still["status"], "error");
    assert_eq!(still["result"], lost["result"]);
    assert!(sessions.get(&session).await["error"].is_string());
    sessions.reply(&session).await;
    sessions.session("interrupt", &session).await;
    assert_eq!(sessions.result(&session).await["status"], "interrupted");
    sessions.finish().await;
}
