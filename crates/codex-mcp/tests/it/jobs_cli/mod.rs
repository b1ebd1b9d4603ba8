//! `codex-mcp jobs`, on stores that the test fills. The test holds the worker lock, so that no
//! worker is started, and acts as the worker.

mod detached_runs;
mod listing;
mod postgres;
mod submitting;
mod terminal;
mod waiting;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use job_queue::logic::{Ending, JobId};
use job_queue::store::{
    Claim, FinishedJob, JobStore, NewEvent, NewJob, Request, WriteOutcome, new_worker_id,
};
use job_queue::worker::lock::{LockGuard, WorkerLock};
use serde_json::{Value, json};
use settings::store_access::Access;
use settings::store_location::Location;
use testkit::Home;

use crate::output::CommandOutput;

/// Longer than any test takes.
const LONG_LEASE: Duration = Duration::from_secs(600);

const SESSION: &str = "01a200a4-af16-7971-bdb2-fa12438e61e4";

/// Text that is hostile to a terminal: colours, titles, clearing, a bell, and the one-character
/// forms of the sequences.
const HOSTILE: &str = "a\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m\u{8}\rz";

/// A home with a store and the lock of its worker.
struct JobsFixture {
    home: Home,
    location: Location,
    store: JobStore,
    _place: LockGuard,
}

impl JobsFixture {
    /// A store at the default location.
    async fn new() -> Self {
        let home = Home::new("");
        let location = Location::Sqlite(home.state_home().join("codex-mcp/jobs.db"));
        Self::at(home, location).await
    }

    async fn at(home: Home, location: Location) -> Self {
        let state = home.state_home().join("codex-mcp");
        let place = WorkerLock::of(&location, &state);
        Self {
            store: JobStore::open(&location, &Access::of(&state))
                .await
                .unwrap(),
            _place: place.take().await.unwrap().unwrap(),
            location,
            home,
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        self.program(&[&["jobs"], args].concat())
    }

    /// The program with another verb than `jobs`.
    fn program(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(env!("CARGO_BIN_EXE_codex-mcp"));
        command
            .args(args)
            .env("CODEX_MCP_STORE", self.location.with_secrets())
            // Recorded in jobs, and never run.
            .env("CODEX_MCP_CODEX_BIN", "/bin/sh")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str]) -> CommandOutput {
        self.command(args).output().unwrap().into()
    }

    /// Runs the verb, which must succeed without a word on stderr; returns its stdout.
    fn stdout_of(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{args:?}");
        output.stdout
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.stdout_of(args)).unwrap()
    }

    /// Runs the verb with `stdin`.
    fn run_with_stdin(&self, args: &[&str], stdin: &[u8]) -> CommandOutput {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        // The program need not read all of it.
        let _ = child.stdin.take().unwrap().write_all(stdin);
        child.wait_with_output().unwrap().into()
    }

    fn start(&self, args: &[&str]) -> RunningCli {
        let mut child = self.command(args).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        RunningCli { child, stderr }
    }

    async fn submit(&self, request: Request) -> JobId {
        let job = NewJob::new(request);
        self.store.submit(&job).await.unwrap()
    }

    async fn queued(&self, prompt: &str) -> JobId {
        let cwd = self.home.work();
        self.submit(Request::new(prompt, cwd.to_str().unwrap()))
            .await
    }

    /// Claims the oldest queued job.
    async fn claim(&self) -> Claim {
        let worker = new_worker_id();
        let claimed = self.store.claim(&worker, "here", LONG_LEASE).await.unwrap();
        claimed.unwrap().claim
    }

    async fn append(&self, claim: &Claim, events: &[Value]) {
        let event = |event: &Value| NewEvent {
            kind: event["type"].as_str().unwrap().to_owned(),
            data: event.to_string(),
        };
        let events: Vec<NewEvent> = events.iter().map(event).collect();
        self.store.append(claim, &events).await.unwrap();
    }

    async fn finish(&self, claim: &Claim, ending: Ending, result: Value) {
        let error = (ending == Ending::Failed).then(|| "the model is away\nmore".to_owned());
        let how = FinishedJob {
            ending,
            error,
            session_id: Some(SESSION.to_owned()),
            exchange_id: None,
            result: Some(result),
        };
        let written = self.store.finish(claim, &how).await.unwrap();
        assert_eq!(written, WriteOutcome::Done);
    }

    /// Submits a job and ends it with `ending`.
    async fn ended(&self, prompt: &str, ending: Ending) -> JobId {
        let id = self.queued(prompt).await;
        let claim = self.claim().await;
        self.append(&claim, &events()).await;
        self.finish(&claim, ending, report()).await;
        id
    }

    /// Submits a job and completes it with a step that the sandbox has blocked.
    async fn completed_with_problems(&self) -> JobId {
        let id = self.queued("troubled").await;
        let claim = self.claim().await;
        let mut result = report();
        result["failed_steps"] = json!([{ "kind": "command", "what": "touch x",
            "outcome": "blocked", "exit_code": 1 }]);
        result["sandbox"] = json!("read-only");
        self.finish(&claim, Ending::Completed, result).await;
        id
    }
}

/// A running `codex-mcp jobs`.
struct RunningCli {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl RunningCli {
    /// Waits for a line on stderr that contains `words`.
    fn wait_for_line(&mut self, words: &str) {
        loop {
            let mut line = String::new();
            let length = self.stderr.read_line(&mut line).unwrap();
            assert_ne!(length, 0, "the program ended without {words:?}");
            if line.contains(words) {
                return;
            }
        }
    }

    /// Waits for the end; returns the rest of the output.
    fn ends(mut self) -> CommandOutput {
        let mut stderr = String::new();
        self.stderr.read_to_string(&mut stderr).unwrap();
        let output = self.child.wait_with_output().unwrap();
        CommandOutput {
            stderr,
            ..output.into()
        }
    }
}

fn short(id: &JobId) -> &str {
    &id.as_str()[..8]
}

fn command(state: &str, exit_code: Option<i32>) -> Value {
    json!({"type": format!("item.{state}"), "item": {
        "id": "item_1", "type": "command_execution", "command": "/bin/bash -lc 'make test'",
        "aggregated_output": "", "exit_code": exit_code, "status": "completed",
    }})
}

fn message(text: &str) -> Value {
    json!({"type": "item.completed", "item": {"id": "m", "type": "agent_message", "text": text}})
}

fn events() -> Vec<Value> {
    vec![
        json!({"type": "thread.started", "thread_id": SESSION}),
        json!({"type": "turn.started"}),
        command("started", None),
        command("completed", Some(3)),
        message("It is\ndone."),
    ]
}

fn report() -> Value {
    json!({
        "response": "It is\ndone.",
        "usage": {"input_tokens": 200, "cached_input_tokens": 40, "output_tokens": 20},
        "evidence": {"commands": 3},
        "commands": [{"command": "/bin/bash -lc 'make test'", "exit_code": 3,
            "status": "failed", "output": "no"}],
        "changed_files": [{"path": "src/a b.rs", "kind": "added", "seen_by": "git"}],
        "warnings": ["an old model"],
        "stderr": "", "stdout": "",
    })
}
