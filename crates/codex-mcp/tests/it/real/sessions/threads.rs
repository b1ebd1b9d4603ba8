//! Sessions, and their threads and processes.

use std::time::Duration;

use nix::sys::signal::Signal;
use scripted_model::{Gate, Reply, Script};
use serde_json::{Value, json};
use testkit::AppServer;
use testkit::process::{Process, wait_until_gone};
use testkit::wait::{wait_for, within};

use super::Poller;
use crate::real::{CodexFixture, on_oldest_and_newest, structured};

/// The limit of each wait.
const TIME_LIMIT: Duration = Duration::from_secs(60);

on_oldest_and_newest!(
    many_sessions_share_one_app_server,
    reply_after_a_crash_continues_the_thread,
    thread_of_plain_codex_is_resumed,
    cancelled_thread_is_resumed,
    settings_changed_by_a_reply_persist,
    effective_settings_are_shown_after_a_resume,
    death_of_codex_is_reported_once,
    wait_any_returns_the_first_session_that_needs_attention,
    empty_thread_cannot_be_forked,
    classic_call_that_returned_early_can_be_polled,
    silent_turn_is_reported,
    archived_thread_is_resumed,
);

fn echoing_model() -> Script {
    Script::new().otherwise([Reply::with(|request| {
        Reply::say(format!("heard: {}", request.user_messages().join(" | ")))
    })])
}

async fn many_sessions_share_one_app_server(release: &str) {
    let stage = CodexFixture::new(release, echoing_model()).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let mut sessions = Vec::new();
    for number in 0..12 {
        sessions.push(poller.start(&format!("number {number}"), json!({})).await);
    }
    for (number, session) in sessions.iter().enumerate() {
        let (done, _) = poller.until_idle(session).await;
        let heard = done["result"]["output"].as_str().unwrap();
        assert!(heard.ends_with(&format!("number {number}")), "{heard}");
    }
    let mut codexes = stage.home.processes();
    codexes.retain(is_codex);
    // One that is about to start a command has a child that looks like it.
    let pids: Vec<u32> = codexes.iter().map(|codex| codex.pid).collect();
    codexes.retain(|codex| !pids.contains(&codex.parent));
    assert_eq!(codexes.len(), 1, "{codexes:#?}");
    stage.finish(poller.client).await;
}

async fn reply_after_a_crash_continues_the_thread(release: &str) {
    let gate = Gate::new();
    let script = Script::new()
        .on("wait", [Reply::say("never").behind(&gate)])
        .otherwise([Reply::with(|request| {
            Reply::say(format!("heard: {}", request.user_messages().join(" | ")))
        })]);
    let stage = CodexFixture::new(release, script).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let session = poller
        .start("remember this", json!({"sandbox": "danger-full-access"}))
        .await;
    poller.until_idle(&session).await;
    poller.reply(&session, "wait", json!({})).await;
    gate.reached(1).await;
    kill_codex(&stage);
    let (lost, events) = poller
        .until(&session, |look| look["status"] == "error")
        .await;
    assert_eq!(lost["result"]["status"], "error");
    let why = lost["result"]["error"].as_str().unwrap();
    assert!(why.contains("signal 9"), "{why}");
    assert!(
        events.iter().any(|event| event["type"] == "error"),
        "{events:#?}"
    );
    assert_eq!(poller.get(&session).await["error"], why);

    poller.reply(&session, "and now?", json!({})).await;
    let (done, _) = poller.until_idle(&session).await;
    let heard = done["result"]["output"].as_str().unwrap();
    assert!(
        heard.contains("remember this") && heard.contains("and now?"),
        "{heard}"
    );
    let requests = stage.model.requests();
    let context = requests.last().unwrap().texts().join("\n");
    assert!(context.contains("danger-full-access"), "{context}");
    stage.finish(poller.client).await;
}

/// Whether this is the process of Codex itself, and not its guard, whose arguments name Codex.
fn is_codex(process: &Process) -> bool {
    let mut words = process.command.split(' ');
    words.next().is_some_and(|name| name.ends_with("/codex")) && words.next() == Some("app-server")
}

fn kill_codex(stage: &CodexFixture) {
    let codex = stage.home.processes().into_iter().find(is_codex).unwrap();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(codex.pid).unwrap());
    nix::sys::signal::kill(pid, Signal::SIGKILL).unwrap();
}

