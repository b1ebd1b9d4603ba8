//! The next worker continues the runs of a worker that was killed.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use goal_run::logic::machine::{Limits, TOTAL_LIMIT, TURN_LIMIT};
use goal_run::spec::RunSpec;
use job_queue::logic::{JobId, JobState};
use job_queue::store::{Job, Request, StoredEvent};
use job_queue::worker::{STEP, TURN_ENDED};
use scripted_model::{Gate, Reply, Request as ModelRequest, Script};
use serde_json::{Value, json};
use testkit::wait::wait_for_count;
use tokio::time::{Instant, sleep};

use super::host_killed::rollout;
use super::killed_workers::{WAITS, WorkerFixture};
use crate::jobs::{report, wait_for, wait_for_file, wait_until};
use crate::on_both_releases;

on_both_releases!(
    run_continues_with_the_next_worker,
    turn_that_ends_without_a_worker_is_judged,
    inspection_that_was_cut_short_is_repeated,
    run_that_is_cancelled_without_a_worker_reports_its_work,
    time_of_a_run_without_a_worker_counts,
    run_continues_after_its_codex_has_died,
    planted_repository_is_moved_aside_by_the_next_worker,
    ignored_files_are_those_of_the_start,
    run_whose_git_directory_is_gone_fails_or_runs_again,
);

/// A run with these criteria.
fn run(jobs: &WorkerFixture, criteria: &Value) -> RunSpec {
    let mut spec = RunSpec::new("make it", jobs.stage.home.work());
    spec.criteria = serde_json::from_value(criteria.clone()).unwrap();
    let sandbox = serde_json::from_value(json!("danger-full-access"));
    spec.settings.thread.sandbox = Some(sandbox.unwrap());
    spec
}

async fn submit(jobs: &WorkerFixture, spec: &RunSpec) -> JobId {
    submit_with(jobs, spec, 0).await
}

async fn submit_with(jobs: &WorkerFixture, spec: &RunSpec, retry: u32) -> JobId {
    let request = Request {
        retry,
        tool_name: "codex_run".to_owned(),
        run: Some(json!({ "order": spec })),
        ..jobs.request("make it")
    };
    jobs.submit(request).await
}

fn result(job: &Job) -> Value {
    report(job).run.unwrap()
}

/// The private git directory of the only run.
fn git_directory(jobs: &WorkerFixture) -> PathBuf {
    let all = jobs.stage.home.state_home().join("codex-mcp/git-private");
    let mut runs = fs::read_dir(all).unwrap();
    runs.next().unwrap().unwrap().path()
}

fn subjects(result: &Value) -> Vec<&str> {
    let made = result["artifacts"].as_array().unwrap().iter();
    made.filter_map(|made| made["subject"].as_str()).collect()
}

