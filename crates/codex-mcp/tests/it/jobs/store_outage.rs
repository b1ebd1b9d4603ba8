//! Stores that can't be used for a while.

use std::fs;

use job_queue::logic::JobState;
use job_queue::worker::{DROPPED, QUEUE_LIMIT};
use testkit::SmallDisk;
use testkit::postgres::{Durability, Postgres};
use testkit::process::wait_until_gone;

use super::{
    TIME_LIMIT, WorkerFixture, all_events, get, submit, wait_command, wait_for, wait_for_file,
    wait_until,
};

/// Counts the occurrences of `words` in a log.
fn count(log: &str, words: &str) -> usize {
    log.matches(words).count()
}

#[tokio::test]
async fn jobs_continue_while_postgres_is_stopped() {
    let mut server = Postgres::start(Durability::Unsynced);
    let stage = WorkerFixture::postgres(&server);
    let store = stage.open().await;
    let prompt = format!(
        "touch begun; {}; echo '{{\"type\":\"new\"}}'",
        wait_command("go")
    );
    let first = stage.submit(&store, &prompt).await;
    let second = stage.submit(&store, ":").await;
    let worker = stage.worker(&["--concurrency", "1"]);
    wait_for_file(&stage.file("begun")).await;
    server.stop();
    stage.make("go");
    worker.says("cannot be reached").await;
    server.start_again();
    wait_until(&store, &first, JobState::Completed).await;
    wait_until(&store, &second, JobState::Completed).await;
    let events = store.events(&first, 0, 100).await.unwrap();
    assert!(
        events.iter().any(|event| event.data.contains("new")),
        "{events:#?}"
    );
    let log = worker.finish().await;
    assert_eq!(count(&log, "cannot be reached"), 1, "{log}");
    assert_eq!(count(&log, "can use the job store again"), 1, "{log}");
    stage.finish().await;
}

/// Codex is not blocked, and only a bounded number of events waits for the store.
#[tokio::test]
async fn events_beyond_the_queue_limit_are_dropped_and_counted() {
    let mut server = Postgres::start(Durability::Unsynced);
    let stage = WorkerFixture::postgres(&server);
    let store = stage.open().await;
    let event = format!("{{\"type\":\"new\",\"x\":\"{}\"}}\n", "x".repeat(20_000));
    fs::write(stage.file("events"), event.repeat(100)).unwrap();
    let flood = "for i in $(seq 20); do cat events; done; touch told";
    let prompt = format!("{}; {flood}", wait_command("go"));
    let id = stage.submit(&store, &prompt).await;
    let worker = stage.worker(&[]);
    wait_for("the first events", async || {
        (store.events(&id, 0, 10).await.unwrap().len() == 2).then_some(())
    })
    .await;
    // The worker does not wait until its last events are on the disk.
    server.sql("CHECKPOINT");
    server.stop();
    stage.make("go");
    wait_for_file(&stage.file("told")).await;
    worker.says("cannot be reached").await;
    server.start_again();
    wait_until(&store, &id, JobState::Completed).await;
    let events = all_events(&store, &id).await;
    let (last, kept) = events.split_last().unwrap();
    assert_eq!(last.kind, DROPPED);
    let size: usize = kept.iter().map(|event| event.data.len()).sum();
    assert!(size < 2 * QUEUE_LIMIT, "{size}");
    let told: serde_json::Value = serde_json::from_str(&last.data).unwrap();
    assert_eq!(told["dropped"], 2004 - kept.len());
    worker.finish().await;
    stage.finish().await;
}

