//! A Codex that misbehaves on demand, where the real one does not: garbage, half lines, silence,
//! floods, ignored signals, processes left behind.
//!
//! A test writes a [`Plan`], starts the program under test with [`fake_codex_path`] as its Codex
//! and with [`FakeCodex::env`], and afterwards checks the messages that the fake received. Where
//! the plan says nothing, the fake behaves like Codex 0.169: `app-server` runs a short turn for
//! each prompt, and `mcp-server` does so where its version still has it.

mod app_server;
mod dialect;
mod log;
mod mcp_server;
mod plan;
mod run;
mod running;
mod server;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

pub use self::log::{Entry, Event};
pub use self::plan::{Action, Plan, Question, Session, Stdio, TurnEnd};
pub use self::run::run;
use crate::home::Home;

/// The variable that names the file with the [`Plan`] as JSON.
pub const PLAN: &str = "FAKE_CODEX_PLAN";
/// The variable that names the file which the fake appends its log to.
pub const LOG: &str = "FAKE_CODEX_LOG";
/// The variable with the version that the fake reports. Below 0.154 it has `mcp-server`.
pub const VERSION: &str = "FAKE_CODEX_VERSION";
/// The version without [`VERSION`].
pub const DEFAULT_VERSION: &str = "0.169.0";
/// The fake's answer to each prompt.
pub const HELLO: &str = "Hello from the fake Codex.";

/// How often and how long [`FakeCodex::wait_for`] looks at the log.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The test's end of a fake Codex: its plan and its log, in files of the home.
#[derive(Debug)]
pub struct FakeCodex {
    plan: PathBuf,
    log: PathBuf,
}

impl FakeCodex {
    /// Writes the plan. A home has one fake Codex, of as many processes as are
    /// started with its environment.
    #[must_use]
    pub fn new(home: &Home, plan: &Plan) -> Self {
        let fake = Self {
            plan: home.root().join("fake-codex-plan.json"),
            log: home.root().join("fake-codex-log.jsonl"),
        };
        fake.set_plan(plan);
        fake
    }

    /// Replaces the plan for processes started from now on.
    pub fn set_plan(&self, plan: &Plan) {
        fs::write(&self.plan, serde_json::to_vec(plan).unwrap()).unwrap();
    }

    /// The variables by which the fake finds its plan and its log. [`VERSION`] may
    /// be added.
    #[must_use]
    pub fn env(&self) -> [(&'static str, PathBuf); 2] {
        [(PLAN, self.plan.clone()), (LOG, self.log.clone())]
    }

    /// Opens every [`Action::Gate`] of this name, now and later.
    pub fn open_gate(&self, name: &str) {
        fs::write(gate(&self.plan, name), "").unwrap();
    }

    /// The numbers of its processes, in the order of their starts.
    #[must_use]
    pub fn started(&self) -> Vec<u32> {
        self.log()
            .into_iter()
            .filter(|entry| matches!(entry.event, Event::Started { .. }))
            .map(|entry| entry.pid)
            .collect()
    }

    /// All log entries so far, oldest first.
    #[must_use]
    pub fn log(&self) -> Vec<Entry> {
        log::read(&self.log)
    }

    /// The messages that all its processes have received so far, oldest first.
    #[must_use]
    pub fn received(&self) -> Vec<Value> {
        self.log()
            .into_iter()
            .filter_map(|entry| match entry.event {
                Event::Received(message) => Some(message),
                _ => None,
            })
            .collect()
    }

    /// Waits until an entry of the log fits and returns it. `what` names it in the
    /// failure.
    ///
    /// # Panics
    /// After 30 seconds.
    pub async fn wait_for(&self, what: &str, mut fits: impl FnMut(&Entry) -> bool) -> Entry {
        self.wait_for_nth(1, what, &mut fits).await
    }

    /// Waits until so many entries of the log fit and returns the last of them.
    ///
    /// # Panics
    /// After 30 seconds.
    pub async fn wait_for_nth(
        &self,
        nth: usize,
        what: &str,
        mut fits: impl FnMut(&Entry) -> bool,
    ) -> Entry {
        let end = Instant::now() + TIME_LIMIT;
        loop {
            let log = self.log();
            if let Some(entry) = log.iter().filter(|entry| fits(entry)).nth(nth - 1) {
                return entry.clone();
            }
            assert!(
                Instant::now() < end,
                "waited {TIME_LIMIT:?} for {what} in the fake Codex's log: {log:#?}"
            );
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits until it has received a message of this method, and returns it.
    ///
    /// # Panics
    /// After 30 seconds.
    pub async fn wait_for_method(&self, method: &str) -> Value {
        self.wait_for_nth_method(1, method).await
    }

    /// Waits until it has received so many messages of this method, and returns
    /// the last of them.
    ///
    /// # Panics
    /// After 30 seconds.
    pub async fn wait_for_nth_method(&self, nth: usize, method: &str) -> Value {
        let entry = self
            .wait_for_nth(
                nth,
                method,
                |entry| matches!(&entry.event, Event::Received(message) if message["method"] == method),
            )
            .await;
        match entry.event {
            Event::Received(message) => message,
            event => panic!("not a message: {event:?}"),
        }
    }
}

/// The file that opens a gate, beside the plan.
fn gate(plan: &Path, name: &str) -> PathBuf {
    plan.with_file_name(format!("fake-codex-gate-{name}"))
}

/// The `fake-codex` program, next to the running test.
///
/// # Panics
/// If it was not built: cargo builds it with its own package, not for the tests of
/// others.
#[must_use]
pub fn fake_codex_path() -> PathBuf {
    let test = env::current_exe().unwrap();
    let mut directory = test.parent().unwrap();
    if directory.ends_with("deps") {
        directory = directory.parent().unwrap();
    }
    let path = directory.join("fake-codex");
    assert!(
        path.is_file(),
        "{} is missing: run `cargo build --workspace`",
        path.display()
    );
    path
}
