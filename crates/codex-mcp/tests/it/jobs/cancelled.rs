//! Jobs that are cancelled while they run or wait.

use std::time::Duration;

use job_queue::logic::{CancelResponse, JobState};
use testkit::postgres::{Durability, Postgres};
use tokio::time::Instant;

use super::{WorkerFixture, get, report, wait_for, wait_for_file, wait_until};

const STUBBORN: &str = "setsid sleep 1000 & touch NAME; while :; do sleep 1000; done";

/// Far more than a cancellation takes; the time it took is printed.
const CANCEL_LIMIT: Duration = Duration::from_secs(5);

#[tokio::test]
#[cfg_attr(
    portable,
    ignore = "without a subreaper, a process that has lost its parent stays"
)]
async fn cancelled_job_ends_on_any_worker() {
    let server = Postgres::start(Durability::Unsynced);
    let stage = WorkerFixture::postgres(&server);
    let store = stage.open().await;
    let first = stage
        .submit(&store, &STUBBORN.replace("NAME", "first"))
        .await;
    let second = stage
        .submit(&store, &STUBBORN.replace("NAME", "second"))
        .await;
    let workers = [(); 2].map(|()| stage.worker(&["--concurrency", "1"]));
    for (id, name) in [(&first, "first"), (&second, "second")] {
        wait_for_file(&stage.file(name)).await;
        wait_for("its session", async || {
            get(&store, id).await.summary.session_id
        })
        .await;
    }
    let (one, other) = (get(&store, &first).await, get(&store, &second).await);
    assert_ne!(one.worker, other.worker);

    for id in [&first, &second] {
        let asked = Instant::now();
        let answer = store.request_cancel(id).await.unwrap();
        assert_eq!(answer, Some(CancelResponse::Requested));
        let job = wait_until(&store, id, JobState::Cancelled).await;
        let took = asked.elapsed();
        println!("cancelled within {took:?}");
        assert!(took < CANCEL_LIMIT, "{took:?}");
        assert!(job.summary.session_id.is_some());
        assert_eq!(job.summary.error, None);
        assert_eq!(report(&job).failure.unwrap().class, "cancelled");
    }
    let processes = stage.home.processes();
    let left = processes.iter().find(|one| one.command.contains("sleep"));
    assert_eq!(left, None);
    for worker in workers {
        worker.finish().await;
    }
    stage.finish().await;
}

#[tokio::test]
async fn cancelled_queued_job_never_begins() {
    let stage = WorkerFixture::sqlite();
    let store = stage.open().await;
    let id = stage.submit(&store, "touch begun").await;
    let answer = store.request_cancel(&id).await.unwrap();
    assert_eq!(answer, Some(CancelResponse::Cancelled));
    let next = stage.submit(&store, "touch next").await;
    let worker = stage.worker(&[]);
    wait_until(&store, &next, JobState::Completed).await;
    assert!(!stage.file("begun").exists());
    worker.finish().await;
}
