//! Servers that crash and are replaced while workers take jobs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use settings::{Setting, Source};
use testkit::postgres::Network;
use testkit::wait::wait_for;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::conformance::finished;
use super::*;
use crate::logic::{Ending, JobId, JobState};
use crate::service::Jobs;
use crate::spec::JobSpec;
use crate::submitter::StoreScope;
use crate::submitter::tests::submitter;
use crate::worker::lock::{LockGuard, WorkerLock};
use crate::worker::start::Starter;

const JOBS: usize = 400;
const WORKERS: usize = 4;

/// How long a job takes.
const JOB: Duration = Duration::from_millis(20);

const NETWORK: Network<'_> = Network {
    admitted: "host all all 127.0.0.1/32 trust",
    certificate: None,
};

/// How often each job was begun.
#[derive(Default)]
struct Ledger {
    begun: Mutex<HashMap<JobId, u32>>,
    failures: Mutex<u32>,
}

impl Ledger {
    fn begin(&self, job: &JobId) {
        *self.begun.lock().unwrap().entry(job.clone()).or_default() += 1;
    }

    fn is_complete(&self) -> bool {
        self.begun.lock().unwrap().len() == JOBS
    }

    /// Repeats a call until the store can be reached.
    async fn persist<T>(&self, mut call: impl AsyncFnMut() -> Result<T, StoreError>) -> T {
        loop {
            match call().await {
                Ok(done) => return done,
                Err(error) => {
                    assert!(error.is_retryable(), "{error:?}");
                    *self.failures.lock().unwrap() += 1;
                    sleep(JOB).await;
                }
            }
        }
    }
}

/// Takes jobs as a worker does, until all have begun.
async fn work(stage: &TestStore, ledger: &Ledger) {
    let store = stage.open().await;
    let worker = new_worker_id();
    let mut is_in_doubt = false;
    while !ledger.is_complete() {
        let claimed = ledger
            .persist(async || {
                if is_in_doubt && let Some(known) = store.reclaim(&worker, &[], LONG).await? {
                    return Ok(Some(known));
                }
                is_in_doubt = true;
                let claimed = store.claim(&worker, "here", LONG).await?;
                is_in_doubt = false;
                Ok(claimed)
            })
            .await;
        let Some(ClaimedJob { claim, .. }) = claimed else {
            sleep(JOB).await;
            continue;
        };
        ledger.begin(&claim.job);
        sleep(JOB).await;
        let how = finished(Ending::Completed);
        ledger
            .persist(async || store.finish(&claim, &how).await)
            .await;
    }
}

/// Workers at a URL, on a thread of their own: this one owns the servers.
fn workers(stage: TestStore, ledger: Arc<Ledger>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        block_on(async {
            let working = (0..WORKERS).map(|_| work(&stage, &ledger));
            futures::future::join_all(working).await;
            let store = stage.open().await;
            let begun = ledger.begun.lock().unwrap().clone();
            for (job, times) in begun {
                assert_eq!(times, 1, "{job}");
                let job = store.get(&job).await.unwrap().unwrap();
                assert_eq!(job.summary.state, JobState::Completed);
                assert_eq!(job.attempts, 1);
            }
        });
    })
}

fn submit_jobs(stage: &TestStore) {
    block_on(async {
        let store = stage.open().await;
        for _ in 0..JOBS {
            store.submit(&new_job("p")).await.unwrap();
        }
    });
}

