//! Turns that are ended: all that their commands have started ends with them.

use std::cell::Cell;
use std::time::Duration;

use codex_mcp::jobs::call::{News, Request};
use codex_mcp_core::work::event::WorkEvent;
use codex_mcp_core::work::{FailureClass, SeenBy};
use codex_mcp_protocol::codex::SandboxMode;
use scripted_model::{Reply, Script, Shell};
use tokio_util::sync::CancellationToken;

use super::Stage;
use crate::real::on_each_release;
use crate::runs::{assert_failed, assert_said};

on_each_release!(
    a_cancelled_run_leaves_nothing,
    a_run_that_takes_too_long_leaves_nothing,
    what_a_finished_run_left_running_is_ended,
);

/// A command that leaves one behind in a session of its own, which ignores SIGTERM
/// as it does itself.
const STUBBORN: &str = "trap '' TERM HUP INT; echo x > made.txt; setsid sleep 1000 & \
    setsid sleep 1000 & touch runs; sleep 1000; sleep 1000";

async fn stubborn(release: &str) -> (Stage, Request) {
    let script = Script::new().otherwise([
        Reply::shell(Shell::new(STUBBORN).waiting(Duration::from_secs(30))),
        Reply::say("never"),
    ]);
    let stage = Stage::new(release, script).await;
    let mut request = stage.request("work");
    request.sandbox = Some(SandboxMode::DangerFullAccess);
    (stage, request)
}

async fn a_cancelled_run_leaves_nothing(release: &str) {
    let (stage, request) = stubborn(release).await;
    let cancel = CancellationToken::new();
    let told = Cell::new(false);
    let note = |news: News<'_>| {
        told.set(told.get() || matches!(news, News::Event(WorkEvent::ItemStarted { .. }, _)));
    };
    let when_it_runs = async {
        while !told.get() || !stage.file("runs").exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        cancel.cancel();
    };
    let running = stage.ran_with(&request, note, cancel.clone());
    let (outcome, ()) = tokio::join!(running, when_it_runs);
    assert_failed(&outcome, FailureClass::Cancelled);
    assert!(outcome.was_cancelled());
    assert!(outcome.digest.session.is_some());
    assert_eq!(outcome.digest.evidence.commands, 1);
    let made = outcome
        .changes
        .files
        .iter()
        .find(|file| file.path == "made.txt");
    assert_eq!(made.unwrap().seen_by, SeenBy::Git);

    let cancelled_before = stage
        .ran_with(&request, |_| panic!("started"), cancel)
        .await;
    assert_failed(&cancelled_before, FailureClass::Cancelled);
}

async fn a_run_that_takes_too_long_leaves_nothing(release: &str) {
    let (stage, mut request) = stubborn(release).await;
    request.timeout = Duration::from_millis(2500);
    let outcome = stage.ran(&request).await;
    let message = assert_failed(&outcome, FailureClass::Timeout);
    assert_eq!(message, "agent timed out after 2500ms");
}

async fn what_a_finished_run_left_running_is_ended(release: &str) {
    let left = "setsid sleep 1000 >/dev/null 2>&1 & echo left";
    let script = Script::new().otherwise([Reply::shell(left), Reply::say("Done.")]);
    let stage = Stage::new(release, script).await;
    let mut request = stage.request("work");
    request.sandbox = Some(SandboxMode::DangerFullAccess);
    assert_said(&stage.ran(&request).await, "Done.");
}
