//! Refusals of Codex, and failed turns.

use serde_json::{Value, json};
use testkit::fake::{Action, HELLO, Plan, TurnEnd};

use super::serve::{Serve, code, completed, message, thread};

/// Has a turn fail for this reason and checks the call's error.
async fn fails(info: &Value, expected: &str, retryable: bool) {
    let end = TurnEnd::FailedFor("You've hit it. Try again at 5 PM.".to_owned(), info.clone());
    let plan = Plan::new().on(
        "turn/start",
        [
            Action::Answer,
            Action::StartTurn,
            Action::say("So far."),
            Action::EndTurn(end),
        ],
    );
    let mut serve = Serve::plain(&plan).await;
    let result = serve.codex().await;
    assert_eq!(code(&result), expected, "{info}");
    let structured = &result["structuredContent"];
    assert_eq!(structured["error"]["retryable"], retryable, "{info}");
    assert_eq!(structured["status"], "failed");
    assert_eq!(structured["content"], "So far.");
    assert!(message(&result).contains("Try again at 5 PM"), "{result:#}");
    thread(&result);
    serve.finish().await;
}

#[tokio::test]
async fn failed_turn_reports_its_kind_of_failure() {
    for (info, expected, retryable) in [
        (json!("usageLimitExceeded"), "USAGE_LIMIT", true),
        (json!("contextWindowExceeded"), "CONTEXT_WINDOW", false),
        (json!("unauthorized"), "UNAUTHORIZED", false),
        (json!("serverOverloaded"), "OVERLOADED", true),
        (json!("sandboxError"), "SANDBOX", false),
        (json!("other"), "TURN_FAILED", true),
        (json!("brandNew"), "TURN_FAILED", true),
        (json!({"brandNew": {"a": 1}}), "TURN_FAILED", true),
        (json!(null), "TURN_FAILED", true),
        (json!([7]), "TURN_FAILED", true),
    ] {
        fails(&info, expected, retryable).await;
    }
}

#[tokio::test]
async fn turn_failed_over_http_explains_the_status() {
    for (name, status, expected, retryable) in [
        (
            "responseStreamConnectionFailed",
            Some(401),
            "UNAUTHORIZED",
            false,
        ),
        ("httpConnectionFailed", Some(403), "UNAUTHORIZED", false),
        ("httpConnectionFailed", Some(404), "CONNECTION", true),
        (
            "responseTooManyFailedAttempts",
            Some(429),
            "RATE_LIMITED",
            true,
        ),
        ("responseStreamDisconnected", Some(503), "OVERLOADED", true),
        ("responseStreamDisconnected", None, "CONNECTION", true),
    ] {
        let info = json!({name: {"httpStatusCode": status}});
        fails(&info, expected, retryable).await;
    }
}

#[tokio::test]
async fn refusal_of_codex_is_reported_and_next_call_works() {
    let refuse = |code: i64, message: &str| Action::Error {
        code,
        message: message.to_owned(),
    };
    for (method, refusal, expected, retryable) in [
        ("thread/start", Action::overloaded(), "OVERLOADED", true),
        ("turn/start", Action::overloaded(), "OVERLOADED", true),
        (
            "thread/start",
            refuse(-32600, "no such model"),
            "CODEX_REFUSED",
            false,
        ),
        (
            "turn/start",
            refuse(-32603, "no turns today"),
            "CODEX_REFUSED",
            false,
        ),
    ] {
        let words = match &refusal {
            Action::Error { message, .. } => message.clone(),
            _ => String::new(),
        };
        // An overloaded Codex gets a few retries.
        let times = if expected == "OVERLOADED" {
            1..=6
        } else {
            1..=1
        };
        let plan = times.fold(Plan::new(), |plan, time| {
            plan.on(method, [refusal.clone()]).nth(time)
        });
        let mut serve = Serve::plain(&plan).await;
        let result = serve.codex().await;
        assert_eq!(code(&result), expected, "{method}");
        assert_eq!(result["structuredContent"]["error"]["retryable"], retryable);
        assert!(message(&result).contains(&words), "{result:#}");
        assert_eq!(completed(&serve.codex().await), HELLO);
        serve.finish().await;
    }
}

#[tokio::test]
async fn thread_that_cannot_be_resumed_is_explained() {
    let id = "019fa4e0-0000-7000-8001-00000000abcd";
    for (words, expected) in [
        ("no rollout found for thread id", "THREAD_NOT_FOUND"),
        ("thread not found: ", "THREAD_NOT_FOUND"),
        ("thread already has an active writer", "THREAD_IN_USE"),
        ("something else", "CODEX_REFUSED"),
    ] {
        let refusal = Action::Error {
            code: -32600,
            message: format!("{words} {id}"),
        };
        let plan = Plan::new().on("thread/resume", [refusal]);
        let mut serve = Serve::plain(&plan).await;
        let result = serve.reply(&json!(id)).await;
        assert_eq!(code(&result), expected);
        assert_eq!(thread(&result), id);
        assert!(message(&result).contains(id), "{result:#}");
        serve.finish().await;
    }
}

#[tokio::test]
async fn answer_of_unexpected_shape_is_an_error_at_once() {
    for (method, answer) in [
        ("thread/start", "{\"id\":3,\"result\":{}}\n"),
        ("thread/start", "{\"id\":3,\"result\":null}\n"),
        ("thread/start", "{\"id\":3}\n"),
        ("turn/start", "{\"id\":4,\"result\":{\"turn\":7}}\n"),
    ] {
        let write = Action::Write {
            bytes: answer.as_bytes().to_vec(),
        };
        let mut serve = Serve::plain(&Plan::new().on(method, [write])).await;
        let result = serve.codex().await;
        assert_eq!(
            code(&result),
            "PROTOCOL_PARSE_ERROR",
            "{answer}: {result:#}"
        );
        assert!(message(&result).contains(method), "{result:#}");
        serve.finish().await;
    }
}

#[tokio::test]
async fn dropped_approval_policy_is_mapped_with_one_warning() {
    let mut serve = Serve::plain(&Plan::new()).await;
    let arguments = json!({"prompt": "hi", "approval-policy": "on-failure"});
    let first = serve.client.call_tool("codex", arguments.clone()).await;
    let warnings = first["structuredContent"]["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].as_str().unwrap().contains("on-failure"));
    let second = serve.client.call_tool("codex", arguments).await;
    assert_eq!(second["structuredContent"].get("warnings"), None);
    for message in serve.fake.received() {
        if message["method"] == "thread/start" {
            assert_eq!(message["params"]["approvalPolicy"], "on-request");
        }
    }
    serve.finish().await;
}
