//! Jobs that run or fail although the limit is near, reached or unknown.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use scripted_model::{Patch, Reply, Script, ScriptedModel};
use serde_json::json;
use testkit::Home;
use testkit::app_server::AppServer;
use testkit::wait::{wait_for, within};
use tokio::time::timeout;

use super::{Account, LATER, Reset, answers_in_parallel, limited_for_ever, limited_until, stage};
use crate::real::on_oldest_and_newest;

on_oldest_and_newest!(
    job_that_reads_100_percent_tries_its_turn,
    job_beyond_100_percent_tries_no_turn,
    job_of_a_model_with_a_limit_of_its_own_does_not_wait_for_the_account,
    turn_that_has_worked_before_the_limit_fails_and_reports_its_work,
    job_with_an_api_key_fails_at_its_limit,
    job_of_another_account_does_not_wait,
    job_runs_although_the_backend_fails,
    job_runs_although_the_backend_is_silent,
);

/// The time in which no thread begins as long as an older Codex waits for the backend.
const BLOCKED: Duration = Duration::from_secs(3);

/// Codex rounds 99.5 % to 100 (0.104.0 to 0.169.0).
async fn job_that_reads_100_percent_tries_its_turn(release: &str) {
    let script = Script::new().otherwise([Reply::say("hello")]);
    let used_up = Account::UsedUp(Reset::ahead(LATER));
    let (stage, backend) = stage(release, script, used_up).await;
    assert_eq!(
        stage.jobs_stdout(&["submit", "--wait", "work"]).await,
        "hello\n"
    );
    assert_eq!(backend.requests() > 0, answers_in_parallel(release));
    let control = AppServer::real(release, &stage.home).await;
    let told = control.call("account/rateLimits/read", json!({})).await;
    assert_eq!(
        told["rateLimits"]["primary"]["usedPercent"], 100,
        "{told:#}"
    );
}

async fn job_beyond_100_percent_tries_no_turn(release: &str) {
    let reset = Reset::ahead(LATER);
    let exceeded = Account::Exceeded(reset.clone());
    let (stage, _backend) = stage(release, limited_until(&reset), exceeded).await;
    let id = stage.submit().await;
    stage.wait_until_waiting(&id).await;
    let requests = if answers_in_parallel(release) { 0 } else { 1 };
    assert_eq!(stage.model.request_count(), requests);
    stage.jobs_stdout(&["cancel", &id]).await;
}

async fn job_of_a_model_with_a_limit_of_its_own_does_not_wait_for_the_account(release: &str) {
    let reset = Reset::ahead(LATER);
    let account = Account::OfModel {
        account: 102,
        model: 5,
        reset: reset.clone(),
    };
    let script = Script::by(move |request| match request.model() {
        "gpt-spark" => Reply::say("hello"),
        _ => Reply::usage_limit(reset.at()),
    });
    let (stage, _backend) = stage(release, script, account).await;
    let said = stage
        .jobs_stdout(&["submit", "--model", "gpt-spark", "--wait", "work"])
        .await;
    assert_eq!(said, "hello\n");
    let other = stage.submit().await;
    stage.wait_until_waiting(&other).await;
    stage.jobs_stdout(&["cancel", &other]).await;
}

/// A later attempt would report only its own work, so the job fails.
async fn turn_that_has_worked_before_the_limit_fails_and_reports_its_work(release: &str) {
    let reset = Reset::ahead(LATER);
    let at = reset.clone();
    let is_first = AtomicBool::new(true);
    let script = Script::by(move |_| match is_first.swap(false, Ordering::Relaxed) {
        true => Reply::patch(Patch::new().add("made.txt", "hello\n")),
        false => Reply::usage_limit(at.at()),
    });
    let (stage, _backend) = stage(release, script, Account::Free).await;
    let id = stage.submit().await;
    let waited = stage
        .command_of_openai(&["jobs", "wait", &id])
        .output()
        .await;
    assert_eq!(waited.unwrap().status.code(), Some(1));
    let job = stage.record(&id).await;
    assert_eq!(job["status"], "failed", "{job:#}");
    assert_eq!(job["metadata"]["failure"]["class"], "rate_limit", "{job:#}");
    let files = job["metadata"]["changed_files"].to_string();
    assert!(files.contains("made.txt"), "{job:#}");
}

