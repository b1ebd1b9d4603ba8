//! Workers whose store is permanently gone.

use std::fs;
use std::path::Path;

use testkit::postgres::{Durability, Postgres};

use super::{Worker, WorkerFixture, wait_command, wait_for_file};

/// Waits until the worker has left after its idle time, checks that it said why, and returns its
/// log.
async fn wait_until_left(worker: Worker) -> String {
    let (status, log) = worker.ended().await;
    assert!(status.success(), "{log}");
    assert!(
        log.contains("no job is worked on: the worker exits"),
        "{log}"
    );
    log
}

/// Deletes the directory of a store in which a worker still creates files: the directory is renamed
/// first, so that no file can be created in it while it is emptied.
fn delete_at_once(directory: &Path) {
    let gone = directory.with_extension("gone");
    fs::rename(directory, &gone).unwrap();
    fs::remove_dir_all(gone).unwrap();
}

#[tokio::test]
async fn worker_of_a_stopped_server_leaves_when_idle() {
    let mut server = Postgres::start(Durability::Unsynced);
    let stage = WorkerFixture::postgres(&server);
    let worker = stage.worker(&["--idle", "1s"]);
    worker.says("takes jobs from").await;
    server.stop();
    wait_until_left(worker).await;
    stage.finish().await;
}

/// The worker lets Codex finish, and then leaves without the store.
#[tokio::test]
async fn worker_of_a_stopped_server_leaves_when_its_job_is_done() {
    let mut server = Postgres::start(Durability::Unsynced);
    let stage = WorkerFixture::postgres(&server);
    let store = stage.open().await;
    let prompt = format!("touch begun; {}; touch ended", wait_command("go"));
    stage.submit(&store, &prompt).await;
    let worker = stage.worker(&["--idle", "1s", "--heartbeat-ms", "100"]);
    wait_for_file(&stage.file("begun")).await;
    server.stop();
    worker.says("cannot be reached").await;
    // Longer than its idle time. No event shows that the worker stays.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    stage.make("go");
    let log = wait_until_left(worker).await;
    assert!(
        log.contains("1 job whose outcome could not be stored"),
        "{log}"
    );
    assert!(stage.file("ended").exists());
    stage.finish().await;
}

#[tokio::test]
async fn worker_of_a_file_leaves_when_the_directory_is_deleted() {
    let stage = WorkerFixture::sqlite();
    let worker = stage.worker(&["--idle", "2s", "--heartbeat-ms", "100"]);
    worker.says("takes jobs from").await;
    delete_at_once(&stage.directory.path().join("state"));
    let (status, log) = worker.ended().await;
    assert!(status.success(), "{log}");
    assert!(log.contains("exits"), "{log}");
    stage.finish().await;
}

#[tokio::test]
async fn worker_leaves_when_its_store_cannot_be_created_again() {
    let stage = WorkerFixture::sqlite();
    let worker = stage.worker(&["--idle", "2s", "--heartbeat-ms", "100"]);
    worker.says("takes jobs from").await;
    let state = stage.directory.path().join("state");
    delete_at_once(&state);
    fs::write(&state, "").unwrap();
    let (status, log) = worker.ended().await;
    assert!(status.success(), "{log}");
    assert!(log.contains("exits"), "{log}");
    stage.finish().await;
}