async fn thread_of_plain_codex_is_resumed(release: &str) {
    let stage = CodexFixture::new(release, echoing_model()).await;
    let plain = AppServer::real(release, &stage.home).await;
    let thread = plain.start_thread(json!({})).await;
    let mut notifications = plain.notifications(&thread);
    plain.turn(&thread, &mut notifications, "said before").await;
    drop(plain);

    let mut poller = Poller::new(&stage, &[]).await;
    let resume = json!({"action": "resume", "threadId": thread, "prompt": "and now?",
        "sandbox": "read-only", "approvalPolicy": "never"});
    let resumed = poller.call("codex_session", resume).await;
    assert_eq!(resumed["threadId"], thread.as_str());
    let session = resumed["sessionId"].as_str().unwrap();
    let (done, _) = poller.until_idle(session).await;
    let heard = done["result"]["output"].as_str().unwrap();
    assert!(
        heard.contains("said before") && heard.contains("and now?"),
        "{heard}"
    );
    // The thread has a session now, and another resume finds it.
    let again = json!({"action": "resume", "threadId": thread});
    let again = poller.call("codex_session", again).await;
    assert_eq!(again["sessionId"], session);

    let unknown = json!({"action": "resume", "threadId": "0199a213-81c0-7800-8aa1-bbab2a035a53"});
    let code = poller.refused("codex_session", unknown).await;
    assert_eq!(code, "THREAD_FORK_RESUME_FAILED");
    stage.finish(poller.client).await;
}

async fn cancelled_thread_is_resumed(release: &str) {
    let stage = CodexFixture::new(release, echoing_model()).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let session = poller.start("said before", json!({})).await;
    poller.until_idle(&session).await;
    let thread = poller.get(&session).await["threadId"].clone();
    poller.session("cancel", &session).await;
    let resume = json!({"action": "resume", "threadId": thread, "prompt": "and now?"});
    let resumed = poller.call("codex_session", resume).await;
    let taken_up = resumed["sessionId"].as_str().unwrap();
    assert_ne!(taken_up, session);
    let (done, _) = poller.until_idle(taken_up).await;
    let heard = done["result"]["output"].as_str().unwrap();
    assert!(heard.contains("said before"), "{heard}");
    assert_eq!(poller.get(taken_up).await["sandbox"], "read-only");
    stage.finish(poller.client).await;
}

async fn settings_changed_by_a_reply_persist(release: &str) {
    let script = Script::new().otherwise([Reply::shell("touch made.txt"), Reply::say("done")]);
    let stage = CodexFixture::new(release, script).await;
    let other = stage.file("other");
    std::fs::create_dir(&other).unwrap();
    let mut poller = Poller::new(&stage, &[]).await;
    let session = poller
        .start("touch", json!({"approvalPolicy": "never"}))
        .await;
    poller.until_idle(&session).await;
    assert!(!stage.file("made.txt").exists());
    let model = || stage.model.requests().last().unwrap().model().to_owned();
    // 0.104.0 sends the effort only to models that it knows.
    let effort = |wanted: &str| {
        let sent = stage.model.requests().last().unwrap().body()["reasoning"]["effort"].clone();
        assert!(
            sent == wanted || (sent.is_null() && release == "0.104.0"),
            "{sent}"
        );
    };
    effort("low");

    let more = json!({"sandbox": "workspace-write", "cwd": "other", "model": "another",
        "effort": "high"});
    poller.reply(&session, "touch", more).await;
    poller.until_idle(&session).await;
    assert!(other.join("made.txt").exists());
    assert_eq!(model(), "another");
    effort("high");
    std::fs::remove_file(other.join("made.txt")).unwrap();

    poller.reply(&session, "touch", json!({})).await;
    poller.until_idle(&session).await;
    assert!(other.join("made.txt").exists());
    assert_eq!(model(), "another");
    effort("high");
    let whole = poller.get(&session).await;
    for (key, value) in [
        ("sandbox", json!("workspace-write")),
        ("cwd", json!(other)),
        ("model", json!("another")),
        ("effort", json!("high")),
        ("approvalPolicy", json!("never")),
    ] {
        assert_eq!(whole[key], value, "{whole:#}");
    }
    stage.finish(poller.client).await;
}

/// The model in the tests' configuration.
const MODEL: &str = "mock-model";

