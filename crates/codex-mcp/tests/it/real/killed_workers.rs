//! The next worker continues the calls of a worker that was killed.

use std::fs;

use job_queue::logic::{CODEX_LOST, JobId, JobState, WORKER_LOST};
use job_queue::store::{Job, JobStore, NewJob, Request};
use job_queue::worker::{ASKED, CONTINUES};
use nix::sys::signal::Signal;
use scripted_model::{Gate, Reply, Script, Shell};
use serde_json::{Value, json};
use settings::store_access::Access;
use testkit::process::wait_until_gone;
use testkit::wait::{TIME_LIMIT, wait_for_count};

use super::CodexFixture;
use super::host_killed::rollout;
use crate::jobs::{Worker, report, wait_for, wait_for_file, wait_until};
use crate::on_both_releases;

on_both_releases!(
    turn_continues_with_the_next_worker,
    turn_that_ends_without_a_worker_is_reported,
    open_question_is_asked_once,
    job_that_is_cancelled_without_a_worker_ends,
    time_without_a_worker_counts,
    jobs_of_one_codex_continue_side_by_side,
    codex_that_dies_without_a_worker_is_reported,
    without_another_worker_all_processes_end,
);

/// Runs a command, and writes while it waits for `go.txt`.
pub(super) const WAITS: &str =
    "echo x > made.txt; touch started.txt; until [ -e go.txt ]; do sleep 0.05; done";

/// A store, and the worker of its jobs.
pub(super) struct WorkerFixture {
    pub(super) stage: CodexFixture,
    pub(super) store: JobStore,
    worker: Option<Worker>,
}

impl WorkerFixture {
    pub(super) async fn new(release: &str, script: Script) -> Self {
        let stage = CodexFixture::new(release, script).await;
        let access = Access::of(stage.home.state_home().join("codex-mcp"));
        let location = location(&stage);
        let store = JobStore::open(&location.parse().unwrap(), &access).await;
        let mut fixture = Self {
            stage,
            store: store.unwrap(),
            worker: None,
        };
        fixture.start_worker().await;
        fixture
    }

    pub(super) async fn start_worker(&mut self) {
        let codex = testkit::codex::native_binary(&self.stage.release);
        let args = ["--heartbeat-ms", "200"];
        let worker = Worker::start(&self.stage.home, &location(&self.stage), &codex, &args);
        worker.says("takes jobs from").await;
        self.worker = Some(worker);
    }

    pub(super) async fn kill_worker(&mut self) {
        let worker = self.worker.take().unwrap();
        worker.signal(Signal::SIGKILL);
        worker.ended().await;
    }

    pub(super) fn request(&self, prompt: &str) -> Request {
        Request {
            timeout_ms: 600_000,
            sandbox: Some("danger-full-access".to_owned()),
            ..Request::new(prompt, self.stage.home.work().to_str().unwrap())
        }
    }

    pub(super) async fn submit(&self, request: Request) -> JobId {
        self.store.submit(&NewJob::new(request)).await.unwrap()
    }

    /// Submits a job, and waits until its turn has begun.
    async fn begin(&self, request: Request, gate: &Gate, turns: usize) -> JobId {
        let id = self.submit(request).await;
        gate.reached(turns).await;
        id
    }

    pub(super) async fn completed(&self, id: &JobId) -> Job {
        wait_until(&self.store, id, JobState::Completed).await
    }

    /// The events of a job, which are numbered without a gap, as `KIND ID`.
    async fn events(&self, id: &JobId) -> Vec<String> {
        let events = self.store.events(id, 0, 1000).await.unwrap();
        let numbers = events.iter().map(|event| event.sequence);
        assert!(numbers.eq(1..=u32::try_from(events.len()).unwrap()));
        let steps = events.iter().map(|event| {
            let data: Value = serde_json::from_str(&event.data).unwrap();
            format!(
                "{} {}",
                event.kind,
                data["item"]["id"].as_str().unwrap_or_default()
            )
        });
        steps.collect()
    }

    /// The ID of the open question.
    async fn question(&self, id: &JobId) -> String {
        let question = wait_for("a question", async || {
            self.store.questions(id).await.unwrap().pop()
        });
        question.await.id
    }

    /// The number of events which say that another worker continues the turn.
    pub(super) async fn notices(&self, id: &JobId) -> u64 {
        let events = self.events(id).await;
        let notices = events.iter().filter(|event| event.starts_with(CONTINUES));
        notices.count() as u64
    }