/// Two workers are killed in the first turn, one in the second. What was made before counts, and no turn
/// is prompted, counted or recorded twice.
async fn run_continues_with_the_next_worker(release: &str) {
    let commit = |file: &str| {
        format!(
            "echo x > {file} && git add {file} && git commit -qm 'Make {file}'; \
             touch {file}.begun; until [ -e {file}.go ]; do sleep 0.05; done"
        )
    };
    let turns = |count| move |request: &ModelRequest| request.assistant_messages().len() == count;
    let script = Script::new()
        .when(
            turns(0),
            [Reply::shell(commit("first")), Reply::say("Half of it.")],
        )
        .otherwise([Reply::shell(commit("second")), Reply::say("Done.")]);
    let mut jobs = WorkerFixture::new(release, script).await;
    let id = submit(&jobs, &run(&jobs, &json!({ "commits": 2 }))).await;
    let mut times = 0;
    for (file, killed) in [("first", 2), ("second", 1)] {
        wait_for_file(&jobs.stage.file(&format!("{file}.begun"))).await;
        for _ in 0..killed {
            times += 1;
            jobs.kill_worker().await;
            jobs.start_worker().await;
            wait_for_count("it is continued", times, async || jobs.notices(&id).await).await;
        }
        fs::write(jobs.stage.file(&format!("{file}.go")), "").unwrap();
    }
    let job = jobs.completed(&id).await;
    assert_eq!(job.attempts, 1);
    let result = result(&job);
    assert_eq!((&result["ok"], &result["turns"]), (&json!(true), &json!(2)));
    assert_eq!(subjects(&result), ["Make second", "Make first"]);
    let log = result["evidence"]["log"].as_array().unwrap();
    let commands: Vec<&Value> = log.iter().map(|turn| &turn["commands"]).collect();
    assert_eq!(commands, [&json!(1), &json!(1)], "{result:#}");
    let evidence = fs::read_to_string(result["evidence_file"].as_str().unwrap()).unwrap();
    let turns: Vec<Value> = evidence
        .lines()
        .map(|line| line.parse::<Value>().unwrap()["turn"].clone())
        .collect();
    assert_eq!(turns, [json!(1), json!(2)]);
    assert_eq!(jobs.stage.model.request_count(), 4);
    assert_eq!(turns_ended(&jobs, &id).await, [1, 2]);
    assert!(!git_directory_exists(&jobs));
    jobs.finish().await;
}

fn git_directory_exists(jobs: &WorkerFixture) -> bool {
    let all = jobs.stage.home.state_home().join("codex-mcp/git-private");
    fs::read_dir(all).is_ok_and(|mut runs| runs.next().is_some())
}

/// The numbers of the turns whose ends are recorded.
async fn turns_ended(jobs: &WorkerFixture, id: &JobId) -> Vec<u64> {
    let events = jobs.store.events(id, 0, 1000).await.unwrap().into_iter();
    let ended = events.filter(|event| event.kind == TURN_ENDED);
    let turn = |data: &str| data.parse::<Value>().unwrap()["turn"].as_u64().unwrap();
    ended.map(|event| turn(&event.data)).collect()
}

/// The worker is dead when the turn ends.
async fn turn_that_ends_without_a_worker_is_judged(release: &str) {
    let gate = Gate::new();
    let script = Script::new().otherwise([
        Reply::shell("echo x > made.txt"),
        Reply::say("Done.").behind(&gate),
    ]);
    let mut jobs = WorkerFixture::new(release, script).await;
    let id = submit(&jobs, &run(&jobs, &json!({ "files": "made.txt" }))).await;
    gate.reached(1).await;
    jobs.kill_worker().await;
    gate.release();
    wait_for("the end of the turn", async || {
        let has_ended = rollout(&jobs.stage).contains("\"task_complete\"");
        has_ended.then_some(())
    })
    .await;
    jobs.start_worker().await;
    let job = jobs.completed(&id).await;
    let result = result(&job);
    assert_eq!((&result["ok"], &result["turns"]), (&json!(true), &json!(1)));
    assert_eq!(result["response"], "Done.");
    assert_eq!(jobs.stage.model.request_count(), 2);
    jobs.finish().await;
}

/// The worker is killed while a command of a criterion runs.
async fn inspection_that_was_cut_short_is_repeated(release: &str) {
    let script = Script::new().otherwise([Reply::shell("echo x > made.txt"), Reply::say("Done.")]);
    let mut jobs = WorkerFixture::new(release, script).await;
    let check = "sh -c 'echo x >> ../checks.txt; until [ -e ../pass.txt ]; do sleep 0.05; done'";
    let criteria = json!({ "files": "made.txt", "command": check });
    let id = submit(&jobs, &run(&jobs, &criteria)).await;
    let outside = |name: &str| jobs.stage.file("..").join(name);
    let (checks, pass) = (outside("checks.txt"), outside("pass.txt"));
    wait_for_file(&checks).await;
    jobs.kill_worker().await;
    jobs.start_worker().await;
    wait_for("the second check", async || {
        let begun = fs::read_to_string(&checks).unwrap().lines().count();
        (begun == 2).then_some(())
    })
    .await;
    fs::write(pass, "").unwrap();
    let job = jobs.completed(&id).await;
    let result = result(&job);
    assert_eq!((&result["ok"], &result["turns"]), (&json!(true), &json!(1)));
    assert_eq!(jobs.stage.model.request_count(), 2);
    assert_eq!(turns_ended(&jobs, &id).await, [1]);
    jobs.finish().await;
}