/// No call sets the model, and a thread of plain Codex has no settings from us.
async fn effective_settings_are_shown_after_a_resume(release: &str) {
    let config = "sandbox_mode = \"workspace-write\"\napproval_policy = \"never\"";
    let stage = CodexFixture::with_config(release, echoing_model(), config).await;
    let plain = AppServer::real(release, &stage.home).await;
    let thread = plain.start_thread(json!({})).await;
    let mut notifications = plain.notifications(&thread);
    plain.turn(&thread, &mut notifications, "said before").await;
    drop(plain);
    let mut poller = Poller::new(&stage, &[]).await;
    let effective = |told: &Value| {
        let names = ["model", "sandbox", "approvalPolicy"];
        names.map(|name| told[name].as_str().unwrap_or_default().to_owned())
    };
    let begun = poller.start("begin", json!({})).await;
    let told = effective(&poller.get(&begun).await);
    assert_eq!(told, [MODEL, "read-only", "on-request"]);

    let resume = json!({"action": "resume", "threadId": thread});
    let resumed = poller.call("codex_session", resume).await;
    let session = resumed["sessionId"].as_str().unwrap().to_owned();
    let told = effective(&poller.get(&session).await);
    assert_eq!(told, [MODEL, "workspace-write", "never"]);

    let change =
        json!({"model": "another", "sandbox": "read-only", "approvalPolicy": "on-request"});
    poller.reply(&session, "go on", change).await;
    poller.until_idle(&session).await;
    let changed = ["another", "read-only", "on-request"];
    assert_eq!(effective(&poller.get(&session).await), changed);
    kill_codex(&stage);
    poller
        .until(&session, |look| look["status"] == "error")
        .await;
    poller.reply(&session, "go on", json!({})).await;
    poller.until_idle(&session).await;
    assert_eq!(effective(&poller.get(&session).await), changed);
    let fork = poller.session("fork", &session).await;
    let forked = fork["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(effective(&poller.get(&forked).await), changed);
    stage.finish(poller.client).await;
}

async fn death_of_codex_is_reported_once(release: &str) {
    let stage = CodexFixture::new(release, echoing_model()).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let session = poller.start("begin", json!({})).await;
    poller.until_idle(&session).await;
    let status = poller.client.call_tool("codex_status", json!({})).await;
    assert_eq!(structured(&status).get("lastExit"), None, "{status:#}");
    assert_eq!(structured(&status)["activeThreads"], 1);
    let threads = poller.client.call_tool("codex_threads", json!({})).await;
    assert_eq!(structured(&threads)["threads"][0]["status"], "active");
    for time in ["first", "second"] {
        kill_codex(&stage);
        let (lost, _) = poller
            .until(&session, |look| look["status"] == "error")
            .await;
        let warnings = &lost["warnings"];
        let warning = warnings[0].as_str().unwrap_or_default();
        assert!(
            warning.starts_with("Codex was ended by signal 9 (SIGKILL) at 20"),
            "{time}: {lost:#}"
        );
        assert_eq!(warnings.as_array().unwrap().len(), 1, "{lost:#}");
        let next = poller.get(&session).await;
        assert_eq!(next.get("warnings"), None, "{next:#}");
        let status = poller.client.call_tool("codex_status", json!({})).await;
        let exit = &structured(&status)["lastExit"];
        assert_eq!(exit["signal"], 9, "{status:#}");
        assert!(warning.contains(exit["at"].as_str().unwrap()), "{exit:#}");
        assert_eq!(structured(&status).get("warnings"), None, "{status:#}");
        poller.reply(&session, "go on", json!({})).await;
        poller.until_idle(&session).await;
    }
    stage.finish(poller.client).await;
}

async fn wait_any_returns_the_first_session_that_needs_attention(release: &str) {
    let gate = Gate::new();
    let script = Script::new()
        .on("slow", [Reply::say("at last").behind(&gate)])
        .otherwise([Reply::say("soon")]);
    let stage = CodexFixture::new(release, script).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let slow = poller.start("slow", json!({})).await;
    let wait = |sessions: &[&String], milliseconds: u64| json!({"action": "wait_any", "sessionIds": sessions, "waitMs": milliseconds});
    let late = poller.call("codex_session", wait(&[&slow], 1)).await;
    assert_eq!(late, json!({"timedOut": true}));
    let fast = poller.start("fast", json!({})).await;
    let first = poller
        .call("codex_session", wait(&[&slow, &fast], 60_000))
        .await;
    assert_eq!(first, json!({"sessionId": fast, "status": "idle"}));
    gate.release();
    let next = poller.call("codex_session", wait(&[&slow], 60_000)).await;
    assert_eq!(next, json!({"sessionId": slow, "status": "idle"}));
    stage.finish(poller.client).await;
}

async fn empty_thread_cannot_be_forked(release: &str) {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("x").behind(&gate)]);
    let stage = CodexFixture::new(release, script).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let advanced = json!({"advanced": {"ephemeral": true}});
    let session = poller.start("nothing is written", advanced).await;
    let fork = json!({"action": "fork", "sessionId": session});
    let code = poller.refused("codex_session", fork).await;
    assert_eq!(code, "THREAD_FORK_RESUME_FAILED");
    assert_eq!(poller.get(&session).await["status"], "running");
    gate.release();
    poller.until_idle(&session).await;
    stage.finish(poller.client).await;
}

