//! Jobs that wait for the reset of their account.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use scripted_model::{Reply, Script};
use serde_json::{Value, json};
use testkit::wait::{wait_for, within};

use super::{
    Account, LATER, Reset, SOON, answers_in_parallel, limited_for_ever, limited_until,
    login_of_chatgpt, stage, structured,
};
use crate::real::on_oldest_and_newest;

on_oldest_and_newest!(
    job_of_a_used_up_account_waits_for_the_reset,
    job_whose_model_is_used_up_waits_for_the_reset_of_the_model,
    turn_that_hits_the_limit_is_repeated_after_the_reset,
    waiting_job_shows_its_reason_and_can_be_cancelled,
    waiting_job_runs_when_the_login_is_replaced,
    attempt_that_fails_before_its_turn_keeps_the_job_waiting,
    job_without_a_known_reset_is_tried_again_later,
    resumed_job_waits_again,
);

#[track_caller]
fn assert_waited_until(job: &Value, log: &str, reset: &Reset) {
    assert_eq!(job["status"], "completed", "{job:#}");
    assert_eq!(job["attempts"], 1, "{job:#}");
    let started = humantime::parse_rfc3339(job["started_at"].as_str().unwrap()).unwrap();
    assert!(
        started >= UNIX_EPOCH + Duration::from_secs(reset.at()),
        "{job:#}"
    );
    assert_eq!(log.matches("  waits until ").count(), 1, "{log}");
    assert!(!log.contains("run again"), "{log}");
}

/// The worker's idle time is a second, and it must stay for the waiting job.
async fn job_of_a_used_up_account_waits_for_the_reset(release: &str) {
    let reset = Reset::ahead(SOON);
    let used_up = Account::UsedUp(reset.clone());
    let (stage, backend) = stage(release, limited_until(&reset), used_up).await;
    let id = stage.submit().await;
    // At 100 %, which may be rounded, one turn is tried before the reset.
    let requests = 2;
    within("the second turn", stage.model.requested(requests)).await;
    assert!(reset.is_past());
    assert_eq!(stage.jobs_stdout(&["wait", &id]).await, "hello\n");
    let log = stage.jobs_stdout(&["logs", &id]).await;
    assert_waited_until(&stage.record(&id).await, &log, &reset);
    assert_eq!(stage.model.request_count(), requests);
    assert_eq!(backend.requests() > 0, answers_in_parallel(release));
}

/// The limit of the account is not reached.
async fn job_whose_model_is_used_up_waits_for_the_reset_of_the_model(release: &str) {
    let reset = Reset::ahead(LATER);
    let account = Account::OfModel {
        account: 42,
        model: 100,
        reset: reset.clone(),
    };
    let at = reset.clone();
    let script = Script::by(move |_| Reply::usage_limit_of_model(at.at()));
    let (stage, _backend) = stage(release, script, account).await;
    let submitted = ["submit", "--model", "gpt-spark", "work"];
    let id = stage.jobs_stdout(&submitted).await.trim_end().to_owned();
    let job = stage.wait_until_waiting(&id).await;
    assert_eq!(job["waits_for"], "a usage limit of the account is reached");
    let until = humantime::parse_rfc3339(job["waits_until"].as_str().unwrap()).unwrap();
    let after = until.duration_since(UNIX_EPOCH + Duration::from_secs(reset.at()));
    assert!(after.unwrap() < Duration::from_secs(3), "{job:#}");
    stage.jobs_stdout(&["cancel", &id]).await;
}

async fn turn_that_hits_the_limit_is_repeated_after_the_reset(release: &str) {
    let reset = Reset::ahead(SOON);
    let (stage, _backend) = stage(release, limited_until(&reset), Account::Free).await;
    let id = stage.submit().await;
    assert_eq!(stage.jobs_stdout(&["wait", &id]).await, "hello\n");
    let log = stage.jobs_stdout(&["logs", &id]).await;
    assert_waited_until(&stage.record(&id).await, &log, &reset);
    assert_eq!(stage.model.request_count(), 2);
}

