//! Messages of the child that are very long, or too long.

use serde_json::json;
use testkit::fake::{Action, HELLO, Plan};

use super::{call, calls, code, content, eliciting, message, plain, thread, write};

/// The arguments for a limit that these messages pass, which may have four times as much.
const SHORT: [&str; 2] = ["--max-line", "10000"];

fn long() -> String {
    "x".repeat(50_000)
}

#[tokio::test]
async fn answer_over_the_limit_fails_only_its_call() {
    let plan = Plan::new()
        .on("tools/call", call([]))
        .on(
            "tools/call",
            [
                Action::StartTurn,
                Action::say("So far."),
                Action::say(&long()),
                Action::Answer,
            ],
        )
        .nth(1);
    let mut serve = plain(&plan, &SHORT).await;
    let result = serve.codex().await;
    assert_eq!(code(&result), "PROTOCOL_PARSE_ERROR");
    assert!(message(&result).contains("--max-line"), "{result:#}");
    assert_eq!(result["structuredContent"]["content"], "So far.");
    assert_eq!(
        content(&serve.reply(&thread(&result)).await),
        "done",
        "the thread can't go on"
    );
    serve.finish().await;
}

#[tokio::test]
async fn answer_over_the_limit_fails_other_requests_too() {
    let answer = json!({"jsonrpc": "2.0", "id": 3, "result": {"tools": [long()]}});
    let plan = Plan::new().on("tools/list", [write(format!("{answer}\n").as_bytes())]);
    let mut serve = plain(&plan, &SHORT).await;
    assert_eq!(content(&serve.codex().await), HELLO);
    let list = serve.client.request("tools/list", json!({}));
    assert_eq!(list, 3);
    let error = serve.client.error(&list).await;
    let data = &error["data"]["error"];
    assert_eq!(data["code"], "PROTOCOL_PARSE_ERROR", "{error}");
    assert!(error.to_string().contains("--max-line"), "{error}");
    serve.finish().await;
}

#[tokio::test]
async fn question_over_the_limit_is_declined() {
    let plan = calls([Action::elicit_approval(&long())]);
    let mut serve = eliciting(&plan, &SHORT).await;
    assert_eq!(content(&serve.codex().await), "done");
    let answer = &serve.answers()[0]["result"];
    assert_eq!(answer["action"], "decline", "{answer}");
    assert!(answer["decision"]["denied"].is_object(), "{answer}");
    serve.finish().await;
}

#[tokio::test]
async fn notification_over_the_limit_is_skipped_and_the_call_continues() {
    for bytes in [65 * 1024 * 1024, 100_000_000] {
        let mut serve = plain(&calls([Action::GiantLine { bytes }]), &[]).await;
        assert_eq!(content(&serve.codex().await), "done");
        let said = serve.client.stderr();
        assert!(said.contains("--max-line"), "{said}");
        serve.finish().await;
    }
}

#[tokio::test]
async fn answer_of_many_megabytes_passes() {
    let text = "x".repeat(6_000_000);
    let answer = [Action::StartTurn, Action::say(&text), Action::Answer];
    let mut serve = plain(&Plan::new().on("tools/call", answer), &[]).await;
    assert!(content(&serve.codex().await) == text);
    serve.finish().await;
}
