//! Alerts: Codex waits for an answer, is silent, or has ended a turn.

use std::fs;

use scripted_model::{Gate, Reply, Script, Shell};
use serde_json::{Value, json};
use testkit::{McpClient, write_program};

use super::sessions::Poller;
use super::{CodexFixture, VERSION, on_oldest_and_newest, structured};
use crate::jobs::wait_for;
use crate::notify::fake_web::{Answer, CERTIFICATE, WebServer};
use crate::terminal::Terminal;

on_oldest_and_newest!(
    waiting_or_stalled_session_is_reported_once,
    stalled_job_is_reported_once,
    notifiers_of_the_settings_hear_of_jobs_and_runs_that_name_none,
    asking_job_is_reported_once,
);

/// A command that waits for a file.
const WAITS: &str = "until [ -e go.txt ]; do sleep 0.05; done";

impl CodexFixture {
    /// A notifier that records its line, then its JSON object.
    fn notifier(&self) -> String {
        let program = self.home.root().join("tell");
        let here = self.home.root().display();
        let text = format!(
            "#!/bin/sh\nresult=$(cat)\nprintf '%s\\n' \"$1\" >> {here}/lines\n\
             printf '%s\\n' \"$result\" >> {here}/results\n"
        );
        write_program(&program, &text);
        format!("command:{}", program.display())
    }

    /// The alerts so far.
    fn alerts(&self) -> Vec<Alert> {
        let read = |name| fs::read_to_string(self.home.root().join(name)).unwrap_or_default();
        // A line is written before its object; an object without a line break at its end is
        // still being written.
        let (results, lines) = (read("results"), read("lines"));
        let results = results
            .split_inclusive('\n')
            .filter(|one| one.ends_with('\n'));
        let both = results.zip(lines.lines());
        both.map(|(result, line)| Alert {
            line: line.to_owned(),
            result: serde_json::from_str(result).unwrap(),
        })
        .collect()
    }

    /// Waits for `count` alerts.
    async fn wait_for_alerts(&self, count: usize) -> Vec<Alert> {
        wait_for("alerts", async || {
            let told = self.alerts();
            (told.len() >= count).then_some(told)
        })
        .await
    }

    /// Waits for the alert that a session has stalled during a command.
    async fn wait_for_command_stall(&self, session: &str) {
        let is_it = |told: &Alert| told.result["session_id"] == session;
        wait_for("the alert of a stalled session", async || {
            let told = self.alerts();
            command_stalls(&told).into_iter().any(is_it).then_some(())
        })
        .await;
    }
}

/// An alert that the notifier has recorded.
#[derive(Debug)]
struct Alert {
    line: String,
    pub result: Value,
}

/// The stalls during commands: the model may have stalled too.
fn command_stalls(told: &[Alert]) -> Vec<&Alert> {
    let is_one = |told: &&Alert| {
        let doing = told.result["doing"].as_str().unwrap_or_default();
        told.result["event"] == "stalled" && doing.starts_with("running ")
    };
    told.iter().filter(is_one).collect()
}

/// Another notifier hangs, and delays nothing.
async fn waiting_or_stalled_session_is_reported_once(release: &str) {
    let touch = Reply::shell(Shell::escalated("touch one.txt", "needed"));
    let script = Script::new()
        .on("ask", [touch, Reply::say("done")])
        .on("wait", [Reply::shell(WAITS), Reply::say("done")]);
    let stage = CodexFixture::new(release, script).await;
    let notifier = stage.notifier();
    stage.configure(&format!(
        "notify = [\"{notifier}\", \"command:sh -c 'sleep 1000'\"]\nstall_timeout_secs = 86400"
    ));
    let mut poller = Poller::new(&stage, &[]).await;
    let session = poller.start("ask", json!({})).await;
    let question = poller.question(&session).await;
    let alerts = stage.wait_for_alerts(1).await;
    let line = &alerts[0].line;
    let begins = format!("APPROVAL :: session {session}: waiting for approval to run ");
    assert!(
        line.starts_with(&begins) && line.contains("one.txt"),
        "{line}"
    );
    let result = &alerts[0].result;
    assert_eq!(result["event"], "approval_needed");
    assert_eq!(result["session_id"], session);
    assert_eq!(result["request_id"], question["requestId"]);
    // More polls cause no more alerts.
    for _ in 0..3 {
        poller.question(&session).await;
    }
    poller.decide(&session, &question, "accept").await;
    poller.until_idle(&session).await;
    assert!(stage.file("one.txt").exists());
    assert_eq!(stage.alerts().len(), 1);
    assert!(poller.client.finish().await.success());
    stage.until_processes_end().await;

    stage.configure(&format!("notify = [\"{notifier}\"]"));

    let mut poller = Poller::new(&stage, &["--stall-timeout", "1"]).await;
    let never = json!({"sandbox": "danger-full-access", "approvalPolicy": "never"});
    let session = poller.start("wait", never.clone()).await;
    stage.wait_for_command_stall(&session).await;
    // Twice, another session begins and stalls, and there is no second alert for the first one.
    let mut others = Vec::new();
    for _ in 0..2 {
        let other = poller.start("wait", never.clone()).await;
        stage.wait_for_command_stall(&other).await;
        others.push(other);
    }
    let alerts = stage.alerts();
    let mut stalls = command_stalls(&alerts);
    stalls.retain(|told| told.result["session_id"] == session);
    let [stall] = stalls[..] else {
        panic!("{alerts:#?}");
    };
    let stalled =
        format!("STALLED :: session {session}: no event from Codex for 1 s (running {WAITS})");
    assert_eq!(stall.line, stalled);
    fs::write(stage.file("go.txt"), "").unwrap();
    for session in others.iter().chain([&session]) {
        poller.until_idle(session).await;
    }
    stage.finish(poller.client).await;
}

