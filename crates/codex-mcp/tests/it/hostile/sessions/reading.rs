//! The limits of what a reader gets.

use serde_json::{Value, json};
use testkit::fake::{Action, Plan, Question, TurnEnd};
use testkit::process::peak_kib;

use super::super::serve::{turn, turns};
use super::{Sessions, decision};

/// The smallest response limit of a poll, in bytes.
const FLOOR: usize = 640;

const MODES: [&str; 3] = ["minimal", "delta_compact", "full"];

/// A long message, of which no two parts are alike.
fn long(bytes: usize) -> String {
    let mut text: String = (0..bytes / 8)
        .map(|number| format!("{number:07} "))
        .collect();
    text.push_str("the end");
    text
}

#[tokio::test]
async fn final_message_is_whole_in_every_mode() {
    let text = long(100 * 1024);
    let plan = Plan::new().on(
        "turn/start",
        [
            Action::Answer,
            Action::StartTurn,
            Action::say(&text),
            Action::EndTurn(TurnEnd::Completed),
        ],
    );
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    sessions.result(&session).await;
    for mode in MODES {
        let more = json!({"cursor": 0, "maxEvents": 5000, "responseMode": mode});
        let look = sessions.poll(&session, more).await;
        assert_eq!(look["result"]["output"], text, "{mode}");
        assert_eq!(look.get("truncated"), None);
        let limit = match mode {
            "minimal" => 256,
            "delta_compact" => 2048,
            _ => 16_384,
        };
        let deltas: Vec<&Value> = look["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| &event["data"])
            .filter(|data| data["method"] == "item/agentMessage/delta")
            .collect();
        assert!(deltas.len() >= 7, "{}", deltas.len());
        for data in &deltas {
            let length = data["delta"].as_str().unwrap().chars().count();
            assert!(length <= limit, "{mode}: {length}");
            let cut = mode != "full" && length == limit;
            assert_eq!(data["deltaTruncated"] == true, cut, "{mode}: {length}");
        }
        if mode == "full" {
            let all: String = deltas
                .iter()
                .map(|data| data["delta"].as_str().unwrap())
                .collect();
            assert_eq!(all, text);
        }
    }
    sessions.finish().await;
}

/// A turn with all kinds of events, and a long end.
fn rich() -> Plan {
    let notify = |method: &str, params: Value| Action::Notify {
        method: method.to_owned(),
        params,
    };
    let change = json!({"path": "/repo/a", "kind": {"type": "add"}, "diff": "+x\n"});
    let patch = |status: &str| json!({"item": {"type": "fileChange", "id": "f", "changes": [change], "status": status}});
    let mut actions = vec![
        notify(
            "turn/plan/updated",
            json!({"explanation": null,
            "plan": [{"step": "s".repeat(300), "status": "pending"}]}),
        ),
        notify("item/started", patch("inProgress")),
        notify("item/completed", patch("completed")),
        notify(
            "turn/diff/updated",
            json!({"diff": format!("diff {}", "d".repeat(900))}),
        ),
        Action::ask_approval(&format!("echo {}", "x".repeat(3000))),
    ];
    actions.extend((0..30).map(|number| {
        let text = format!("{number} {}", "é\"\\\n".repeat(400));
        notify(
            "item/completed",
            json!({"item": {"type": "reasoning", "id": number, "text": text}}),
        )
    }));
    actions.push(Action::say(&long(5000)));
    Plan::new().on("turn/start", turn(actions))
}

#[tokio::test]
async fn reader_with_little_room_reaches_the_result() {
    for limit in [0, 1, 640, 700, 3000] {
        for mode in MODES {
            let mut sessions = Sessions::new(&rich()).await;
            let session = sessions.start(json!({})).await;
            let (mut seen, mut looks) = (Vec::new(), 0);
            let last = loop {
                let more = json!({"maxEvents": 100, "responseMode": mode,
                    "pollOptions": {"maxBytes": limit}});
                let look = sessions.poll(&session, more).await;
                looks += 1;
                assert!(looks < 400, "no end: {look:#}");
                let length = look.to_string().len();
                let room = limit.max(FLOOR);
                assert!(length <= room, "{mode} {limit}: {length} bytes: {look:#}");
                assert_eq!(
                    look["truncated"] == true,
                    look["truncatedFields"].is_array()
                );
                let events = look["events"].as_array().unwrap();
                seen.extend(events.iter().map(|event| event["id"].as_u64().unwrap()));
                if !events.is_empty() {
                    continue;
                }
                match look["status"].as_str().unwrap() {
                    // Even with the smallest limit, a question can be answered.
                    "waiting_approval" => {
                        let arguments = decision(&session, &look["actions"][0], "accept");
                        sessions.call("codex_check", arguments).await;
                    }
                    "running" => {
                        sessions.attention(&session).await;
                    }
                    _ => break look,
                }
            };
            let whole: Vec<u64> = (0..=*seen.last().unwrap()).collect();
            assert_eq!(seen, whole, "{mode} {limit}");
            assert_eq!(last["result"]["status"], "completed", "{last:#}");
            let output = last["result"]["output"].as_str().unwrap();
            assert!(output.starts_with("done"), "{output}");
            sessions.finish().await;
        }
    }
}

#[tokio::test]
async fn omitted_fields_are_named() {
    let mut sessions = Sessions::new(&rich()).await;
    let session = sessions.start(json!({})).await;
    let question = sessions.question(&session).await;
    let room = |bytes: u64| {
        json!({"cursor": 0, "maxEvents": 1000, "responseMode": "full",
        "pollOptions": {"maxBytes": bytes}})
    };
    let look = sessions.poll(&session, room(700)).await;
    assert_eq!(look["truncated"], true);
    let fields = look["truncatedFields"].as_array().unwrap();
    assert!(fields.contains(&"events".into()), "{look:#}");
    assert!(fields.contains(&"actions".into()), "{look:#}");
    let action = look["actions"][0].as_object().unwrap();
    for name in ["type", "requestId", "kind"] {
        assert_eq!(action[name], question[name]);
    }
    let roomy = sessions.poll(&session, room(1_000_000)).await;
    assert_eq!(roomy.get("truncated"), None);
    assert_eq!(roomy["actions"][0], question);
    sessions
        .call("codex_check", decision(&session, &question, "accept"))
        .await;
    sessions.result(&session).await;

    // Events are dropped before the result, down to one.
    let look = sessions.poll(&session, room(3000)).await;
    assert_eq!(look["result"]["output"], "done");
    assert_eq!(look["truncatedFields"][0], "events");
    assert!(look.to_string().len() <= 3000);
    sessions.finish().await;
}

#[tokio::test]
async fn unwanted_fields_are_left_out() {
    let plan = turns([Action::AskTogether(vec![Question::approval("touch x")])]);
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    let question = sessions.question(&session).await;
    let without = |name: &str| json!({"maxEvents": 1, "pollOptions": {name: false}});

    let look = sessions.poll(&session, without("includeEvents")).await;
    assert_eq!(look["events"], json!([]));
    assert_eq!(look["nextCursor"], 0);
    assert_eq!(look["actions"].as_array().unwrap().len(), 1);
    let look = sessions.poll(&session, without("includeActions")).await;
    assert_eq!(look["actions"], json!([]));
    assert_eq!(look["events"][0]["id"], 0);
    sessions
        .call("codex_check", decision(&session, &question, "accept"))
        .await;
    sessions.result(&session).await;
    let look = sessions.poll(&session, without("includeResult")).await;
    assert_eq!(look.get("result"), None);
    assert_eq!(look["events"][0]["id"], 1);
    let look = sessions.poll(&session, json!({})).await;
    assert_eq!(look["result"]["output"], "done");
    assert_eq!(look["events"][0]["id"], 2);
    sessions.finish().await;
}

#[tokio::test]
async fn result_lists_the_work_of_the_turn() {
    let mut sessions = Sessions::new(&rich()).await;
    let session = sessions.start(json!({})).await;
    let question = sessions.question(&session).await;
    sessions
        .call("codex_check", decision(&session, &question, "accept"))
        .await;
    let result = sessions.result(&session).await;
    assert_eq!(result["usage"]["total"]["totalTokens"], 15);
    assert_eq!(result["plan"]["plan"][0]["status"], "pending");
    assert!(result["diff"].as_str().unwrap().starts_with("diff ddd"));
    assert_eq!(
        result["changedFiles"],
        json!([{"path": "/repo/a", "kind": "add"}])
    );
    assert_eq!(result["turn"]["status"], "completed");
    let whole = sessions.get(&session).await;
    for name in ["usage", "plan", "diff", "changedFiles"] {
        assert_eq!(whole[name], result[name], "{name}");
    }
    sessions.finish().await;
}

#[tokio::test]
async fn response_limit_holds_with_many_questions() {
    let questions = (0..30).map(|number| Question::approval(&format!("touch {number}")));
    let plan = turns([Action::AskTogether(questions.collect())]);
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    while sessions.get(&session).await["pendingRequestCount"] != 30 {
        sessions.question(&session).await;
    }
    let more = json!({"pollOptions": {"maxBytes": 1, "includeEvents": false}});
    let look = sessions.poll(&session, more.clone()).await;
    assert!(look.to_string().len() <= FLOOR, "{look:#}");
    assert_eq!(look["truncatedFields"], json!(["actions"]));
    // Each question can still be decided.
    for left in (0..30).rev() {
        let look = sessions.poll(&session, more.clone()).await;
        let arguments = decision(&session, &look["actions"][0], "accept");
        sessions.call("codex_check", arguments).await;
        assert_eq!(sessions.get(&session).await["pendingRequestCount"], left);
    }
    assert_eq!(sessions.result(&session).await["output"], "done");
    sessions.finish().await;
}

#[tokio::test]
async fn long_error_is_cut_to_the_limit() {
    let message = "it's \"broken\"\n".repeat(10_000);
    let actions = [
        Action::Answer,
        Action::StartTurn,
        Action::EndTurn(TurnEnd::Failed(message.clone())),
    ];
    let mut sessions = Sessions::new(&Plan::new().on("turn/start", actions)).await;
    let session = sessions.start(json!({})).await;
    assert_eq!(sessions.result(&session).await["error"], message);
    for mode in MODES {
        let more = json!({"cursor": 0, "maxEvents": 1000, "responseMode": mode,
            "pollOptions": {"maxBytes": 700, "includeEvents": false}});
        let look = sessions.poll(&session, more).await;
        assert!(look.to_string().len() <= 700, "{look:#}");
        assert_eq!(look["result"]["status"], "failed");
        assert!(
            look["result"]["error"].as_str().unwrap().ends_with('…'),
            "{look:#}"
        );
    }
    sessions.finish().await;
}

/// A parsed value can need a hundred times as much memory as its text.
#[tokio::test]
async fn memory_stays_bounded_for_steps_of_many_values() {
    const THREAD: &str = "019fa4e0-0000-7000-8001-00000000abcd";
    let step = |id: usize, count: usize| {
        let values = r#"{"":0},"#.repeat(count);
        format!(
            r#"{{"method":"item/completed","params":{{"threadId":"{THREAD}","turnId":"turn","item":
            {{"type":"mcpToolCall","id":"i{id}","server":"s","tool":"t","status":"completed",
            "result":{{"content":[{values}0]}}}}}}}}"#
        )
        .replace('\n', "")
            + "\n"
    };
    let mut lines = step(0, 500_000);
    lines.extend((1..=60).map(|id| step(id, 9000)));
    let bytes = lines.into_bytes();
    let mut sessions = Sessions::new(&turns([Action::Write { bytes }])).await;
    // Only the id of a thread that is resumed is known beforehand.
    let resume = json!({"action": "resume", "threadId": THREAD, "prompt": "hi"});
    let resumed = sessions.call("codex_session", resume).await;
    let session = resumed["sessionId"].as_str().unwrap().to_owned();
    sessions.result(&session).await;

    let more = json!({"cursor": 0, "maxEvents": 5000});
    let look = sessions.poll(&session, more).await;
    let events = look["events"].as_array().unwrap();
    let is_step = |event: &&Value| event["data"]["itemType"] == "mcpToolCall";
    let steps: Vec<&Value> = events.iter().filter(is_step).collect();
    assert_eq!(steps.len(), 61);
    for (step, is_kept) in [(steps[0], false), (steps[1], true)] {
        let more = json!({"cursor": step["id"], "maxEvents": 1, "responseMode": "full"});
        let look = sessions.poll(&session, more).await;
        let item = &look["events"][0]["data"]["item"];
        assert_eq!(item["result"].is_object(), is_kept);
        assert_eq!(item["truncated"] == true, !is_kept);
    }
    let peak = peak_kib(sessions.serve.client.pid()).unwrap();
    assert!(peak < 150 * 1024, "{peak} KiB in use at the peak");
    sessions.finish().await;
}
