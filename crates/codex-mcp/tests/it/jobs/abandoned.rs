//! Workers whose store is gone for good.

use std::fs;
use std::path::Path;

use testkit::postgres::{Durability, Postgres};

use super::{Stage, Worker, until_there_is, wait_for_file};

/// The worker leaves after its idle time, and says why. Returns its log.
async fn left(worker: Worker) -> String {
    let (status, log) = worker.ended().await;
    assert!(status.success(), "{log}");
    assert!(
        log.contains("no job is worked on: the worker leaves"),
        "{log}"
    );
    log
}

/// Deletes the directory of a store in which a worker still makes files: renamed first, so
/// that none can be made in it while it is emptied.
fn delete_at_once(directory: &Path) {
    let gone = directory.with_extension("gone");
    fs::rename(directory, &gone).unwrap();
    fs::remove_dir_all(gone).unwrap();
}

#[tokio::test]
async fn worker_of_a_stopped_server_leaves_when_idle() {
    let mut server = Postgres::start(Durability::Unsynced);
    let stage = Stage::postgres(&server);
    let worker = stage.worker(&["--idle", "1s"]);
    worker.says("takes jobs from").await;
    server.stop();
    left(worker).await;
    stage.finish().await;
}

/// What Codex does is not cut short, and what came of it is not waited with for ever.
#[tokio::test]
async fn worker_of_a_stopped_server_leaves_when_its_job_is_done() {
    let mut server = Postgres::start(Durability::Unsynced);
    let stage = Stage::postgres(&server);
    let store = stage.open().await;
    let prompt = format!("touch begun; {}; touch ended", until_there_is("go"));
    stage.submit(&store, &prompt).await;
    let worker = stage.worker(&["--idle", "1s", "--heartbeat-ms", "100"]);
    wait_for_file(&stage.file("begun")).await;
    server.stop();
    worker.says("can't be reached").await;
    // Longer than its idle time.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    stage.make("go");
    let log = left(worker).await;
    assert!(log.contains("1 job that it could not write down"), "{log}");
    assert!(stage.file("ended").exists());
    stage.finish().await;
}

#[tokio::test]
async fn worker_of_a_file_leaves_when_the_directory_is_deleted() {
    let stage = Stage::sqlite();
    let worker = stage.worker(&["--idle", "2s", "--heartbeat-ms", "100"]);
    worker.says("takes jobs from").await;
    delete_at_once(&stage.directory.path().join("state"));
    let (status, log) = worker.ended().await;
    assert!(status.success(), "{log}");
    assert!(log.contains("leaves"), "{log}");
    stage.finish().await;
}

#[tokio::test]
async fn worker_leaves_when_its_file_can_never_be_made_again() {
    let stage = Stage::sqlite();
    let worker = stage.worker(&["--idle", "2s", "--heartbeat-ms", "100"]);
    worker.says("takes jobs from").await;
    let state = stage.directory.path().join("state");
    delete_at_once(&state);
    fs::write(&state, "").unwrap();
    let (status, log) = worker.ended().await;
    assert!(status.success(), "{log}");
    assert!(log.contains("leaves"), "{log}");
    stage.finish().await;
}
