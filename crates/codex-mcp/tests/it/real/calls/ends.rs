//! Turns that are ended: all that their commands have started ends with them.

use std::cell::Cell;
use std::time::Duration;

use codex_engine::logic::work::event::WorkEvent;
use codex_engine::logic::work::{FailureClass, SeenBy};
use codex_protocol::codex::SandboxMode;
use job_queue::call::{News, Request, run};
use scripted_model::{Reply, Script, Shell};
use tokio_util::sync::CancellationToken;

use super::Stage;
use crate::real::on_each_release;
use crate::runs::{assert_failed, assert_said};

on_each_release!(
    a_cancelled_run_leaves_nothing,
    a_run_that_takes_too_long_leaves_nothing,
    what_a_finished_run_left_running_is_ended,
    no_mount_target_of_a_killed_command_is_left,
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

/// Neither by a job that is cancelled nor by one of which an engine that ends knows nothing
/// any more. The command itself sees that there are some; 0.104.0 makes none.
async fn no_mount_target_of_a_killed_command_is_left(release: &str) {
    let waiting = Shell::new("touch runs; sleep 1000").waiting(Duration::from_secs(30));
    let script = Script::new().otherwise([Reply::shell(waiting), Reply::say("never")]);
    let stage = Stage::new(release, script).await;
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
            while !stage.file("runs").exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
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
