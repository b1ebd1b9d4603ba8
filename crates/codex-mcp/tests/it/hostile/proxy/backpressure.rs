//! Clients and children that do not read.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::Signal;
use testkit::fake::{Action, HELLO, Plan};
use tokio::time::timeout;

use super::super::serve::Serve;
use super::{code, content, plain, status, stuck};

/// The number of calls and the length of their prompts that fill every pipe and queue.
const CALLS: usize = 40;
const PROMPT: usize = 20_000;

/// A server whose child floods a client that doesn't read.
async fn unheard() -> Serve {
    let flood = Action::Flood {
        notifications: 200_000,
    };
    let plan = Plan::new().on("tools/call", [Action::StartTurn, flood]);
    let mut serve = plain(&plan, &[]).await;
    serve.client.stop_reading().await;
    let call = serve.prompt();
    serve.client.abandon(&call);
    serve.fake.wait_for_method("tools/call").await;
    serve
}

#[tokio::test]
async fn client_that_does_not_read_can_end_the_server() {
    unheard().await.finish().await;
    unheard().await.finish_by(Signal::SIGTERM).await;
}

#[tokio::test]
async fn client_with_unread_answers_can_end_the_server() {
    for signal in [None, Some(Signal::SIGTERM)] {
        let mut serve = unheard().await;
        for _ in 0..200 {
            let own = serve.client.request_tool("codex_status", json!({}));
            serve.client.abandon(&own);
        }
        match signal {
            None => serve.finish().await,
            Some(signal) => serve.finish_by(signal).await,
        }
    }
}

#[tokio::test]
async fn client_with_unread_refusals_can_end_the_server() {
    let mut serve = plain(&Plan::new(), &[]).await;
    serve.client.stop_reading().await;
    serve.client.send_raw("not JSON\n".repeat(5000));
    serve.finish().await;
}

#[tokio::test]
async fn closed_stdout_ends_the_server() {
    let mut serve = plain(&stuck("half"), &[]).await;
    let call = serve.prompt();
    serve.client.abandon(&call);
    serve.fake.wait_for_method("tools/call").await;
    serve.client.close_stdout().await;
    // One answer may not be enough: a process that another test is just starting
    // may hold the pipe open for a moment.
    for _ in 0..60 {
        let own = serve.client.request_tool("codex_status", json!({}));
        serve.client.abandon(&own);
        let exited = serve.client.exited();
        if let Ok(status) = timeout(Duration::from_millis(500), exited).await {
            return serve.gone(status).await;
        }
    }
    panic!("the server goes on: {}", serve.client.stderr());
}

/// Makes more calls than a child that doesn't read can be sent.
fn many_calls(serve: &mut Serve) -> Vec<Value> {
    let arguments = json!({"prompt": "x".repeat(PROMPT)});
    (0..CALLS)
        .map(|_| serve.client.request_tool("codex", arguments.clone()))
        .collect()
}

/// A child that reads nothing, and calls for it.
async fn unread(args: &[&str]) -> (Serve, Vec<Value>) {
    let plan = Plan::new().at_start([Action::gate("read")]);
    let mut serve = plain(&plan, args).await;
    let calls = many_calls(&mut serve);
    (serve, calls)
}

#[tokio::test]
async fn child_that_does_not_read_blocks_only_its_own_requests() {
    let (mut serve, calls) = unread(&[]).await;
    assert_eq!(status(&mut serve).await["codex"]["state"], "starting");
    serve.client.call("tools/list", json!({})).await;
    serve.fake.open_gate("read");
    for call in &calls {
        assert_eq!(content(&serve.client.result(call).await), HELLO);
    }
    serve.finish().await;
}

#[tokio::test]
async fn calls_of_a_child_that_does_not_read_time_out() {
    let (mut serve, calls) = unread(&["--timeout", "2"]).await;
    for call in &calls {
        assert_eq!(code(&serve.client.result(call).await), "CODEX_SILENT");
    }
    serve.finish().await;
}

#[tokio::test]
async fn end_of_input_is_noticed_while_the_child_does_not_read() {
    for signal in [None, Some(Signal::SIGTERM)] {
        let (mut serve, calls) = unread(&[]).await;
        match signal {
            None => serve.client.close_stdin(),
            Some(signal) => serve.client.signal(signal),
        }
        let status = serve.client.exited().await;
        assert!(status.success(), "{status}");
        for call in &calls {
            if let Some(answer) = serve.client.response_so_far(call) {
                assert_eq!(code(&answer["result"]), "SHUTTING_DOWN");
            } else {
                // A signal takes effect before unread input.
                assert!(signal.is_some(), "no answer to {call}");
                serve.client.abandon(call);
            }
        }
        serve.gone(status).await;
    }
}

#[tokio::test]
async fn child_stopped_midway_blocks_only_its_own_requests() {
    let mut serve = plain(&stuck("half"), &["--timeout", "2"]).await;
    let first = serve.prompt();
    serve.fake.wait_for_method("tools/call").await;
    serve.kill_codex(Signal::SIGSTOP);
    let calls = many_calls(&mut serve);
    status(&mut serve).await;
    for call in [&first].into_iter().chain(&calls) {
        assert_eq!(code(&serve.client.result(call).await), "TIMEOUT");
    }
    serve.finish().await;
}
