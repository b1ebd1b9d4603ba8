//! Everything at once, while processes are killed, the database crashes and a disk is full: clients and
//! their tasks, jobs, approvals, runs, and mail. What was promised must be there at the end. `cargo xtask
//! chaos` runs it.

mod checks;
mod mail;

use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use futures::future::join_all;
use scripted_model::{Reply, Request, Script};
use serde_json::Value;
use testkit::SmallDisk;
use testkit::postgres::{Durability, Postgres};
use tokio::time::{Instant, sleep, timeout};

use self::checks::{check_approvals, check_jobs, check_runs, check_submitted_runs, end_of, ends};
use super::CodexFixture;
use super::kill_storm::{CLIENTS, Kind, calls, check_calls, count, report, storm, wanted};
use super::stored_files::{check_database, check_files};
use crate::mail::killed::KilledWriters;
use crate::random::Random;

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

/// The variable that has the disks with what is stored filled now and then.
const DISK: &str = "CODEX_MCP_TEST_DISK";

/// The size of each of them, in KiB.
const DISK_SIZE: u32 = 64 << 10;

/// How many jobs ask at the same time. A job whose worker was killed fails only when another worker has
/// run for 20 s; meanwhile the other jobs are approved.
const ASKING: usize = 4;

/// The pause between two submissions. A job takes about a second.
const PAUSE: Duration = Duration::from_millis(700);

/// Each of so many jobs runs again if its worker is killed.
const RETRIED: usize = 4;

/// How long the jobs may take after the storm: the leases of killed workers have to end.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// After what time a job that asks is left to itself: if its worker was killed and the database crashes
/// every few seconds, no worker lives long enough to recover the job before the storm is over.
const PATIENCE: Duration = Duration::from_secs(60);

/// A job that was accepted: the number that it writes, and its ID.
struct AcceptedJob {
    number: usize,
    id: String,
}

/// Messages of a verb that cannot know whether the worker has got its answer, as the worker was
/// killed or the database crashed.
const UNCLEAR: [&str; 2] = ["may have been instructed", "has taken it"];

/// A job that asked, and how many of its questions were allowed, or may have been.
struct ApprovedJob {
    job: AcceptedJob,
    approvals: usize,
}

/// What a run has told at its end.
struct EndedRun {
    number: usize,
    is_done: bool,
}

/// The number in the task of a run, also in a later turn of it.
fn run_of(request: &Request) -> Option<usize> {
    let said = request.user_messages().into_iter();
    let mut tasks = said.filter_map(|text| text.strip_prefix("write "));
    tasks.find_map(|rest| rest.split_whitespace().next()?.parse().ok())
}