async fn stalled_job_is_reported_once(release: &str) {
    let script = Script::new().otherwise([Reply::shell(WAITS), Reply::say("Done.")]);
    let stage = CodexFixture::new(release, script).await;
    let notifier = stage.notifier();
    stage.configure(
        "stall_timeout_secs = 2\nworker_idle_secs = 1\nsandbox = \"danger-full-access\"",
    );
    let mut client = stage.client(&[]).await;
    let call = json!({ "prompt": "wait", "cwd": stage.home.work(), "notify": [notifier],
        "timeout_ms": 600_000 });
    let queued = client.call_tool("call_codex", call).await;
    let job = structured(&queued)["job_id"].as_str().unwrap().to_owned();
    let alerts = stage.wait_for_alerts(1).await;
    let line = &alerts[0].line;
    let begins = format!("STALLED :: job {}: no event from Codex for 2 s", &job[..8]);
    assert!(line.starts_with(&begins), "{line}");
    assert_eq!(alerts[0].result["job_id"], job);
    fs::write(stage.file("go.txt"), "").unwrap();
    let status = json!({ "job_id": job, "wait_ms": 600_000 });
    let done = client.call_tool("call_status", status).await;
    assert_eq!(structured(&done)["status"], "completed", "{done:#}");
    let alerts = stage.alerts();
    assert!(command_stalls(&alerts).len() <= 1, "{alerts:#?}");
    let end = &alerts.last().unwrap().line;
    assert!(end.starts_with(&format!("DONE job {}", &job[..8])), "{end}");
    assert!(client.finish().await.success());
    stage.until_processes_end().await;
}

async fn notifiers_of_the_settings_hear_of_jobs_and_runs_that_name_none(release: &str) {
    let makes = [Reply::shell("echo x > made.txt"), Reply::say("Done.")];
    let script = Script::new()
        .on("make it", makes)
        .otherwise([Reply::say("Done.")]);
    let stage = CodexFixture::new(release, script).await;
    let notifier = stage.notifier();
    stage.configure(&format!(
        "notify = [\"{notifier}\"]\nnotify_on = [\"ends\"]\nworker_idle_secs = 1\n\
         sandbox = \"danger-full-access\""
    ));
    let mut client = stage.client(&[]).await;
    let call = json!({ "prompt": "work", "cwd": stage.home.work() });
    client.call_tool("call_codex", call).await;
    let alerts = stage.wait_for_alerts(1).await;
    assert!(alerts[0].line.starts_with("DONE job "), "{alerts:#?}");
    let run = json!({ "task": "make it", "exit_criteria": { "files": ["made.txt"] } });
    client.call_tool("codex_run", run).await;
    let alerts = stage.wait_for_alerts(2).await;
    assert!(alerts[1].line.starts_with("DONE #1"), "{alerts:#?}");
    stage.finish_with_worker(client).await;
}