/// Waits until so many jobs have begun.
fn wait_for_jobs(ledger: &Ledger, number: usize) {
    while ledger.begun.lock().unwrap().len() < number {
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn jobs_run_once_while_the_server_crashes_again_and_again() {
    let mut server = Postgres::start(Durability::Unsynced);
    let stage = TestStore::postgres(&server, "jobs");
    submit_jobs(&stage);
    let ledger = Arc::new(Ledger::default());
    let working = workers(stage, Arc::clone(&ledger));
    for crash in 1..=4 {
        wait_for_jobs(&ledger, crash * JOBS / 5);
        server.stop();
        server.start_again();
    }
    working.join().unwrap();
    assert!(*ledger.failures.lock().unwrap() > 0);
}

/// Passes connections on to a port that can change, as a name or a virtual address does.
async fn forward(listener: TcpListener, to: Arc<AtomicU16>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let port = to.load(Ordering::Relaxed);
        tokio::spawn(async move {
            if let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await {
                let _ = copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}

/// The port of a thread that forwards.
fn forwarder(to: &Arc<AtomicU16>) -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let to = Arc::clone(to);
    thread::spawn(|| {
        block_on(async { forward(TcpListener::from_std(listener).unwrap(), to).await });
    });
    port
}

#[test]
fn jobs_run_once_when_a_standby_takes_over() {
    let mut primary = Postgres::start_on_tcp(Durability::Unsynced, &NETWORK);
    let _ = primary.database("jobs");
    let current = Arc::new(AtomicU16::new(primary.port()));
    let port = forwarder(&current);
    let stage = TestStore::at(&format!("postgres://postgres@127.0.0.1:{port}/jobs"));
    submit_jobs(&stage);
    let standby = primary.standby();
    let ledger = Arc::new(Ledger::default());
    let working = workers(stage, Arc::clone(&ledger));
    wait_for_jobs(&ledger, JOBS / 3);
    primary.stop();
    // The address moves before the standby is promoted: it refuses changes for a while.
    current.store(standby.port(), Ordering::Relaxed);
    thread::sleep(Duration::from_millis(500));
    standby.promote();
    working.join().unwrap();
    assert!(*ledger.failures.lock().unwrap() > 0);
}

#[test]
fn standby_is_inspected_only() {
    let primary = Postgres::start_on_tcp(Durability::Unsynced, &NETWORK);
    let stage = TestStore::postgres(&primary, "jobs");
    let standby = primary.standby();
    block_on(async {
        let store = stage.open().await;
        store.submit(&new_job("p")).await.unwrap();
        let there = TestStore::at(&standby.url("postgres", "127.0.0.1", "jobs"));
        let error = JobStore::open(&there.location, &there.access())
            .await
            .unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        assert!(error.to_string().contains("standby"), "{error}");
        // The commit was on the standby before it was reported, but may not be visible yet.
        wait_for("the job on the standby", async || {
            let store = JobStore::inspect(&there.location, &there.access()).await;
            let jobs = store.ok()?.list(&JobFilter::default(), 1).await.unwrap();
            (jobs.total == 1).then_some(())
        })
        .await;
    });
}

#[test]
fn claim_without_an_answer_is_found_again() {
    for stage in [TestStore::sqlite(), {
        let server = Box::leak(Box::new(Postgres::start(Durability::Unsynced)));
        TestStore::postgres(server, "jobs")
    }] {
        block_on(async {
            let store = stage.open().await;
            let worker = new_worker_id();
            assert_eq!(store.reclaim(&worker, &[], LONG).await.unwrap(), None);
            let mut known = Vec::new();
            for _ in 0..3 {
                store.submit(&new_job("p")).await.unwrap();
                known.push(claim(&store, &worker).await.unwrap().claim.job);
            }
            let lost = known.remove(1);
            let other = store.reclaim(&new_worker_id(), &[], LONG).await.unwrap();
            assert_eq!(other, None);
            let found = store.reclaim(&worker, &known, LONG).await.unwrap().unwrap();
            assert_eq!((found.claim.job.clone(), found.claim.attempt), (lost, 1));
            store
                .finish(&found.claim, &finished(Ending::Completed))
                .await
                .unwrap();
            assert_eq!(store.reclaim(&worker, &known, LONG).await.unwrap(), None);
        });
    }
}

/// Passes connections on, and spoils each statement that notifies, so that the server refuses it.
async fn refuse_notifications(listener: TcpListener, to: u16, refused: Arc<AtomicUsize>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let refused = Arc::clone(&refused);
        tokio::spawn(async move {
            let mut server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
            let (mut from_client, mut to_client) = client.split();
            let (mut from_server, mut to_server) = server.split();
            let mut bytes = vec![0; 1 << 16];
            let to_the_server = async {
                while let Ok(length @ 1..) = from_client.read(&mut bytes).await {
                    refused.fetch_add(spoil(&mut bytes[..length]), Ordering::Relaxed);
                    to_server.write_all(&bytes[..length]).await.unwrap();
                }
            };
            tokio::select! {
                () = to_the_server => {}
                _ = copy(&mut from_server, &mut to_client) => {}
            }
        });
    }
}

/// Makes a syntax error of a statement that notifies. Returns how many it has found.
fn spoil(bytes: &mut [u8]) -> usize {
    let statement = watch::NOTIFY.as_bytes();
    let mut parts = bytes.windows(statement.len());
    let found = parts.position(|part| part == statement);
    match found {
        Some(at) => {
            bytes[at..at + statement.len()].copy_from_slice(b"NOTIFY codex jobs");
            1
        }
        None => 0,
    }
}

#[test]
fn committed_change_is_reported_as_made_if_its_notification_fails() {
    let server = Postgres::start_on_tcp(Durability::Unsynced, &NETWORK);
    let _ = server.database("jobs");
    block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let refused = Arc::new(AtomicUsize::new(0));
        let refusing = refuse_notifications(listener, server.port(), Arc::clone(&refused));
        tokio::spawn(refusing);
        let stage = TestStore::at(&format!("postgres://postgres@127.0.0.1:{port}/jobs"));
        let store = stage.open().await;
        let new = new_job("p");
        assert_eq!(store.submit(&new).await.unwrap(), new.id);
        let claimed = claim(&store, &new_worker_id()).await.unwrap();
        let how = finished(Ending::Completed);
        let written = store.finish(&claimed.claim, &how).await.unwrap();
        assert_eq!(written, WriteOutcome::Done);
        assert_eq!(refused.load(Ordering::Relaxed), 2);
        // The next change has a connection that is in order.
        store.submit(&new_job("q")).await.unwrap();
        let all = store.list(&JobFilter::default(), 1).await.unwrap();
        assert_eq!(all.total, 2);
    });
}

/// When a connection breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BreakAt {
    /// The server does not get the statement that inserts a job.
    BeforeInsert,
    /// The server does not get the request to commit.
    BeforeCommit,
    /// The server has committed, and its answer is lost.
    AfterCommit,
}