/// Somebody cancels the run between two workers.
async fn run_that_is_cancelled_without_a_worker_reports_its_work(release: &str) {
    let mut jobs = WorkerFixture::new(release, waiting_model()).await;
    let id = submit(&jobs, &run(&jobs, &json!({ "files": "*.tex" }))).await;
    wait_for_file(&jobs.stage.file("started.txt")).await;
    // Codex reports a command a moment after it has begun, and an interrupted one not at its end.
    wait_for("the step", async || {
        let events = jobs.store.events(&id, 0, 1000).await.unwrap();
        let is_step = |event: &StoredEvent| event.kind == STEP && event.data.contains("started");
        events.iter().any(is_step).then_some(())
    })
    .await;
    jobs.kill_worker().await;
    jobs.store.request_cancel(&id).await.unwrap();
    jobs.start_worker().await;
    let job = wait_until(&jobs.store, &id, JobState::Cancelled).await;
    let result = result(&job);
    assert!(
        result["partial"].to_string().contains("made.txt"),
        "{result:#}"
    );
    assert_eq!(result["evidence"]["log"][0]["commands"], 1, "{result:#}");
    jobs.finish().await;
}

fn waiting_model() -> Script {
    Script::new().otherwise([Reply::shell(WAITS), Reply::say("Done.")])
}

/// The time limit of the turn ends while there is no worker, so the next one has no time left.
async fn time_of_a_run_without_a_worker_counts(release: &str) {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("Done.").behind(&gate)]);
    let mut jobs = WorkerFixture::new(release, script).await;
    let mut spec = run(&jobs, &json!({ "files": "*.tex" }));
    let turn = Duration::from_secs(10);
    spec.limits = Limits::new(1, turn, TOTAL_LIMIT).unwrap();
    let id = submit(&jobs, &spec).await;
    gate.reached(1).await;
    jobs.kill_worker().await;
    sleep(turn).await;
    let next = Instant::now();
    jobs.start_worker().await;
    let job = wait_until(&jobs.store, &id, JobState::Failed).await;
    assert!(next.elapsed() < turn, "the time of the turn began anew");
    let result = result(&job);
    assert_eq!(
        result["evidence"]["log"][0]["end"], "timed_out",
        "{result:#}"
    );
    jobs.finish().await;
}

/// The record of a turn is with the guard of the Codex that runs it.
async fn run_continues_after_its_codex_has_died(release: &str) {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("Done.").behind(&gate)]);
    let mut jobs = WorkerFixture::new(release, script).await;
    let id = submit(&jobs, &run(&jobs, &json!({ "files": "made.txt" }))).await;
    gate.reached(1).await;
    crate::jobs::kill_codex(&jobs.stage.home);
    gate.reached(2).await;
    jobs.kill_worker().await;
    jobs.start_worker().await;
    wait_for_count("it is continued", 1, async || jobs.notices(&id).await).await;
    fs::write(jobs.stage.file("made.txt"), "").unwrap();
    gate.release();
    let job = jobs.completed(&id).await;
    let result = result(&job);
    assert_eq!(result["turns"], 2, "{result:#}");
    assert_eq!(result["evidence"]["log"][0]["end"], "died", "{result:#}");
    jobs.finish().await;
}

