//! Stores that can't be used for a while.

use std::fs;
use std::path::Path;

use job_queue::logic::JobState;
use job_queue::worker::{DROPPED, QUEUE_LIMIT};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use testkit::postgres::{Durability, Postgres};
use testkit::process::wait_until_gone;

use super::{LONG, Stage, get, submit, until_there_is, wait_for, wait_for_file, wait_until};

/// How often something is in a log.
fn count(log: &str, words: &str) -> usize {
    log.matches(words).count()
}

#[tokio::test]
async fn jobs_go_on_while_their_server_is_away() {
    let mut server = Postgres::start(Durability::Unsynced);
    let stage = Stage::postgres(&server);
    let store = stage.open().await;
    let prompt = format!(
        "touch begun; {}; echo '{{\"type\":\"new\"}}'",
        until_there_is("go")
    );
    let first = stage.submit(&store, &prompt).await;
    let second = stage.submit(&store, ":").await;
    let worker = stage.worker(&["--concurrency", "1"]);
    wait_for_file(&stage.file("begun")).await;
    server.stop();
    stage.make("go");
    worker.says("can't be reached").await;
    server.start_again();
    wait_until(&store, &first, JobState::Completed).await;
    wait_until(&store, &second, JobState::Completed).await;
    let events = store.events(&first, 0, 100).await.unwrap();
    assert!(
        events.iter().any(|event| event.data.contains("new")),
        "{events:#?}"
    );
    let log = worker.finish().await;
    assert_eq!(count(&log, "can't be reached"), 1, "{log}");
    assert_eq!(count(&log, "can use the job store again"), 1, "{log}");
    stage.finish().await;
}

/// Codex isn't held up, and not everything is kept for later.
#[tokio::test]
async fn what_there_is_no_room_for_is_left_out_and_counted() {
    let mut server = Postgres::start(Durability::Unsynced);
    let stage = Stage::postgres(&server);
    let store = stage.open().await;
    let event = format!("{{\"type\":\"new\",\"x\":\"{}\"}}\n", "x".repeat(20_000));
    fs::write(stage.file("events"), event.repeat(100)).unwrap();
    let flood = "for i in $(seq 20); do cat events; done; touch told";
    let prompt = format!("{}; {flood}", until_there_is("go"));
    let id = stage.submit(&store, &prompt).await;
    let worker = stage.worker(&[]);
    wait_for("the first events", async || {
        (store.events(&id, 0, 10).await.unwrap().len() == 2).then_some(())
    })
    .await;
    // The last events are not waited for until they are on the disk.
    server.sql("CHECKPOINT");
    server.stop();
    stage.make("go");
    wait_for_file(&stage.file("told")).await;
    worker.says("can't be reached").await;
    server.start_again();
    wait_until(&store, &id, JobState::Completed).await;
    let events = store.events(&id, 0, 10_000).await.unwrap();
    let (last, kept) = events.split_last().unwrap();
    assert_eq!(last.kind, DROPPED);
    let size: usize = kept.iter().map(|event| event.data.len()).sum();
    assert!(size < 2 * QUEUE_LIMIT, "{size}");
    let told: serde_json::Value = serde_json::from_str(&last.data).unwrap();
    assert_eq!(told["dropped"], 2004 - kept.len());
    worker.finish().await;
    stage.finish().await;
}

/// One that would run again elsewhere is ended; any other is not.
#[tokio::test]
async fn a_server_is_away_for_longer_than_a_lease() {
    let mut server = Postgres::start(Durability::Unsynced);
    let stage = Stage::postgres(&server);
    let store = stage.open().await;
    let once = format!("echo x >> once; {}", until_there_is("go"));
    let once = stage.submit(&store, &once).await;
    let again = format!("echo $$ > pid; echo x >> again; {}", until_there_is("go"));
    let mut request = stage.request(&again);
    request.retry = 5;
    let again = submit(&store, request).await;
    let worker = stage.worker(&["--lease-ms", "2000", "--heartbeat-ms", "500"]);
    wait_for_file(&stage.file("once")).await;
    wait_for_file(&stage.file("again")).await;
    server.stop();
    let pid = fs::read_to_string(stage.file("pid")).unwrap();
    let pid = pid.trim().parse().unwrap();
    assert_eq!(wait_until_gone(&[pid], LONG).await, []);
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
async fn a_database_that_is_read_only_for_a_while_is_waited_for() {
    let server = Postgres::start(Durability::Unsynced);
    let stage = Stage::postgres(&server);
    let store = stage.open().await;
    let prompt = format!("touch begun; {}", until_there_is("go"));
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
    worker.says("can't be written").await;
    assert_eq!(get(&store, &id).await.summary.state, JobState::Running);
    set("off");
    wait_until(&store, &id, JobState::Completed).await;
    let log = worker.finish().await;
    assert_eq!(count(&log, "ERROR"), 1, "{log}");
}

/// A small file system on a directory, until it is dropped.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn on(directory: &'a Path) -> Self {
        fs::create_dir(directory).unwrap();
        let mounted = mount(
            Some("codex-mcp-test"),
            directory,
            Some("tmpfs"),
            MsFlags::empty(),
            Some("size=16m"),
        );
        mounted.unwrap_or_else(|error| {
            panic!("this test mounts a small tmpfs, which takes root and CAP_SYS_ADMIN: {error}")
        });
        Self(directory)
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        umount2(self.0, MntFlags::MNT_DETACH).unwrap();
    }
}

#[tokio::test]
async fn a_disk_that_is_full_for_a_while_is_waited_for() {
    let stage = Stage::sqlite();
    let directory = stage.directory.path().join("state");
    let disk = SmallDisk::on(&directory);
    let ballast = disk.0.join("ballast");
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
    let events = store.events(&id, 0, 1000).await.unwrap();
    let new = events.iter().filter(|event| event.data.contains("new"));
    let new = new.count();
    assert_eq!(new, 200);
    let log = worker.finish().await;
    assert_eq!(count(&log, "no room for the job store"), 1, "{log}");
    drop(store);
}