impl BreakAt {
    /// The words of the statement at which the connection breaks.
    fn statement(self) -> &'static [u8] {
        match self {
            Self::BeforeInsert => b"INSERT INTO codex_jobs",
            Self::BeforeCommit | Self::AfterCommit => b"COMMIT",
        }
    }
}

/// Passes connections on, and breaks as many as `left` says.
async fn break_connections(listener: TcpListener, to: u16, left: Arc<AtomicUsize>, at: BreakAt) {
    while let Ok((mut client, _)) = listener.accept().await {
        let left = Arc::clone(&left);
        tokio::spawn(async move {
            let mut server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
            let (mut request, mut answer) = (vec![0; 1 << 16], vec![0; 1 << 16]);
            loop {
                tokio::select! {
                    length = client.read(&mut request) => {
                        let Ok(length @ 1..) = length else { return };
                        let is_broken =
                            has(&request[..length], at.statement()) && take_one(&left);
                        if is_broken && at != BreakAt::AfterCommit {
                            return;
                        }
                        server.write_all(&request[..length]).await.unwrap();
                        if is_broken {
                            server.read_exact(&mut answer[..1]).await.unwrap();
                            return;
                        }
                    }
                    length = server.read(&mut answer) => {
                        let Ok(length @ 1..) = length else { return };
                        client.write_all(&answer[..length]).await.unwrap();
                    }
                }
            }
        });
    }
}

fn has(bytes: &[u8], statement: &[u8]) -> bool {
    let mut parts = bytes.windows(statement.len());
    parts.any(|part| part == statement)
}

/// Counts down. Returns whether there was one left.
fn take_one(left: &AtomicUsize) -> bool {
    let is_left = left.load(Ordering::Relaxed) > 0;
    if is_left {
        left.fetch_sub(1, Ordering::Relaxed);
    }
    is_left
}

/// A store whose next connections break, as many as the number says.
async fn breaking_store(server: &Postgres, at: BreakAt) -> (TestStore, Arc<AtomicUsize>) {
    let _ = server.database("jobs");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let left = Arc::new(AtomicUsize::new(0));
    tokio::spawn(break_connections(
        listener,
        server.port(),
        Arc::clone(&left),
        at,
    ));
    let stage = TestStore::at(&format!("postgres://postgres@127.0.0.1:{port}/jobs"));
    (stage, left)
}

/// The jobs of a store whose answers can be lost.
struct UnreliableJobs {
    jobs: Jobs,
    /// How many answers are lost from now on.
    left: Arc<AtomicUsize>,
    stage: TestStore,
    /// As long as it is held, no worker is started.
    _lock: LockGuard,
}

