//! Prompts with pictures, schemas and settings.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use testkit::fake::{Action, Plan, TurnEnd};

use super::{Sessions, sent};

/// The smallest picture.
const PIXEL: &[u8] = b"\x89PNG\r\n\x1a\n";

/// The same as a data URL.
const INLINE: &str = "data:image/png;base64,iVBORw0KGgo=";

#[tokio::test]
async fn pictures_reach_codex_once() {
    let mut sessions = Sessions::new(&Plan::new()).await;
    let directory = sessions.serve.home.work().join("directory");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("a.png"), PIXEL).unwrap();
    let absolute = directory.join("a.png");
    let images = json!(["a.png", absolute, INLINE]);
    let more = json!({"cwd": "directory", "advanced": {"images": images}});
    let session = sessions.start(more).await;
    sessions.result(&session).await;
    let prompts = sent(&sessions.serve, "turn/start");
    let input = prompts[0]["params"]["input"].as_array().unwrap();
    assert_eq!(input.len(), 4, "{input:#?}");
    for image in &input[..2] {
        assert_eq!(image["type"], "localImage");
        // A copy, which is kept until the next prompt.
        let copy = Path::new(image["path"].as_str().unwrap());
        assert_ne!(copy, absolute);
        assert!(copy.ends_with("a.png"), "{copy:?}");
        assert_eq!(fs::read(copy).unwrap(), PIXEL);
    }
    assert_eq!(input[2], json!({"type": "image", "url": INLINE}));
    assert_eq!(input[3]["type"], "text");
    sessions.reply(&session).await;
    sessions.result(&session).await;
    let prompts = sent(&sessions.serve, "turn/start");
    assert_eq!(prompts[1]["params"]["input"].as_array().unwrap().len(), 1);
    sessions.finish().await;
}

/// Lets a turn with this final message run, with a schema or without.
fn saying(nth: u32, plan: Plan, text: &str) -> Plan {
    let actions = [
        Action::Answer,
        Action::StartTurn,
        Action::say(text),
        Action::EndTurn(TurnEnd::Completed),
    ];
    plan.on("turn/start", actions).nth(nth)
}

