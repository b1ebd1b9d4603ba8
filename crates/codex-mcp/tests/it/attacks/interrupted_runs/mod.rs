//! Runs that are killed while Codex commits, or while its commits are taken over, and the
//! private git directories that runs leave behind.

mod branches;
mod directories;
mod takeovers;

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use scripted_model::{Gate, Reply, Script};
use serde_json::Value;
use testkit::process::wait_until_gone;
use tokio::process::Child;

use super::fixture::RepositoryFixture;

/// How long Codex may outlive its killed owner.
const EXIT_LIMIT: Duration = Duration::from_secs(10);

/// Below the 60 s for which a named pipe would block one git command.
const TIME_LIMIT: Duration = Duration::from_secs(50);

/// A run whose Codex has committed and still works.
struct PausedRun {
    stage: RepositoryFixture,
    run: Child,
    gate: Gate,
}

impl PausedRun {
    /// The prompt of the run has the word "first"; others do as `others` says.
    async fn new(first: &[Reply], others: &[Reply]) -> Self {
        Self::with(first, others, &[], |_| Vec::new()).await
    }

    /// The same with more arguments and variables.
    async fn with(
        first: &[Reply],
        others: &[Reply],
        more: &[&str],
        env: impl FnOnce(&RepositoryFixture) -> Vec<(&'static str, String)>,
    ) -> Self {
        let gate = Gate::new();
        let end = Reply::say("Done.").behind(&gate);
        let first = first.iter().cloned().chain([end]);
        let script = Script::new()
            .on("first", first)
            .otherwise(others.iter().cloned());
        let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
        let mut command =
            stage.command(&[&["run", "--json", "first"], &RUN_ARGS[..], more].concat());
        command.envs(env(&stage));
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let run = piped.kill_on_drop(true).spawn().unwrap();
        gate.reached(1).await;
        // What a failed command leaves behind would look like a lost commit.
        let request = stage.model.requests().pop().unwrap();
        let outputs = request.tool_outputs();
        assert!(!outputs.is_empty());
        for output in outputs {
            assert!(output.text.contains("exited with code 0"), "{output:?}");
        }
        Self { stage, run, gate }
    }

    /// Kills the run, and waits for the end of its Codex.
    async fn kill(mut self) -> RepositoryFixture {
        if self.run.try_wait().unwrap().is_none() {
            self.run.kill().await.unwrap();
        }
        let processes = self.stage.home.processes();
        let left: Vec<u32> = processes.iter().map(|process| process.pid).collect();
        assert_eq!(wait_until_gone(&left, EXIT_LIMIT).await, []);
        self.stage
    }
}

const RUN_ARGS: [&str; 6] = [
    "--sandbox",
    "workspace-write",
    "--until",
    "commits=1",
    "--max-turns",
    "1",
];

/// Another run, whose criteria the first run's work does not meet.
async fn second_run(stage: &RepositoryFixture, more: &[&str]) -> (Option<i32>, Value, String) {
    stage
        .run(&[&["second"], &RUN_ARGS[..], more].concat())
        .await
}

/// The directories of runs.
fn directories(stage: &RepositoryFixture) -> Vec<PathBuf> {
    let all = stage.home.state_home().join("codex-mcp/git-private");
    let entries = fs::read_dir(all).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn only_directory(stage: &RepositoryFixture) -> PathBuf {
    let directories = directories(stage);
    assert_eq!(directories.len(), 1, "{directories:?}");
    directories.into_iter().next().unwrap()
}

async fn doctor(stage: &RepositoryFixture) -> Vec<Value> {
    let output = stage.codex_mcp(&["doctor", "--json"]).await;
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap().iter();
    let checks = checks.filter(|check| check["name"] == "private-git");
    checks.cloned().collect()
}
