//! Output on stdout and stderr, and clients that do not read it.

use std::time::Duration;

use serde_json::json;
use testkit::Signal;
use testkit::fake::{HELLO, Plan};
use tokio::process::Command;
use tokio::time::timeout;

use super::serve::{HANDSHAKE, Serve, completed, stuck};

/// How many answers a server may write to a closed stdout, and how long it may take to notice.
const ANSWERS: u32 = 60;
const NOTICE: Duration = Duration::from_millis(500);

#[tokio::test]
async fn stdout_carries_only_the_protocol_under_heavy_logging() {
    let mut serve = Serve::start_with(&Plan::new(), |launch| {
        launch
            .env("CODEX_MCP_LOG", "trace")
            .env("RUST_LOG", "trace")
    });
    serve.client.initialize(HANDSHAKE, json!({})).await;
    assert_eq!(completed(&serve.codex().await), HELLO);
    // The client has checked each line of stdout.
    let log = serve.client.stderr();
    assert!(log.contains("TRACE"), "{log}");
    assert!(log.contains("Codex 0.169.0 is ready"), "{log}");
    serve.finish().await;
}

/// Closes the client's end of stdout, leaves stdin open, and lets the server write
/// until it notices. One answer may not be enough: a process that another test is
/// just starting may hold the pipe open for a moment.
async fn hang_up(mut serve: Serve) {
    serve.client.close_stdout().await;
    for _ in 0..ANSWERS {
        let ping = serve.client.request("ping", json!({}));
        serve.client.abandon(&ping);
        if let Ok(status) = timeout(NOTICE, serve.client.exited()).await {
            return serve.gone(status).await;
        }
    }
    panic!("the server goes on: {}", serve.client.stderr());
}

#[tokio::test]
async fn closed_stdout_ends_the_server() {
    hang_up(Serve::plain(&Plan::new()).await).await;
}

#[tokio::test]
async fn closed_stdout_during_a_turn_ends_codex_too() {
    let mut serve = Serve::plain(&stuck("half of it")).await;
    let call = serve.prompt();
    serve.client.abandon(&call);
    serve.fake.wait_for_method("turn/start").await;
    hang_up(serve).await;
}

/// A server whose client does not read, with more answers than the pipe holds.
async fn unheard() -> Serve {
    unheard_with(&[]).await
}

/// The same with other arguments.
async fn unheard_with(args: &[&str]) -> Serve {
    let mut serve = Serve::plain_with(&Plan::new(), args).await;
    serve.client.stop_reading().await;
    for _ in 0..200 {
        let list = serve.client.request("tools/list", json!({}));
        serve.client.abandon(&list);
    }
    serve
}

#[tokio::test]
async fn client_that_does_not_read_can_end_the_server() {
    unheard().await.finish().await;
}

#[tokio::test]
async fn client_that_does_not_read_does_not_block_sigterm() {
    unheard().await.finish_by(Signal::SIGTERM).await;
    let mut refused = Serve::plain(&Plan::new()).await;
    refused.client.stop_reading().await;
    refused.client.send_raw("not JSON\n".repeat(5000));
    refused.finish_by(Signal::SIGTERM).await;
}

#[tokio::test]
async fn client_of_a_host_that_does_not_read_does_not_block_sigterm() {
    let mut serve = unheard_with(&["--host"]).await;
    serve.client.signal(Signal::SIGTERM);
    let status = serve.client.exited().await;
    assert!(status.success(), "{status}: {}", serve.client.stderr());
    let mut stop = Command::new(env!("CARGO_BIN_EXE_codex-mcp"));
    let stop = stop.args(["host", "stop"]).env_clear();
    let stopped = stop.envs(serve.home.env()).output().await.unwrap();
    assert!(stopped.status.success(), "{stopped:?}");
    serve.gone(status).await;
}
