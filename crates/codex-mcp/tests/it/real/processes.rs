//! No process of Codex outlives our server.

use std::time::Duration;

use scripted_model::{Reply, Script, Shell};
use serde_json::{Value, json};
use testkit::process::{Process, descendants, wait_until_gone};
use testkit::{McpClient, Signal};

use super::sessions::Poller;
use super::{CodexFixture, on_oldest_and_newest};
use crate::jobs::{wait_for, wait_for_file};

on_oldest_and_newest!(
    cancelled_call_ends_its_commands,
    background_terminal_ends_with_its_session,
    background_terminals_are_listed_and_ended,
    background_terminal_ends_with_a_classic_server,
    sigkill_in_a_turn_leaves_no_processes,
    sigterm_in_a_turn_leaves_no_processes,
    end_of_input_in_a_turn_leaves_no_processes,
);

/// How long processes may outlive the server.
const EXIT_LIMIT: Duration = Duration::from_secs(2);

/// A turn whose command ignores SIGTERM and SIGHUP. Also returns the processes below the server.
async fn start_turn(release: &str) -> (CodexFixture, McpClient, Vec<u32>) {
    let command = "touch runs; trap '' TERM HUP INT; sleep 1000 & sleep 1000; sleep 1000";
    let script = Script::new().otherwise([
        Reply::shell(Shell::new(command).waiting(Duration::from_secs(30))),
        Reply::say("never"),
    ]);
    let stage = CodexFixture::new(release, script).await;
    let mut client = stage.client(&[]).await;
    let arguments =
        json!({"prompt": "x", "sandbox": "danger-full-access", "approval-policy": "never"});
    let id = client.request_tool("codex", arguments);
    client.abandon(&id);
    wait_for_file(&stage.file("runs")).await;
    // The guard, Codex, the shell and two sleeps.
    let below = wait_for("the processes of the turn", async || {
        let below = descendants(client.pid());
        (below.len() >= 5).then_some(below)
    })
    .await;
    (stage, client, below)
}

/// Codex and its guard live on; the processes of the turn do not.
async fn cancelled_call_ends_its_commands(release: &str) {
    let script = Script::new().otherwise([
        Reply::shell(Shell::new("touch runs; sleep 1000").waiting(Duration::from_secs(30))),
        Reply::say("never"),
    ]);
    let stage = CodexFixture::new(release, script).await;
    let mut client = stage.client(&[]).await;
    let arguments =
        json!({"prompt": "x", "sandbox": "danger-full-access", "approval-policy": "never"});
    let id = client.request_tool("codex", arguments);
    wait_for_file(&stage.file("runs")).await;
    let below = descendants(client.pid());
    let is = |pid: &u32, what| Process::read(*pid).is_some_and(|it| it.command.contains(what));
    let (stays, commands): (Vec<u32>, Vec<u32>) =
        below.into_iter().partition(|pid| is(pid, "app-server"));
    assert!(!commands.is_empty());
    client.cancel(&id, "no longer wanted");
    assert_eq!(
        wait_until_gone(&commands, Duration::from_secs(10)).await,
        []
    );
    assert!(stays.iter().any(|pid| is(pid, " app-server")));
    stage.finish(client).await;
}

/// A stage whose turns each leave a command behind.
async fn fixture_leaving_commands(release: &str) -> CodexFixture {
    let sleep = Shell::new("exec sleep 1000").waiting(Duration::from_millis(250));
    let script = Script::new().otherwise([Reply::shell(sleep), Reply::say("left running")]);
    CodexFixture::new(release, script).await
}

const NEVER: &str = "never";

/// The commands that run below a client's server.
fn sleeping(client: &McpClient) -> Vec<u32> {
    let sleeps = |pid: &u32| Process::read(*pid).is_some_and(|it| it.command.contains("sleep"));
    let below = descendants(client.pid());
    below.into_iter().filter(sleeps).collect()
}

