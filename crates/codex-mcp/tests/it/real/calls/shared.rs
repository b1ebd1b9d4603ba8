//! Jobs that share an app-server: what ends one leaves the others alone.

use std::time::Duration;

use codex_engine::AppServers;
use codex_engine::logic::work::FailureClass;
use codex_protocol::codex::SandboxMode;
use job_queue::call::run;
use scripted_model::{Reply, Script, Shell};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::CodexFixture;
use crate::SETSID;
use crate::jobs::{kill_codex, wait_for, wait_for_file};
use crate::real::on_oldest_and_newest;
use crate::runs::{assert_failed, assert_said};

on_oldest_and_newest!(
    cancelled_job_does_not_end_the_commands_of_others,
    job_of_a_killed_codex_is_lost,
    too_long_prompt_is_refused_before_the_turn,
    mcp_server_of_the_user_runs_in_the_directory_of_the_job,
    thread_is_unloaded_when_the_job_has_ended,
);

/// A command that starts a process in a new session and waits for a file.
fn waiting(name: &str) -> Shell {
    let command = format!(
        "{SETSID} sleep 1000 & touch {name}-runs; while [ ! -e {name}-goes ]; do sleep 0.05; done; \
         echo done > {name}-done"
    );
    Shell::new(&command).waiting(Duration::from_secs(30))
}

fn two_at_once() -> Script {
    Script::new()
        .on("one", [Reply::shell(waiting("one")), Reply::say("One.")])
        .on("two", [Reply::shell(waiting("two")), Reply::say("Two.")])
}

async fn cancelled_job_does_not_end_the_commands_of_others(release: &str) {
    let stage = CodexFixture::new(release, two_at_once()).await;
    let engine = stage.engine();
    let (mut one, mut two) = (stage.request("one"), stage.request("two"));
    one.sandbox = Some(SandboxMode::DangerFullAccess);
    two.sandbox = Some(SandboxMode::DangerFullAccess);
    let (cancel, never) = (CancellationToken::new(), CancellationToken::new());
    let first = async {
        let outcome = run(&engine, &one, |_| (), cancel.clone()).await;
        assert_failed(&outcome, FailureClass::Cancelled);
        // Only the process of the other job is left.
        assert_eq!(sleeping(&stage), 1);
        std::fs::write(stage.file("two-goes"), "").unwrap();
    };
    let ending = async {
        wait_for_file(&stage.file("one-runs")).await;
        wait_for_file(&stage.file("two-runs")).await;
        wait_for("both processes", async || {
            (sleeping(&stage) == 2).then_some(())
        })
        .await;
        cancel.cancel();
    };
    let second = run(&engine, &two, |_| (), never);
    let ((), (), second) = tokio::join!(first, ending, second);
    assert_said(&second, "Two.");
    assert!(stage.file("two-done").exists());
    assert_eq!(sleeping(&stage), 0);
    engine.shut_down().await;
    assert_eq!(stage.home.processes(), []);
}

/// Counts the processes that the commands have started.
fn sleeping(stage: &CodexFixture) -> usize {
    let processes = stage.home.processes();
    let long = processes
        .iter()
        .filter(|one| one.command.trim() == "sleep 1000");
    long.count()
}

async fn job_of_a_killed_codex_is_lost(release: &str) {
    // Its commands outlive it, and without a subreaper nobody finds them.
    if cfg!(portable) && release == "0.104.0" {
        return;
    }
    let stage = CodexFixture::new(release, two_at_once()).await;
    let engine = stage.engine();
    let request = stage.request("one");
    let killing = async {
        wait_for_file(&stage.file("one-runs")).await;
        kill_codex(&stage.home);
    };
    let never = CancellationToken::new();
    let (outcome, ()) = tokio::join!(run(&engine, &request, |_| (), never.clone()), killing);
    let message = assert_failed(&outcome, FailureClass::Signal);
    assert!(message.contains("signal 9"), "{message}");
    assert!(outcome.lost_codex);
    assert_eq!(sleeping(&stage), 0);

    // Another Codex continues the thread.
    std::fs::write(stage.file("two-goes"), "").unwrap();
    let mut next = stage.request("two");
    next.resume = outcome.digest.session.clone();
    let next = run(&engine, &next, |_| (), never).await;
    assert_said(&next, "Two.");
    assert_eq!(next.digest.session, outcome.digest.session);
    let asked = stage.model.requests().pop().unwrap();
    assert!(asked.user_messages().contains(&"one"));
    engine.shut_down().await;
}

