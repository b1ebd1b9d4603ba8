//! Wrong arguments of calls that start a session.

use std::fs;

use serde_json::{Value, json};

use super::refusals::{HERE, Row, THREAD, idle, invalid, works};
use super::{beginning, join};

#[tokio::test]
async fn codex_names_the_wrong_argument() {
    let (mut sessions, session) = idle().await;
    let file = sessions.serve.home.work().join("file");
    fs::write(&file, "").unwrap();
    let profile = sessions.serve.home.codex_home().join("bad.config.toml");
    fs::write(profile, "not toml").unwrap();
    let without = |missing: &str| {
        let mut arguments = beginning(json!({}));
        arguments.as_object_mut().unwrap().remove(missing);
        arguments
    };
    let with = |more: Value| beginning(more);
    let mut rows = vec![
        invalid("codex", json!({}), "prompt"),
        invalid("codex", without("prompt"), "prompt"),
        invalid("codex", without("approvalPolicy"), "approvalPolicy"),
        invalid("codex", without("sandbox"), "sandbox"),
        invalid("codex", with(json!({"cwd": "not/there"})), "not/there"),
        invalid(
            "codex",
            with(json!({"cwd": file})),
            "file does not exist, or is not a directory",
        ),
        invalid("codex", with(json!({"cwd": 7})), "cwd"),
        invalid("codex", with(json!({"profile": "../x"})), "profile"),
        invalid("codex", with(json!({"profile": "bad"})), "bad.config.toml"),
        invalid(
            "codex",
            with(json!({"approval-policy": "never"})),
            "approval-policy",
        ),
        invalid("codex", with(json!({"sessionId": HERE})), "sessionId"),
        invalid("codex", with(json!({"wait-ms": 5})), "wait-ms"),
        invalid("codex", with(json!({"model": ["m"]})), "model"),
    ];
    for prompt in [
        json!(""),
        json!(" \n\t"),
        json!(7),
        json!(["hi"]),
        Value::Null,
    ] {
        rows.push(invalid("codex", with(json!({"prompt": prompt})), "prompt"));
    }
    for (name, bad) in [
        ("approvalPolicy", json!("always")),
        ("approvalPolicy", json!("Never")),
        ("sandbox", json!("none")),
        ("sandbox", json!(true)),
        ("effort", json!("extreme")),
        ("effort", json!(3)),
    ] {
        rows.push(invalid("codex", with(json!({name: bad})), name));
    }
    sessions.refuses_each(&session, rows).await;
    works(sessions, &session).await;
}

#[tokio::test]
async fn wrong_advanced_option_is_named() {
    let (mut sessions, session) = idle().await;
    let rows = [
        (json!("text"), "advanced"),
        (json!({"base-instructions": "x"}), "base-instructions"),
        (json!({"baseInstructions": 5}), "advanced.baseInstructions"),
        (
            json!({"developerInstructions": []}),
            "advanced.developerInstructions",
        ),
        (json!({"personality": "rude"}), "advanced.personality"),
        (json!({"summary": "long"}), "advanced.summary"),
        (json!({"config": ["a=1"]}), "advanced.config"),
        (json!({"ephemeral": "yes"}), "advanced.ephemeral"),
        (json!({"images": "a.png"}), "advanced.images"),
        (json!({"images": [7]}), "advanced.images"),
        (json!({"outputSchema": "text"}), "advanced.outputSchema"),
        (json!({"outputSchema": []}), "advanced.outputSchema"),
        (
            json!({"outputSchema": {"type": "text"}}),
            "advanced.outputSchema",
        ),
        (
            json!({"outputSchema": {"properties": {"a": 1}}}),
            "properties.a",
        ),
        (json!({"outputSchema": {"required": "a"}}), "required"),
    ];
    let rows = rows.into_iter().flat_map(|(advanced, named)| {
        let begin = beginning(json!({"advanced": advanced}));
        let resume = json!({"action": "resume", "threadId": THREAD, "advanced": advanced});
        [
            invalid("codex", begin, named),
            invalid("codex_session", resume, named),
        ]
    });
    sessions.refuses_each(&session, rows.collect()).await;
    works(sessions, &session).await;
}

