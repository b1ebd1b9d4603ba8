//! Runs of an account whose limit is reached.

use scripted_model::{Reply, Script};
use serde_json::json;
use testkit::wait::within;

use super::{Account, LATER, Reset, limited_until, stage, structured};
use crate::real::on_oldest_and_newest;

on_oldest_and_newest!(
    run_of_a_used_up_account_waits,
    run_that_fails_for_another_reason_does_not_wait,
);

async fn run_of_a_used_up_account_waits(release: &str) {
    let reset = Reset::ahead(LATER);
    let used_up = Account::UsedUp(reset.clone());
    let (stage, backend) = stage(release, limited_until(&reset), used_up).await;
    let mut client = stage.client_of_openai().await;
    // A criterion's command that succeeds is no work of the run.
    let arguments = json!({ "task": "make a file", "cwd": stage.home.work(), "wait_ms": 0,
        "sandbox": "workspace-write",
        "exit_criteria": { "files": ["new"], "command": "true" } });
    let begun = client.call_tool("codex_run", arguments).await;
    let id = structured(&begun)["job_id"].as_str().unwrap();
    let job = stage.wait_until_waiting(id).await;
    assert_eq!(job["status"], "queued", "{job:#}");
    backend.set_account(Account::Free);
    client
        .call_tool("call_cancel", json!({ "job_id": id }))
        .await;
    stage.finish_with_worker(client).await;
}

async fn run_that_fails_for_another_reason_does_not_wait(release: &str) {
    let body = json!({ "error": { "type": "invalid_request", "message": "not that" } });
    let script = Script::by(move |_| Reply::fail(400, body.to_string()));
    let used_up = Account::UsedUp(Reset::ahead(LATER));
    let (stage, _backend) = stage(release, script, used_up).await;
    let mut client = stage.client_of_openai().await;
    let arguments = json!({ "task": "make a file", "cwd": stage.home.work(),
        "sandbox": "workspace-write", "exit_criteria": { "files": ["new"] } });
    let ran = within(
        "the end of the run",
        client.call_tool("codex_run", arguments),
    )
    .await;
    assert_eq!(structured(&ran)["reason"], "could_not_run", "{ran:#}");
    stage.finish_with_worker(client).await;
}
