//! Workers that are killed.

use std::collections::HashMap;
use std::fs;

use futures::future::join_all;
use job_queue::logic::{JobId, JobState, WORKER_LOST};
use job_queue::store::{Filter, JobStore};
use nix::sys::signal::Signal;
use testkit::postgres::{Durability, Postgres};
use testkit::process::{Process, wait_until_gone};

use super::{
    LONG, Stage, Worker, get, kill_codex, submit, until_there_is, wait_for, wait_for_file,
    wait_until,
};

/// So that what a worker has left is found soon.
const SHORT: [&str; 4] = ["--lease-ms", "2500", "--heartbeat-ms", "250"];

/// Where no job is to be run twice, so that it doesn't matter how long Codex takes to
/// end.
const SHORTER: [&str; 4] = ["--lease-ms", "1000", "--heartbeat-ms", "200"];

/// Begins and ends, and complains if it already runs: the lock ends with its process
/// and all that it has started.
const JOB: &str = "exec 9>>lock-NAME; flock -n 9 || echo NAME >> overlaps; \
    echo begin NAME >> log; sleep 0.03; echo end NAME >> log";

struct Storm {
    jobs: usize,
    kills: usize,
    workers: usize,
}

/// Kills workers all the time, and looks that each job is done, and none twice at once.
async fn storm(stage: &Stage, storm: Storm) {
    let store = stage.open().await;
    let submitting = (0..storm.jobs).map(|number| {
        let mut request = stage.request(&JOB.replace("NAME", &number.to_string()));
        request.retry = 1000;
        submit(&store, request)
    });
    let ids: Vec<JobId> = join_all(submitting).await;
    let start = || stage.worker(&SHORT);
    let mut workers: Vec<Worker> = (0..storm.workers).map(|_| start()).collect();
    for number in 1..=storm.kills {
        let enough = (storm.jobs * number / (storm.kills + 1)) as u64;
        wait_for("jobs are done", async || {
            (total(&store, JobState::Completed).await >= enough).then_some(())
        })
        .await;
        workers.remove(0).kill();
        workers.push(start());
    }
    wait_for("all jobs are done", async || {
        (total(&store, JobState::Completed).await == storm.jobs as u64).then_some(())
    })
    .await;
    for worker in workers {
        worker.finish().await;
    }
    let mut attempts = 0;
    for id in &ids {
        attempts += get(&store, id).await.attempts as usize;
    }
    println!("{attempts} attempts at {} jobs", storm.jobs);
    assert!(attempts > storm.jobs, "no worker was killed at work");
    assert!(!stage.file("overlaps").exists());
    assert_all_ended(stage, storm.jobs);
    stage.finish().await;
}

async fn total(store: &JobStore, state: JobState) -> u64 {
    let filter = Filter {
        status: Some(state),
        ..Filter::default()
    };
    store.list(&filter, 1).await.unwrap().total
}

fn assert_all_ended(stage: &Stage, jobs: usize) {
    let log = fs::read_to_string(stage.file("log")).unwrap();
    let mut ends: HashMap<&str, usize> = HashMap::new();
    for name in log.lines().filter_map(|line| line.strip_prefix("end ")) {
        *ends.entry(name).or_default() += 1;
    }
    assert_eq!(ends.len(), jobs);
}

#[tokio::test]
async fn no_job_is_lost_or_run_twice_at_once() {
    let stage = Stage::sqlite();
    let plan = Storm {
        jobs: 2000,
        kills: 40,
        workers: 3,
    };
    storm(&stage, plan).await;
}

#[tokio::test]
async fn no_job_is_lost_or_run_twice_at_once_on_a_server() {
    let server = Postgres::start(Durability::Unsynced);
    let stage = Stage::postgres(&server);
    let plan = Storm {
        jobs: 200,
        kills: 5,
        workers: 2,
    };
    storm(&stage, plan).await;
}