async fn background_terminal_ends_with_its_session(release: &str) {
    let stage = fixture_leaving_commands(release).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let unbound = json!({"sandbox": "danger-full-access", "approvalPolicy": NEVER});
    let session = poller
        .start("leave something running", unbound.clone())
        .await;
    let other = poller.start("leave something running", unbound).await;
    poller.until_idle(&session).await;
    let left = sleeping(&poller.client);
    poller.until_idle(&other).await;
    let of_both = sleeping(&poller.client);
    assert!(
        !left.is_empty() && of_both.len() > 1,
        "{left:?} {of_both:?}"
    );

    poller.session("cancel", &session).await;
    poller.session("cancel", &other).await;
    assert_eq!(wait_until_gone(&of_both, Duration::from_secs(10)).await, []);
    stage.finish(poller.client).await;
}

/// 0.104.0 can only end all terminals together.
async fn background_terminals_are_listed_and_ended(release: &str) {
    let stage = fixture_leaving_commands(release).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let unbound = json!({"sandbox": "danger-full-access", "approvalPolicy": NEVER});
    let session = poller.start("leave something running", unbound).await;
    poller.until_idle(&session).await;
    poller.reply(&session, "and once more", json!({})).await;
    poller.until_idle(&session).await;
    let left = sleeping(&poller.client);
    assert_eq!(left.len(), 2);

    let of_session = |more: Value| {
        let mut arguments = json!({"action": "end_terminals", "sessionId": session});
        arguments
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        arguments
    };
    if release == "0.104.0" {
        let list = json!({"action": "terminals", "sessionId": session});
        let code = poller.refused("codex_session", list).await;
        assert_eq!(code, "INVALID_ARGUMENT");
    } else {
        let listed = poller.session("terminals", &session).await;
        let terminals = listed["terminals"].as_array().unwrap();
        assert_eq!(terminals.len(), 2, "{listed:#}");
        assert_eq!(terminals[0]["command"], "exec sleep 1000");
        let one = of_session(json!({"processId": terminals[0]["processId"]}));
        poller.call("codex_session", one.clone()).await;
        let code = poller.refused("codex_session", one).await;
        assert_eq!(code, "INVALID_ARGUMENT");
        let listed = poller.session("terminals", &session).await;
        assert_eq!(listed["terminals"].as_array().unwrap().len(), 1);
    }
    poller.call("codex_session", of_session(json!({}))).await;
    assert_eq!(wait_until_gone(&left, Duration::from_secs(10)).await, []);
    // The session stays usable.
    assert_eq!(poller.get(&session).await["status"], "idle");
    stage.finish(poller.client).await;
}

async fn background_terminal_ends_with_a_classic_server(release: &str) {
    let stage = fixture_leaving_commands(release).await;
    let mut client = stage.client(&[]).await;
    let arguments = json!({"prompt": "leave something running",
        "sandbox": "danger-full-access", "approval-policy": NEVER});
    client.call_tool("codex", arguments).await;
    let left = sleeping(&client);
    assert!(!left.is_empty());
    stage.finish(client).await;
    assert_eq!(wait_until_gone(&left, EXIT_LIMIT).await, []);
}

async fn sigkill_in_a_turn_leaves_no_processes(release: &str) {
    let (stage, mut client, below) = start_turn(release).await;
    client.signal(Signal::SIGKILL);
    client.exited().await;
    assert_eq!(wait_until_gone(&below, EXIT_LIMIT).await, []);
    assert_eq!(stage.home.processes(), []);
}

async fn sigterm_in_a_turn_leaves_no_processes(release: &str) {
    let (stage, mut client, below) = start_turn(release).await;
    client.signal(Signal::SIGTERM);
    assert!(client.exited().await.success());
    assert_eq!(wait_until_gone(&below, EXIT_LIMIT).await, []);
    assert_eq!(stage.home.processes(), []);
}

async fn end_of_input_in_a_turn_leaves_no_processes(release: &str) {
    let (stage, mut client, below) = start_turn(release).await;
    client.close_stdin();
    assert!(client.exited().await.success());
    assert_eq!(wait_until_gone(&below, EXIT_LIMIT).await, []);
    assert_eq!(stage.home.processes(), []);
}
