//! The whole life of a session: questions, steering, replies, a fork and the end.

use scripted_model::{Gate, Reply, Script, Shell};
use serde_json::{Value, json};

use super::Poller;
use crate::real::{CodexFixture, on_each_release};

on_each_release!(session_goes_through_its_whole_life);

/// A model that runs two commands, asks a question, and later takes long.
fn script(long: &Gate, longer: &Gate) -> Script {
    let touch = |file: &str| Reply::shell(Shell::escalated(format!("touch {file}"), "needed"));
    let questions = json!({"questions": [{"id": "colour", "header": "Colour",
        "question": "Which one?", "options": [
            {"label": "red", "description": "like a rose"},
            {"label": "blue", "description": "like the sky"}]}]});
    let answer = |request: &scripted_model::Request| {
        let output = request
            .tool_outputs()
            .last()
            .map(|output| output.text.clone());
        output.unwrap_or_default()
    };
    Script::new()
        .on(
            "begin",
            [
                touch("one.txt"),
                touch("two.txt"),
                Reply::call("request_user_input", questions),
                Reply::with(move |request| Reply::say(format!("chosen: {}", answer(request)))),
            ],
        )
        .on("take your time", [Reply::say("so far").behind(long)])
        .on("steered", [Reply::say("as you like").behind(longer)])
        .on(
            "go on",
            [Reply::with(|request| {
                Reply::say(format!("heard: {}", request.user_messages().join(" | ")))
            })],
        )
        .otherwise([Reply::say("back")])
}

async fn session_goes_through_its_whole_life(release: &str) {
    let (long, longer) = (Gate::new(), Gate::new());
    let config = "features.default_mode_request_user_input = true";
    let stage = CodexFixture::with_config(release, script(&long, &longer), config).await;
    let mut poller = Poller::new(&stage, &[]).await;

    let session = poller.start("begin", json!({})).await;
    approve_one_command_and_decline_the_next(&mut poller, &session).await;
    answer_the_question(&mut poller, &session, release).await;
    assert!(stage.file("one.txt").exists());
    assert!(!stage.file("two.txt").exists());
    steer_and_interrupt(&mut poller, &session, &long, &longer).await;
    reply(&mut poller, &session).await;
    let forked = fork(&mut poller, &session).await;
    cancel(&mut poller, &session).await;
    check_list(&mut poller, &session, &forked).await;
    stage.finish(poller.client).await;
}

async fn approve_one_command_and_decline_the_next(poller: &mut Poller, session: &str) {
    let first = poller.question(session).await;
    assert_eq!(first["kind"], "command");
    assert!(
        first["params"]["command"]
            .as_str()
            .unwrap()
            .contains("one.txt")
    );
    poller.decide(session, &first, "accept").await;
    let (look, _) = poller
        .until(session, |look| {
            look["actions"][0]["command"]
                .as_str()
                .is_some_and(|command| command.contains("two.txt"))
        })
        .await;
    poller.decide(session, &look["actions"][0], "decline").await;
}

/// In 0.104.0 the model cannot ask.
async fn answer_the_question(poller: &mut Poller, session: &str, release: &str) {
    if release == "0.104.0" {
        let (done, _) = poller.until_idle(session).await;
        assert_eq!(done["result"]["status"], "completed");
    } else {
        let (look, _) = poller
            .until(session, |look| look["actions"][0]["type"] == "user_input")
            .await;
        let question = &look["actions"][0];
        assert_eq!(question["questions"][0]["id"], "colour");
        let arguments = json!({"action": "respond_user_input", "sessionId": session,
            "requestId": question["requestId"], "answers": {"colour": {"answers": ["blue"]}}});
        poller.call("codex_check", arguments).await;
        let (done, _) = poller.until_idle(session).await;
        let output = done["result"]["output"].as_str().unwrap();
        assert!(
            output.starts_with("chosen: ") && output.contains("blue"),
            "{output}"
        );
    }
}

async fn steer_and_interrupt(poller: &mut Poller, session: &str, long: &Gate, longer: &Gate) {
    let replied = poller.reply(session, "take your time", json!({})).await;
    assert_eq!(replied["status"], "running");
    long.reached(1).await;
    let steer = json!({"action": "steer", "sessionId": session, "prompt": "steered"});
    poller.call("codex_session", steer).await;
    long.release();
    longer.reached(1).await;
    poller.session("interrupt", session).await;
    let (interrupted, _) = poller.until_idle(session).await;
    assert_eq!(interrupted["result"]["status"], "interrupted");
}

async fn reply(poller: &mut Poller, session: &str) {
    poller.reply(session, "go on", json!({})).await;
    let (done, events) = poller.until_idle(session).await;
    let heard = done["result"]["output"].as_str().unwrap().to_owned();
    for part in ["begin", "take your time", "steered", "go on"] {
        assert!(heard.contains(part), "{heard}");
    }
    let results: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "result")
        .collect();
    assert_eq!(results.len(), 1, "{events:#?}");
}

/// The fork has the whole conversation, and the original thread stays as it was.
async fn fork(poller: &mut Poller, session: &str) -> String {
    let thread = poller.get(session).await["threadId"].clone();
    let fork = poller.session("fork", session).await;
    assert_eq!(fork["status"], "idle");
    assert_eq!(fork["pollInterval"], 120_000);
    let forked = fork["sessionId"].as_str().unwrap().to_owned();
    assert_ne!(fork["threadId"], thread);
    assert_eq!(poller.get(session).await["threadId"], thread);
    for one in [session, forked.as_str()] {
        poller.reply(one, "go on", json!({})).await;
        let (done, _) = poller.until_idle(one).await;
        let heard = done["result"]["output"].as_str().unwrap();
        assert!(heard.contains("steered"), "{heard}");
    }
    forked
}

async fn cancel(poller: &mut Poller, session: &str) {
    poller.session("cancel", session).await;
    let reply = json!({"sessionId": session, "prompt": "go on"});
    assert_eq!(poller.refused("codex_reply", reply).await, "CANCELLED");
    let over = poller
        .call(
            "codex_check",
            json!({"action": "poll", "sessionId": session}),
        )
        .await;
    assert_eq!(over["status"], "cancelled");
    assert_eq!(over["result"]["reason"], "Cancelled by user");
}

/// A fork counts only its own turns.
async fn check_list(poller: &mut Poller, session: &str, forked: &str) {
    let list = poller
        .call("codex_session", json!({"action": "list"}))
        .await;
    let told = |one: &Value, names: &[&str]| -> Vec<Value> {
        names.iter().map(|name| one[name].clone()).collect()
    };
    let names = [
        "sessionId",
        "status",
        "turns",
        "pendingRequestCount",
        "sandbox",
        "approvalPolicy",
    ];
    let listed: Vec<Vec<Value>> = list["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| told(one, &names))
        .collect();
    let expected = |session: &str, status: &str, turns: u64| {
        let expected = json!([session, status, turns, 0, "read-only", "on-request"]);
        expected.as_array().unwrap().clone()
    };
    assert_eq!(
        listed,
        [
            expected(session, "cancelled", 4),
            expected(forked, "idle", 1)
        ]
    );
    for (one, listed) in [(session, &listed[0]), (forked, &listed[1])] {
        assert_eq!(told(&poller.get(one).await, &names), *listed);
    }
}