    /// How many messages of a user with this text the last request to the model has.
    fn prompts(&self, prompt: &str) -> usize {
        let asked = self.stage.model.requests().pop().unwrap();
        let messages = asked.user_messages().into_iter();
        messages.filter(|text| text.contains(prompt)).count()
    }

    pub(super) async fn finish(mut self) {
        if let Some(worker) = self.worker.take() {
            worker.finish().await;
        }
        wait_for("all processes are gone", async || {
            self.stage.home.processes().is_empty().then_some(())
        })
        .await;
        let left = fs::read_dir(self.stage.home.state_home().join("codex-mcp/workers"));
        assert_eq!(left.unwrap().count(), 0, "sockets are left");
    }
}

fn location(stage: &CodexFixture) -> String {
    let store = stage.home.state_home().join("codex-mcp/jobs.db");
    store.to_str().unwrap().to_owned()
}

fn gated() -> (Gate, Script) {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("Done.").behind(&gate)]);
    (gate, script)
}

/// Two workers are killed, one after the other. Nothing is prompted, run or stored twice.
async fn turn_continues_with_the_next_worker(release: &str) {
    let script = Script::new().otherwise([
        Reply::shell("echo x >> first.txt"),
        Reply::shell(WAITS),
        Reply::say("Done."),
    ]);
    let mut jobs = WorkerFixture::new(release, script).await;
    let id = jobs.submit(jobs.request("make it")).await;
    wait_for_file(&jobs.stage.file("started.txt")).await;
    let thread = wait_for("its session", async || {
        jobs.store
            .get(&id)
            .await
            .unwrap()
            .unwrap()
            .summary
            .session_id
    })
    .await;
    for times in 1..=2 {
        jobs.kill_worker().await;
        jobs.start_worker().await;
        wait_for_count("it is continued", times, async || jobs.notices(&id).await).await;
    }
    fs::write(jobs.stage.file("go.txt"), "").unwrap();
    let job = jobs.completed(&id).await;
    assert_eq!(job.attempts, 1);
    assert_eq!(job.summary.session_id.as_ref(), Some(&thread));
    let report = report(&job);
    assert_eq!(report.response.as_deref(), Some("Done."));
    assert_eq!(report.commands.len(), 2, "{report:#?}");
    // By a command, so that only git can tell: the tree before the turn was kept, too.
    let mut changed = report.changed_files.iter();
    assert!(changed.any(|file| file.path == "made.txt"), "{report:#?}");
    assert_eq!(
        fs::read_to_string(jobs.stage.file("first.txt")).unwrap(),
        "x\n"
    );
    assert_eq!(jobs.prompts("make it"), 1);
    let mut events = jobs.events(&id).await;
    assert_eq!(events.last().unwrap(), "turn.completed ");
    events.retain(|event| !event.starts_with(CONTINUES));
    let all = events.len();
    events.sort();
    events.dedup();
    assert_eq!(events.len(), all, "{events:#?}");
    jobs.finish().await;
}

/// The worker is dead when the turn ends.
async fn turn_that_ends_without_a_worker_is_reported(release: &str) {
    let (gate, script) = gated();
    let mut jobs = WorkerFixture::new(release, script).await;
    let id = jobs.begin(jobs.request("hello"), &gate, 1).await;
    jobs.kill_worker().await;
    gate.release();
    wait_for("the end of the turn", async || {
        let has_ended = rollout(&jobs.stage).contains("\"task_complete\"");
        has_ended.then_some(())
    })
    .await;
    jobs.start_worker().await;
    let job = jobs.completed(&id).await;
    assert_eq!(job.attempts, 1);
    assert_eq!(report(&job).response.as_deref(), Some("Done."));
    assert_eq!(jobs.stage.model.request_count(), 1);
    jobs.finish().await;
}

