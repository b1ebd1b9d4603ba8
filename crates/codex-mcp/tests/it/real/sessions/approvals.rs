//! Codex's questions in sessions, and their decisions.

use scripted_model::{Patch, Reply, Script, Shell};
use serde_json::{Value, json};
use testkit::wait::within;

use super::Poller;
use crate::real::approvals::with_own_server;
use crate::real::{CodexFixture, on_oldest_and_newest};

on_oldest_and_newest!(
    untrusted_policy_asks_before_a_command,
    file_change_is_decided,
    unoffered_decision_is_refused_and_the_question_stays,
    accept_for_session_is_asked_once,
    question_stays_open_for_a_poller_that_obeys_the_interval,
    unanswered_question_is_declined_in_every_turn,
    cancel_decision_ends_the_turn,
);

fn touch() -> Script {
    let output = Reply::with(|request| {
        let output = request
            .tool_outputs()
            .last()
            .map(|output| output.text.clone());
        Reply::say(output.unwrap_or_default())
    });
    Script::new().otherwise([
        Reply::shell(Shell::escalated("touch made.txt", "it is needed")),
        output,
    ])
}

async fn untrusted_policy_asks_before_a_command(release: &str) {
    let script = Script::new().otherwise([Reply::shell("touch made.txt"), Reply::say("done")]);
    let stage = CodexFixture::new(release, script).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let session = poller
        .start(
            "touch it",
            json!({"approvalPolicy": "untrusted", "sandbox": "workspace-write"}),
        )
        .await;
    let question = poller.question(&session).await;
    assert_eq!(question["kind"], "command", "{question:#}");
    let looked = poller.decide(&session, &question, "accept").await;
    assert_eq!(looked["events"], json!([]));
    let (done, events) = poller.until_idle(&session).await;
    assert_eq!(done["result"]["output"], "done");
    assert!(stage.file("made.txt").exists());
    let answered: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "approval_result")
        .collect();
    assert_eq!(answered.len(), 1, "{events:#?}");
    assert_eq!(answered[0]["data"]["decision"], "accept");
    assert_eq!(answered[0]["data"]["requestId"], question["requestId"]);
    stage.finish(poller.client).await;
}

async fn file_change_is_decided(release: &str) {
    let patch = Patch::new().add("made.txt", "hello");
    let script = Script::new().otherwise([Reply::patch(patch), Reply::say("done")]);
    let stage = CodexFixture::new(release, script).await;
    let mut poller = Poller::new(&stage, &[]).await;
    for (decision, made) in [("decline", false), ("accept", true)] {
        let session = poller.start("patch it", json!({})).await;
        let question = poller.question(&session).await;
        assert_eq!(question["kind"], "fileChange", "{question:#}");
        let path = stage.file("made.txt");
        assert_eq!(question["changes"][0]["path"], path.to_str().unwrap());
        poller.decide(&session, &question, decision).await;
        let (done, _) = poller.until_idle(&session).await;
        assert_eq!(path.exists(), made, "{decision}");
        let listed = done["result"].get("changedFiles").is_some();
        assert_eq!(listed, made, "{decision}: {done:#}");
    }
    stage.finish(poller.client).await;
}

async fn unoffered_decision_is_refused_and_the_question_stays(release: &str) {
    let stage = CodexFixture::new(release, touch()).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let session = poller.start("touch it", json!({})).await;
    let question = poller.question(&session).await;
    let respond = |decision: &str| {
        json!({"action": "respond_permission", "sessionId": session,
            "requestId": question["requestId"], "decision": decision})
    };
    let wrong = respond("applyNetworkPolicyAmendment");
    assert_eq!(
        poller.refused("codex_check", wrong).await,
        "INVALID_ARGUMENT"
    );
    assert_eq!(poller.question(&session).await, question);

    let mut amend = respond("acceptWithExecpolicyAmendment");
    let rule = json!(["touch", "made.txt"]);
    amend["execpolicy_amendment"] = rule;
    poller.call("codex_check", amend).await;
    poller.until_idle(&session).await;
    assert!(stage.file("made.txt").exists());
    let late = respond("accept");
    assert_eq!(
        poller.refused("codex_check", late).await,
        "REQUEST_NOT_FOUND"
    );
    stage.finish(poller.client).await;
}

/// Since 0.130 Codex does not offer this decision, but honours it.
async fn accept_for_session_is_asked_once(release: &str) {
    let stage = CodexFixture::new(release, touch()).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let session = poller.start("touch it", json!({})).await;
    let question = poller.question(&session).await;
    poller.decide(&session, &question, "acceptForSession").await;
    poller.until_idle(&session).await;
    std::fs::remove_file(stage.file("made.txt")).unwrap();

    poller.reply(&session, "touch it again", json!({})).await;
    let (_, events) = poller.until_idle(&session).await;
    let mut kinds = events.iter().map(|event| &event["type"]);
    assert!(kinds.all(|kind| kind != "approval_request"), "{events:#?}");
    assert!(stage.file("made.txt").exists());
    stage.finish(poller.client).await;
}

