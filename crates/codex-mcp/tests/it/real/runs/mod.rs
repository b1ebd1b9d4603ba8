//! Runs at a shell, with the real Codex.

mod criteria;
mod detached;
mod endings;
mod terminal;
mod turns;

use std::ffi::OsString;

use scripted_model::{Reply, Script};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::{CodexFixture, on_oldest_and_newest};
use crate::jobs::wait_for;

/// A part of the prompt that follows a turn of words only.
const NUDGE: &str = "words only";

/// The output and exit code of a run.
pub(super) struct RunOutput {
    code: Option<i32>,
    /// The JSON on stdout.
    pub(super) result: Value,
    /// The text on stderr, for people.
    pub(super) stderr: String,
}

impl RunOutput {
    /// The kinds of the artifacts, or of the partial work.
    fn artifact_kinds(&self) -> Vec<&str> {
        let made = &self.result[if self.result["ok"] == true {
            "artifacts"
        } else {
            "partial"
        }];
        let made = made.as_array().unwrap_or_else(|| panic!("{}", self.result));
        made.iter()
            .map(|one| one["type"].as_str().unwrap())
            .collect()
    }

    /// The kind of prompt and the end of each turn.
    pub(super) fn turns(&self) -> Vec<(&str, &str)> {
        let log = self.result["evidence"]["log"].as_array().unwrap();
        log.iter()
            .map(|turn| {
                (
                    turn["prompt"].as_str().unwrap(),
                    turn["end"].as_str().unwrap(),
                )
            })
            .collect()
    }

    #[track_caller]
    pub(super) fn assert_done(&self, turns: &[&str]) {
        assert_eq!(
            self.result["ok"], true,
            "{:#}\n{}",
            self.result, self.stderr
        );
        assert_eq!(self.code, Some(0));
        let prompts: Vec<&str> = self.turns().into_iter().map(|(prompt, _)| prompt).collect();
        assert_eq!(prompts, turns);
        assert_eq!(self.result["turns"], turns.len());
    }

    #[track_caller]
    pub(super) fn assert_not_done(&self, reason: &str) {
        assert_eq!(
            self.result["reason"], reason,
            "{:#}\n{}",
            self.result, self.stderr
        );
        // Tests cancel runs with SIGINT, as Ctrl-C does.
        let code = if reason == "cancelled" { 130 } else { 2 };
        assert_eq!(self.code, Some(code));
        assert_eq!(self.result["ok"], false);
    }
}

impl CodexFixture {
    pub(in crate::real) fn run_command(&self, args: &[&str]) -> Command {
        self.program(&[&["run"], args].concat())
    }

    /// Runs `codex-mcp run` with write access; checks that no process is left.
    pub(super) async fn run(&self, args: &[&str]) -> RunOutput {
        let asks_for_commits = args.iter().any(|arg| {
            let criteria = ["commits=", "branch=", "pushed", "pr", "clean"];
            criteria.iter().any(|criterion| arg.starts_with(criterion))
        });
        let sandbox = match asks_for_commits {
            true => self.sandbox_for_commits(),
            false => "workspace-write",
        };
        let usual = ["--json", "--sandbox", sandbox];
        let child = self.run_command(&[&usual, args].concat()).spawn().unwrap();
        self.finish_run(child).await
    }

    /// The threads that `codex-mcp threads` lists.
    async fn threads(&self) -> Value {
        let listed = self.program(&["threads", "--json"]).output().await.unwrap();
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        listed["threads"].clone()
    }

    /// Codex 0.104.0 cannot protect `.git` in a sandbox, so runs with commits are refused there.
    fn sandbox_for_commits(&self) -> &'static str {
        match self.release.as_str() {
            "0.104.0" => "danger-full-access",
            _ => "workspace-write",
        }
    }

    async fn finish_run(&self, child: Child) -> RunOutput {
        let output = child.wait_with_output().await.unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert_eq!(self.home.processes(), [], "{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
        RunOutput {
            code: output.status.code(),
            result: serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}\n{stderr}")),
            stderr,
        }
    }

    /// The prompts that the model got, in order and without repetitions.
    fn prompts(&self) -> Vec<String> {
        let mut prompts: Vec<String> = Vec::new();
        for request in self.model.requests() {
            let prompt = request.prompt().to_owned();
            if prompts.last() != Some(&prompt) {
                prompts.push(prompt);
            }
        }
        prompts
    }
}

/// PATH with this directory first.
fn path_with(directory: &std::path::Path) -> OsString {
    let mut path = directory.as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    path
}

fn commit(file: &str) -> Reply {
    Reply::shell(format!(
        "echo made > {file} && git add {file} && git commit --quiet --message 'Add {file}'"
    ))
}

