//! Codex's questions in jobs, and steering of their turns.

use std::time::Duration;

use job_queue::logic::{JobId, JobState, WORKER_LOST};
use job_queue::store::{
    InstructOutcome, InstructionProgress, Job, JobStore, NewInstruction, NewJob, Question, Request,
};
use nix::sys::signal::Signal;
use scripted_model::{Patch, Reply, Script, Shell};
use serde_json::{Value, json};
use settings::store_access::Access;
use uuid::Uuid;

use super::{CodexFixture, assert_error, on_oldest_and_newest, structured};
use crate::jobs::{Worker, report, wait_for, wait_until};

on_oldest_and_newest!(
    question_is_shown_everywhere_and_answered_once,
    question_times_out_and_is_declined,
    refusal_that_ends_the_turn_is_told_as_such,
    file_change_is_asked_about_and_its_diff_is_kept,
    question_of_a_killed_worker_is_closed,
    answer_stays_within_the_bound,
    running_job_is_steered,
);

/// A store and a worker for jobs that ask.
struct QuestionFixture {
    stage: CodexFixture,
    store: JobStore,
    worker: Option<Worker>,
}

impl QuestionFixture {
    async fn of(release: &str, script: Script, args: &[&str]) -> Self {
        let stage = CodexFixture::new(release, script).await;
        let location = stage.home.state_home().join("codex-mcp/jobs.db");
        let location = location.to_str().unwrap();
        let access = Access::of(stage.home.state_home().join("codex-mcp"));
        let codex = testkit::codex::native_binary(&stage.release);
        let store = JobStore::open(&location.parse().unwrap(), &access).await;
        let worker = Worker::start(&stage.home, location, &codex, args);
        Self {
            stage,
            store: store.unwrap(),
            worker: Some(worker),
        }
    }

    async fn submit(&self, settings: Value) -> JobId {
        let request = Request {
            timeout_ms: 120_000,
            sandbox: Some("read-only".to_owned()),
            settings: Some(settings),
            ..Request::new("ask", self.stage.home.work().to_str().unwrap())
        };
        self.store.submit(&NewJob::new(request)).await.unwrap()
    }

    async fn question(&self, id: &JobId) -> Question {
        wait_for("a question", async || {
            self.store.questions(id).await.unwrap().pop()
        })
        .await
    }

    async fn events(&self, id: &JobId) -> String {
        let events = self.store.events(id, 0, 1000).await.unwrap();
        let lines = events
            .into_iter()
            .map(|one| format!("{} {}\n", one.kind, one.data));
        lines.collect()
    }