/// Only a job that may run again elsewhere is ended when its lease expires.
#[tokio::test]
async fn retryable_job_ends_when_postgres_is_stopped_beyond_its_lease() {
    let mut server = Postgres::start(Durability::Unsynced);
    let stage = WorkerFixture::postgres(&server);
    let store = stage.open().await;
    let once = format!("echo x >> once; {}", wait_command("go"));
    let once = stage.submit(&store, &once).await;
    let again = format!("echo $$ > pid; echo x >> again; {}", wait_command("go"));
    let mut request = stage.request(&again);
    request.retry = 5;
    let again = submit(&store, request).await;
    let worker = stage.worker(&["--lease-ms", "2000", "--heartbeat-ms", "500"]);
    wait_for_file(&stage.file("once")).await;
    wait_for_file(&stage.file("again")).await;
    server.stop();
    let pid = fs::read_to_string(stage.file("pid")).unwrap();
    let pid = pid.trim().parse().unwrap();
    assert_eq!(wait_until_gone(&[pid], TIME_LIMIT).await, []);
    // Longer than the lease. No event shows its end, as the server is stopped.
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    server.start_again();
    stage.make("go");
    let once = wait_until(&store, &once, JobState::Completed).await;
    assert_eq!(once.attempts, 1);
    let again = wait_until(&store, &again, JobState::Completed).await;
    assert!(again.attempts > 1);
    assert_eq!(fs::read_to_string(stage.file("once")).unwrap(), "x\n");
    worker.finish().await;
    stage.finish().await;
}

#[tokio::test]
async fn worker_waits_while_the_database_is_read_only() {
    let server = Postgres::start(Durability::Unsynced);
    let stage = WorkerFixture::postgres(&server);
    let store = stage.open().await;
    let prompt = format!("touch begun; {}", wait_command("go"));
    let id = stage.submit(&store, &prompt).await;
    let worker = stage.worker(&[]);
    wait_for_file(&stage.file("begun")).await;
    let set = |value: &str| {
        server.sql(&format!(
            "ALTER SYSTEM SET default_transaction_read_only = {value}"
        ));
        server.sql("SELECT pg_reload_conf()");
    };
    set("on");
    stage.make("go");
    worker.says("takes no changes: ").await;
    assert_eq!(get(&store, &id).await.summary.state, JobState::Running);
    set("off");
    wait_until(&store, &id, JobState::Completed).await;
    let log = worker.finish().await;
    assert_eq!(count(&log, "ERROR"), 1, "{log}");
}

#[tokio::test]
async fn worker_waits_while_the_disk_is_full() {
    let stage = WorkerFixture::sqlite();
    let directory = stage.directory.path().join("state");
    let disk = SmallDisk::on(&directory, 16 << 10);
    let ballast = disk.path().join("ballast");
    fs::write(&ballast, vec![0; 13 << 20]).unwrap();
    let store = stage.open().await;
    let event = format!("{{\"type\":\"new\",\"x\":\"{}\"}}", "x".repeat(20_000));
    fs::write(stage.file("event"), format!("{event}\n")).unwrap();
    let id = stage
        .submit(&store, "for i in $(seq 200); do cat event; done")
        .await;
    let next = stage.submit(&store, ":").await;
    let worker = stage.worker(&["--concurrency", "1"]);
    worker.says("there is no room for the job store").await;
    assert_eq!(get(&store, &id).await.summary.state, JobState::Running);
    fs::remove_file(&ballast).unwrap();
    wait_until(&store, &id, JobState::Completed).await;
    wait_until(&store, &next, JobState::Completed).await;
    let events = all_events(&store, &id).await;
    let new = events.iter().filter(|event| event.data.contains("new"));
    let new = new.count();
    assert_eq!(new, 200);
    let log = worker.finish().await;
    assert_eq!(count(&log, "no room for the job store"), 1, "{log}");
    drop(store);
}

/// The server refuses the result more often than a worker tries to store what may be wrong data.
#[tokio::test]
async fn result_is_kept_while_postgres_lacks_memory() {
    let server = Postgres::start(Durability::Unsynced);
    let stage = WorkerFixture::postgres(&server);
    let store = stage.open().await;
    // A sequence also counts what is rolled back.
    server.sql_in(
        "jobs",
        "CREATE SEQUENCE refusals; \
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN \
         IF nextval('refusals') <= 6 THEN \
         RAISE EXCEPTION 'out of memory' USING ERRCODE = '53200'; END IF; \
         RETURN NEW; END$$; \
         CREATE TRIGGER refuse BEFORE UPDATE OF result ON codex_jobs FOR EACH ROW \
         WHEN (NEW.result IS NOT NULL) EXECUTE FUNCTION refuse()",
    );
    let id = stage.submit(&store, ":").await;
    let worker = stage.worker(&[]);
    let job = wait_until(&store, &id, JobState::Completed).await;
    assert!(job.result.is_some());
    let log = worker.finish().await;
    assert_eq!(count(&log, "out of memory"), 1, "{log}");
    stage.finish().await;
}