/// The answer comes when the next worker has the job.
async fn open_question_is_asked_once(release: &str) {
    let touch = Reply::shell(Shell::escalated("touch made.txt", "it is needed"));
    let script = Script::new().otherwise([touch, Reply::say("Done.")]);
    let mut jobs = WorkerFixture::new(release, script).await;
    let request = Request {
        sandbox: Some("read-only".to_owned()),
        settings: Some(json!({ "approval": "ask" })),
        ..jobs.request("ask")
    };
    let id = jobs.submit(request).await;
    let is_asked = |event: &String| event.starts_with(ASKED);
    wait_for("it is asked", async || {
        jobs.events(&id).await.iter().any(is_asked).then_some(())
    })
    .await;
    let question = jobs.question(&id).await;
    jobs.kill_worker().await;
    jobs.start_worker().await;
    wait_for_count("it is continued", 1, async || jobs.notices(&id).await).await;
    assert_eq!(jobs.question(&id).await, question);
    jobs.stage.jobs(&["approve", id.as_str(), &question]).await;
    let job = jobs.completed(&id).await;
    assert_eq!(job.attempts, 1);
    assert!(jobs.stage.file("made.txt").exists());
    let events = jobs.events(&id).await;
    assert_eq!(events.iter().filter(|event| is_asked(event)).count(), 1);
    jobs.finish().await;
}

/// Somebody cancels the job between two workers.
async fn job_that_is_cancelled_without_a_worker_ends(release: &str) {
    let (gate, script) = gated();
    let mut jobs = WorkerFixture::new(release, script).await;
    let id = jobs.begin(jobs.request("hello"), &gate, 1).await;
    jobs.kill_worker().await;
    jobs.store.request_cancel(&id).await.unwrap();
    jobs.start_worker().await;
    let job = wait_until(&jobs.store, &id, JobState::Cancelled).await;
    assert_eq!(job.attempts, 1);
    jobs.finish().await;
}

/// The time limit ends while there is no worker.
async fn time_without_a_worker_counts(release: &str) {
    let (gate, script) = gated();
    let mut jobs = WorkerFixture::new(release, script).await;
    let request = Request {
        timeout_ms: 20_000,
        ..jobs.request("hello")
    };
    let id = jobs.begin(request, &gate, 1).await;
    jobs.kill_worker().await;
    jobs.start_worker().await;
    let job = wait_until(&jobs.store, &id, JobState::Failed).await;
    let error = job.summary.error.unwrap_or_default();
    assert!(error.contains("timed out after 20000ms"), "{error}");
    assert_eq!(job.attempts, 1);
    jobs.finish().await;
}

/// The control is a job that waits: the next worker begins it.
async fn jobs_of_one_codex_continue_side_by_side(release: &str) {
    let (gate, script) = gated();
    let mut jobs = WorkerFixture::new(release, script).await;
    let mut ids = Vec::new();
    for number in 1..=4 {
        let request = jobs.request(&format!("job {number}"));
        ids.push(jobs.begin(request, &gate, number).await);
    }
    ids.push(jobs.submit(jobs.request("job 5")).await);
    jobs.kill_worker().await;
    jobs.start_worker().await;
    gate.release();
    for id in &ids {
        let job = jobs.completed(id).await;
        assert_eq!(job.attempts, 1);
        assert_eq!(report(&job).response.as_deref(), Some("Done."));
    }
    assert_eq!(jobs.stage.model.request_count(), 5);
    jobs.finish().await;
}

/// Codex is killed between two workers.
async fn codex_that_dies_without_a_worker_is_reported(release: &str) {
    let (gate, script) = gated();
    let mut jobs = WorkerFixture::new(release, script).await;
    let id = jobs.begin(jobs.request("hello"), &gate, 1).await;
    jobs.kill_worker().await;
    crate::jobs::kill_codex(&jobs.stage.home);
    jobs.start_worker().await;
    let job = wait_until(&jobs.store, &id, JobState::Failed).await;
    // The guard may hand over a Codex that has just died.
    let error = job.summary.error.unwrap_or_default();
    assert!(
        [WORKER_LOST, CODEX_LOST].contains(&error.as_str()),
        "{error}"
    );
    jobs.finish().await;
}

/// The guard ends Codex before the lease of the job can end.
async fn without_another_worker_all_processes_end(release: &str) {
    let (gate, script) = gated();
    let mut jobs = WorkerFixture::new(release, script).await;
    jobs.begin(jobs.request("hello"), &gate, 1).await;
    jobs.kill_worker().await;
    let left = jobs.stage.home.processes();
    assert!(!left.is_empty());
    let left: Vec<u32> = left.iter().map(|process| process.pid).collect();
    assert_eq!(wait_until_gone(&left, TIME_LIMIT).await, []);
    gate.release();
    jobs.finish().await;
}
