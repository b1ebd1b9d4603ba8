//! Tests of the store: one suite for both databases, and tests for each of them.

use std::future::Future;
use std::time::Duration;

use settings::OthersJobs;
use tempfile::TempDir;
use testkit::postgres::{Durability, Postgres};

use super::*;
use crate::logic::WorkerId;

mod conformance;
mod counting;
mod failover;
// It mounts a disk that is full.
#[cfg(target_os = "linux")]
mod hardship;
mod login;
mod opening;
mod pooler;
mod tls;

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(600);

/// A new store that can be opened several times.
pub(super) struct TestStore {
    pub(super) location: Location,
    _directory: Option<TempDir>,
    state: TempDir,
}

impl TestStore {
    pub(super) fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self {
            location: Location::Sqlite(directory.path().join("state/jobs.db")),
            _directory: Some(directory),
            state: tempfile::tempdir().unwrap(),
        }
    }

    pub(super) fn postgres(server: &Postgres, name: &str) -> Self {
        Self::at(&server.database(name))
    }

    /// A store at a URL.
    pub(super) fn at(url: &str) -> Self {
        Self {
            location: url.parse().unwrap(),
            _directory: None,
            state: tempfile::tempdir().unwrap(),
        }
    }

    pub(super) async fn open(&self) -> JobStore {
        JobStore::open(&self.location, &self.access())
            .await
            .unwrap()
    }

    pub(super) fn access(&self) -> Access {
        Access::of(self.state.path())
    }
}

/// Runs a future on one thread, as the server does.
pub(super) fn block_on<T>(something: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(something)
}

pub(super) fn new_job(prompt: &str) -> NewJob {
    NewJob::new(Request::new(prompt, "/repo"))
}

/// Claims a job for a worker on the machine `here`.
pub(super) async fn claim(store: &JobStore, worker: &WorkerId) -> Option<ClaimedJob> {
    store.claim(worker, "here", LONG).await.unwrap()
}

#[test]
fn sqlite_conforms() {
    block_on(conformance::all(&mut |_| TestStore::sqlite()));
}

#[test]
fn postgres_conforms() {
    let server = Postgres::start(Durability::Unsynced);
    block_on(conformance::all(&mut |name| {
        TestStore::postgres(&server, name)
    }));
}

#[test]
fn task_id_is_known_only_to_the_host_that_issued_it() {
    block_on(async {
        let (stage, other) = (TestStore::sqlite(), TestStore::sqlite());
        let (store, other) = (stage.open().await, other.open().await);
        let [job, another] = [new_job("p").id, new_job("q").id];
        let task = store.task_id(&job);
        assert_eq!(task.len(), 80);
        assert!(task.bytes().all(|byte| byte.is_ascii_graphic()));
        assert_eq!(stage.open().await.job_of_task(&task), Some(job.clone()));
        assert_eq!(other.job_of_task(&task), None);
        let (_, signature) = task.split_once('.').unwrap();
        for forged in [
            String::new(),
            job.to_string(),
            format!("{job}."),
            format!("{another}.{signature}"),
            format!("{task}x"),
            other.task_id(&job),
        ] {
            assert_eq!(store.job_of_task(&forged), None, "{forged}");
        }
    });
}

/// The server spawns the store's futures as tasks, which must be `Send`.
#[test]
fn store_futures_are_send() {
    fn is_send<T: Send>(_: &T) {}
    block_on(async {
        let stage = TestStore::sqlite();
        let store = stage.open().await;
        let job = new_job("p");
        let submit = store.submit(&job);
        is_send(&submit);
        submit.await.unwrap();
        let worker = new_worker_id();
        let claim = store.claim(&worker, "here", LONG);
        is_send(&claim);
        let claimed = claim.await.unwrap().unwrap();
        is_send(&store.append(&claimed.claim, &[]));
        is_send(&store.list(&JobFilter::default(), 1));
        is_send(&store.request_cancel(&job.id));
        is_send(&store.reap(&[]));
    });
}
