//! A Codex that sends too much, or the wrong messages.

use serde_json::{Value, json};
use testkit::fake::{Action, HELLO, Plan, TurnEnd};

use super::serve::{Serve, code, completed, thread, turn, turns};

fn notify(method: &str, params: Value) -> Action {
    Action::Notify {
        method: method.to_owned(),
        params,
    }
}

fn write(bytes: &[u8]) -> Action {
    Action::Write {
        bytes: bytes.to_vec(),
    }
}

#[tokio::test]
async fn lines_outside_the_protocol_are_skipped() {
    let deep = ["[".repeat(100_000), "]".repeat(100_000)].concat();
    let plan = turns([
        Action::garbage(),
        write(b"\n\r\n{}\n[]\n7\nnull\n\"text\"\n"),
        write(format!("{deep}\n").as_bytes()),
        write(b"{\"method\":7}\n{\"id\":{},\"result\":1}\n{\"id\":1.5,\"result\":1}\n"),
        write(b"{\"id\":\"x\",\"result\":{}}\n"),
        notify("brand/new", json!({"a": [1]})),
        notify("turn/completed", json!({"turn": "none"})),
        notify("item/completed", json!({"item": {"type": "hologram"}})),
        notify(
            "turn/completed",
            json!({"turn": {"id": "other", "status": "failed"}}),
        ),
        notify(
            "error",
            json!({"error": {"message": "reconnecting"}, "willRetry": true}),
        ),
        notify(
            "turn/started",
            json!({"threadId": "not one of ours", "turn": {"id": "x", "status": "inProgress"}}),
        ),
        Action::WriteStderr {
            text: "\u{1b}[31mnoise\u{1b}[0m ".repeat(10_000),
        },
    ]);
    let mut serve = Serve::plain(&plan).await;
    assert_eq!(completed(&serve.codex().await), "done");
    serve.finish().await;
}

#[tokio::test]
async fn surplus_and_unmatched_answers_are_ignored() {
    let twice = [Action::AnswerTwice, Action::AnswerUnknownId];
    let plan = Plan::new()
        .on("initialize", twice.clone())
        .on("thread/start", twice)
        .on(
            "turn/start",
            [
                Action::AnswerTwice,
                Action::StartTurn,
                Action::StartTurn,
                Action::AnswerUnknownId,
                Action::say("done"),
                Action::EndTurn(TurnEnd::Completed),
                Action::EndTurn(TurnEnd::Failed("twice".to_owned())),
            ],
        );
    let mut serve = Serve::plain(&plan).await;
    let first = serve.codex().await;
    assert_eq!(completed(&first), "done");
    assert_eq!(completed(&serve.reply(&thread(&first)).await), "done");
    serve.finish().await;
}

#[tokio::test]
async fn notification_that_overtakes_an_answer_is_kept() {
    let plan = Plan::new().on(
        "turn/start",
        [
            Action::StartTurn,
            Action::say("done"),
            Action::EndTurn(TurnEnd::Completed),
            Action::Answer,
        ],
    );
    let mut serve = Serve::plain(&plan).await;
    assert_eq!(completed(&serve.codex().await), "done");
    serve.finish().await;
}

#[tokio::test]
async fn line_over_the_limit_is_skipped_and_the_next_is_read() {
    for bytes in [17 * 1024 * 1024, 100_000_000] {
        let mut serve = Serve::plain(&turns([Action::GiantLine { bytes }])).await;
        assert_eq!(completed(&serve.codex().await), "done");
        serve.finish().await;
    }
}

#[tokio::test]
async fn turn_end_without_a_start_ends_the_call() {
    let plan = Plan::new().on(
        "turn/start",
        [
            Action::say("done"),
            Action::EndTurn(TurnEnd::Completed),
            Action::Answer,
        ],
    );
    let mut serve = Serve::plain(&plan).await;
    assert_eq!(completed(&serve.codex().await), "done");
    serve.finish().await;
}

#[tokio::test]
async fn answer_over_the_limit_fails_only_its_request() {
    let long = "x".repeat(20_000);
    let answer = format!("{{\"id\":3,\"result\":{{\"thread\":\"{long}\"}}}}\n");
    let plan = Plan::new()
        .on("thread/start", [write(answer.as_bytes())])
        .nth(1);
    let mut serve = Serve::plain_with(&plan, &["--max-line", "10000"]).await;
    let refused = serve.codex().await;
    assert_eq!(code(&refused), "CODEX_REFUSED");
    assert!(refused.to_string().contains("--max-line"), "{refused:#}");
    assert_eq!(completed(&serve.codex().await), HELLO);
    serve.finish().await;
}

#[tokio::test]
async fn turn_end_over_the_limit_fails_only_that_turn() {
    let end = json!({"turn": {"id": "x", "status": "completed", "x": "x".repeat(20_000)}});
    let plan = Plan::new()
        .on(
            "turn/start",
            turn([notify("turn/completed", end), Action::Hang]),
        )
        .nth(1);
    let mut serve = Serve::plain_with(&plan, &["--max-line", "10000"]).await;
    let cut_off = serve.codex().await;
    assert_eq!(code(&cut_off), "TURN_FAILED");
    assert!(cut_off.to_string().contains("--max-line"), "{cut_off:#}");
    assert_eq!(completed(&serve.reply(&thread(&cut_off)).await), HELLO);
    serve.finish().await;
}

#[tokio::test]
async fn flood_does_not_block_any_call() {
    let plan = Plan::new()
        .on(
            "turn/start",
            turn([Action::Flood {
                notifications: 50_000,
            }]),
        )
        .nth(1);
    let mut serve = Serve::plain(&plan).await;
    let flooded = serve.prompt();
    serve.fake.wait_for_method("turn/start").await;
    serve.settled().await;
    assert_eq!(completed(&serve.codex().await), HELLO);
    assert_eq!(completed(&serve.client.result(&flooded).await), "done");
    serve.finish().await;
}

#[tokio::test]
async fn concurrent_calls_share_one_codex() {
    let mut serve = Serve::plain(&Plan::new()).await;
    let calls: Vec<Value> = (0..50).map(|_| serve.prompt()).collect();
    let mut threads = Vec::new();
    for call in calls {
        let result = serve.client.result(&call).await;
        assert_eq!(completed(&result), HELLO);
        threads.push(thread(&result).to_string());
    }
    threads.sort();
    threads.dedup();
    assert_eq!(threads.len(), 50);
    assert_eq!(serve.fake.started().len(), 1);
    serve.finish().await;
}