/// A job that waits for an answer is not stalled.
async fn asking_job_is_reported_once(release: &str) {
    let touch = Reply::shell(Shell::escalated("touch asked.txt", "it is wanted"));
    let gate = Gate::new();
    let script = Script::new()
        .on("be silent", [Reply::say("Done.").behind(&gate)])
        .otherwise([touch, Reply::say("Done.")]);
    let stage = CodexFixture::new(release, script).await;
    let notifier = stage.notifier();
    stage.configure("stall_timeout_secs = 2\nworker_idle_secs = 1\nsandbox = \"read-only\"");
    let mut client = stage.client(&[]).await;
    let call = json!({ "prompt": "ask", "cwd": stage.home.work(), "notify": [notifier],
        "approval": "ask" });
    let queued = client.call_tool("call_codex", call).await;
    let job = structured(&queued)["job_id"].as_str().unwrap().to_owned();
    let is_question = |told: &&Alert| told.result["event"] == "approval_needed";
    let told = wait_for("the alert of the question", async || {
        let told = stage.alerts();
        told.iter().any(|told| is_question(&told)).then_some(told)
    })
    .await;
    let question = told.iter().find(is_question).unwrap();
    let begins = format!("APPROVAL :: job {}: waiting for approval to run", &job[..8]);
    assert!(question.line.starts_with(&begins), "{}", question.line);
    assert_eq!(question.result["job_id"], job);
    // A job that begins after the question stalls, and there is no other alert for the first one.
    let call = json!({ "prompt": "be silent", "cwd": stage.home.work(), "notify": [notifier] });
    let silent = client.call_tool("call_codex", call).await;
    let silent = structured(&silent)["job_id"].as_str().unwrap().to_owned();
    wait_for("the alert of the silent job", async || {
        let told = stage.alerts();
        let is_it =
            |told: &Alert| told.result["event"] == "stalled" && told.result["job_id"] == silent;
        told.iter().any(is_it).then_some(())
    })
    .await;
    gate.release();
    let of_job = |told: &&Alert| told.result["job_id"] == job;
    let later = stage.alerts();
    let count = |alerts: &[Alert]| alerts.iter().filter(of_job).count();
    assert_eq!(count(&later), count(&told), "{later:#?}");
    let answer = json!({ "job_id": job, "request_id": question.result["request_id"],
        "decision": "decline" });
    let answered = client.call_tool("call_respond", answer).await;
    assert_ne!(answered["isError"], true, "{answered:#}");
    let status = json!({ "job_id": job, "wait_ms": 600_000 });
    let done = client.call_tool("call_status", status).await;
    assert_eq!(structured(&done)["status"], "completed", "{done:#}");
    let status = json!({ "job_id": silent, "wait_ms": 600_000 });
    let done = client.call_tool("call_status", status).await;
    assert_eq!(structured(&done)["status"], "completed", "{done:#}");
    assert_eq!(stage.alerts().iter().filter(is_question).count(), 1);
    assert!(client.finish().await.success());
    stage.until_processes_end().await;
}

#[tokio::test]
async fn asking_run_is_reported() {
    let touch = Reply::shell(Shell::escalated("touch asked.txt", "it is wanted"));
    let script = Script::new().otherwise([touch, Reply::say("Done.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let notifier = stage.notifier();
    let args = ["x", "--sandbox", "workspace-write", "--notify", &notifier];
    let terminal = Terminal::runs(stage.run_command(&args));
    let mut terminal = terminal.shows("Allow it?").await;
    let alerts = stage.wait_for_alerts(1).await;
    let line = &alerts[0].line;
    assert!(line.starts_with("APPROVAL :: thread 01"), "{line}");
    assert!(line.contains("touch asked.txt"), "{line}");
    terminal.types("y\n");
    let (seen, code) = terminal.ends().await;
    assert_eq!(code, Some(0), "{seen}");
    let alerts = stage.alerts();
    assert_eq!(alerts.len(), 2, "{alerts:#?}");
    assert!(alerts[1].line.starts_with("DONE #1"), "{alerts:#?}");
    assert_eq!(stage.home.processes(), []);
}

/// The certificate of the server is that of a company, whose file the user names.
#[tokio::test]
async fn ended_turn_is_reported_to_webhook() {
    let credential = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let answer = format!("\nThe token is {credential}.\nNothing more.");
    let script = Script::new().otherwise([Reply::say(&answer)]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let server = WebServer::with_tls(Answer::ok()).await;
    let webhook = format!("webhook:{}", server.url("https", "s3cret"));
    for (kinds, count) in [("", 0), ("notify_on = [\"ends\"]", 1)] {
        stage.configure(&format!("notify = [\"{webhook}\"]\n{kinds}"));
        let launch = stage.launch(&[]).env("SSL_CERT_FILE", CERTIFICATE);
        let mut client = McpClient::connect(&launch, VERSION, json!({})).await;
        let call = json!({ "prompt": "x", "sandbox": "read-only" });
        let result = client.call_tool("codex", call).await;
        assert_eq!(structured(&result)["status"], "completed", "{result:#}");
        let requests = server.wait_for_requests(count).await;
        assert_eq!(requests.len(), count);
        stage.finish(client).await;
    }
    let told = server.requests()[0].json();
    assert_eq!(told["event"], "ended", "{told:#}");
    assert_eq!(told["status"], "completed");
    assert_eq!(told["summary"], "The token is [masked].");
    let session = told["session_id"].as_str().unwrap();
    let line = format!("ENDED :: session {session}: completed: The token is [masked].");
    assert_eq!(told["text"], line);
}