fn kinds(found: &Value) -> Vec<(String, String)> {
    let found = found.as_array().unwrap();
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    found
        .iter()
        .map(|one| (word(&one["criterion"]), word(&one["state"])))
        .collect()
}

/// Waits for a condition while the run continues.
async fn wait_while_running(child: &mut Child, what: &str, mut so: impl FnMut() -> bool) {
    wait_for(what, async || {
        if so() {
            return Some(());
        }
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "the run has ended: {ended:?}");
        None
    })
    .await;
}

/// A model that works only when it is nudged.
fn promising_model(work: Reply) -> Script {
    Script::new()
        .on(NUDGE, [work, Reply::say("Done.")])
        .otherwise([Reply::say("Acknowledged, I will do it when ready.")])
}

on_oldest_and_newest!(
    promise_without_work_is_nudged,
    commit_criteria_allow_to_commit,
    failed_turn_is_followed_by_a_recovery,
);

async fn promise_without_work_is_nudged(release: &str) {
    let stage = CodexFixture::new(release, promising_model(commit("new.txt"))).await;
    let until = [
        "--until",
        "commits=1",
        "--until",
        "files=new.txt",
        "--until",
        "clean",
    ];
    let ran = stage.run(&[&["make it"][..], &until].concat()).await;
    ran.assert_done(&["initial", "nudge"]);
    assert_eq!(ran.artifact_kinds(), ["commit", "file"]);
    assert_eq!(ran.result["artifacts"][0]["subject"], "Add new.txt");
    assert_eq!(ran.result["response"], "Done.");
    let log = &ran.result["evidence"]["log"];
    assert_eq!(
        log[0]["promises"],
        json!(["i will", "will do", "acknowledged", "when ready"])
    );
    assert!(
        ran.stderr.contains("\n  promised \"i will\", \"will do\""),
        "{}",
        ran.stderr
    );
    assert_eq!(log[0]["gain"], "nothing");
    assert_eq!(log[1]["commands"], 1);
    let found = kinds(&ran.result["evidence"]["criteria"]);
    assert!(
        found.iter().all(|(_, state)| state == "satisfied"),
        "{found:?}"
    );
    let prompts = stage.prompts();
    assert!(prompts[0].starts_with("make it\n"), "{prompts:?}");
    assert!(
        prompts[1].contains("the checked-out branch has 0 new commits and needs 1"),
        "{prompts:?}"
    );
    // The nudge continues the same conversation.
    let last = stage.model.requests().pop().unwrap();
    assert!(last.assistant_messages()[0].starts_with("Acknowledged"));
    let file = ran.result["evidence_file"].as_str().unwrap();
    let lines = std::fs::read_to_string(file).unwrap();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(Value::from(lines), *log);
}

/// Since 0.130, `workspace-write` protects `.git`, and a run allows commits only for criteria that
/// need them.
async fn commit_criteria_allow_to_commit(release: &str) {
    let script = || Script::new().otherwise([commit("a.txt"), Reply::say("Done.")]);
    let stage = CodexFixture::new(release, script()).await;
    let ran = stage.run(&["x", "--until", "branch=main"]).await;
    ran.assert_done(&["initial"]);
    let allowed = "allowed to commit, in a git directory of its own, for what is asked for";
    let is_told = ran.stderr.contains(allowed) && ran.stderr.contains("sandbox workspace-write");
    assert_eq!(is_told, release != "0.104.0", "{}", ran.stderr);

    let stage = CodexFixture::new(release, script()).await;
    let ran = stage.run(&["x", "--until", "files=a.txt"]).await;
    ran.assert_done(&["initial"]);
    assert!(!ran.stderr.contains("allowed"), "{}", ran.stderr);
    let is_allowed = release == "0.104.0";
    assert_eq!(
        ran.artifact_kinds().contains(&"commit"),
        is_allowed,
        "{:?}",
        ran.artifact_kinds()
    );
}

async fn failed_turn_is_followed_by_a_recovery(release: &str) {
    let script = Script::new()
        .on(
            "ran into errors",
            [commit("late.txt"), Reply::say("Now it is there.")],
        )
        .otherwise([Reply::shell("ls /nowhere/at/all"), Reply::say("It failed.")]);
    let stage = CodexFixture::new(release, script).await;
    let ran = stage.run(&["x", "--until", "commits=1"]).await;
    ran.assert_done(&["initial", "recovery"]);
    let prompt = &stage.prompts()[1];
    assert!(prompt.contains("/nowhere/at/all"), "{prompt}");
    assert!(prompt.contains("exited with 2"), "{prompt}");
}