/// Other processes can load the thread, and its rollout is not archived.
async fn thread_is_unloaded_when_the_job_has_ended(release: &str) {
    let stage = CodexFixture::new(release, Script::new().otherwise([Reply::say("ok")])).await;
    let (first, second) = (stage.engine(), stage.engine());
    let never = CancellationToken::new();
    let mut request = stage.request("hi");
    let outcome = run(&first, &request, |_| (), never.clone()).await;
    assert_said(&outcome, "ok");
    request.resume = outcome.digest.session;
    for engine in [&second, &first] {
        let outcome = run(engine, &request, |_| (), never.clone()).await;
        assert_said(&outcome, "ok");
    }
    let archived = stage.home.codex_home().join("archived_sessions");
    let left = std::fs::read_dir(archived).into_iter().flatten().count();
    assert_eq!(left, 0);
    first.shut_down().await;
    second.shut_down().await;
    assert_eq!(stage.home.processes(), []);
}

async fn too_long_prompt_is_refused_before_the_turn(release: &str) {
    let stage = CodexFixture::new(release, Script::new().otherwise([Reply::say("ok")])).await;
    let outcome = stage.run_turn(&stage.request(&"ß".repeat(1_048_577))).await;
    match release {
        "0.104.0" => assert_said(&outcome, "ok"),
        _ => {
            let message = assert_failed(&outcome, FailureClass::NotStarted);
            assert!(message.contains("1048577 characters"), "{message}");
            assert!(stage.model.requests().is_empty());
        }
    }
    let outcome = stage.run_turn(&stage.request(&"ß".repeat(1_048_576))).await;
    assert_said(&outcome, "ok");
}

/// Up to 0.117.0, Codex starts MCP servers in the directory of the app-server.
async fn mcp_server_of_the_user_runs_in_the_directory_of_the_job(release: &str) {
    let config = "[mcp_servers.user]\ncommand = \"sh\"\n\
        args = [\"-c\", \"pwd > \\\"$HOME/directory\\\"; exec cat > /dev/null\"]\n";
    let script = Script::new().otherwise([Reply::say("ok")]);
    let stage = CodexFixture::with_config(release, script, config).await;
    let directory = stage.file("below");
    std::fs::create_dir(&directory).unwrap();
    let mut request = stage.request("hi");
    request.cwd = directory.canonicalize().unwrap();
    let settings = json!({ "mcp_servers.user.startup_timeout_sec": 1 });
    request.settings.config = settings.as_object().unwrap().clone();
    assert_said(&stage.run_turn(&request).await, "ok");
    let noted = std::fs::read_to_string(stage.home.home().join("directory")).unwrap();
    assert_eq!(noted.trim(), request.cwd.to_str().unwrap());
}

/// A shared Codex stays while an engine has joined it, also without a turn.
#[tokio::test]
async fn shared_codex_ends_when_nobody_uses_it() {
    let script = Script::new().otherwise([Reply::say("ok")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let servers = AppServers::default();
    let engine = stage.engine().joining(&servers, String::new());
    engine.introduce().await.unwrap();
    servers.end_unused(Duration::ZERO).await;
    assert_ne!(stage.home.processes(), []);
    drop(engine);
    servers.end_unused(Duration::from_secs(600)).await;
    assert_ne!(stage.home.processes(), []);
    servers.end_unused(Duration::ZERO).await;
    assert_eq!(stage.home.processes(), []);
}
