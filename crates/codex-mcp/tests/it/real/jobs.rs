//! Jobs of a worker, with the real Codex.

use std::time::Duration;

use codex_engine::logic::work::ChangeSource;
use git_probe::logic::git_state::ChangeKind;
use job_queue::logic::{JobId, JobState};
use job_queue::store::{JobStore, NewJob, Request};
use scripted_model::{Patch, Reply, Script, Shell};
use serde_json::json;
use settings::store_access::Access;

use super::{CodexFixture, on_oldest_and_newest};
use crate::SETSID;
use crate::jobs::{Worker, report, wait_for_file, wait_until};

on_oldest_and_newest!(
    cancelled_job_leaves_no_processes,
    job_is_done_and_reported,
    job_is_resumed_with_its_context,
    resumed_thread_has_the_settings_of_the_new_job,
);

/// The store in a stage's home, and a worker for it.
struct JobFixture<'a> {
    stage: &'a CodexFixture,
    store: JobStore,
    worker: Worker,
}

impl<'a> JobFixture<'a> {
    async fn of(stage: &'a CodexFixture) -> Self {
        let path = stage.home.state_home().join("jobs.db");
        let location = path.to_str().unwrap();
        let access = Access::of(stage.home.state_home().join("codex-mcp"));
        let codex = testkit::codex::native_binary(&stage.release);
        Self {
            stage,
            store: JobStore::open(&location.parse().unwrap(), &access)
                .await
                .unwrap(),
            worker: Worker::start(&stage.home, location, &codex, &[]),
        }
    }

    fn request(&self, prompt: &str, sandbox: &str) -> Request {
        Request {
            timeout_ms: 120_000,
            sandbox: Some(sandbox.to_owned()),
            ..Request::new(prompt, self.stage.home.work().to_str().unwrap())
        }
    }

    async fn submit(&self, request: Request) -> JobId {
        self.store.submit(&NewJob::new(request)).await.unwrap()
    }

    async fn finish(self) {
        self.worker.finish().await;
        assert_eq!(self.stage.home.processes(), []);
    }
}

async fn job_is_done_and_reported(release: &str) {
    let script = Script::new().otherwise([
        Reply::shell("echo said; echo more >> README.md"),
        Reply::patch(Patch::new().add("patched.txt", "hello\n")),
        Reply::say("Done."),
    ]);
    let stage = CodexFixture::new(release, script).await;
    let jobs = JobFixture::of(&stage).await;
    let mut request = jobs.request("work", "workspace-write");
    request.expose_stream = true;
    let id = jobs.submit(request).await;
    let job = wait_until(&jobs.store, &id, JobState::Completed).await;
    let report = report(&job);
    assert_eq!(report.response.as_deref(), Some("Done."));
    assert_eq!(report.usage.unwrap().input_tokens, 300);
    assert_eq!(report.evidence.commands, 1);
    assert_eq!(report.commands[0].exit_code, Some(0));
    let files: Vec<_> = report
        .changed_files
        .iter()
        .map(|file| (file.path.as_str(), file.kind, file.seen_by))
        .collect();
    assert_eq!(
        files,
        [
            ("README.md", ChangeKind::Modified, ChangeSource::Git),
            ("patched.txt", ChangeKind::Added, ChangeSource::Both),
        ]
    );
    let events = jobs.store.events(&id, 0, 1000).await.unwrap();
    assert_eq!(events[0].kind, "thread.started");
    assert_eq!(events.last().unwrap().kind, "turn.completed");
    let session = job.summary.session_id.unwrap();
    assert!(events[0].data.contains(&session), "{events:#?}");
    assert_eq!(report.stream_events.unwrap().len(), events.len());
    jobs.finish().await;
}

/// A command that ignores SIGTERM and leaves a process in a new session, which ignores it too.
fn stubborn() -> String {
    format!("trap '' TERM HUP INT; {SETSID} sleep 1000 & touch runs; sleep 1000; sleep 1000")
}

async fn cancelled_job_leaves_no_processes(release: &str) {
    let script = Script::new().otherwise([
        Reply::shell(Shell::new(stubborn()).waiting(Duration::from_secs(30))),
        Reply::say("never"),
    ]);
    let stage = CodexFixture::new(release, script).await;
    let jobs = JobFixture::of(&stage).await;
    let request = jobs.request("work", "danger-full-access");
    let id = jobs.submit(request).await;
    wait_for_file(&stage.file("runs")).await;
    jobs.store.request_cancel(&id).await.unwrap();
    let job = wait_until(&jobs.store, &id, JobState::Cancelled).await;
    assert!(job.summary.session_id.is_some());
    let processes = stage.home.processes();
    let left = processes.iter().find(|one| one.command.contains("sleep"));
    assert_eq!(left, None);
    jobs.finish().await;
}

async fn job_is_resumed_with_its_context(release: &str) {
    let script = Script::new()
        .on("go on", [Reply::say("Two.")])
        .otherwise([Reply::say("One.")]);
    let stage = CodexFixture::new(release, script).await;
    let jobs = JobFixture::of(&stage).await;
    let request = jobs.request("the number is 7", "read-only");
    let id = jobs.submit(request).await;
    let first = wait_until(&jobs.store, &id, JobState::Completed).await;
    let mut request = jobs.request("go on", "read-only");
    request.resume_session_id = first.summary.session_id.clone();
    let id = jobs.submit(request).await;
    let second = wait_until(&jobs.store, &id, JobState::Completed).await;
    assert_eq!(report(&second).response.as_deref(), Some("Two."));
    assert_eq!(second.summary.session_id, first.summary.session_id);
    let asked = stage.model.requests().pop().unwrap();
    assert!(asked.user_messages().contains(&"the number is 7"));
    assert!(asked.assistant_messages().contains(&"One."));
    jobs.finish().await;
}

/// Settings of a job apply to that job alone, even with the same worker.
async fn resumed_thread_has_the_settings_of_the_new_job(release: &str) {
    // Codex 0.153.4 may miss output that a command writes at once.
    let works = |name: &str| {
        let command = format!("sleep 1; echo which=$WHICH; echo x > {name}");
        [Reply::shell(command.as_str()), Reply::say("ok")]
    };
    let script = Script::new()
        .on("first", works("first"))
        .on("second", works("second"));
    let stage = CodexFixture::new(release, script).await;
    let jobs = JobFixture::of(&stage).await;
    let named = |name: &str, sandbox: &str| {
        let key = "shell_environment_policy.set.WHICH";
        Request {
            settings: Some(json!({ "config": { key: name } })),
            ..jobs.request(name, sandbox)
        }
    };
    let id = jobs.submit(named("first", "danger-full-access")).await;
    let first = wait_until(&jobs.store, &id, JobState::Completed).await;
    assert!(report(&first).commands[0].output.contains("which=first"));
    assert!(stage.file("first").exists());
    let id = jobs
        .submit(Request {
            resume_session_id: first.summary.session_id,
            ..named("second", "read-only")
        })
        .await;
    let second = report(&wait_until(&jobs.store, &id, JobState::Completed).await);
    assert!(
        second.commands[0].output.contains("which=second"),
        "{second:#?}"
    );
    assert!(!stage.file("second").exists());
    assert_eq!(second.failed_steps.len(), 1, "{second:#?}");
    jobs.finish().await;
}
