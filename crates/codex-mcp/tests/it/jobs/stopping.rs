//! Workers that get a signal or have nothing to do.

use job_queue::logic::{JobState, WORKER_STOPPED};
use nix::sys::signal::Signal;

use super::{
    WorkerFixture, get, report, short, submit, wait_command, wait_for, wait_for_file, wait_until,
};

#[tokio::test]
async fn stopping_worker_finishes_its_jobs_and_begins_no_other() {
    let stage = WorkerFixture::sqlite();
    let store = stage.open().await;
    let prompt = format!("touch begun; {}", wait_command("go"));
    let first = stage.submit(&store, &prompt).await;
    let worker = stage.worker(&["--grace", "1h"]);
    wait_for_file(&stage.file("begun")).await;
    worker.signal(Signal::SIGTERM);
    worker.says("the worker ends: 1 job may continue").await;
    let second = stage.submit(&store, "touch never").await;
    stage.make("go");
    let (status, log) = worker.ended().await;
    assert!(status.success(), "{log}");
    let first = get(&store, &first).await;
    assert_eq!(first.summary.state, JobState::Completed);
    assert_eq!(report(&first).response.as_deref(), Some("ok"));
    assert_eq!(get(&store, &second).await.summary.state, JobState::Queued);
    assert!(!stage.file("never").exists());
    assert!(store.workers().await.unwrap().is_empty());
    stage.finish().await;
}

/// The grace time ends by itself, or at once with a second signal.
#[tokio::test]
#[cfg_attr(
    portable,
    ignore = "without a subreaper, a process that has lost its parent stays"
)]
async fn jobs_are_ended_after_the_grace_time() {
    for (grace, signals) in [("50ms", 1), ("1h", 2)] {
        let stage = WorkerFixture::sqlite();
        let store = stage.open().await;
        let prompt = format!("setsid sleep 1000 & touch once; {}", wait_command("never"));
        let once = stage.submit(&store, &prompt).await;
        let mut request = stage.request(&prompt.replace("once", "again"));
        request.retry = 1;
        let again = submit(&store, request).await;
        let worker = stage.worker(&["--grace", grace]);
        for (id, name) in [(&once, "once"), (&again, "again")] {
            wait_for_file(&stage.file(name)).await;
            wait_for("its session", async || {
                get(&store, id).await.summary.session_id
            })
            .await;
        }
        worker.signal(Signal::SIGTERM);
        if signals == 2 {
            worker
                .says("the worker ends: 2 jobs may continue for 1h")
                .await;
            worker.signal(Signal::SIGINT);
        }
        let (status, log) = worker.ended().await;
        assert!(status.success(), "{log}");
        let once = get(&store, &once).await;
        assert_eq!(once.summary.state, JobState::Failed);
        assert_eq!(once.summary.error.as_deref(), Some(WORKER_STOPPED));
        assert!(once.summary.session_id.is_some());
        let again = get(&store, &again).await;
        assert_eq!(again.summary.state, JobState::Queued);
        stage.finish().await;
    }
}

/// The control is a job that runs again.
#[tokio::test]
async fn end_of_a_job_is_notified_by_the_worker_that_gives_it_up() {
    let stage = WorkerFixture::sqlite();
    let store = stage.open().await;
    let mut once = stage.request(&format!("touch once; {}", wait_command("never")));
    once.settings = Some(stage.notifying());
    let mut again = once.clone();
    again.prompt = once.prompt.replace("once", "again");
    again.retry = 1;
    let once = submit(&store, once).await;
    let again = submit(&store, again).await;
    let worker = stage.worker(&["--grace", "50ms"]);
    wait_for_file(&stage.file("once")).await;
    wait_for_file(&stage.file("again")).await;
    worker.signal(Signal::SIGTERM);
    let (status, log) = worker.ended().await;
    assert!(status.success(), "{log}");
    assert_eq!(get(&store, &again).await.summary.state, JobState::Queued);
    let error = get(&store, &once).await.summary.error;
    assert_eq!(error.as_deref(), Some(WORKER_STOPPED));
    let told = format!("BLOCKED :: job {}: {WORKER_STOPPED}", short(&once));
    assert_eq!(stage.told(), [told]);
    stage.finish().await;
}

#[tokio::test]
async fn idle_worker_leaves_when_its_work_is_done() {
    let stage = WorkerFixture::sqlite();
    let store = stage.open().await;
    let id = stage.submit(&store, "sleep 0.3").await;
    let worker = stage.worker(&["--idle", "100ms"]);
    let (status, log) = worker.ended().await;
    assert!(status.success(), "{log}");
    assert!(log.contains("the worker exits: it has no work"), "{log}");
    assert_eq!(get(&store, &id).await.summary.state, JobState::Completed);
    assert!(store.workers().await.unwrap().is_empty());
    stage.finish().await;
}

#[tokio::test]
#[cfg_attr(
    portable,
    ignore = "without a subreaper, a process that has lost its parent stays"
)]
async fn invalid_job_fails_and_the_next_job_runs() {
    let stage = WorkerFixture::sqlite();
    let store = stage.open().await;
    let mut odd = stage.request("touch never");
    odd.sandbox = Some("beach".to_owned());
    let odd = submit(&store, odd).await;
    let failing = stage
        .submit(&store, "echo '401 Unauthorized' >&2; exit 1")
        .await;
    let mut late = stage.request("sleep 1000");
    late.timeout_ms = 3000;
    let late = submit(&store, late).await;
    let fine = stage.submit(&store, ":").await;
    let worker = stage.worker(&["--concurrency", "1"]);
    let job = wait_until(&store, &odd, JobState::Failed).await;
    let error = job.summary.error.clone().unwrap();
    assert!(error.starts_with("\"beach\" is not a sandbox"), "{error}");
    assert_eq!(report(&job).failure.unwrap().class, "not_started");
    let job = wait_until(&store, &failing, JobState::Failed).await;
    let error = job.summary.error.clone().unwrap();
    assert!(error.contains("codex login"), "{error}");
    assert_eq!(report(&job).failure.unwrap().class, "auth");
    let job = wait_until(&store, &late, JobState::Failed).await;
    let error = job.summary.error.clone().unwrap();
    assert!(error.starts_with("agent timed out after 3000ms"), "{error}");
    assert!(job.summary.session_id.is_some());
    let job = wait_until(&store, &fine, JobState::Completed).await;
    assert_eq!(job.summary.error, None);
    let events = store.events(&fine, 0, 100).await.unwrap();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(
        kinds,
        [
            "thread.started",
            "turn.started",
            "item.completed",
            "turn.completed"
        ]
    );
    let log = worker.finish().await;
    assert!(
        log.contains(&format!("job {fine} \"call_codex\" completed after")),
        "{log}"
    );
    stage.finish().await;
}

#[tokio::test]
async fn file_that_is_no_store_is_reported() {
    let stage = WorkerFixture::sqlite();
    std::fs::create_dir(stage.directory.path().join("state")).unwrap();
    std::fs::write(&stage.location, "no store").unwrap();
    let (status, log) = stage.worker(&[]).ended().await;
    assert_eq!(status.code(), Some(1));
    assert!(log.contains("is not a job store"), "{log}");
}