#[tokio::test]
async fn answer_with_a_schema_is_also_returned_as_json() {
    let plan = saying(1, Plan::new(), r#"{"a": 1}"#);
    let plan = saying(2, plan, r#"{"a": 2}"#);
    let plan = saying(3, plan, "not JSON");
    let plan = saying(4, plan, "null");
    let mut sessions = Sessions::new(&plan).await;
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let session = sessions
        .start(json!({"advanced": {"outputSchema": schema}}))
        .await;
    let result = sessions.result(&session).await;
    assert_eq!(result["output"], r#"{"a": 1}"#);
    assert_eq!(result["structuredOutput"], json!({"a": 1}));

    // A schema is for one turn.
    sessions.reply(&session).await;
    let result = sessions.result(&session).await;
    assert_eq!(result["output"], r#"{"a": 2}"#);
    assert_eq!(result.get("structuredOutput"), None);

    let reply = json!({"sessionId": session, "prompt": "go on", "outputSchema": schema});
    for output in ["not JSON", "null"] {
        sessions.call("codex_reply", reply.clone()).await;
        let result = sessions.result(&session).await;
        assert_eq!(
            (&result["status"], &result["output"]),
            (&json!("completed"), &json!(output))
        );
        assert_eq!(result.get("structuredOutput"), None);
    }
    let schemas: Vec<Value> = sent(&sessions.serve, "turn/start")
        .iter()
        .map(|prompt| prompt["params"]["outputSchema"].clone())
        .collect();
    assert_eq!(
        schemas,
        [schema.clone(), Value::Null, schema.clone(), schema]
    );
    sessions.finish().await;
}

#[tokio::test]
async fn dropped_approval_policy_is_mapped_with_one_warning() {
    let mut sessions = Sessions::new(&Plan::new()).await;
    let begin = super::beginning(json!({"approvalPolicy": "on-failure"}));
    let first = sessions.call("codex", begin.clone()).await;
    let warnings = first["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].as_str().unwrap().contains("on-failure"));
    let second = sessions.call("codex", begin).await;
    assert_eq!(second.get("warnings"), None);
    for start in sent(&sessions.serve, "thread/start") {
        assert_eq!(start["params"]["approvalPolicy"], "on-request");
    }
    sessions.finish().await;
}

#[tokio::test]
async fn own_thread_is_resumed_in_its_session() {
    let plan = Plan::new().on("turn/start", super::gated("go")).nth(2);
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    sessions.result(&session).await;
    let thread = sessions.get(&session).await["threadId"].clone();
    let plain = json!({"action": "resume", "threadId": thread});
    let resumed = sessions.call("codex_session", plain.clone()).await;
    assert_eq!(
        (&resumed["sessionId"], &resumed["status"]),
        (&json!(session), &json!("idle"))
    );

    // Settings that a session cannot change are refused.
    let fixed = super::join(plain.clone(), json!({"advanced": {"config": {"k": 1}}}));
    assert_eq!(
        sessions.refused("codex_session", fixed).await.code,
        "SESSION_BUSY"
    );

    let other = json!({"prompt": "go on", "model": "other", "sandbox": "danger-full-access"});
    let other = super::join(plain.clone(), other);
    let resumed = sessions.call("codex_session", other.clone()).await;
    assert_eq!(
        (&resumed["sessionId"], &resumed["status"]),
        (&json!(session), &json!("running"))
    );
    // A running turn accepts neither a second prompt nor other settings.
    assert_eq!(
        sessions.refused("codex_session", other).await.code,
        "SESSION_BUSY"
    );
    assert_eq!(
        sessions.call("codex_session", plain).await["status"],
        "running"
    );
    sessions.serve.fake.open_gate("go");
    assert_eq!(sessions.result(&session).await["output"], "done");
    let whole = sessions.get(&session).await;
    assert_eq!(
        (&whole["model"], &whole["turns"]),
        (&json!("other"), &json!(2))
    );
    assert_eq!(sent(&sessions.serve, "thread/resume"), Vec::<Value>::new());
    sessions.finish().await;
}

#[tokio::test]
async fn running_turn_can_be_steered() {
    let plan = Plan::new().on("turn/start", super::gated("go"));
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    let steer = json!({"action": "steer", "sessionId": session, "prompt": "and that"});
    let steered = sessions.call("codex_session", steer).await;
    assert_eq!(steered["success"], true);
    let request = &sent(&sessions.serve, "turn/steer")[0]["params"];
    assert_eq!(request["input"][0]["text"], "and that");
    assert!(request["expectedTurnId"].is_string(), "{request:#}");
    sessions.serve.fake.open_gate("go");
    assert_eq!(sessions.result(&session).await["output"], "done");
    sessions.finish().await;
}

#[tokio::test]
async fn concurrently_resumed_thread_has_one_session() {
    const THREAD: &str = "019fa4e0-0000-7000-8001-00000000abcd";
    let plan = Plan::new().on("thread/resume", [Action::gate("slow"), Action::Proceed]);
    let mut sessions = Sessions::new(&plan).await;
    let calls: Vec<Value> = (0..10)
        .map(|_| {
            let resume = json!({"action": "resume", "threadId": THREAD});
            sessions.serve.client.request_tool("codex_session", resume)
        })
        .collect();
    sessions
        .serve
        .fake
        .wait_for_nth_method(10, "thread/resume")
        .await;
    sessions.serve.fake.open_gate("slow");
    let mut ids = Vec::new();
    for call in calls {
        let resumed = super::structured(&sessions.serve.client.result(&call).await);
        assert_eq!(resumed["status"], "idle");
        ids.push(resumed["sessionId"].as_str().unwrap().to_owned());
    }
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    let list = sessions.list().await;
    assert_eq!(list["sessions"].as_array().unwrap().len(), 1);
    sessions.reply(&ids[0]).await;
    assert_eq!(
        sessions.result(&ids[0]).await["output"],
        testkit::fake::HELLO
    );
    sessions.finish().await;
}
