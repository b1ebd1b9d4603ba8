//! Actions at a terminal on the sessions of clients: showing, deciding, steering, cancelling.

use nix::sys::signal::Signal;
use scripted_model::{Gate, Reply, Script, Shell};
use serde_json::{Value, json};
use testkit::app_server::AppServer;
use testkit::process::signal;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::sessions::Poller;
use super::{CodexFixture, on_oldest_and_newest};
use crate::jobs::wait_for;

on_oldest_and_newest!(
    question_is_answered_at_a_terminal,
    session_is_steered_and_cancelled_at_a_terminal,
    thread_of_a_cancelled_session_is_free,
);

/// A client with a host, and the shell of its user.
struct WorkFixture {
    stage: CodexFixture,
    client: Poller,
}

impl WorkFixture {
    async fn new(release: &str, script: Script, args: &[&str]) -> Self {
        let stage = CodexFixture::new(release, script).await;
        let args = [&["--host"], args].concat();
        let client = Poller::new(&stage, &args).await;
        Self { stage, client }
    }

    /// Runs our program; returns its exit code and all of its output.
    async fn run(&self, args: &[&str]) -> (Option<i32>, String) {
        let mut command = self.stage.program(args);
        let output = command.kill_on_drop(true).output().await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }

    async fn succeed(&self, args: &[&str]) -> String {
        let (code, text) = self.run(args).await;
        assert_eq!(code, Some(0), "{args:?}: {text}");
        text
    }

    async fn refused(&self, args: &[&str]) -> String {
        let (code, text) = self.run(args).await;
        assert_eq!(code, Some(3), "{args:?}: {text}");
        text
    }

    /// Waits until the session has one of these states; returns what a poll shows, which reads no
    /// events.
    async fn wait_for(&mut self, session: &str, states: &[&str]) -> Value {
        wait_for(&format!("a state of {states:?}"), async || {
            let poll = json!({ "action": "poll", "sessionId": session, "waitMs": 10_000,
                "pollOptions": { "includeEvents": false } });
            let seen = self.client.call("codex_check", poll).await;
            let is_one = states.contains(&seen["status"].as_str().unwrap());
            is_one.then_some(seen)
        })
        .await
    }

    async fn finish(self) {
        assert!(self.client.client.finish().await.success());
        self.stage.stop_hosts().await;
        // Codex of 0.104.0 may have started a shell just then, which ends a moment later.
        wait_for("all processes are gone", async || {
            self.stage.home.processes().is_empty().then_some(())
        })
        .await;
    }
}

fn asking_model() -> Script {
    let touch = Reply::shell(Shell::escalated("touch made.txt", "it is needed"));
    Script::new().otherwise([touch, Reply::say("Done \u{1b}[2J now.")])
}

