//! Turns that are ended, with all processes that their commands have started.

use std::cell::Cell;
use std::time::Duration;

use codex_engine::logic::work::event::WorkEvent;
use codex_engine::logic::work::{ChangeSource, FailureClass};
use codex_protocol::codex::SandboxMode;
use job_queue::call::{CallRequest, CallUpdate, run};
use scripted_model::{Reply, Script, Shell};
use tokio_util::sync::CancellationToken;

use super::CodexFixture;
use crate::SETSID;
use crate::jobs::{wait_for, wait_for_file};
use crate::real::on_each_release;
use crate::runs::{assert_failed, assert_said};

on_each_release!(
    cancelled_call_leaves_no_processes,
    timed_out_call_leaves_no_processes,
    background_process_of_a_finished_call_is_ended,
    mount_targets_of_a_killed_command_are_removed,
);

/// A command that ignores SIGTERM and leaves a process in a new session, which ignores it too.
async fn stubborn(release: &str) -> (CodexFixture, CallRequest) {
    let command = format!(
        "trap '' TERM HUP INT; echo x > made.txt; {SETSID} sleep 1000 & {SETSID} sleep 1000 & \
         touch runs; sleep 1000; sleep 1000"
    );
    let script = Script::new().otherwise([
        Reply::shell(Shell::new(&command).waiting(Duration::from_secs(30))),
        Reply::say("never"),
    ]);
    let stage = CodexFixture::new(release, script).await;
    let mut request = stage.request("work");
    request.sandbox = Some(SandboxMode::DangerFullAccess);
    (stage, request)
}

async fn cancelled_call_leaves_no_processes(release: &str) {
    let (stage, request) = stubborn(release).await;
    let cancel = CancellationToken::new();
    let told = Cell::new(false);
    let note = |news: CallUpdate<'_>| {
        told.set(told.get() || matches!(news, CallUpdate::Event(WorkEvent::ItemStarted { .. }, _)));
    };
    let when_it_runs = async {
        wait_for("the command", async || {
            (told.get() && stage.file("runs").exists()).then_some(())
        })
        .await;
        cancel.cancel();
    };
    let running = stage.run_turn_with(&request, note, cancel.clone());
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
    assert_eq!(made.unwrap().seen_by, ChangeSource::Git);

    let cancelled_before = stage
        .run_turn_with(&request, |_| panic!("started"), cancel)
        .await;
    assert_failed(&cancelled_before, FailureClass::Cancelled);
}

async fn timed_out_call_leaves_no_processes(release: &str) {
    let (stage, mut request) = stubborn(release).await;
    request.timeout = Duration::from_millis(2500);
    let outcome = stage.run_turn(&request).await;
    let message = assert_failed(&outcome, FailureClass::Timeout);
    assert_eq!(message, "agent timed out after 2500ms");
}

async fn background_process_of_a_finished_call_is_ended(release: &str) {
    let left = format!("{SETSID} sleep 1000 >/dev/null 2>&1 & echo left");
    let script = Script::new().otherwise([Reply::shell(left), Reply::say("Done.")]);
    let stage = CodexFixture::new(release, script).await;
    let mut request = stage.request("work");
    request.sandbox = Some(SandboxMode::DangerFullAccess);
    assert_said(&stage.run_turn(&request).await, "Done.");
}

/// Mount targets are removed after a cancelled job and when an engine ends during a job. The test
/// sees that they exist during the command; 0.104.0 creates none.
async fn mount_targets_of_a_killed_command_are_removed(release: &str) {
    let waiting = Shell::new("touch runs; sleep 1000").waiting(Duration::from_secs(30));
    let script = Script::new().otherwise([Reply::shell(waiting), Reply::say("never")]);
    let stage = CodexFixture::new(release, script).await;
    let added = stage.home.root().join("added");
    std::fs::create_dir(&added).unwrap();
    let added = added.canonicalize().unwrap();
    let targets = || {
        let left = [".agents", ".aws", ".codex"].map(|name| stage.file(name));
        let left = left.into_iter().chain([added.join(".codex")]);
        left.filter(|path| path.exists()).count()
    };
    let mut request = stage.request("work");
    request.sandbox = Some(SandboxMode::WorkspaceWrite);
    request.settings.add_dirs = vec![added.clone()];
    for ends_by_itself in [true, false] {
        let cancel = CancellationToken::new();
        let engine = stage.engine();
        let seen = async {
            wait_for_file(&stage.file("runs")).await;
            assert_eq!(targets() > 1, release != "0.104.0");
            if ends_by_itself {
                cancel.cancel();
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            outcome = run(&engine, &request, |_| (), cancel.clone()) => {
                assert_failed(&outcome, FailureClass::Cancelled);
                assert_eq!(targets(), 0);
            }
            () = seen => assert!(!ends_by_itself),
        }
        engine.shut_down().await;
        assert_eq!(targets(), 0);
        std::fs::remove_file(stage.file("runs")).unwrap();
    }
}
