//! The verbs of `codex-mcp jobs` on jobs of others.

use job_queue::logic::{JobId, JobState};
use job_queue::machine;
use serde_json::{Value, json};
use settings::store_access::OthersJobs;

use super::{Database, Intruder, get, submit};
use crate::jobs::wait_until;

#[tokio::test]
async fn jobs_of_another_machine_are_shown_but_not_changed() {
    let database = Database::new().await;
    let (ours, other) = (
        database.machine(OthersJobs::Leave),
        database.machine(OthersJobs::Leave),
    );
    let (store, theirs) = (ours.open().await, other.open().await);
    let waiting = submit(&store, ours.request("waiting")).await;
    let ended = submit(&store, ours.request("ended")).await;
    assert!(store.request_cancel(&ended).await.unwrap().is_some());

    // The other machine's worker runs only its own job.
    let last = submit(&theirs, other.request("last")).await;
    let worker = other.worker();
    wait_until(&theirs, &last, JobState::Completed).await;
    assert_eq!(get(&theirs, &waiting).await.summary.state, JobState::Queued);
    assert_eq!(other.notes_of("honest"), "last\n");

    let (code, _, said) = other.run_jobs(&["cancel", waiting.as_str()]);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("leaves the jobs of others alone"), "{said}");
    assert!(said.contains("jobs_of_others = \"manage\""), "{said}");
    for args in [
        ["retry", ended.as_str(), "--json"],
        ["resume", ended.as_str(), "more"],
    ] {
        let (code, _, said) = other.run_jobs(&args);
        assert_eq!(code, 3, "{said}");
        assert!(said.contains("has not submitted it"), "{said}");
    }
    let (code, said, _) = other.run_jobs(&["prune", "--older-than", "0s", "--json"]);
    let pruned: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &pruned["removed"]), (0, &json!(1)), "{said}");
    let (_, listed, _) = other.run_jobs(&["list"]);
    assert!(listed.contains("OWNER"), "{listed}");
    let (_, listed, _) = other.run_jobs(&["list", "--json"]);
    let owner = format!("@{}\"", machine::name());
    assert!(listed.contains(&owner), "{listed}");
    let (_, shown, _) = other.run_jobs(&["show", waiting.as_str()]);
    assert!(shown.contains("(role postgres)"), "{shown}");
    assert_eq!(get(&store, &waiting).await.summary.state, JobState::Queued);
    assert_eq!(get(&store, &ended).await.summary.state, JobState::Cancelled);
    other.finish(worker).await;

    // The controls: a machine that may manage the jobs of others, and their owner.
    let manager = database.machine(OthersJobs::Manage);
    let (code, _, said) = manager.run_jobs(&["cancel", waiting.as_str()]);
    assert_eq!(code, 0, "{said}");
    let (_, said, _) = ours.run_jobs(&["prune", "--older-than", "0s", "--json"]);
    let pruned: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(pruned["removed"], 2, "{said}");
}

/// `retry` does not submit the run of another in the user's name.
#[tokio::test]
async fn forged_run_cannot_be_retried() {
    let database = Database::new().await;
    let machine = database.machine(OthersJobs::Run);
    let store = machine.open().await;
    let mut mallory = database.outsider().await;
    let run = mallory.forge(&machine.evil_run()).await;
    store_as_ended(&mut database.insider().await, &run).await;
    let (code, _, said) = machine.run_jobs(&["retry", run.as_str()]);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("has not submitted it"), "{said}");
    // The control: the user's own run can be retried.
    let ours = submit(&store, machine.evil_run()).await;
    store_as_ended(&mut database.insider().await, &ours).await;
    let (code, id, said) = machine.run_jobs(&["retry", ours.as_str()]);
    assert_eq!(code, 0, "{said}");
    let again = get(&store, &id.trim_end().parse().unwrap()).await;
    assert!(again.request.run.is_some());
    wait_until(&store, &again.summary.id, JobState::Failed).await;
    // The worker that `retry` started ends with the home.
}

async fn store_as_ended(insider: &mut Intruder, id: &JobId) {
    let sql = format!(
        "UPDATE codex_jobs SET state = 'failed', completed_at = 1, started_at = 1 WHERE id = '{id}'"
    );
    insider.run(&sql).await;
}