async fn question_is_answered_at_a_terminal(release: &str) {
    let mut work = WorkFixture::new(release, asking_model(), &[]).await;
    let session = work.client.start("make it", json!({})).await;
    let asked = work.wait_for(&session, &["waiting_approval"]).await;
    let question = asked["actions"][0]["requestId"].as_str().unwrap();
    let short = &session[..13];
    let listed = work.succeed(&["ps"]).await;
    assert!(listed.contains("asking: `codex-mcp logs ID`"), "{listed}");
    let log = work.succeed(&["logs", short]).await;
    let asks = format!("asks ({question}): command: ");
    assert!(
        log.contains(&asks) && log.contains("touch made.txt"),
        "{log}"
    );
    let ready = format!("`codex-mcp approve {short} {question}` allows what Codex asks for");
    assert!(log.contains(&ready), "{log}");

    let refused = work.refused(&["approve", short, "--answer", "yes"]).await;
    assert!(refused.contains("does not offer answers"), "{refused}");
    let refused = work.refused(&["approve", short, "req_other"]).await;
    assert!(refused.contains("no such open question"), "{refused}");
    let remedy = format!("`codex-mcp logs {short}` shows what can be answered");
    assert!(refused.contains(&remedy), "{refused}");
    let refused = work.refused(&["steer", short, " "]).await;
    assert!(refused.contains("the message is empty"), "{refused}");
    assert!(!work.stage.file("made.txt").exists());
    let said = work.succeed(&["approve", short]).await;
    let approved = format!("{short}: {question} approved: ");
    assert!(said.starts_with(&approved), "{said}");
    assert!(said.ends_with("touch made.txt\n"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    work.wait_for(&session, &["idle"]).await;
    assert!(work.stage.file("made.txt").exists());
    let late = work.refused(&["approve", &session]).await;
    assert!(late.contains("no such open question"), "{late}");

    let log = work.succeed(&["logs", &session, "--follow"]).await;
    let told = format!("answered ({question}): accept");
    assert!(log.contains(&told), "{log}");
    assert!(log.contains("Done \\u{1b}[2J now.\n"), "{log}");
    let last = work.succeed(&["logs", &session, "--tail", "1"]).await;
    assert!(last.trim_end().ends_with("completed"), "{last}");
    let json = work.succeed(&["logs", &session, "--json"]).await;
    let events: Vec<Value> = json.lines().map(|line| line.parse().unwrap()).collect();
    let ids: Vec<u64> = events
        .iter()
        .map(|event| event["id"].as_u64().unwrap())
        .collect();
    assert!(ids.is_sorted() && ids.len() > 5, "{ids:?}");
    // The client has not lost an event to these readers.
    let all = json!({ "action": "poll", "sessionId": session, "maxEvents": 200 });
    let seen = work.client.call("codex_check", all).await;
    let seen = seen["events"].as_array().unwrap();
    assert_eq!(seen.len(), events.len(), "{seen:#?}");
    work.finish().await;
}

async fn session_is_steered_and_cancelled_at_a_terminal(release: &str) {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("late").behind(&gate)]);
    let mut work = WorkFixture::new(release, script, &[]).await;
    let session = work.client.start("wait", json!({})).await;
    gate.reached(1).await;
    let said = work.succeed(&["steer", &session, "say it in German"]).await;
    assert_eq!(said, format!("{}: steered\n", &session[..13]));
    gate.release();
    work.wait_for(&session, &["idle"]).await;
    let last = work.stage.model.requests().pop().unwrap();
    let texts = last.user_messages();
    assert!(texts.contains(&"say it in German"), "{texts:?}");
    let log = work.succeed(&["logs", &session]).await;
    assert!(log.contains("  steered: say it in German\n"), "{log}");
    let late = work.refused(&["steer", &session, "more"]).await;
    let short = &session[..13];
    let idle =
        format!("error: cannot steer session {short}: it is idle; a message from its client");
    assert!(late.starts_with(&idle), "{late}");

    work.succeed(&["cancel", &session]).await;
    work.wait_for(&session, &["cancelled"]).await;
    for (args, verb) in [
        (&["approve", short][..], "approve anything in"),
        (&["decline", short], "decline anything in"),
        (&["steer", short, "more"], "steer"),
    ] {
        let refused = work.refused(args).await;
        let words =
            format!("error: cannot {verb} session {short}: it is cancelled; `codex-mcp run --cwd ");
        assert!(refused.starts_with(&words), "{refused}");
    }
    let again = work.succeed(&["cancel", short]).await;
    let done = format!("{short}: already cancelled; its thread can be resumed:\n");
    assert!(again.starts_with(&done), "{again}");
    let unknown = work.refused(&["cancel", "sess_none", &session]).await;
    assert!(
        unknown.contains("there is no session sess_none"),
        "{unknown}"
    );
    work.finish().await;
}

/// Another process can resume the thread at once, while the client and its host go on.
async fn thread_of_a_cancelled_session_is_free(release: &str) {
    let gate = Gate::new();
    let script = Script::new()
        .on(
            "and now",
            [Reply::shell("cat README.md"), Reply::say("Read.")],
        )
        .on("wait", [Reply::say("late").behind(&gate)])
        .otherwise([Reply::say("ok")]);
    let mut work = WorkFixture::new(release, script, &[]).await;
    let idle = work.client.start("begin", json!({})).await;
    work.client.until_idle(&idle).await;
    let thread = work.client.get(&idle).await["threadId"].clone();
    let thread = thread.as_str().unwrap();
    let said = work.succeed(&["cancel", &idle]).await;
    let place = work.stage.home.work();
    let resume = format!(
        "\n  codex-mcp run --cwd {} --thread {thread} \"...\"\n",
        place.display()
    );
    assert!(said.ends_with(&resume), "{said}");
    let run = [
        "run",
        "--sandbox",
        "workspace-write",
        "--thread",
        thread,
        "and now?",
    ];
    let said = work.succeed(&run).await;
    assert!(said.contains(&format!("thread {thread}")), "{said}");

    let busy = work.client.start("wait", json!({})).await;
    gate.reached(1).await;
    let thread = work.client.get(&busy).await["threadId"].clone();
    work.succeed(&["cancel", &busy]).await;
    let elsewhere = AppServer::real(release, &work.stage.home).await;
    // A turn takes up to 10 s to end, and `cancel` waits for 2 s of them.
    let resumed = wait_for("the free thread", async || {
        let resume = json!({ "threadId": thread });
        elsewhere.request("thread/resume", resume).await.ok()
    });
    assert_eq!(resumed.await["thread"]["id"], thread);
    drop(elsewhere);
    work.finish().await;
}

