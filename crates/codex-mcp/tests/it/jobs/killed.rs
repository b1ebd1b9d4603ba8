//! Workers that are killed.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use futures::future::join_all;
use job_queue::logic::{JobId, JobState, WORKER_LOST};
use job_queue::store::{JobFilter, JobStore, Request, new_worker_id};
use nix::sys::signal::Signal;
use serde_json::json;
use testkit::postgres::{Durability, Postgres};
use testkit::process::{Process, wait_until_gone};
use testkit::wait::wait_for_count;

use super::{
    TIME_LIMIT, Worker, WorkerFixture, get, kill_codex, short, submit, wait_command, wait_for,
    wait_for_file, wait_until,
};

/// Short leases, so that the jobs of a killed worker are found soon.
const SHORT_LEASE: [&str; 4] = ["--lease-ms", "2500", "--heartbeat-ms", "250"];

/// Shorter leases, for tests in which the time that Codex takes to end does not matter.
const SHORTER_LEASE: [&str; 4] = ["--lease-ms", "1000", "--heartbeat-ms", "200"];

/// Logs its begin and end, and logs an overlap if it already runs: the lock is released when the
/// process and all that it has started have ended.
const JOB: &str = "exec 9>>lock-NAME; flock -n 9 || echo NAME >> overlaps; \
    echo begin NAME >> log; sleep 0.03; echo end NAME >> log";

struct KillPlan {
    jobs: usize,
    kills: usize,
    workers: usize,
}

/// Kills workers again and again, and checks that each job is done and none runs twice at once.
async fn run_under_kills(stage: &WorkerFixture, plan: KillPlan) {
    let store = stage.open().await;
    let submitting = (0..plan.jobs).map(|number| {
        let mut request = stage.request(&JOB.replace("NAME", &number.to_string()));
        request.retry = 1000;
        submit(&store, request)
    });
    let ids: Vec<JobId> = join_all(submitting).await;
    let start = || stage.worker(&SHORT_LEASE);
    let mut workers: Vec<Worker> = (0..plan.workers).map(|_| start()).collect();
    for number in 1..=plan.kills {
        let enough = (plan.jobs * number / (plan.kills + 1)) as u64;
        let done = async || total(&store, JobState::Completed).await;
        wait_for_count("jobs are done", enough, done).await;
        workers.remove(0).kill();
        workers.push(start());
    }
    let ended = async || {
        let mut sum = 0;
        for state in [JobState::Completed, JobState::Failed, JobState::Cancelled] {
            sum += total(&store, state).await;
        }
        sum
    };
    wait_for_count("all jobs have ended", plan.jobs as u64, ended).await;
    for worker in workers {
        worker.finish().await;
    }
    let mut attempts = 0;
    for id in &ids {
        let job = get(&store, id).await;
        assert_eq!(job.summary.state, JobState::Completed, "{job:#?}");
        attempts += job.attempts as usize;
    }
    println!("{attempts} attempts at {} jobs", plan.jobs);
    assert!(attempts > plan.jobs, "no worker was killed at work");
    assert!(!stage.file("overlaps").exists());
    assert_all_ended(stage, plan.jobs);
    stage.finish().await;
}

async fn total(store: &JobStore, state: JobState) -> u64 {
    let filter = JobFilter {
        status: Some(state),
        ..JobFilter::default()
    };
    store.list(&filter, 1).await.unwrap().total
}

fn assert_all_ended(stage: &WorkerFixture, jobs: usize) {
    let log = fs::read_to_string(stage.file("log")).unwrap();
    let mut ends: HashMap<&str, usize> = HashMap::new();
    for name in log.lines().filter_map(|line| line.strip_prefix("end ")) {
        *ends.entry(name).or_default() += 1;
    }
    assert_eq!(ends.len(), jobs);
}

#[tokio::test]
async fn jobs_on_sqlite_survive_killed_workers_and_never_overlap() {
    let stage = WorkerFixture::sqlite();
    let plan = KillPlan {
        jobs: 500,
        kills: 20,
        workers: 3,
    };
    run_under_kills(&stage, plan).await;
}

#[tokio::test]
async fn jobs_on_postgres_survive_killed_workers_and_never_overlap() {
    let server = Postgres::start(Durability::Unsynced);
    let stage = WorkerFixture::postgres(&server);
    let plan = KillPlan {
        jobs: 200,
        kills: 5,
        workers: 2,
    };
    run_under_kills(&stage, plan).await;
}

