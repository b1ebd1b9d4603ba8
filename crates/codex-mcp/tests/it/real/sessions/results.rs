//! The results of turns.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use scripted_model::{Patch, Reply, Script, Usage};
use serde_json::{Value, json};

use super::Poller;
use crate::real::{CodexFixture, on_oldest_and_newest};

on_oldest_and_newest!(
    final_answer_is_whole_in_every_mode,
    events_and_results_have_the_members_of_the_npm_package,
    result_has_usage_plan_and_changed_files,
    structured_answer_is_parsed,
    failed_turn_leaves_the_session_idle,
    pictures_reach_the_model,
    streamed_text_is_complete,
);

/// A PNG of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn poll(session: &str, more: Value) -> Value {
    let mut poll = json!({"action": "poll", "sessionId": session});
    poll.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    poll
}

async fn final_answer_is_whole_in_every_mode(release: &str) {
    let long = format!("{}.", "word ".repeat(20_000));
    let script = Script::new().otherwise([Reply::say(long.clone())]);
    let stage = CodexFixture::new(release, script).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let session = poller.start("tell me all", json!({})).await;
    poller.until_idle(&session).await;
    for mode in ["minimal", "delta_compact", "full"] {
        let look = poller
            .call("codex_check", poll(&session, json!({"responseMode": mode})))
            .await;
        assert_eq!(look["result"]["output"], long.as_str(), "{mode}");
        assert_eq!(look["result"]["status"], "completed");
    }
    stage.finish(poller.client).await;
}

/// The npm package documents these members.
async fn events_and_results_have_the_members_of_the_npm_package(release: &str) {
    let script = Script::new().otherwise([Reply::say("done")]);
    let stage = CodexFixture::new(release, script).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let session = poller.start("do it", json!({})).await;
    let (_, events) = poller.until_idle(&session).await;
    let thread = poller.get(&session).await["threadId"].clone();
    let of_method = |method: &'static str| {
        let fits = move |event: &&Value| event["data"]["method"] == method;
        events.iter().filter(fits)
    };
    for method in ["item/started", "item/completed"] {
        let message = |event: &&Value| event["data"]["item"]["type"] == "agentMessage";
        let kinds: Vec<&Value> = of_method(method)
            .filter(message)
            .map(|event| &event["type"])
            .collect();
        assert_eq!(kinds, ["output"], "{method}: {events:#?}");
    }
    let ended = of_method("turn/completed").next().unwrap();
    assert_eq!(ended["type"], "result");
    assert_eq!(ended["data"]["threadId"], thread);
    let used = of_method("thread/tokenUsage/updated").next().unwrap();
    assert_eq!(used["type"], "progress");
    // The user's own message is no event.
    let mut items = events.iter().map(|event| &event["data"]["item"]["type"]);
    assert!(items.all(|kind| kind != "userMessage"), "{events:#?}");
    for mode in ["minimal", "delta_compact", "full"] {
        let arguments = poll(&session, json!({"responseMode": mode}));
        let look = poller.call("codex_check", arguments).await;
        let turn = &look["result"]["turn"];
        assert_eq!(turn["id"], look["result"]["turnId"], "{mode}: {look:#}");
        assert_eq!(turn["status"], "completed", "{mode}");
    }
    stage.finish(poller.client).await;
}

async fn result_has_usage_plan_and_changed_files(release: &str) {
    let plan = json!({"explanation": "two steps", "plan": [
        {"step": "change", "status": "completed"}, {"step": "tell", "status": "in_progress"}]});
    let patch = Patch::new().add("new.txt", "hello");
    let script = Script::new().otherwise([
        Reply::call("update_plan", plan),
        Reply::patch(patch),
        Reply::say("done").using(Usage {
            input: 100,
            output: 23,
            ..Usage::default()
        }),
    ]);
    // Newer releases offer the tool only if it is enabled; 0.104.0 always offers it.
    let config = match release {
        "0.104.0" => "",
        _ => "tools.update_plan.enabled = true",
    };
    let stage = CodexFixture::with_config(release, script, config).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let session = poller
        .start("change it", json!({"sandbox": "workspace-write"}))
        .await;
    let (done, events) = poller.until_idle(&session).await;
    let path = stage.file("new.txt");
    let whole = poller.get(&session).await;
    for told in [&done["result"], &whole] {
        assert_eq!(
            told["changedFiles"],
            json!([{"path": path, "kind": "add"}]),
            "{told:#}"
        );
        let diff = told["diff"].as_str().unwrap();
        assert!(
            diff.contains("+hello") && diff.contains("new.txt"),
            "{diff}"
        );
        assert_eq!(told["usage"]["last"]["inputTokens"], 100, "{told:#}");
        assert_eq!(told["usage"]["last"]["outputTokens"], 23);
        assert_eq!(
            told["plan"]["plan"][0],
            json!({"step": "change", "status": "completed"})
        );
        assert_eq!(told["plan"]["explanation"], "two steps");
    }
    let kinds: Vec<&str> = events
        .iter()
        .filter_map(|event| event["data"]["method"].as_str())
        .collect();
    for method in [
        "turn/started",
        "turn/plan/updated",
        "item/started",
        "item/completed",
        "turn/completed",
    ] {
        assert!(kinds.contains(&method), "{method} in {kinds:?}");
    }
    stage.finish(poller.client).await;
}