#[tokio::test]
async fn file_that_is_no_image_is_refused() {
    let (mut sessions, session) = idle().await;
    let work = sessions.serve.home.work();
    fs::write(work.join("text.png"), "I am no picture").unwrap();
    fs::create_dir(work.join("directory.png")).unwrap();
    nix::unistd::mkfifo(&work.join("pipe.png"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let rows = [
        ("absent.png", "absent.png cannot be read"),
        ("", "is not a file"),
        ("directory.png", "directory.png is not a file"),
        ("pipe.png", "pipe.png is not a file"),
        ("text.png", "text.png is not a PNG"),
        ("http://127.0.0.1:1/a.png", "not fetched"),
        ("file:///a.png", "not fetched"),
        ("data:", "data: URL"),
        ("data:image/png;base64", "no comma"),
        ("data:image/png;base64,%%", "data: URL"),
        ("data:image/png,iVBORw0KGgo=", "base64"),
        ("data:text/plain;base64,aGVsbG8=", "not an image"),
        ("data:image/png;base64,aGVsbG8=", "is not a PNG"),
    ];
    let rows: Vec<Row> = rows
        .into_iter()
        .flat_map(|(image, named)| {
            let advanced = json!({"images": [image]});
            let begin = beginning(json!({"advanced": advanced}));
            let resume = json!({"action": "resume", "threadId": THREAD, "prompt": "look",
                "advanced": advanced});
            ["advanced.images[0]", named].map(|named| {
                [
                    invalid("codex", begin.clone(), named),
                    invalid("codex_session", resume.clone(), named),
                ]
            })
        })
        .flatten()
        .collect();
    sessions.refuses_each(&session, rows).await;
    works(sessions, &session).await;
}

#[tokio::test]
async fn numbers_are_whole_not_negative_and_not_huge() {
    let (mut sessions, session) = idle().await;
    let huge: Value = serde_json::from_str("123456789012345678901234567890").unwrap();
    let mut rows = Vec::new();
    for bad in [
        json!(-1),
        json!(0.5),
        json!(-0.5),
        json!(1e300),
        json!(u64::MAX),
        huge,
        json!("1"),
    ] {
        let poll = |more: Value| join(json!({"action": "poll", "sessionId": HERE}), more);
        rows.extend([
            invalid("codex_check", poll(json!({"cursor": bad})), "cursor"),
            invalid("codex_check", poll(json!({"maxEvents": bad})), "maxEvents"),
            invalid("codex_check", poll(json!({"waitMs": bad})), "waitMs"),
            invalid(
                "codex_check",
                poll(json!({"pollOptions": {"maxBytes": bad}})),
                "pollOptions.maxBytes",
            ),
            invalid(
                "codex_session",
                json!({"action": "wait_any", "sessionIds": [HERE], "waitMs": bad}),
                "waitMs",
            ),
        ]);
        for name in ["approvalTimeoutMs", "stallTimeoutMs"] {
            let begin = beginning(json!({"advanced": {name: bad}}));
            rows.push(invalid("codex", begin, name));
        }
    }
    // Whole numbers outside the allowed range.
    for bad in [json!(0), json!(86_400_001_u64)] {
        for name in ["approvalTimeoutMs", "stallTimeoutMs"] {
            let begin = beginning(json!({"advanced": {name: bad}}));
            rows.push(invalid("codex", begin, name));
        }
    }
    let long = json!({"action": "poll", "sessionId": HERE, "waitMs": 86_400_001_u64});
    rows.push(invalid("codex_check", long, "waitMs"));
    sessions.refuses_each(&session, rows).await;

    // Clients that write all numbers with a fraction are served.
    let fractions = json!({"cursor": 0.0, "maxEvents": 2.0, "waitMs": 1e3,
        "pollOptions": {"maxBytes": 1e6}});
    let look = sessions.poll(&session, fractions).await;
    assert_eq!(look["events"].as_array().unwrap().len(), 2);
    works(sessions, &session).await;
}