    /// Runs `codex-mcp jobs`, which must refuse with exit code 3; returns its stderr.
    async fn run_refused(&self, args: &[&str]) -> String {
        let output = self.stage.jobs_command(args).output().await.unwrap();
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    async fn wait_until_completed(&self, id: &JobId) -> Job {
        wait_until(&self.store, id, JobState::Completed).await
    }

    async fn finish(mut self) {
        if let Some(worker) = self.worker.take() {
            worker.finish().await;
        }
        wait_for("all processes are gone", async || {
            self.stage.home.processes().is_empty().then_some(())
        })
        .await;
    }
}

fn asking_model() -> Script {
    let touch = || Reply::shell(Shell::escalated("touch made.txt", "it is needed"));
    Script::new().otherwise([touch(), Reply::say("Done.")])
}

/// Shell and tool show the same question, and a second answer is refused.
async fn question_is_shown_everywhere_and_answered_once(release: &str) {
    let asking = QuestionFixture::of(release, asking_model(), &[]).await;
    let id = asking.submit(json!({ "approval": "ask" })).await;
    let question = asking.question(&id).await;
    let page = asking.stage.jobs(&["show", id.as_str()]).await;
    for words in [
        format!("Codex asks ({}, declined at 2", question.id),
        "Codex wants to run a command.".to_owned(),
        "touch made.txt".to_owned(),
        "State     running".to_owned(),
        format!(
            "codex-mcp jobs approve {} {}`",
            &id.as_str()[..8],
            question.id
        ),
    ] {
        assert!(page.contains(&words), "{words:?} is missing: {page}");
    }
    let table = asking.stage.jobs(&["list"]).await;
    assert!(table.contains(" asking "), "{table}");
    let mut client = asking.stage.client(&[]).await;
    let wait = json!({ "job_id": id, "wait_ms": 600_000 });
    let seen = client.call_tool("call_status", wait).await;
    let seen = structured(&seen);
    assert_eq!(seen["status"], "running", "{seen:#}");
    let shown = &seen["questions"][0];
    assert_eq!(shown["request_id"], question.id);
    assert_eq!(shown["kind"], "command");
    assert_eq!(shown["answerable"], true);
    for decision in ["accept", "decline", "cancel"] {
        let offered = shown["decisions"].as_array().unwrap();
        assert!(offered.contains(&json!(decision)), "{shown:#}");
    }
    let other = json!({ "job_id": id, "decision": { "acceptWithExecpolicyAmendment": ["rm"] } });
    let refused = client.call_tool("call_respond", other).await;
    assert_error(&refused, "INVALID_ARGUMENT");

    // Of two simultaneous answers, one is too late.
    let yes = json!({ "job_id": id, "decision": "accept" });
    let by_tool = client.request_tool("call_respond", yes);
    let by_shell = asking
        .stage
        .jobs_command(&["approve", id.as_str()])
        .output()
        .await;
    let by_shell = by_shell.unwrap();
    let by_tool = client.result(&by_tool).await;
    let successes = [by_shell.status.success(), by_tool["isError"] != true];
    assert_ne!(successes[0], successes[1], "{by_shell:?} {by_tool:#}");
    let job = asking.wait_until_completed(&id).await;
    assert!(asking.stage.file("made.txt").exists());
    assert_eq!(report(&job).response.as_deref(), Some("Done."));
    let late = asking.run_refused(&["approve", id.as_str()]).await;
    assert!(late.contains(": it is completed; "), "{late}");
    let events = asking.events(&id).await;
    let answered = match successes {
        [true, _] => "answered at a terminal: accept",
        [false, _] => "answered by a tool: accept",
    };
    for words in ["asks: waiting for approval to run", answered] {
        assert!(events.contains(words), "{words:?} is missing: {events}");
    }
    assert!(client.finish().await.success());
    asking.finish().await;
}

async fn question_times_out_and_is_declined(release: &str) {
    let asking = QuestionFixture::of(release, asking_model(), &[]).await;
    let settings = json!({ "approval": "ask", "approval_timeout_ms": 1000 });
    let id = asking.submit(settings).await;
    let question = asking.question(&id).await;
    let job = asking.wait_until_completed(&id).await;
    assert!(!asking.stage.file("made.txt").exists());
    assert_eq!(report(&job).evidence.declined, 1, "{job:#?}");
    let events = asking.events(&id).await;
    assert!(events.contains("codex-mcp/unanswered"), "{events}");
    let late = asking
        .run_refused(&["approve", id.as_str(), &question.id])
        .await;
    assert!(late.contains(": it is completed; "), "{late}");

    // Without `approval: ask` the job asks nothing.
    let id = asking.submit(json!({})).await;
    asking.wait_until_completed(&id).await;
    let events = asking.events(&id).await;
    assert!(!events.contains("codex-mcp/question"), "{events}");
    asking.finish().await;
}

async fn refusal_that_ends_the_turn_is_told_as_such(release: &str) {
    let asking = QuestionFixture::of(release, asking_model(), &[]).await;
    let id = asking.submit(json!({ "approval": "ask" })).await;
    asking.question(&id).await;
    let decline = ["decline", "--end", id.as_str(), "--reason", "not here"];
    asking.stage.jobs(&decline).await;
    let job = wait_until(&asking.store, &id, JobState::Failed).await;
    let failure = report(&job).failure.unwrap();
    assert_eq!(failure.class, "declined", "{failure:#?}");
    let told = "the answer to a question ended the turn: not here";
    assert_eq!(failure.message, told);
    asking.finish().await;
}

async fn file_change_is_asked_about_and_its_diff_is_kept(release: &str) {
    let patch = || Reply::patch(Patch::new().add("patched.txt", "hello\n"));
    let script = Script::new().otherwise([patch(), patch(), Reply::say("Done.")]);
    let asking = QuestionFixture::of(release, script, &[]).await;
    let id = asking.submit(json!({ "approval": "ask" })).await;
    let first = asking.question(&id).await;
    let decline = ["decline", id.as_str(), "--reason", "not\u{1b}[2J yet"];
    let said = asking.stage.jobs(&decline).await;
    assert!(said.ends_with(" declined\n"), "{said}");
    let second = wait_for("another question", async || {
        let open = asking.store.questions(&id).await.unwrap();
        open.into_iter().find(|one| one.id != first.id)
    })
    .await;
    assert_eq!(second.question["kind"], "fileChange");
    let text = second.question["text"].as_str().unwrap();
    assert!(text.contains("patched.txt"), "{text}");
    wait_for("the first answer in the refusal", async || {
        let again = ["approve", id.as_str(), first.id.as_str()];
        let used = asking.run_refused(&again).await;
        let words = "was answered already: decline (terminal)";
        used.contains(words).then_some(())
    })
    .await;
    asking
        .stage
        .jobs(&["approve", id.as_str(), &second.id])
        .await;
    let job = asking.wait_until_completed(&id).await;
    let diff = report(&job).diff.unwrap();
    assert!(diff.contains("+hello"), "{diff}");
    let exchange = format!("{id}.1");
    assert_eq!(job.exchange_id.as_deref(), Some(exchange.as_str()));
    let page = asking.stage.jobs(&["show", id.as_str()]).await;
    assert!(page.contains("Diff of Codex's patches\n"), "{page}");
    let log = asking.stage.jobs(&["logs", id.as_str()]).await;
    assert!(
        log.contains("answered at a terminal: decline (not\\u{1b}[2J yet)"),
        "{log}"
    );
    asking.finish().await;
}

async fn question_of_a_killed_worker_is_closed(release: &str) {
    let short = ["--lease-ms", "2000", "--heartbeat-ms", "200"];
    let mut asking = QuestionFixture::of(release, asking_model(), &short).await;
    let id = asking.submit(json!({ "approval": "ask" })).await;
    let question = asking.question(&id).await;
    let worker = asking.worker.take().unwrap();
    worker.signal(Signal::SIGKILL);
    drop(worker);
    wait_for("the question is gone", async || {
        let open = asking.store.questions(&id).await.unwrap();
        open.is_empty().then_some(())
    })
    .await;
    let gone = asking
        .run_refused(&["approve", id.as_str(), &question.id])
        .await;
    let words = ["no open question", ": it is failed; "];
    assert!(words.iter().any(|words| gone.contains(words)), "{gone}");
    let codex = testkit::codex::native_binary(release);
    let location = asking.store.location().path().unwrap().to_owned();
    let location = location.to_str().unwrap();
    asking.worker = Some(Worker::start(&asking.stage.home, location, &codex, &short));
    let job = wait_until(&asking.store, &id, JobState::Failed).await;
    assert_eq!(job.summary.error.as_deref(), Some(WORKER_LOST));
    assert!(!asking.stage.file("made.txt").exists());
    asking.finish().await;
}

/// The bound also holds for an answer that is written to the store directly.
async fn answer_stays_within_the_bound(release: &str) {
    let bound = ["--max-sandbox", "workspace-write"];
    let asking = QuestionFixture::of(release, asking_model(), &bound).await;
    let id = asking.submit(json!({ "approval": "ask" })).await;
    let question = asking.question(&id).await;
    let decisions = &question.question["decisions"];
    assert_eq!(*decisions, json!(["decline", "cancel"]));
    let refused = asking.run_refused(&["approve", id.as_str()]).await;
    assert!(refused.contains("does not offer \"accept\""), "{refused}");
    let answer = json!({ "answer": { "question": question.id, "decision": "accept" } });
    let forged = NewInstruction {
        id: Uuid::new_v4(),
        question: Some(question.id.clone()),
        data: answer.to_string(),
    };
    let given = asking.store.instruct(&id, &forged).await.unwrap();
    assert_eq!(given, Some(InstructOutcome::Given));
    let outcome = wait_for("an outcome", async || {
        match asking.store.progress(&forged).await.unwrap() {
            InstructionProgress::Concluded(outcome) => Some(outcome),
            _ => None,
        }
    })
    .await;
    assert!(
        outcome.contains("max_sandbox (--max-sandbox) forbids"),
        "{outcome}"
    );
    asking.stage.jobs(&["decline", id.as_str()]).await;
    asking.wait_until_completed(&id).await;
    assert!(!asking.stage.file("made.txt").exists());
    asking.finish().await;
}

async fn running_job_is_steered(release: &str) {
    let waits = "touch begun.txt; until [ -e go.txt ]; do sleep 0.05; done";
    let script = Script::new().otherwise([
        Reply::shell(Shell::new(waits).waiting(Duration::from_secs(30))),
        Reply::say("Done."),
    ]);
    let asking = QuestionFixture::of(release, script, &[]).await;
    let request = Request {
        timeout_ms: 120_000,
        sandbox: Some("danger-full-access".to_owned()),
        ..Request::new("wait", asking.stage.home.work().to_str().unwrap())
    };
    let id = asking.store.submit(&NewJob::new(request)).await.unwrap();
    wait_for("the command", async || {
        asking.stage.file("begun.txt").exists().then_some(())
    })
    .await;
    let said = asking
        .stage
        .jobs(&["steer", id.as_str(), "say it in German"])
        .await;
    assert_eq!(said, format!("{}: steered\n", &id.as_str()[..8]));
    std::fs::write(asking.stage.file("go.txt"), "").unwrap();
    asking.wait_until_completed(&id).await;
    let last = asking.stage.model.requests().pop().unwrap();
    let said = last.user_messages();
    assert!(said.contains(&"say it in German"), "{said:?}");
    let late = asking.run_refused(&["steer", id.as_str(), "more"]).await;
    assert!(late.contains(": it is completed; "), "{late}");
    asking.finish().await;
}