/// The state before Codex began is that of the run, not of the next worker.
async fn planted_repository_is_moved_aside_by_the_next_worker(release: &str) {
    let script = Script::new().otherwise([
        Reply::shell(format!("git init -q sub; {WAITS}")),
        Reply::say("Done."),
    ]);
    let mut jobs = WorkerFixture::new(release, script).await;
    fs::create_dir(jobs.stage.file("sub")).unwrap();
    fs::write(jobs.stage.file("sub/file"), "x").unwrap();
    jobs.stage.home.git(&["add", "sub"]);
    jobs.stage.home.git(&["commit", "-qm", "Add sub"]);
    let id = submit(&jobs, &run(&jobs, &json!({ "files": "made.txt" }))).await;
    wait_for_file(&jobs.stage.file("started.txt")).await;
    let planted = jobs.stage.file("sub/.git");
    assert!(planted.exists(), "the attack does not work");
    jobs.kill_worker().await;
    jobs.start_worker().await;
    wait_for_count("it is continued", 1, async || jobs.notices(&id).await).await;
    fs::write(jobs.stage.file("go.txt"), "").unwrap();
    let job = jobs.completed(&id).await;
    assert!(!planted.exists());
    let result = result(&job);
    let warnings = result["warnings"].to_string();
    assert!(warnings.contains("a git repository was made"), "{result:#}");
    jobs.finish().await;
}

/// The model has git ignore what it makes outside of the directory that it may change, and the worker is
/// killed then.
async fn ignored_files_are_those_of_the_start(release: &str) {
    let script = Script::new().otherwise([
        Reply::shell(format!(
            "mkdir -p .git/info; echo '*' >> .git/info/exclude; {WAITS}"
        )),
        Reply::say("Done."),
    ]);
    let mut jobs = WorkerFixture::new(release, script).await;
    let mut spec = run(&jobs, &json!({ "diff_within": "src" }));
    spec.limits = Limits::new(1, TURN_LIMIT, TOTAL_LIMIT).unwrap();
    let id = submit(&jobs, &spec).await;
    wait_for_file(&jobs.stage.file("started.txt")).await;
    let status = jobs.stage.home.git(&["status", "--porcelain"]);
    assert_eq!(status, "", "the attack does not work");
    jobs.kill_worker().await;
    jobs.start_worker().await;
    wait_for_count("it is continued", 1, async || jobs.notices(&id).await).await;
    fs::write(jobs.stage.file("go.txt"), "").unwrap();
    let job = wait_until(&jobs.store, &id, JobState::Failed).await;
    let error = job.summary.error.unwrap_or_default();
    assert!(error.contains("made.txt"), "{error}");
    jobs.finish().await;
}

/// Another run in the repository, which finds the directory without its worker, imports and removes it.
async fn run_whose_git_directory_is_gone_fails_or_runs_again(release: &str) {
    let script = Script::new().otherwise([
        Reply::shell(format!(
            "{WAITS}; git add made.txt && git commit -qm 'Make it'"
        )),
        Reply::say("Done."),
    ]);
    let mut jobs = WorkerFixture::new(release, script).await;
    for retry in [0, 1] {
        let id = submit_with(&jobs, &run(&jobs, &json!({ "commits": 1 })), retry).await;
        wait_for_file(&jobs.stage.file("started.txt")).await;
        jobs.kill_worker().await;
        fs::remove_dir_all(git_directory(&jobs)).unwrap();
        fs::remove_file(jobs.stage.file("started.txt")).unwrap();
        jobs.start_worker().await;
        if retry == 0 {
            let job = wait_until(&jobs.store, &id, JobState::Failed).await;
            let error = job.summary.error.unwrap_or_default();
            assert!(error.contains("cannot continue the run"), "{error}");
            assert!(job.summary.session_id.is_some());
        } else {
            wait_for_file(&jobs.stage.file("started.txt")).await;
            fs::write(jobs.stage.file("go.txt"), "").unwrap();
            assert_eq!(jobs.completed(&id).await.attempts, 2);
        }
    }
    jobs.finish().await;
}