/// In a pipe, the work is listed again only when it has changed.
#[tokio::test]
async fn changes_of_the_work_are_watched() {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("late").behind(&gate)]);
    let mut work = WorkFixture::new(testkit::codex::newest(), script, &[]).await;
    let mut command = work.stage.program(&["ps", "--watch", "--json"]);
    let mut watcher = command.kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    let mut next = async || lines.next_line().await.unwrap().unwrap();
    assert_eq!(next().await, r#"{"work":[]}"#);
    let session = work.client.start("wait", json!({})).await;
    let line = next().await;
    assert!(line.contains(&session), "{line}");
    gate.release();
    wait_for("the idle session", async || {
        next().await.contains(r#""state":"idle""#).then_some(())
    })
    .await;
    signal(watcher.id().unwrap(), Signal::SIGINT);
    assert_eq!(watcher.wait().await.unwrap().code(), Some(130));
    work.finish().await;
}

/// Two clients and a person at a terminal answer at once: one answer counts, and its command runs
/// once.
#[tokio::test]
async fn one_of_several_answers_wins() {
    let append = Reply::shell(Shell::escalated("echo x >> made.txt", "it is needed"));
    let script = Script::new().otherwise([append, Reply::say("Done.")]);
    let mut work = WorkFixture::new(testkit::codex::newest(), script, &[]).await;
    let mut other = Poller::new(&work.stage, &["--host"]).await;
    let session = work.client.start("make it", json!({})).await;
    let asked = work.wait_for(&session, &["waiting_approval"]).await;
    let answer = json!({
        "action": "respond_permission",
        "sessionId": session,
        "requestId": asked["actions"][0]["requestId"],
        "decision": "accept",
    });
    let calls = [&mut work.client, &mut other]
        .map(|client| client.client.request_tool("codex_check", answer.clone()));
    let (code, text) = work.run(&["approve", &session]).await;
    let mut won = usize::from(code == Some(0));
    for (client, call) in [&mut work.client, &mut other].into_iter().zip(&calls) {
        let result = client.client.result(call).await;
        won += usize::from(result["isError"] == false);
    }
    assert_eq!(won, 1, "{text}");
    work.wait_for(&session, &["idle"]).await;
    let made = std::fs::read_to_string(work.stage.file("made.txt")).unwrap();
    assert_eq!(made, "x\n");
    assert!(other.client.finish().await.success());
    work.finish().await;
}

#[tokio::test]
async fn log_has_the_ends_of_all_turns() {
    let script = Script::new().otherwise([Reply::say("done")]);
    let mut work = WorkFixture::new(testkit::codex::newest(), script, &[]).await;
    let session = work.client.start("first", json!({})).await;
    work.wait_for(&session, &["idle"]).await;
    for prompt in ["second", "third"] {
        work.client.reply(&session, prompt, json!({})).await;
        work.wait_for(&session, &["idle"]).await;
    }
    let log = work.succeed(&["logs", &session]).await;
    assert_eq!(log.matches("  completed\n").count(), 3, "{log}");
    assert!(!log.contains("no longer known"), "{log}");
    work.finish().await;
}

/// Nobody decides on the beginning and the end of a command.
#[tokio::test]
async fn long_command_is_shown_whole_at_a_terminal() {
    let words: Vec<String> = (0..500).map(|number| format!("word{number}")).collect();
    let command = format!("echo {} > /dev/null", words.join(" "));
    let script = Script::new().otherwise([
        Reply::shell(Shell::escalated(command, "it is needed")),
        Reply::say("Done."),
    ]);
    let mut work = WorkFixture::new(testkit::codex::newest(), script, &[]).await;
    let session = work.client.start("say it", json!({})).await;
    work.wait_for(&session, &["waiting_approval"]).await;
    let log = work.succeed(&["logs", &session]).await;
    let asked = log.split_once("\nCodex asks (").unwrap().1;
    let (text, whole) = asked.split_once("Command, in full:\n").unwrap();
    assert!(!text.contains("word250"), "{text}");
    assert!(whole.contains(&words.join(" ")), "{whole}");
    work.succeed(&["decline", &session]).await;
    work.wait_for(&session, &["idle"]).await;
    work.finish().await;
}

/// The bound of the client that has opened a session holds at the terminal too.
#[tokio::test]
async fn bound_of_a_client_holds_at_a_terminal() {
    let newest = testkit::codex::newest();
    let bound = ["--max-sandbox", "read-only"];
    let mut work = WorkFixture::new(newest, asking_model(), &bound).await;
    let session = work.client.start("make it", json!({})).await;
    work.wait_for(&session, &["waiting_approval"]).await;
    let refused = work.refused(&["approve", &session]).await;
    assert!(refused.contains(r#"does not offer "accept""#), "{refused}");
    let said = work
        .succeed(&["decline", &session, "--reason", "not yet"])
        .await;
    assert!(said.contains(" declined: "), "{said}");
    work.wait_for(&session, &["idle"]).await;
    assert!(!work.stage.file("made.txt").exists());
    work.finish().await;
}

/// Work of either kind is named by its ID; what is neither is refused before anything is done.
#[tokio::test]
async fn unknown_work_is_refused() {
    let work = WorkFixture::new(testkit::codex::newest(), Script::new(), &[]).await;
    for verb in ["approve", "decline", "cancel", "logs"] {
        let refused = work.refused(&[verb, "sess_none"]).await;
        assert!(
            refused.contains("there is no session sess_none"),
            "{refused}"
        );
        let refused = work.refused(&[verb, "0123abcd"]).await;
        assert!(refused.contains("there is no job 0123abcd"), "{refused}");
        let refused = work.refused(&[verb, "x"]).await;
        assert!(refused.contains("codex-mcp ps"), "{refused}");
    }
    work.finish().await;
}