impl UnreliableJobs {
    async fn at(server: &Postgres) -> Self {
        let (stage, left) = breaking_store(server, BreakAt::AfterCommit).await;
        let (location, state) = (stage.location.clone(), stage.state.path());
        let lock = WorkerLock::of(&location, state).try_take().unwrap();
        let starter = Starter::new(location.clone(), state, None);
        let submitter = submitter(StoreScope::Anywhere);
        Self {
            jobs: Jobs::new(
                Setting::new(location, Source::Default),
                stage.access(),
                starter,
                submitter,
            ),
            left,
            _lock: lock.unwrap(),
            stage,
        }
    }

    async fn submit(&self, prompt: &str) -> JobId {
        let spec = JobSpec::new(prompt, self.stage.state.path());
        self.jobs.submit(spec).await.unwrap().job
    }

    fn lose_one_answer(&self) {
        self.left.store(1, Ordering::Relaxed);
    }

    fn is_answer_lost(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }
}

/// When the connection breaks during the commit, the store cannot know whether the server has got the
/// request.
#[test]
fn change_may_have_been_made_only_if_its_connection_breaks_during_the_commit() {
    for (at, is_unclear, number) in [
        (BreakAt::BeforeInsert, false, 0),
        (BreakAt::BeforeCommit, true, 0),
        (BreakAt::AfterCommit, true, 1),
    ] {
        let server = Postgres::start_on_tcp(Durability::Unsynced, &NETWORK);
        block_on(async {
            let (stage, left) = breaking_store(&server, at).await;
            let store = stage.open().await;
            left.store(1, Ordering::Relaxed);
            let error = store.submit(&new_job("p")).await.unwrap_err();
            let answer_lost = matches!(error, StoreError::AnswerLost { .. });
            assert_eq!(answer_lost, is_unclear, "{at:?}: {error:?}");
            assert!(error.is_retryable(), "{at:?}: {error:?}");
            let all = store.list(&JobFilter::default(), 1).await.unwrap();
            assert_eq!(all.total, number, "{at:?}");
        });
    }
}

#[test]
fn job_whose_submission_got_no_answer_is_submitted_once() {
    let server = Postgres::start_on_tcp(Durability::Unsynced, &NETWORK);
    block_on(async {
        let unreliable = UnreliableJobs::at(&server).await;
        let store = unreliable.jobs.store().await.unwrap();
        // The control: the store reports an error, and has the job.
        unreliable.lose_one_answer();
        let error = store.submit(&new_job("p")).await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        unreliable.lose_one_answer();
        let submitted = unreliable.submit("q").await;
        assert!(unreliable.is_answer_lost());
        let all = store.list(&JobFilter::default(), 3).await.unwrap();
        let ids: Vec<&JobId> = all.jobs.iter().map(|job| &job.id).collect();
        assert_eq!((all.total, ids[0]), (2, &submitted));
    });
}

#[test]
fn instruction_that_got_no_answer_is_given_once() {
    let server = Postgres::start_on_tcp(Durability::Unsynced, &NETWORK);
    block_on(async {
        let unreliable = UnreliableJobs::at(&server).await;
        let job = unreliable.submit("p").await;
        let store = unreliable.jobs.store().await.unwrap();
        let ClaimedJob { claim, .. } = claim(store, &new_worker_id()).await.unwrap();
        unreliable.lose_one_answer();
        let steered = unreliable.jobs.steer(&job, "more".to_owned());
        let worker = async {
            wait_for("the loss of an answer", async || {
                unreliable.is_answer_lost().then_some(())
            })
            .await;
            let taken = wait_for("the instruction", async || {
                store.take_instructions(&claim).await.unwrap().pop()
            });
            let concluded = store.conclude(&claim, &taken.await.id, DONE).await;
            assert_eq!(concluded.unwrap(), WriteOutcome::Done);
            assert_eq!(store.take_instructions(&claim).await.unwrap(), []);
            // The job has ended when the instruction is repeated.
            let how = finished(Ending::Completed);
            let written = store.finish(&claim, &how).await;
            assert_eq!(written.unwrap(), WriteOutcome::Done);
        };
        let (steered, ()) = tokio::join!(steered, worker);
        steered.unwrap();
    });
}