#[tokio::test]
async fn the_jobs_of_a_killed_worker_fail_or_run_again() {
    let stage = Stage::sqlite();
    let store = stage.open().await;
    let stubborn = "trap '' TERM HUP; setsid sleep 1000 & touch NAME; while :; do sleep 1000; done";
    let once = stage
        .submit(&store, &stubborn.replace("NAME", "once"))
        .await;
    let mut request = stage.request(&format!("echo x >> twice; {}", until_there_is("go")));
    request.retry = 1;
    let twice = submit(&store, request).await;
    let killed = stage.worker(&SHORTER);
    wait_for_file(&stage.file("once")).await;
    wait_for_file(&stage.file("twice")).await;
    // The session comes with the first event.
    wait_for("its session", async || {
        get(&store, &twice).await.summary.session_id
    })
    .await;
    wait_for("its session", async || {
        get(&store, &once).await.summary.session_id
    })
    .await;
    killed.kill();
    // Its guards end Codex, also where nobody takes the jobs.
    stage.finish().await;
    let running = get(&store, &once).await;
    assert_eq!(running.summary.state, JobState::Running);

    stage.make("go");
    let next = stage.worker(&SHORTER);
    let once = wait_until(&store, &once, JobState::Failed).await;
    assert_eq!(once.summary.error.as_deref(), Some(WORKER_LOST));
    assert!(once.summary.session_id.is_some());
    let twice = wait_until(&store, &twice, JobState::Completed).await;
    assert_eq!(twice.attempts, 2);
    assert_eq!(fs::read_to_string(stage.file("twice")).unwrap(), "x\nx\n");
    wait_for("the killed worker is forgotten", async || {
        (store.workers().await.unwrap().len() == 1).then_some(())
    })
    .await;
    let log = next.finish().await;
    assert!(log.contains("has lost its worker"), "{log}");
    assert!(store.workers().await.unwrap().is_empty());
    stage.finish().await;
}

/// As those of a killed worker do.
#[tokio::test]
async fn jobs_of_a_killed_codex_fail_or_run_again_in_their_threads() {
    let stage = Stage::sqlite();
    let store = stage.open().await;
    let once = format!("touch once; {}", until_there_is("go"));
    let once = stage.submit(&store, &once).await;
    let twice = format!("echo x >> twice; {}", until_there_is("go"));
    let mut request = stage.request(&twice);
    request.retry = 1;
    let twice = submit(&store, request).await;
    let worker = stage.worker(&[]);
    wait_for_file(&stage.file("once")).await;
    wait_for_file(&stage.file("twice")).await;
    let session = wait_for("its session", async || {
        get(&store, &twice).await.summary.session_id
    })
    .await;
    kill_codex(&stage.home);
    let once = wait_until(&store, &once, JobState::Failed).await;
    let error = once.summary.error.unwrap();
    assert!(error.contains("signal 9"), "{error}");
    assert!(once.summary.session_id.is_some());
    stage.make("go");
    let twice = wait_until(&store, &twice, JobState::Completed).await;
    assert_eq!(twice.attempts, 2);
    assert_eq!(twice.summary.session_id, Some(session));
    assert_eq!(fs::read_to_string(stage.file("twice")).unwrap(), "x\nx\n");
    worker.finish().await;
    stage.finish().await;
}

/// What it writes counts no more, and its Codex is ended.
#[tokio::test]
async fn a_worker_that_was_away_for_too_long_leaves_its_job_alone() {
    let stage = Stage::sqlite();
    let store = stage.open().await;
    let prompt = format!("echo $$ >> pids; {}", until_there_is("go"));
    let mut request = stage.request(&prompt);
    request.retry = 1;
    let id = submit(&store, request).await;
    // It writes nothing once the job has begun: who is stopped while it writes to a
    // file holds up everybody.
    let quiet = ["--lease-ms", "8000", "--heartbeat-ms", "600000"];
    let away = stage.worker(&[&quiet[..], &["--concurrency", "1"]].concat());
    wait_for("its events", async || {
        let events = store.events(&id, 0, 10).await.unwrap();
        (events.len() == 2 && stage.file("pids").exists()).then_some(())
    })
    .await;
    away.signal(Signal::SIGSTOP);
    let next = stage.worker(&SHORTER);
    wait_for("the second attempt has begun", async || {
        let pids = fs::read_to_string(stage.file("pids")).unwrap_or_default();
        (pids.lines().count() == 2).then_some(())
    })
    .await;
    away.signal(Signal::SIGCONT);
    away.says("is not this worker's any more").await;
    let pids = fs::read_to_string(stage.file("pids")).unwrap();
    let pids: Vec<u32> = pids.lines().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(wait_until_gone(&pids[..1], LONG).await, []);
    assert!(Process::look(pids[1]).is_some());
    stage.make("go");
    let job = wait_until(&store, &id, JobState::Completed).await;
    assert_eq!(job.attempts, 2);
    away.finish().await;
    next.finish().await;
    stage.finish().await;
}