async fn classic_call_that_returned_early_can_be_polled(release: &str) {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("done").behind(&gate)]);
    let stage = CodexFixture::new(release, script).await;
    let mut client = stage.client(&[]).await;
    let arguments = json!({"prompt": "take your time", "wait-ms": 1});
    let early = client.call_tool("codex", arguments).await;
    assert_eq!(structured(&early)["status"], "running", "{early:#}");
    gate.release();
    let session = &structured(&early)["sessionId"];
    let done = wait_for("the end of the turn", async || {
        let poll =
            json!({"action": "poll", "sessionId": session, "maxEvents": 100, "waitMs": 5000});
        let look = client.call_tool("codex_check", poll).await;
        let look = structured(&look).clone();
        (look["status"] == "idle").then_some(look)
    })
    .await;
    assert_eq!(done["result"]["output"], "done");
    let arguments = json!({"prompt": "again", "threadId": structured(&early)["threadId"]});
    let again = client.call_tool("codex-reply", arguments).await;
    assert_eq!(structured(&again)["content"], "done");
    assert_eq!(&structured(&again)["sessionId"], session);
    stage.finish(client).await;
}

async fn silent_turn_is_reported(release: &str) {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("done").behind(&gate)]);
    let stage = CodexFixture::new(release, script).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let advanced = json!({"advanced": {"stallTimeoutMs": 300}});
    let session = poller.start("take your time", advanced).await;
    gate.reached(1).await;
    let is_stall = |event: &Value| event["data"]["method"] == "codex-mcp/stalled";
    let (look, _) = poller
        .until(&session, |look| {
            look["events"].as_array().unwrap().iter().any(is_stall)
        })
        .await;
    let stall = look["events"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| is_stall(one));
    assert!(stall.unwrap()["data"]["stalledForMs"].as_u64().unwrap() >= 300);
    // A late event of Codex ends the stall, until it has been silent again.
    let stalled = async {
        loop {
            if let Some(stalled) = poller.get(&session).await["stalledForMs"].as_u64() {
                return stalled;
            }
        }
    };
    assert!(within("another stall", stalled).await >= 300);
    gate.release();
    let (done, _) = poller.until_idle(&session).await;
    assert_eq!(done["result"]["output"], "done");
    stage.finish(poller.client).await;
}

/// A thread that was being unloaded when we were killed is left archived.
async fn archived_thread_is_resumed(release: &str) {
    let script = Script::new().otherwise([Reply::say("done")]);
    let stage = CodexFixture::new(release, script).await;
    let mut client = stage.client(&[]).await;
    let begun = client.call_tool("codex", json!({"prompt": "x"})).await;
    let thread = structured(&begun)["threadId"].clone();
    stage.finish(client).await;
    let codex = AppServer::real(release, &stage.home).await;
    let archive = json!({ "threadId": thread });
    codex.call("thread/archive", archive.clone()).await;
    // Codex itself refuses it.
    assert!(codex.request("thread/resume", archive).await.is_err());
    let pid = codex.pid();
    drop(codex);
    assert_eq!(wait_until_gone(&[pid], TIME_LIMIT).await, []);
    let mut client = stage.client(&[]).await;
    let reply = json!({"prompt": "again", "threadId": thread});
    let again = client.call_tool("codex-reply", reply).await;
    assert_eq!(structured(&again)["content"], "done", "{again:#}");
    stage.finish(client).await;
}
