//! `codex-mcp jobs`, on stores that the test has filled. The place of a worker is
//! taken, so that none is started, and the test is the worker.

mod listing;
mod postgres;
mod submitting;
mod terminal;
mod waiting;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::Duration;

use job_queue::logic::{Ending, JobId};
use job_queue::store::{
    Claim, Finished, JobStore, NewEvent, NewJob, Request, Written, new_worker_id,
};
use job_queue::worker::lock::{LockGuard, WorkerLock};
use serde_json::{Value, json};
use settings::store_access::Access;
use settings::store_location::Location;
use testkit::Home;

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(600);

const SESSION: &str = "01a200a4-af16-7971-bdb2-fa12438e61e4";

/// Does to a terminal what nobody wants: colours, titles, clearing, a bell, and the
/// same with the one-character forms of the sequences.
const HOSTILE: &str = "a\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m\u{8}\rz";

/// A home with a store.
struct Stage {
    home: Home,
    location: Location,
    store: JobStore,
    _place: LockGuard,
}

struct Said {
    code: i32,
    stdout: String,
    stderr: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Stage {
    /// Where jobs are if nobody says otherwise.
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
        let mut command = Command::new(env!("CARGO_BIN_EXE_codex-mcp"));
        command
            .arg("jobs")
            .args(args)
            .env_clear()
            .envs(self.home.env())
            .env("CODEX_MCP_STORE", self.location.with_secrets())
            // It is named, and never run.
            .env("CODEX_MCP_CODEX_BIN", "/bin/sh")
            .current_dir(self.home.work())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn say(&self, args: &[&str]) -> Said {
        self.command(args).output().unwrap().into()
    }

    /// What is printed where nothing goes wrong.
    fn told(&self, args: &[&str]) -> String {
        let said = self.say(args);
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{args:?}");
        said.stdout
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.told(args)).unwrap()
    }

    /// With this on its stdin.
    fn fed(&self, args: &[&str], stdin: &[u8]) -> Said {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        // It need not read all of it.
        let _ = child.stdin.take().unwrap().write_all(stdin);
        child.wait_with_output().unwrap().into()
    }

    fn start(&self, args: &[&str]) -> Running {
        let mut child = self.command(args).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Running { child, stderr }
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

    /// Takes the oldest job that waits.
    async fn claim(&self) -> Claim {
        let worker = new_worker_id();
        let claimed = self.store.claim(&worker, "here", LONG).await.unwrap();
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
        let how = Finished {
            ending,
            error,
            session_id: Some(SESSION.to_owned()),
            exchange_id: None,
            result: Some(result),
        };
        let written = self.store.finish(claim, &how).await.unwrap();
        assert_eq!(written, Written::Done);
    }

    /// A job that has ended so.
    async fn ended(&self, prompt: &str, ending: Ending) -> JobId {
        let id = self.queued(prompt).await;
        let claim = self.claim().await;
        self.append(&claim, &events()).await;
        self.finish(&claim, ending, report()).await;
        id
    }
}

/// The program, while it runs.
struct Running {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Running {
    /// Waits for a line on stderr that has this in it.
    fn hears(&mut self, words: &str) {
        loop {
            let mut line = String::new();
            let length = self.stderr.read_line(&mut line).unwrap();
            assert_ne!(length, 0, "it ended without {words:?}");
            if line.contains(words) {
                return;
            }
        }
    }

    /// What it says from now on.
    fn ends(mut self) -> Said {
        let mut stderr = String::new();
        self.stderr.read_to_string(&mut stderr).unwrap();
        let output = self.child.wait_with_output().unwrap();
        Said {
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
