//! Telling others that Codex waits for an answer, or that no event of it comes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use scripted_model::{Reply, Script, Shell};
use serde_json::{Value, json};

use super::sessions::Poller;
use super::{Stage, on_each_release, structured};
use crate::terminal::Terminal;

on_each_release!(
    session_that_waits_or_stalls_is_told_once,
    job_that_stalls_is_told_once,
    job_that_asks_is_told_once,
);

/// Waits until this file is there.
const WAITS: &str = "until [ -e go.txt ]; do sleep 0.05; done";

impl Stage {
    /// A notifier that writes down what it is told: the line, then the object.
    fn notifier(&self) -> String {
        let program = self.home.root().join("tell");
        let here = self.home.root().display();
        let text = format!(
            "#!/bin/sh\nresult=$(cat)\nprintf '%s\\n' \"$1\" >> {here}/lines\n\
             printf '%s\\n' \"$result\" >> {here}/results\n"
        );
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        format!("command:{}", program.display())
    }

    fn configure(&self, settings: &str) {
        let directory = self.home.atm_home().join(".config/atm");
        fs::create_dir_all(&directory).unwrap();
        let text = format!("[plugins.codex-mcp]\n{settings}\n");
        fs::write(directory.join("config.toml"), text).unwrap();
    }

    /// What was told so far.
    fn told(&self) -> Vec<Told> {
        let read = |name| fs::read_to_string(self.home.root().join(name)).unwrap_or_default();
        // A line is written before its object; an object without a line break at its end is
        // still being written.
        let (results, lines) = (read("results"), read("lines"));
        let results = results
            .split_inclusive('\n')
            .filter(|one| one.ends_with('\n'));
        let both = results.zip(lines.lines());
        both.map(|(result, line)| Told {
            line: line.to_owned(),
            result: serde_json::from_str(result).unwrap(),
        })
        .collect()
    }