async fn waiting_job_shows_its_reason_and_can_be_cancelled(release: &str) {
    let reset = Reset::ahead(LATER);
    let used_up = Account::UsedUp(reset.clone());
    let (stage, _backend) = stage(release, limited_until(&reset), used_up).await;
    let id = stage.submit().await;
    let job = stage.wait_until_waiting(&id).await;
    assert_eq!(
        (&job["status"], &job["attempts"]),
        (&json!("queued"), &json!(0))
    );
    let reason = "a usage limit of the account is reached";
    assert_eq!(job["waits_for"], reason);
    let until = humantime::parse_rfc3339(job["waits_until"].as_str().unwrap()).unwrap();
    let after = until.duration_since(UNIX_EPOCH + Duration::from_secs(reset.at()));
    assert!(after.unwrap() < Duration::from_secs(3), "{job:#}");

    let minute = humantime::format_rfc3339_seconds(until).to_string();
    let words = format!(
        "waits until {} UTC: {reason}",
        minute[..16].replace('T', " ")
    );
    for args in [&["show", id.as_str()][..], &["list"], &["logs", &id]] {
        let args = [&["jobs"], args].concat();
        let said = stage.command_of_openai(&args).output().await.unwrap();
        let said = [said.stdout, said.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert!(said.contains(&words), "{args:?}: {said}");
    }
    let mut client = stage.client_of_openai().await;
    let status = client
        .call_tool("call_status", json!({ "job_id": id }))
        .await;
    let note = structured(&status)["note"].as_str().unwrap();
    assert!(note.contains(&words), "{note}");

    let cancelled = client
        .call_tool("call_cancel", json!({ "job_id": id }))
        .await;
    assert_eq!(
        structured(&cancelled)["new_status"],
        "cancelled",
        "{cancelled:#}"
    );
    let job = stage.record(&id).await;
    assert_eq!(
        (&job["status"], &job["waits_until"]),
        (&json!("cancelled"), &Value::Null)
    );
    stage.finish_with_worker(client).await;
}

async fn waiting_job_runs_when_the_login_is_replaced(release: &str) {
    let reset = Reset::ahead(LATER);
    let at = reset.clone();
    let is_first = AtomicBool::new(true);
    let script = Script::by(move |_| match is_first.swap(false, Ordering::Relaxed) {
        true => Reply::usage_limit(at.at()),
        false => Reply::say("hello"),
    });
    let (stage, _backend) = stage(release, script, Account::UsedUp(reset)).await;
    let id = stage.submit().await;
    stage.wait_until_waiting(&id).await;
    let login = stage.home.codex_home().join("auth.json");
    std::fs::write(login, r#"{"OPENAI_API_KEY":"sk-test"}"#).unwrap();
    let wait = ["wait", id.as_str()];
    let ended = within("the end of the job", stage.jobs_stdout(&wait)).await;
    assert_eq!(ended, "hello\n");
}

/// A replaced login and a missing directory may be momentary.
async fn attempt_that_fails_before_its_turn_keeps_the_job_waiting(release: &str) {
    let reset = Reset::ahead(LATER);
    let used_up = Account::UsedUp(reset.clone());
    let (stage, _backend) = stage(release, limited_until(&reset), used_up).await;
    let directory = stage.home.work().join("sub");
    std::fs::create_dir(&directory).unwrap();
    let id = stage.jobs_stdout(&["submit", "--cwd", "sub", "work"]).await;
    let id = id.trim_end();
    let wait = stage.wait_until_waiting(id).await["waits_until"].clone();
    let looks = || {
        let log = stage.home.root().join("state/codex-mcp/worker.log");
        let log = std::fs::read_to_string(log).unwrap();
        log.matches(": put back").count()
    };
    let login = stage.home.codex_home().join("auth.json");
    std::fs::remove_dir(&directory).unwrap();
    std::fs::write(login, login_of_chatgpt().to_string() + "\n").unwrap();
    wait_for("two failed attempts", async || {
        let job = stage.record(id).await;
        assert_ne!(job["status"], "failed", "{job:#}");
        (looks() >= 2).then_some(())
    })
    .await;
    let job = stage.wait_until_waiting(id).await;
    assert_eq!((&job["waits_until"], &job["attempts"]), (&wait, &json!(0)));
    stage.jobs_stdout(&["cancel", id]).await;
}

async fn job_without_a_known_reset_is_tried_again_later(release: &str) {
    let (stage, _backend) = stage(release, limited_for_ever(), Account::Broken).await;
    let id = stage.submit().await;
    let job = stage.wait_until_waiting(&id).await;
    let reason = job["waits_for"].as_str().unwrap();
    assert!(
        reason.contains("does not report when it is reset"),
        "{reason}"
    );
    assert_eq!(stage.model.request_count(), 1);
    stage.jobs_stdout(&["cancel", &id]).await;
}

/// The second attempt resumes the thread of the first.
async fn resumed_job_waits_again(release: &str) {
    let (first, second) = (Reset::ahead(SOON), Reset::ahead(LATER * 2));
    let resets = [first.clone(), second.clone()];
    let count = AtomicUsize::new(0);
    let script = Script::by(move |_| {
        let reset = resets.get(count.fetch_add(1, Ordering::Relaxed));
        Reply::usage_limit(reset.unwrap_or(&second).at())
    });
    let (stage, _backend) = stage(release, script, Account::Broken).await;
    let id = stage.submit().await;
    within("the second turn", stage.model.requested(2)).await;
    let job = stage.wait_until_waiting(&id).await;
    assert_eq!(job["status"], "queued", "{job:#}");
    assert!(first.is_past());
    stage.jobs_stdout(&["cancel", &id]).await;
}