/// The limit of an API key has no reset.
async fn job_with_an_api_key_fails_at_its_limit(release: &str) {
    let (stage, backend) = stage(release, limited_for_ever(), Account::Free).await;
    let login = stage.home.codex_home().join("auth.json");
    std::fs::write(login, r#"{"OPENAI_API_KEY":"sk-test"}"#).unwrap();
    let id = stage.submit().await;
    let waited = stage
        .command_of_openai(&["jobs", "wait", &id])
        .output()
        .await;
    assert_eq!(waited.unwrap().status.code(), Some(1));
    let job = stage.record(&id).await;
    assert_eq!(job["status"], "failed", "{job:#}");
    assert_eq!(job["metadata"]["failure"]["class"], "rate_limit", "{job:#}");
    assert_eq!(backend.requests(), 0);
}

async fn job_of_another_account_does_not_wait(release: &str) {
    let reset = Reset::ahead(LATER);
    let used_up = Account::UsedUp(reset.clone());
    let (stage, _backend) = stage(release, limited_until(&reset), used_up).await;
    let id = stage.submit().await;
    stage.wait_until_waiting(&id).await;
    let model = ScriptedModel::start(Script::new().otherwise([Reply::say("other")]));
    let model = model.await.unwrap();
    let other = Home::new(&format!(
        "{}\nfeatures.plugins = false\n",
        model.codex_config()
    ));
    let mut command = stage.command_of_openai(&["jobs", "submit", "--wait", "work"]);
    let said = command.env("CODEX_HOME", other.codex_home()).output().await;
    assert_eq!(String::from_utf8(said.unwrap().stdout).unwrap(), "other\n");
    assert_eq!(stage.record(&id).await["status"], "queued");
    stage.jobs_stdout(&["cancel", &id]).await;
}

async fn job_runs_although_the_backend_fails(release: &str) {
    let script = Script::new().otherwise([Reply::say("hello")]);
    let (stage, backend) = stage(release, script, Account::Broken).await;
    let said = stage.jobs_stdout(&["submit", "--wait", "work"]).await;
    assert_eq!(said, "hello\n");
    assert_eq!(backend.requests() > 0, answers_in_parallel(release));
}

/// With 0.104.0, a question for the limits would delay the beginning of the thread, as the control
/// shows.
async fn job_runs_although_the_backend_is_silent(release: &str) {
    let script = Script::new().otherwise([Reply::say("hello")]);
    let (stage, backend) = stage(release, script, Account::Silent).await;
    assert_eq!(
        stage.jobs_stdout(&["submit", "--wait", "work"]).await,
        "hello\n"
    );
    assert_eq!(backend.requests() > 0, answers_in_parallel(release));

    let control = AppServer::real(release, &stage.home).await;
    let asked = backend.requests();
    let asking = control.request("account/rateLimits/read", json!({}));
    let beginning = async {
        wait_for("the request for the limits", async || {
            (backend.requests() > asked).then_some(())
        })
        .await;
        let begun = control.request("thread/start", json!({ "cwd": stage.home.work() }));
        if answers_in_parallel(release) {
            within("the beginning of the thread", begun).await.unwrap();
        } else {
            // No event shows that the request waits. A slow machine cannot fail this.
            let begun = timeout(BLOCKED, begun).await;
            assert!(begun.is_err(), "{begun:?}");
        }
    };
    tokio::select! {
        told = asking => panic!("the silent backend has answered: {told:?}"),
        () = beginning => {}
    }
}
