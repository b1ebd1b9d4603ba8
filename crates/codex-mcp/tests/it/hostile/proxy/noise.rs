//! A child that sends too much, or the wrong messages.

use serde_json::{Value, json};
use testkit::fake::{Action, HELLO, Plan};
use testkit::wait::wait_for;

use super::super::serve::{Serve, code};
use super::{LAST, call, calls, content, end, plain, status, thread, write};

fn notify(method: &str, params: Value) -> Action {
    Action::Notify {
        method: method.to_owned(),
        params,
    }
}

#[tokio::test]
async fn lines_outside_the_protocol_are_skipped() {
    let deep = ["[".repeat(100_000), "]".repeat(100_000)].concat();
    let plan = calls([
        Action::garbage(),
        write(b"\n\r\n{}\n[]\n7\nnull\n\"text\"\n"),
        write(format!("{deep}\n").as_bytes()),
        write(b"{\"method\":7}\n{\"id\":{},\"result\":1}\n{\"id\":1.5,\"result\":1}\n"),
        write(b"{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":1}\n"),
        write(b"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":1,\"message\":\"\"}}\n"),
        write(b"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":{}}\n"),
        write(b"{\"jsonrpc\":\"2.0\",\"id\":\"2\",\"result\":{}}\n"),
        write(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n"),
        write(b"{\"jsonrpc\":\"2.0\",\"id\":\"codex-mcp:ping:7\",\"result\":{}}\n"),
        Action::AnswerUnknownId,
    ]);
    let mut serve = plain(&plan, &[]).await;
    assert_eq!(content(&serve.codex().await), "done");
    serve.finish().await;
}

#[tokio::test]
async fn unreadable_answer_fails_its_call_at_once() {
    for answer in [
        &b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":1,\"error\":2}\n"[..],
        b"{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":\"E1\",\"message\":\"\"}}\n",
        b"{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{}}\n",
        b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"content\":\"\xff\"}}\n",
    ] {
        let plan = Plan::new().on("tools/call", [write(answer), Action::Hang]);
        let mut serve = plain(&plan, &[]).await;
        assert_eq!(code(&serve.codex().await), "PROTOCOL_PARSE_ERROR");
        serve.finish().await;
    }
}

#[tokio::test]
async fn noise_before_initialize_is_skipped() {
    let text = "\u{1b}[31mnoise\u{1b}[0m ".repeat(10_000);
    let plan = Plan::new().at_start([
        Action::garbage(),
        Action::WriteStderr { text },
        write(b"\n\n{}\n[]\nWelcome to Codex!\n"),
    ]);
    let mut serve = plain(&plan, &[]).await;
    assert_eq!(content(&serve.codex().await), HELLO);
    serve.finish().await;
}

#[tokio::test]
async fn noise_on_stderr_never_reaches_the_client() {
    let text = "\u{1b}[31mnoise\u{1b}[0m\n".repeat(20_000);
    let mut serve = plain(&calls([Action::WriteStderr { text }]), &[]).await;
    for _ in 0..3 {
        assert_eq!(content(&serve.codex().await), "done");
    }
    serve.finish().await;
}

#[tokio::test]
async fn surplus_and_unmatched_answers_are_dropped() {
    let twice = [Action::AnswerTwice, Action::AnswerUnknownId];
    let plan = Plan::new()
        .on("initialize", twice.clone())
        .on("tools/list", twice.clone())
        .on("ping", twice.clone())
        .on("tools/call", twice);
    let mut serve = plain(&plan, &[]).await;
    wait_for("Codex is ready", async || {
        (status(&mut serve).await["codex"]["state"] == "ready").then_some(())
    })
    .await;
    for method in ["tools/list", "ping"] {
        serve.client.call(method, json!({})).await;
    }
    let first = serve.codex().await;
    let second = serve.reply(&thread(&first)).await;
    assert_eq!(thread(&second), thread(&first));
    // Duplicates have arrived by now.
    status(&mut serve).await;
    serve.finish().await;
}

#[tokio::test]
async fn message_in_pieces_is_joined() {
    let plan = Plan::new().on(
        "tools/call",
        [
            write(br#"{"jsonrpc":"2.0","id":2,"result":{"con"#),
            Action::gate("more"),
            write(br#"tent":[],"isError":"#),
            Action::gate("rest"),
            write(b"false}}\n"),
        ],
    );
    let mut serve = plain(&plan, &[]).await;
    let call = serve.prompt();
    serve.fake.wait_for_method("tools/call").await;
    for gate in ["more", "rest"] {
        assert_eq!(status(&mut serve).await["calls"]["inFlight"], 1);
        serve.fake.open_gate(gate);
    }
    let result = serve.client.result(&call).await;
    assert_eq!(result, json!({"content": [], "isError": false}));
    serve.finish().await;
}

#[tokio::test]
async fn unknown_notifications_and_requests_pass() {
    let params = json!({"a": [1], "threadId": "t"});
    let ask = Action::Ask {
        method: "brand/question".to_owned(),
        params: params.clone(),
    };
    let plan = calls([notify("brand/new", params.clone()), ask]);
    let mut serve = plain(&plan, &[]).await;
    let call = serve.prompt();
    let news = serve.client.notification("brand/new").await;
    assert_eq!(news["params"], params);
    let asked = serve.client.server_request("brand/question").await;
    assert_eq!(asked["params"], params);
    let answer = json!({"odd": [null, 1.0]});
    serve.client.respond(&asked["id"], answer.clone());
    assert_eq!(content(&serve.client.result(&call).await), "done");
    assert_eq!(serve.answers()[0]["result"], answer);
    serve.finish().await;
}

#[tokio::test]
async fn error_of_the_child_passes_unchanged() {
    let error = Action::Error {
        code: -31234,
        message: "not today".to_owned(),
    };
    let plan = Plan::new().on("tools/call", [error]);
    let mut serve = plain(&plan, &[]).await;
    let call = serve.prompt();
    let error = serve.client.error(&call).await;
    assert_eq!(error, json!({"code": -31234, "message": "not today"}));
    serve.finish().await;
}

#[tokio::test]
async fn flood_does_not_block_any_call() {
    let flood = Action::Flood {
        notifications: 50_000,
    };
    let plan = Plan::new().on("tools/call", call([flood])).nth(1);
    let mut serve = plain(&plan, &[]).await;
    let flooded = serve.prompt();
    serve.fake.wait_for_method("tools/call").await;
    assert_eq!(status(&mut serve).await["calls"]["inFlight"], 1);
    assert_eq!(content(&serve.codex().await), HELLO);
    assert_eq!(content(&serve.client.result(&flooded).await), "done");
    let messages = &status(&mut serve).await["messages"];
    assert!(
        messages["fromCodex"].as_u64().unwrap() > 50_000,
        "{messages}"
    );
    serve.finish().await;
}

/// The calls in the order in which they are answered.
fn shuffled(count: usize) -> Vec<usize> {
    (0..count).map(|number| number * 7 % count).collect()
}

#[tokio::test]
async fn reordered_answers_reach_their_calls() {
    const CALLS: usize = 50;
    let mut plan = Plan::new();
    for number in 0..CALLS {
        let name = number.to_string();
        let begin = [Action::StartTurn, Action::gate(&name)];
        let actions = begin.into_iter().chain(end(&name)).collect::<Vec<_>>();
        let nth = u32::try_from(number + 1).unwrap();
        plan = plan.on("tools/call", actions).nth(nth);
    }
    let mut serve: Serve = plain(&plan, &[]).await;
    let ids: Vec<Value> = (0..CALLS).map(|_| serve.prompt()).collect();
    serve.fake.wait_for_nth_method(CALLS, "tools/call").await;
    let mut threads = Vec::new();
    for number in shuffled(CALLS) {
        let name = number.to_string();
        serve.fake.open_gate(&name);
        let result = serve.client.result(&ids[number]).await;
        assert_eq!(content(&result), name);
        threads.push(thread(&result).to_string());
    }
    threads.sort();
    threads.dedup();
    assert_eq!(threads.len(), CALLS);
    assert_eq!(status(&mut serve).await["codex"]["version"], LAST);
    serve.finish().await;
}