async fn structured_answer_is_parsed(release: &str) {
    let script = Script::new().otherwise([Reply::say("{\"colour\":\"blue\"}")]);
    let stage = CodexFixture::new(release, script).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let schema = json!({"type": "object", "properties": {"colour": {"type": "string"}},
        "required": ["colour"], "additionalProperties": false});
    let advanced = json!({"advanced": {"outputSchema": schema}});
    let session = poller.start("which?", advanced).await;
    let (done, _) = poller.until_idle(&session).await;
    assert_eq!(
        done["result"]["structuredOutput"],
        json!({"colour": "blue"})
    );
    let requests = stage.model.requests();
    let asked = &requests.last().unwrap().body()["text"]["format"];
    assert_eq!(asked["schema"], schema, "{asked:#}");

    // The schema applies to one turn alone.
    poller.reply(&session, "and now?", json!({})).await;
    let (done, _) = poller.until_idle(&session).await;
    assert_eq!(done["result"].get("structuredOutput"), None);
    stage.finish(poller.client).await;
}

async fn failed_turn_leaves_the_session_idle(release: &str) {
    let error = json!({"error": {"message": "too much of it", "type": "invalid_request_error"}});
    let script = Script::new()
        .on("break", [Reply::fail(400, error.to_string())])
        .otherwise([Reply::say("back")]);
    let stage = CodexFixture::new(release, script).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let session = poller.start("break", json!({})).await;
    let (failed, events) = poller.until_idle(&session).await;
    assert_eq!(failed["result"]["status"], "failed");
    let why = failed["result"]["error"].as_str().unwrap();
    assert!(why.contains("too much of it"), "{why}");
    assert_eq!(failed["result"]["turnError"]["message"], why);
    let types: Vec<&str> = events
        .iter()
        .filter_map(|event| event["type"].as_str())
        .collect();
    assert!(types.ends_with(&["error", "result"]), "{types:?}");

    poller.reply(&session, "again", json!({})).await;
    let (done, events) = poller.until_idle(&session).await;
    assert_eq!(done["result"]["output"], "back");
    assert!(
        events.iter().all(|event| event["type"] != "error"),
        "{events:#?}"
    );
    stage.finish(poller.client).await;
}

async fn pictures_reach_the_model(release: &str) {
    let stage = CodexFixture::new(release, Script::new().otherwise([Reply::say("seen")])).await;
    std::fs::write(stage.file("a.png"), STANDARD.decode(PIXEL).unwrap()).unwrap();
    let mut poller = Poller::new(&stage, &[]).await;
    let url = format!("data:image/png;base64,{PIXEL}");
    let advanced = json!({"advanced": {"images": ["a.png", url]}});
    let session = poller.start("look", advanced).await;
    let (done, _) = poller.until_idle(&session).await;
    assert_eq!(done["result"]["output"], "seen");
    let requests = stage.model.requests();
    let images = requests.last().unwrap().images();
    assert_eq!(images.len(), 2, "{images:?}");
    assert!(
        images
            .iter()
            .all(|image| image.starts_with("data:image/png")),
        "{images:?}"
    );
    stage.finish(poller.client).await;
}

/// Frequent polls and a single poll get the same text.
async fn streamed_text_is_complete(release: &str) {
    let count = 3000;
    let script = Script::new().otherwise([Reply::deltas(count, "wörd ")]);
    let stage = CodexFixture::new(release, script).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let text = |events: &[Value]| -> String {
        events
            .iter()
            .filter(|event| event["data"]["method"] == "item/agentMessage/delta")
            .map(|event| event["data"]["delta"].as_str().unwrap())
            .collect()
    };
    let session = poller.start("write", json!({})).await;
    let (done, often) = poller.until_idle(&session).await;
    let whole = "wörd ".repeat(count);
    assert_eq!(done["result"]["output"], whole);
    assert_eq!(text(&often), whole);
    let ids: Vec<u64> = often
        .iter()
        .filter_map(|event| event["id"].as_u64())
        .collect();
    assert!(ids.is_sorted_by(|one, next| one + 1 == *next), "{ids:?}");

    let session = poller.start("write", json!({})).await;
    let wait = json!({"action": "wait_any", "sessionIds": [session], "waitMs": 60_000});
    assert_eq!(poller.call("codex_session", wait).await["status"], "idle");
    let (_, once) = poller.until_idle(&session).await;
    assert_eq!(text(&once), whole);
    stage.finish(poller.client).await;
}