/// A client that polls no more often than the interval says still finds the question open.
async fn question_stays_open_for_a_poller_that_obeys_the_interval(release: &str) {
    let stage = CodexFixture::new(release, touch()).await;
    let mut poller = Poller::new(&stage, &["--approval-timeout", "1"]).await;
    let start = json!({"prompt": "touch it", "approvalPolicy": "on-request",
        "sandbox": "read-only"});
    let mut look = poller.call("codex", start).await;
    let session = look["sessionId"].as_str().unwrap().to_owned();
    let polling = async {
        while look["status"] == "running" {
            let hint = look["pollInterval"].as_u64().unwrap();
            assert!(hint <= 1000, "{look:#}");
            tokio::time::sleep(std::time::Duration::from_millis(hint)).await;
            let poll = json!({"action": "poll", "sessionId": session, "maxEvents": 1000});
            look = poller.call("codex_check", poll).await;
        }
    };
    within("the question", polling).await;
    assert_eq!(look["status"], "waiting_approval", "{look:#}");
    let question = look["actions"][0].clone();
    poller.decide(&session, &question, "accept").await;
    poller.until_idle(&session).await;
    assert!(stage.file("made.txt").exists());
    stage.finish(poller.client).await;
}

async fn unanswered_question_is_declined_in_every_turn(release: &str) {
    let stage = CodexFixture::new(release, touch()).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let advanced = json!({"advanced": {"approvalTimeoutMs": 50}});
    let session = poller.start("touch it", advanced).await;
    // The timeout of the session applies to later turns too.
    for turn in 1..=2 {
        if turn > 1 {
            poller.reply(&session, "touch it again", json!({})).await;
        }
        let (done, events) = poller.until_idle(&session).await;
        assert_eq!(done["result"]["status"], "completed");
        assert!(!stage.file("made.txt").exists());
        let answered: Vec<&Value> = events
            .iter()
            .filter(|event| event["type"] == "approval_result")
            .map(|event| &event["data"])
            .collect();
        assert_eq!(answered.len(), 1, "{turn}: {events:#?}");
        assert_eq!(answered[0]["timeout"], true, "{turn}");
        assert_eq!(answered[0]["decision"], "decline", "{turn}");
    }
    stage.finish(poller.client).await;
}

async fn cancel_decision_ends_the_turn(release: &str) {
    let stage = CodexFixture::new(release, touch()).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let session = poller.start("touch it", json!({})).await;
    let question = poller.question(&session).await;
    poller.decide(&session, &question, "cancel").await;
    let (done, _) = poller.until_idle(&session).await;
    assert_eq!(done["result"]["status"], "interrupted");
    assert!(!stage.file("made.txt").exists());
    stage.finish(poller.client).await;
}

/// Codex asks before it calls tools of MCP servers. (0.104.0 does not.)
async fn tool_call_is_decided(release: &str) {
    let stage = with_own_server(release).await;
    let mut poller = Poller::new(&stage, &[]).await;
    for (decision, outcome) in [("accept", "threadId is missing"), ("decline", "reject")] {
        let session = poller.start("call it", json!({})).await;
        let question = poller.question(&session).await;
        assert_eq!(question["kind"], "mcp_tool", "{question:#}");
        assert_eq!(question["serverName"], "inner");
        poller.decide(&session, &question, decision).await;
        let (done, _) = poller.until_idle(&session).await;
        let output = done["result"]["output"].as_str().unwrap();
        assert!(output.contains(outcome), "{output}");
    }

    // A tool that is accepted for the session is not asked about again.
    let session = poller.start("call it", json!({})).await;
    let question = poller.question(&session).await;
    let offered = json!(["accept", "acceptForSession", "decline", "cancel"]);
    assert_eq!(question["availableDecisions"], offered);
    poller.decide(&session, &question, "acceptForSession").await;
    poller.until_idle(&session).await;
    poller.reply(&session, "call it again", json!({})).await;
    let (done, events) = poller.until_idle(&session).await;
    let output = done["result"]["output"].as_str().unwrap();
    assert!(output.contains("threadId is missing"), "{output}");
    assert!(
        events
            .iter()
            .all(|event| event["type"] != "approval_request"),
        "{events:#?}"
    );
    stage.finish(poller.client).await;
}

#[tokio::test]
async fn tool_call_is_decided_on_0_153_4() {
    tool_call_is_decided("0.153.4").await;
}

#[tokio::test]
async fn tool_call_is_decided_on_the_newest() {
    tool_call_is_decided(testkit::codex::newest()).await;
}

async fn elicitation_goes_to_the_user_at_once(release: &str) {
    let stage = CodexFixture::new(release, touch()).await;
    let mut client = stage
        .asking_client(&["--api", "sessions", "--elicit"])
        .await;
    let start =
        json!({"prompt": "touch it", "approvalPolicy": "on-request", "sandbox": "read-only"});
    let started = client.call_tool("codex", start).await;
    let question = client.server_request("elicitation/create").await;
    assert_eq!(question["params"]["codex_elicitation"], "exec-approval");
    client.respond(&question["id"], json!({"action": "accept", "content": {}}));
    let session = &started["structuredContent"]["sessionId"];
    let wait = json!({"action": "wait_any", "sessionIds": [session], "waitMs": 60_000});
    let waited = client.call_tool("codex_session", wait).await;
    assert_eq!(waited["structuredContent"]["status"], "idle", "{waited:#}");
    assert!(stage.file("made.txt").exists());
    stage.finish(client).await;
}

#[tokio::test]
async fn elicitation_goes_to_the_user_at_once_on_the_newest() {
    elicitation_goes_to_the_user_at_once(testkit::codex::newest()).await;
}
