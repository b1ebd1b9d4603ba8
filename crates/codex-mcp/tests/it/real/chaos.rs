//! Everything at once, while processes are killed and the database crashes: clients and their tasks,
//! jobs, and mail. What was promised must be there at the end. `cargo xtask chaos` runs it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;
use testkit::postgres::{Durability, Postgres};
use tokio::time::{sleep, timeout};

use super::CodexFixture;
use super::kill_storm::{
    CLIENTS, Kind, Random, calls, check_calls, check_files, counting_model, report, storm, times,
    wanted,
};
use crate::mail::killed::KilledWriters;

/// How many processes are killed, without those that write mail.
const KILLS: usize = 50;

/// The kinds of processes that are killed.
const KINDS: [Kind; 5] = [
    Kind::Host,
    Kind::Server,
    Kind::Guard,
    Kind::Codex,
    Kind::Worker,
];

/// The variable that has the jobs kept in PostgreSQL, which crashes too.
const POSTGRES: &str = "CODEX_MCP_TEST_POSTGRES";

/// The pause between two submissions. A job takes about a second.
const PAUSE: Duration = Duration::from_millis(700);

/// How long the jobs may take after the storm: the leases of killed workers have to end.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// A job that was accepted: the number that it writes, and its ID.
struct AcceptedJob {
    number: usize,
    id: String,
}

/// The work that continues until the storm is over.
#[derive(Clone)]
struct Load {
    stage: Arc<CodexFixture>,
    numbers: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

impl Load {
    fn is_running(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    /// Submits jobs; returns those that were accepted.
    async fn submit_jobs(self) -> Vec<AcceptedJob> {
        let mut accepted = Vec::new();
        while self.is_running() {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let prompt = format!("turn {number}");
            let submit = ["submit", "--sandbox", "workspace-write", &prompt];
            let output = self.stage.jobs_command(&submit).output().await.unwrap();
            // Without its database it is refused.
            if output.status.success() {
                let id = String::from_utf8(output.stdout).unwrap();
                let id = id.trim_end().to_owned();
                accepted.push(AcceptedJob { number, id });
            }
            sleep(PAUSE).await;
        }
        accepted
    }

    /// Kills those who write mail; returns how many messages there are.
    fn write_mail(self) -> JoinHandle<usize> {
        thread::spawn(move || {
            let mut writers = KilledWriters::new();
            while self.is_running() {
                writers.kill_one();
                thread::sleep(PAUSE);
            }
            writers.check()
        })
    }

    /// A database that crashes now and then until the storm is over, and ends when `done` does; returns
    /// how often it did.
    fn crash_database(self, location: Sender<String>, done: Receiver<()>) -> JoinHandle<usize> {
        thread::spawn(move || {
            let mut server = Postgres::start(Durability::Synced);
            location.send(server.database("jobs")).unwrap();
            let (mut random, mut crashes) = (Random::seeded(), 0);
            while self.is_running() {
                thread::sleep(Duration::from_millis(3000 + random.below(5000)));
                server.stop();
                crashes += 1;
                thread::sleep(Duration::from_millis(random.below(3000)));
                server.start_again();
            }
            // Fails only without the sender, which is the end.
            let _ = done.recv();
            crashes
        })
    }
}

/// The record of a job once it has ended.
async fn ended(stage: &CodexFixture, id: &str) -> Value {
    let waiting = async {
        loop {
            let mut show = stage.jobs_command(&["show", id, "--json"]);
            let output = show.output().await.unwrap();
            let job: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            if ["completed", "failed", "cancelled"]
                .iter()
                .any(|end| job["status"] == *end)
            {
                return job;
            }
            sleep(PAUSE).await;
        }
    };
    let ended = timeout(TIME_LIMIT, waiting).await;
    ended.unwrap_or_else(|_| panic!("job {id} does not end"))
}

/// Checks that each accepted job has ended, and was executed no more often than it was begun; returns how
/// many ended in which way.
async fn check_jobs(stage: &CodexFixture, jobs: &[AcceptedJob]) -> HashMap<String, usize> {
    let mut counted: HashMap<String, usize> = HashMap::new();
    for AcceptedJob { number, id } in jobs {
        let job = ended(stage, id).await;
        let status = job["status"].as_str().unwrap().to_owned();
        let attempts = job["attempts"].as_u64().unwrap();
        let times = u64::try_from(times(stage, *number)).unwrap();
        assert!(times <= attempts.max(1), "executed {times} times: {job:#}");
        match status.as_str() {
            "completed" => assert!(times > 0, "never executed: {job:#}"),
            _ => assert!(job["error"].is_string(), "without a word: {job:#}"),
        }
        *counted.entry(status).or_default() += 1;
    }
    counted
}

#[tokio::test]
#[ignore = "`cargo xtask chaos` runs it"]
async fn promises_are_kept_while_everything_is_killed() {
    let stage = Arc::new(CodexFixture::new(testkit::codex::newest(), counting_model()).await);
    let load = Load {
        stage: Arc::clone(&stage),
        numbers: Arc::new(AtomicUsize::new(1)),
        is_over: Arc::default(),
    };
    let mut settings = "worker_idle_secs = 1".to_owned();
    let database = std::env::var_os(POSTGRES).map(|_| {
        let ((sender, location), (done, end)) = (channel(), channel());
        let crashing = load.clone().crash_database(sender, end);
        settings = format!("{settings}\nstore = \"{}\"", location.recv().unwrap());
        (crashing, done)
    });
    stage.configure(&settings);
    let mail = load.clone().write_mail();
    let jobs = tokio::spawn(load.clone().submit_jobs());
    let clients: Vec<_> = CLIENTS
        .into_iter()
        .map(|style| {
            let Load {
                stage,
                numbers,
                is_over,
            } = load.clone();
            tokio::spawn(calls(stage, style, numbers, is_over))
        })
        .collect();
    let killed = storm(&stage, &KINDS, wanted(KILLS)).await;
    load.is_over.store(true, Ordering::Relaxed);
    drop(load);

    let mut outcomes = Vec::new();
    for client in clients {
        outcomes.extend(client.await.unwrap());
    }
    let jobs = jobs.await.unwrap();
    let messages = mail.join().unwrap();
    let ended = check_jobs(&stage, &jobs).await;
    stage.stop_hosts().await;
    stage.until_processes_end().await;
    let counted = check_calls(&stage, &outcomes);
    check_files(&stage.home.state_home());
    report(&format!("killed: {killed:?}"));
    report(&format!("calls: {counted:?}"));
    report(&format!("jobs: {ended:?} of {} accepted", jobs.len()));
    report(&format!("messages: {messages}, each that was sent once"));
    if let Some((crashing, done)) = database {
        drop(done);
        report(&format!(
            "crashes of PostgreSQL: {}",
            crashing.join().unwrap()
        ));
    }
    assert!(counted.contains_key("Completed") && ended.contains_key("completed"));
}