/// Counts turns, and writes the file of a run.
fn model() -> Script {
    Script::by(|request| match (request.round(), run_of(request)) {
        (0, Some(number)) => Reply::shell(format!("echo made >> made-{number}.txt")),
        _ => count(request),
    })
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
            let mut args = vec!["--sandbox", "workspace-write"];
            if accepted.len().is_multiple_of(RETRIED) {
                args.extend(["--retry", "2"]);
            }
            accepted.extend(self.submit("turn", &args).await);
            sleep(PAUSE).await;
        }
        accepted
    }

    /// Submits a job; `None` if it is refused, as without its database.
    async fn submit(&self, word: &str, args: &[&str]) -> Option<AcceptedJob> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let prompt = format!("{word} {number}");
        let submit = [&["submit"], args, &[&prompt]].concat();
        let output = self.stage.jobs_command(&submit).output().await.unwrap();
        let id = String::from_utf8(output.stdout).unwrap();
        let id = id.trim_end().to_owned();
        output
            .status
            .success()
            .then_some(AcceptedJob { number, id })
    }

    /// Submits jobs that ask, and allows what they ask for, until each has ended or seems to be lost.
    async fn approve_jobs(self) -> Vec<ApprovedJob> {
        let mut approved = Vec::new();
        while self.is_running() {
            let asking = ["--sandbox", "read-only", "--approval", "ask"];
            let Some(job) = self.submit("ask", &asking).await else {
                sleep(PAUSE).await;
                continue;
            };
            let mut approvals = 0;
            let begun = Instant::now();
            while begun.elapsed() < PATIENCE && end_of(&self.stage, &job.id).await.is_none() {
                let mut approve = self.stage.program(&["approve", &job.id]);
                let output = approve.output().await.unwrap();
                let told = String::from_utf8_lossy(&output.stderr);
                let is_unclear = UNCLEAR.iter().any(|words| told.contains(words));
                approvals += usize::from(output.status.success() || is_unclear);
                sleep(PAUSE).await;
            }
            approved.push(ApprovedJob { job, approvals });
        }
        approved
    }

    /// Runs until the file of each is there.
    async fn execute_runs(self) -> Vec<EndedRun> {
        let mut ended = Vec::new();
        while self.is_running() {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let output = self.run(number, &["--json"]).await;
            let result: Value = serde_json::from_slice(&output.stdout)
                .unwrap_or_else(|_| panic!("run {number} ends without a word: {output:?}"));
            let is_done = result["ok"] == true;
            assert!(is_done || result["reason"].is_string(), "{result:#}");
            ended.push(EndedRun { number, is_done });
        }
        ended
    }

    /// Submits runs, each when the one before has ended or seems to be lost; returns those that were
    /// accepted.
    async fn submit_runs(self) -> Vec<AcceptedJob> {
        let mut accepted = Vec::new();
        while self.is_running() {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let output = self.run(number, &["--detach"]).await;
            if !output.status.success() {
                sleep(PAUSE).await;
                continue;
            }
            let id = String::from_utf8(output.stdout).unwrap();
            let id = id.trim_end().to_owned();
            let begun = Instant::now();
            while begun.elapsed() < PATIENCE && end_of(&self.stage, &id).await.is_none() {
                sleep(PAUSE).await;
            }
            accepted.push(AcceptedJob { number, id });
        }
        accepted
    }

    /// Runs until the file with this number is there.
    async fn run(&self, number: usize, args: &[&str]) -> Output {
        let task = format!("write {number}");
        let until = format!("files=made-{number}.txt");
        let args = [
            args,
            &["--sandbox", "workspace-write", "--until", &until, &task],
        ]
        .concat();
        let output = timeout(TIME_LIMIT, self.stage.run_command(&args).output()).await;
        let output = output.unwrap_or_else(|_| panic!("run {number} does not end"));
        output.unwrap()
    }

    /// Kills those who write mail; returns how many messages there are.
    fn write_mail(self) -> JoinHandle<usize> {
        thread::spawn(move || {
            let mut writers = KilledWriters::new();
            let mut random = Random::seeded("mail");
            while self.is_running() {
                writers.kill_one(&mut random);
                thread::sleep(PAUSE);
            }
            writers.check()
        })
    }

    /// Fills one of the disks now and then until the storm is over; returns how often that was.
    fn fill_disks(self, disks: [Weak<SmallDisk>; 2]) -> JoinHandle<usize> {
        thread::spawn(move || {
            let (mut random, mut filled) = (Random::seeded("disk"), 0);
            while self.is_running() {
                thread::sleep(Duration::from_millis(3000 + random.below(5000)));
                let chosen = usize::try_from(random.below(2)).unwrap();
                // A test that has failed has unmounted it.
                let Some(disk) = disks[chosen].upgrade() else {
                    break;
                };
                let ballast = disk.fill();
                filled += 1;
                thread::sleep(Duration::from_millis(random.below(3000)));
                drop(ballast);
            }
            filled
        })
    }

    /// A database that crashes now and then until the storm is over, and ends when `done` does; returns
    /// how often it did.
    fn crash_database(self, location: Sender<String>, done: Receiver<()>) -> JoinHandle<usize> {
        thread::spawn(move || {
            let mut server = Postgres::start(Durability::Synced);
            location.send(server.database("jobs")).unwrap();
            let (mut random, mut crashes) = (Random::seeded("database"), 0);
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

/// Checks that there was some of everything: a run in which nothing worked shows nothing.
fn check_progress(counts: [(&str, usize); 7]) {
    for (what, count) in counts {
        assert!(count > 0, "there were no {what}: give more --kills");
    }
}

#[tokio::test]
#[ignore = "`cargo xtask chaos` runs it"]
async fn promises_are_kept_while_everything_is_killed() {
    let stage = Arc::new(CodexFixture::new(testkit::codex::newest(), model()).await);
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
    let disks = std::env::var_os(DISK).map(|_| {
        let directories = [stage.home.state_home(), stage.home.atm_home()];
        directories.map(|directory| Arc::new(SmallDisk::on(&directory, DISK_SIZE)))
    });
    stage.configure(&settings);
    mail::prepare(&stage);
    let filling = disks.as_ref().map(|disks| {
        let disks = disks.each_ref().map(Arc::downgrade);
        load.clone().fill_disks(disks)
    });
    let sent = tokio::spawn(mail::send(load.clone()));
    let writers = load.clone().write_mail();
    let jobs = tokio::spawn(load.clone().submit_jobs());
    let approved = join_all([(); ASKING].map(|()| load.clone().approve_jobs()));
    let approved = tokio::spawn(approved);
    let runs = tokio::spawn(load.clone().execute_runs());
    let submitted = tokio::spawn(load.clone().submit_runs());
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

    let mut ended_calls = Vec::new();
    for client in clients {
        ended_calls.extend(client.await.unwrap());
    }
    let filled = filling.map(|filling| filling.join().unwrap());
    let (jobs, approved, sent) = tokio::try_join!(jobs, approved, sent).unwrap();
    let (runs, submitted) = tokio::try_join!(runs, submitted).unwrap();
    let approved: Vec<ApprovedJob> = approved.into_iter().flatten().collect();
    let messages = writers.join().unwrap();
    let ended = check_jobs(&stage, &jobs).await;
    let approvals = check_approvals(&stage, &approved).await;
    let done = check_runs(&stage, &runs);
    let submitted_done = check_submitted_runs(&stage, &submitted).await;
    let all_jobs = || {
        let asking = approved.iter().map(|one| &one.job);
        jobs.iter().chain(asking).chain(&submitted)
    };
    let first_ends = ends(&stage, all_jobs()).await;
    stage.stop_hosts().await;
    stage.until_processes_end().await;
    assert_eq!(ends(&stage, all_jobs()).await, first_ends);
    let acknowledged = mail::check(&stage, &sent);
    let counted = check_calls(&stage, &ended_calls);
    let allowed: usize = ended_calls.iter().filter_map(|call| call.approvals).sum();
    for directory in [stage.home.state_home(), stage.home.atm_home()] {
        check_files(&directory);
    }
    if database.is_none() {
        check_database(&stage.home.state_home().join("codex-mcp/jobs.db")).await;
    }
    report(&format!("killed: {killed:?}"));
    report(&format!("calls: {counted:?}, {allowed} approvals"));
    report(&format!("jobs: {ended:?} of {} accepted", jobs.len()));
    report(&format!(
        "approvals: {approvals} in {} jobs",
        approved.len()
    ));
    report(&format!("runs: {done} done of {}", runs.len()));
    report(&format!(
        "submitted runs: {submitted_done} done of {}",
        submitted.len()
    ));
    report(&format!(
        "messages: {messages} of killed writers, {acknowledged} of {} through servers",
        sent.len()
    ));
    if let Some(filled) = filled {
        report(&format!("a disk was full {filled} times"));
    }
    if let Some((crashing, done)) = database {
        drop(done);
        report(&format!(
            "crashes of PostgreSQL: {}",
            crashing.join().unwrap()
        ));
    }
    check_progress([
        (
            "completed calls",
            counted.get("Completed").copied().unwrap_or(0),
        ),
        (
            "completed jobs",
            ended.get("completed").copied().unwrap_or(0),
        ),
        ("approvals of calls", allowed),
        ("approvals of jobs", approvals),
        ("runs that are done", done),
        ("submitted runs that are done", submitted_done),
        ("acknowledged messages", acknowledged),
    ]);
}
