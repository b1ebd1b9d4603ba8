//! No process of Codex's outlives us.

use std::time::Duration;

use scripted_model::{Reply, Script, Shell};
use serde_json::json;
use testkit::process::{Process, descendants, wait_until_gone};
use testkit::{McpClient, Signal};

use super::{Stage, on_each_release};

on_each_release!(
    a_cancelled_call_ends_its_commands,
    nothing_is_left_after_sigkill_in_a_turn,
    nothing_is_left_after_sigterm_in_a_turn,
    nothing_is_left_after_the_end_of_input_in_a_turn,
);

/// How long what is left may live on after us.
const LEFT: Duration = Duration::from_secs(2);

/// A turn in which a command runs that has a session of its own and ignores
/// SIGTERM and SIGHUP.
async fn in_a_turn(release: &str) -> (Stage, McpClient, Vec<u32>) {
    let command = "touch runs; trap '' TERM HUP INT; sleep 1000 & sleep 1000; sleep 1000";
    let script = Script::new().otherwise([
        Reply::shell(Shell::new(command).waiting(Duration::from_secs(30))),
        Reply::say("never"),
    ]);
    let stage = Stage::new(release, script).await;
    let mut client = stage.client(&[]).await;
    let arguments =
        json!({"prompt": "x", "sandbox": "danger-full-access", "approval-policy": "never"});
    let id = client.request_tool("codex", arguments);
    client.abandon(&id);
    while !stage.file("runs").exists() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut below = descendants(client.pid());
    // The guard, Codex, its server of pictures, the shell and two sleeps.
    while below.len() < 6 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        below = descendants(client.pid());
    }
    (stage, client, below)
}

/// Codex, its guard and its server of pictures live on, what the turn had started does
/// not.
async fn a_cancelled_call_ends_its_commands(release: &str) {
    let script = Script::new().otherwise([
        Reply::shell(Shell::new("touch runs; sleep 1000").waiting(Duration::from_secs(30))),
        Reply::say("never"),
    ]);
    let stage = Stage::new(release, script).await;
    let mut client = stage.client(&[]).await;
    let arguments =
        json!({"prompt": "x", "sandbox": "danger-full-access", "approval-policy": "never"});
    let id = client.request_tool("codex", arguments);
    while !stage.file("runs").exists() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let below = descendants(client.pid());
    let is = |pid: &u32, what| Process::look(*pid).is_some_and(|it| it.command.contains(what));
    let (stays, commands): (Vec<u32>, Vec<u32>) = below
        .into_iter()
        .partition(|pid| is(pid, "app-server") || is(pid, " eyes-mcp "));
    assert!(!commands.is_empty());
    client.cancel(&id, "no longer wanted");
    assert_eq!(
        wait_until_gone(&commands, Duration::from_secs(10)).await,
        []
    );
    assert!(stays.iter().any(|pid| is(pid, " app-server")));
    assert!(stays.iter().any(|pid| is(pid, " eyes-mcp ")));
    stage.finish(client).await;
}

async fn nothing_is_left_after_sigkill_in_a_turn(release: &str) {
    let (stage, mut client, below) = in_a_turn(release).await;
    client.signal(Signal::SIGKILL);
    client.exited().await;
    assert_eq!(wait_until_gone(&below, LEFT).await, []);
    assert_eq!(stage.home.processes(), []);
}

async fn nothing_is_left_after_sigterm_in_a_turn(release: &str) {
    let (stage, mut client, below) = in_a_turn(release).await;
    client.signal(Signal::SIGTERM);
    assert!(client.exited().await.success());
    assert_eq!(wait_until_gone(&below, LEFT).await, []);
    assert_eq!(stage.home.processes(), []);
}

async fn nothing_is_left_after_the_end_of_input_in_a_turn(release: &str) {
    let (stage, mut client, below) = in_a_turn(release).await;
    client.close_stdin();
    assert!(client.exited().await.success());
    assert_eq!(wait_until_gone(&below, LEFT).await, []);
    assert_eq!(stage.home.processes(), []);
}
