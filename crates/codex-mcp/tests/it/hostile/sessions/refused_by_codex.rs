//! Refusals by Codex itself.

use std::fs;

use serde_json::{Value, json};
use testkit::fake::{Action, HELLO, Plan};
use testkit::wait::wait_for;

use super::refusals::{THREAD, works};
use super::{Sessions, beginning};

#[tokio::test]
async fn refused_thread_makes_no_session() {
    // One that Codex does not know is resumed once more, as it may be archived.
    for (words, refusals) in [
        ("no rollout found for thread id", 2),
        ("thread not found:", 2),
        ("thread already has an active writer:", 1),
    ] {
        let refusal = Action::Error {
            code: -32600,
            message: format!("{words} {THREAD}"),
        };
        let mut plan = Plan::new().on("thread/unarchive", [refusal.clone()]);
        for nth in 1..=refusals {
            plan = plan.on("thread/resume", [refusal.clone()]).nth(nth);
        }
        let mut sessions = Sessions::new(&plan).await;
        let arguments = json!({"action": "resume", "threadId": THREAD, "prompt": "go on"});
        let refusal = sessions.refused("codex_session", arguments.clone()).await;
        assert_eq!(refusal.code, "THREAD_FORK_RESUME_FAILED", "{words}");
        assert!(refusal.message.contains(THREAD), "{}", refusal.message);
        let list = sessions.list().await;
        assert_eq!(list, json!({"sessions": []}));

        let resumed = sessions.call("codex_session", arguments).await;
        assert_eq!(resumed["threadId"], THREAD);
        let session = resumed["sessionId"].as_str().unwrap().to_owned();
        assert_eq!(sessions.result(&session).await["output"], HELLO);
        sessions.finish().await;
    }
}

#[tokio::test]
async fn refused_turn_leaves_no_running_session() {
    let refuse = Action::Error {
        code: -32600,
        message: "no such model".to_owned(),
    };
    let plan = Plan::new().on("turn/start", [refuse]).nth(1);
    let mut sessions = Sessions::new(&plan).await;
    let refusal = sessions.refused("codex", beginning(json!({}))).await;
    assert_eq!(refusal.code, "INVALID_ARGUMENT");
    assert!(
        refusal.message.contains("no such model"),
        "{}",
        refusal.message
    );
    let list = sessions.list().await;
    for one in list["sessions"].as_array().unwrap() {
        assert_eq!(one["status"], "cancelled", "{list:#}");
    }
    let session = sessions.start(json!({})).await;
    assert_eq!(sessions.result(&session).await["output"], HELLO);
    sessions.finish().await;
}

/// A session after its first turn. Codex refuses the second one.
async fn before_a_refused_turn() -> (Sessions, String) {
    let refuse = Action::Error {
        code: -32600,
        message: "no turns today".to_owned(),
    };
    let plan = Plan::new().on("turn/start", [refuse]).nth(2);
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    sessions.result(&session).await;
    (sessions, session)
}

#[tokio::test]
async fn refused_reply_leaves_the_session_unchanged() {
    let (mut sessions, session) = before_a_refused_turn().await;
    let before = sessions.state(&session).await;
    let reply = json!({"sessionId": session, "prompt": "go on", "model": "other"});
    let refusal = sessions.refused("codex_reply", reply).await;
    assert_eq!(refusal.code, "INVALID_ARGUMENT");
    assert!(
        refusal.message.contains("no turns today"),
        "{}",
        refusal.message
    );
    let after = sessions.state(&session).await;
    assert_eq!(after, before);
    assert_eq!(sessions.get(&session).await["model"], "fake-model");
    sessions.reply(&session).await;
    assert_eq!(sessions.result(&session).await["output"], HELLO);
    sessions.finish().await;
}

#[tokio::test]
async fn refused_reply_is_recorded_as_failed() {
    let (mut sessions, session) = before_a_refused_turn().await;
    let reply = json!({"sessionId": session, "prompt": "go on"});
    sessions.refused("codex_reply", reply).await;
    wait_for("the end of the turn in the registry", async || {
        let listed = sessions.call("codex_threads", json!({})).await;
        (listed["threads"][0]["last_turn"] == "failed").then_some(())
    })
    .await;
    let directory = sessions.serve.home.atm_home();
    let file = directory.join(".config/atm/codex-sessions/codex/audit.jsonl");
    let audit = fs::read_to_string(file).unwrap();
    let lines = audit
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    let [.., begun, ended] = lines.as_slice() else {
        panic!("{audit}");
    };
    let seen = |line: &Value| json!([line["event"], line["outcome"]]);
    assert_eq!(seen(begun), json!(["codex_reply", "begun"]), "{audit}");
    assert_eq!(seen(ended), json!(["turn", "failed"]), "{audit}");
    assert_eq!(begun["id"], ended["id"], "{audit}");
    sessions.finish().await;
}

#[tokio::test]
async fn refused_fork_makes_no_session() {
    for words in ["no rollout found for thread id", "something else"] {
        let refusal = Action::Error {
            code: -32600,
            message: words.to_owned(),
        };
        let plan = Plan::new().on("thread/fork", [refusal]).nth(1);
        let mut sessions = Sessions::new(&plan).await;
        let session = sessions.start(json!({})).await;
        sessions.result(&session).await;
        let fork = json!({"action": "fork", "sessionId": session});
        let refusal = sessions.refused("codex_session", fork).await;
        assert_eq!(refusal.code, "THREAD_FORK_RESUME_FAILED", "{words}");
        let list = sessions.list().await;
        assert_eq!(list["sessions"].as_array().unwrap().len(), 1);
        works(sessions, &session).await;
    }
}