    /// Waits until so much was told.
    async fn told_times(&self, count: usize) -> Vec<Told> {
        loop {
            let told = self.told();
            if told.len() >= count {
                return told;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// What a notifier was told.
#[derive(Debug)]
struct Told {
    line: String,
    pub result: Value,
}

/// The silences of commands that were told; the model may have been silent too.
fn stalls_of_commands(told: &[Told]) -> Vec<&Told> {
    let is_one = |told: &&Told| {
        let doing = told.result["doing"].as_str().unwrap_or_default();
        told.result["event"] == "stalled" && doing.starts_with("running ")
    };
    told.iter().filter(is_one).collect()
}

async fn until_all_is_gone(stage: &Stage) {
    while !stage.home.processes().is_empty() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Another notifier hangs, and holds nothing up.
async fn session_that_waits_or_stalls_is_told_once(release: &str) {
    let touch = Reply::shell(Shell::escalated("touch one.txt", "needed"));
    let script = Script::new()
        .on("ask", [touch, Reply::say("done")])
        .on("wait", [Reply::shell(WAITS), Reply::say("done")]);
    let stage = Stage::new(release, script).await;
    let notifier = stage.notifier();
    stage.configure(&format!(
        "notify = [\"{notifier}\", \"command:sh -c 'sleep 1000'\"]\nstall_timeout_secs = 86400"
    ));
    let mut poller = Poller::new(&stage, &[]).await;
    let session = poller.start("ask", json!({})).await;
    let question = poller.question(&session).await;
    let told = stage.told_times(1).await;
    let line = &told[0].line;
    let begins = format!("APPROVAL :: session {session}: waiting for approval to run ");
    assert!(
        line.starts_with(&begins) && line.contains("one.txt"),
        "{line}"
    );
    let result = &told[0].result;
    assert_eq!(result["event"], "approval_needed");
    assert_eq!(result["session_id"], session);
    assert_eq!(result["request_id"], question["requestId"]);
    // Looking again tells nobody again.
    for _ in 0..3 {
        poller.question(&session).await;
    }
    poller.decide(&session, &question, "accept").await;
    poller.until_idle(&session).await;
    assert!(stage.file("one.txt").exists());
    assert_eq!(stage.told().len(), 1);
    assert!(poller.client.finish().await.success());
    until_all_is_gone(&stage).await;

    stage.configure(&format!("notify = [\"{notifier}\"]"));

    let mut poller = Poller::new(&stage, &["--stall-timeout", "1"]).await;
    let never = json!({"sandbox": "danger-full-access", "approvalPolicy": "never"});
    let session = poller.start("wait", never).await;
    while stalls_of_commands(&stage.told()).is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Longer than twice the time, and told no more.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let told = stage.told();
    let [stall] = stalls_of_commands(&told)[..] else {
        panic!("{told:#?}");
    };
    let stalled =
        format!("STALLED :: session {session}: no event from Codex for 1 s (running {WAITS})");
    assert_eq!(stall.line, stalled);
    fs::write(stage.file("go.txt"), "").unwrap();
    poller.until_idle(&session).await;
    stage.finish(poller.client).await;
}

async fn job_that_stalls_is_told_once(release: &str) {
    let script = Script::new().otherwise([Reply::shell(WAITS), Reply::say("Done.")]);
    let stage = Stage::new(release, script).await;
    let notifier = stage.notifier();
    stage.configure(
        "stall_timeout_secs = 2\nworker_idle_secs = 1\nsandbox = \"danger-full-access\"",
    );
    let mut client = stage.client(&[]).await;
    let call = json!({ "prompt": "wait", "cwd": stage.home.work(), "notify": [notifier],
        "timeout_ms": 600_000 });
    let queued = client.call_tool("call_codex", call).await;
    let job = structured(&queued)["job_id"].as_str().unwrap().to_owned();
    let told = stage.told_times(1).await;
    let line = &told[0].line;
    let begins = format!("STALLED :: job {}: no event from Codex for 2 s", &job[..8]);
    assert!(line.starts_with(&begins), "{line}");
    assert_eq!(told[0].result["job_id"], job);
    fs::write(stage.file("go.txt"), "").unwrap();
    let status = json!({ "job_id": job, "wait_ms": 600_000 });
    let done = client.call_tool("call_status", status).await;
    assert_eq!(structured(&done)["status"], "completed", "{done:#}");
    let told = stage.told();
    assert!(stalls_of_commands(&told).len() <= 1, "{told:#?}");
    let end = &told.last().unwrap().line;
    assert!(end.starts_with(&format!("DONE job {}", &job[..8])), "{end}");
    assert!(client.finish().await.success());
    until_all_is_gone(&stage).await;
}

/// Waiting for an answer is no stall.
async fn job_that_asks_is_told_once(release: &str) {
    let touch = Reply::shell(Shell::escalated("touch asked.txt", "it is wanted"));
    let script = Script::new().otherwise([touch, Reply::say("Done.")]);
    let stage = Stage::new(release, script).await;
    let notifier = stage.notifier();
    stage.configure("stall_timeout_secs = 2\nworker_idle_secs = 1\nsandbox = \"read-only\"");
    let mut client = stage.client(&[]).await;
    let call = json!({ "prompt": "ask", "cwd": stage.home.work(), "notify": [notifier],
        "approval": "ask" });
    let queued = client.call_tool("call_codex", call).await;
    let job = structured(&queued)["job_id"].as_str().unwrap().to_owned();
    let is_question = |told: &&Told| told.result["event"] == "approval_needed";
    let told = loop {
        let told = stage.told();
        if told.iter().any(|told| is_question(&told)) {
            break told;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let question = told.iter().find(is_question).unwrap();
    let begins = format!("APPROVAL :: job {}: waiting for approval to run", &job[..8]);
    assert!(question.line.starts_with(&begins), "{}", question.line);
    assert_eq!(question.result["job_id"], job);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(stage.told().len(), told.len(), "{:#?}", stage.told());
    let answer = json!({ "job_id": job, "request_id": question.result["request_id"],
        "decision": "decline" });
    let answered = client.call_tool("call_respond", answer).await;
    assert_ne!(answered["isError"], true, "{answered:#}");
    let status = json!({ "job_id": job, "wait_ms": 600_000 });
    let done = client.call_tool("call_status", status).await;
    assert_eq!(structured(&done)["status"], "completed", "{done:#}");
    assert_eq!(stage.told().iter().filter(is_question).count(), 1);
    assert!(client.finish().await.success());
    until_all_is_gone(&stage).await;
}

#[tokio::test]
async fn run_that_asks_its_user_tells_others() {
    let touch = Reply::shell(Shell::escalated("touch asked.txt", "it is wanted"));
    let script = Script::new().otherwise([touch, Reply::say("Done.")]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
    let notifier = stage.notifier();
    let args = ["x", "--sandbox", "workspace-write", "--notify", &notifier];
    let terminal = Terminal::runs(stage.run_command(&args));
    let mut terminal = terminal.shows("Allow it?").await;
    let told = stage.told_times(1).await;
    let line = &told[0].line;
    assert!(line.starts_with("APPROVAL :: thread 01"), "{line}");
    assert!(line.contains("touch asked.txt"), "{line}");
    terminal.types("y\n");
    let (seen, code) = terminal.ends().await;
    assert_eq!(code, Some(0), "{seen}");
    let told = stage.told();
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(told[1].line.starts_with("DONE #1"), "{told:#?}");
    assert_eq!(stage.home.processes(), []);
}