#[tokio::test]
#[cfg_attr(
    portable,
    ignore = "without a subreaper, a process that has lost its parent stays"
)]
async fn jobs_of_a_killed_worker_fail_or_run_again() {
    let stage = WorkerFixture::sqlite();
    let store = stage.open().await;
    let stubborn = "trap '' TERM HUP; setsid sleep 1000 & touch NAME; while :; do sleep 1000; done";
    let once = stage
        .submit(&store, &stubborn.replace("NAME", "once"))
        .await;
    let mut request = stage.request(&format!("echo x >> twice; {}", wait_command("go")));
    request.retry = 1;
    let twice = submit(&store, request).await;
    let killed = stage.worker(&SHORTER_LEASE);
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
    // The worker's guards end Codex even when no other worker takes the jobs.
    stage.finish().await;
    let running = get(&store, &once).await;
    assert_eq!(running.summary.state, JobState::Running);

    stage.make("go");
    let next = stage.worker(&SHORTER_LEASE);
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

/// The lost worker is one that claims the jobs and never comes back. The control is a job that runs
/// again.
#[tokio::test]
async fn end_of_a_lost_job_is_notified_by_the_worker_that_recovers_it() {
    let stage = WorkerFixture::sqlite();
    let store = stage.open().await;
    let settings = stage.notifying();
    let call = Request {
        settings: Some(settings.clone()),
        ..stage.request(":")
    };
    let again = Request {
        retry: 1,
        ..call.clone()
    };
    let run = Request {
        tool_name: "codex_run".to_owned(),
        run: Some(json!({ "order": {
            "task": "t", "repo": stage.work(), "notify": settings["notify"],
        }})),
        ..stage.request(":")
    };
    let (mut ids, lost) = (Vec::new(), new_worker_id());
    for request in [call, again, run] {
        ids.push(submit(&store, request).await);
        let claimed = store.claim(&lost, "elsewhere", Duration::ZERO).await;
        assert!(claimed.unwrap().is_some());
    }
    let next = stage.worker(&SHORTER_LEASE);
    wait_until(&store, &ids[0], JobState::Failed).await;
    wait_until(&store, &ids[1], JobState::Completed).await;
    wait_until(&store, &ids[2], JobState::Failed).await;
    wait_for("the notifications", async || {
        (stage.told().len() == 3).then_some(())
    })
    .await;
    next.finish().await;
    let lost = |id| format!("BLOCKED :: job {}: {WORKER_LOST}", short(id));
    let done = format!("DONE job {} :: call_codex", short(&ids[1]));
    let mut expected = [lost(&ids[0]), lost(&ids[2]), done];
    expected.sort();
    assert_eq!(stage.told(), expected);
    stage.finish().await;
}

/// A killed Codex is to its jobs what a killed worker is, except that they keep their threads.
#[tokio::test]
async fn jobs_of_a_killed_codex_fail_or_run_again_in_their_threads() {
    let stage = WorkerFixture::sqlite();
    let store = stage.open().await;
    let once = format!("touch once; {}", wait_command("go"));
    let once = stage.submit(&store, &once).await;
    let twice = format!("echo x >> twice; {}", wait_command("go"));
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

/// The worker's writes no longer count, and its Codex is ended.
#[tokio::test]
async fn worker_whose_lease_expired_does_not_change_its_job() {
    let stage = WorkerFixture::sqlite();
    let store = stage.open().await;
    let prompt = format!("echo $$ >> pids; {}", wait_command("go"));
    let mut request = stage.request(&prompt);
    request.retry = 1;
    let id = submit(&store, request).await;
    // The worker writes nothing once the job has begun: a process that is stopped during a write to
    // the file would block all others.
    let quiet = ["--lease-ms", "8000", "--heartbeat-ms", "600000"];
    let away = stage.worker(&[&quiet[..], &["--concurrency", "1"]].concat());
    wait_for("its events", async || {
        let events = store.events(&id, 0, 10).await.unwrap();
        (events.len() == 2 && stage.file("pids").exists()).then_some(())
    })
    .await;
    away.signal(Signal::SIGSTOP);
    let next = stage.worker(&SHORTER_LEASE);
    wait_for("the second attempt has begun", async || {
        let pids = fs::read_to_string(stage.file("pids")).unwrap_or_default();
        (pids.lines().count() == 2).then_some(())
    })
    .await;
    away.signal(Signal::SIGCONT);
    away.says("no longer belongs to this worker").await;
    let pids = fs::read_to_string(stage.file("pids")).unwrap();
    let pids: Vec<u32> = pids.lines().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(wait_until_gone(&pids[..1], TIME_LIMIT).await, []);
    assert!(Process::read(pids[1]).is_some());
    stage.make("go");
    let job = wait_until(&store, &id, JobState::Completed).await;
    assert_eq!(job.attempts, 2);
    away.finish().await;
    next.finish().await;
    stage.finish().await;
}
