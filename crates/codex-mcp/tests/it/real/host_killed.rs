//! The next host continues the turns of a host that was killed.

mod calls;
mod restarts;

use std::fs::File;
use std::time::{Duration, Instant};

use image_request::logic::contract::TOOL;
use nix::sys::signal::Signal;
use scripted_model::{Gate, Reply, Script, Shell};
use serde_json::{Value, json};
use testkit::process::{Process, signal, wait_until_gone};
use testkit::{AppServer, Launch, McpClient};
use tokio::time::sleep;

use super::job_tools::{self, call_ok};
use super::sessions::Poller;
use super::thread_tools::{
    TEAM, calling_after, calling_model, last_output, mail, picture, spawn_agent, team,
    write_to_lead,
};
use super::{CodexFixture, VERSION, assert_completed, assert_error, said, structured};
use crate::jobs::wait_for;
use crate::on_both_releases;

on_both_releases!(
    turn_continues_with_the_next_host,
    step_under_way_is_known,
    prompt_that_was_just_sent_is_not_lost,
    open_question_is_asked_once,
    question_is_answered_before_its_client_is_back,
    turn_that_ends_without_a_host_is_told,
    result_of_an_ended_turn_is_kept,
    sessions_of_several_clients_continue,
    session_of_a_late_client_has_its_tools_again,
    idle_session_of_a_late_client_takes_a_prompt,
    idle_session_waits_for_no_client,
    thread_of_a_session_that_was_just_cancelled_is_free,
    call_of_a_tool_is_not_executed_twice,
    codex_that_dies_without_a_host_is_reported,
    subagent_of_an_earlier_turn_is_answered,
    session_that_was_summed_up_keeps_its_last_turn,
);

/// The limit for what happens after a host was killed.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A client of a host.
struct HostFixture {
    stage: CodexFixture,
    client: Poller,
}

impl HostFixture {
    async fn new(release: &str, script: Script) -> Self {
        let stage = CodexFixture::new(release, script).await;
        Self::on(stage, &[]).await
    }

    async fn on(stage: CodexFixture, args: &[&str]) -> Self {
        let client = poller(&stage, args).await;
        Self { stage, client }
    }

    /// The client has the classic tools.
    async fn classic(release: &str, script: Script) -> Self {
        let stage = CodexFixture::new(release, script).await;
        let client = client(&stage, &[]).await;
        let client = Poller { client };
        Self { stage, client }
    }

    /// The processes of the hosts that run.
    async fn hosts(&self) -> Vec<u32> {
        let listed = said(self.stage.program(&["host", "status", "--json"])).await;
        let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
        let pids = listed.iter().map(|host| host["pid"].as_u64().unwrap());
        pids.map(|pid| u32::try_from(pid).unwrap()).collect()
    }

    async fn kill_host(&self) {
        let [host] = self.hosts().await[..] else {
            panic!("one host");
        };
        signal(host, Signal::SIGKILL);
        assert_eq!(wait_until_gone(&[host], TIME_LIMIT).await, []);
    }

    /// The processes of Codex itself.
    fn codex(&self) -> Vec<u32> {
        let is_codex = |line: &str| line.contains("app-server") && !line.contains(" guard ");
        let mut all = self.stage.home.processes();
        all.retain(|process| is_codex(&process.command));
        // A child has the same command line until it executes its program.
        let is_child = |process: &Process| all.iter().any(|other| other.pid == process.parent);
        let parents = all.iter().filter(|process| !is_child(process));
        parents.map(|process| process.pid).collect()
    }

    /// Polls until the session has this state, also while there is no host.
    async fn wait_for(&mut self, session: &str, state: &str) -> Value {
        let options = json!({ "maxEvents": 1000, "responseMode": "full" });
        self.client.until_state(session, state, options).await
    }

    /// Polls until the session has no turn, also while there is no host.
    async fn settled(&mut self, session: &str) -> Value {
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            let poll = json!({ "action": "poll", "sessionId": session, "waitMs": 1000 });
            let seen = self.client.client.call_tool("codex_check", poll).await;
            let shown = structured(&seen);
            let may_continue = shown["error"]["retryable"] == true;
            if !may_continue && shown["status"] != "running" {
                return shown.clone();
            }
            assert!(Instant::now() < deadline, "{seen:#}");
        }
    }

    /// Kills the host of a call whose turn waits at the gate, and opens the gate: the next host has
    /// the answer, without another turn.
    async fn assert_next_host_answers(&mut self, waiting: &Value, gate: &Gate, answer: &str) {
        self.kill_host().await;
        gate.release();
        let answered = self.client.client.result(waiting).await;
        assert_completed(&answered, answer);
        assert_eq!(self.stage.model.request_count(), 1);
    }

    /// Sends a prompt as soon as there is a host again. It must be accepted.
    async fn reply_to_next_host(&mut self, session: &str, prompt: &str) {
        let reply = json!({ "sessionId": session, "prompt": prompt });
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            let client = &mut self.client.client;
            let replied = client.call_tool("codex_reply", reply.clone()).await;
            if structured(&replied)["error"]["code"] != "HOST_LOST" {
                return assert_eq!(replied["isError"], false, "{replied:#}");
            }
            assert!(Instant::now() < deadline, "{replied:#}");
        }
    }

    /// The lines of the audit about turns.
    fn audited_turns(&self) -> Vec<Value> {
        let sessions = self
            .stage
            .home
            .atm_home()
            .join(".config/atm/codex-sessions");
        let text = std::fs::read_to_string(sessions.join("codex/audit.jsonl")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines
            .filter(|line: &Value| line["event"] == "turn")
            .collect()
    }

    /// The audit and the registry have the end of the only turn, which `hosts` hosts have continued.
    async fn assert_end_is_recorded(&self, hosts: usize) {
        let lines = wait_for("the end of the turn in the audit", async || {
            let lines = self.audited_turns();
            let is_ended = lines.last().is_some_and(|line| line["outcome"] == "done");
            is_ended.then_some(lines)
        })
        .await;
        assert_eq!(lines.len(), hosts + 1, "{lines:#?}");
        assert_eq!(lines[hosts]["id"], lines[hosts - 1]["id"], "{lines:#?}");
        wait_for("the end of the turn in the registry", async || {
            let listed = said(self.stage.program(&["threads", "--json"])).await;
            let listed: Value = serde_json::from_str(&listed).unwrap();
            let entry = &listed["threads"][0];
            let is_recorded = entry["status"] == "active" && entry["last_turn"] == "completed";
            is_recorded.then_some(())
        })
        .await;
    }

    async fn finish(self) {
        assert!(self.client.client.finish().await.success());
        finish(&self.stage).await;
    }
}

async fn finish(stage: &CodexFixture) {
    stage.stop_hosts().await;
    assert_eq!(stage.home.processes(), []);
    let hosts = stage.home.state_home().join("codex-mcp/hosts");
    let left = std::fs::read_dir(hosts).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<String> = left
        .filter(|name| !name.ends_with(".log") && !name.ends_with(".lock"))
        .collect();
    assert_eq!(left, [] as [&str; 0]);
}

/// A model that gives this answer once the gate is open.
fn gated(answer: &str) -> (Gate, Script) {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say(answer).behind(&gate)]);
    (gate, script)
}

/// A client of `--api sessions`.
async fn poller(stage: &CodexFixture, args: &[&str]) -> Poller {
    let args = [&["--api", "sessions"], args].concat();
    Poller {
        client: client(stage, &args).await,
    }
}

async fn client(stage: &CodexFixture, args: &[&str]) -> McpClient {
    started(&stage.launch(&[&["--host"], args].concat())).await
}

async fn started(launch: &Launch) -> McpClient {
    let mut client = McpClient::start(launch);
    client.ignore("notifications/tools/list_changed");
    client.initialize(VERSION, json!({})).await;
    client
}

async fn turn_continues_with_the_next_host(release: &str) {
    let (gate, script) = gated("done");
    let mut work = HostFixture::new(release, script).await;
    let session = work.client.start("work", json!({})).await;
    gate.reached(1).await;
    let mut following = work.stage.program(&["logs", &session, "--follow"]);
    let following = following.kill_on_drop(true).spawn().unwrap();
    let codex = work.codex();
    for _ in 0..3 {
        work.kill_host().await;
        work.wait_for(&session, "running").await;
        assert_eq!(work.codex(), codex);
    }
    gate.release();
    let ended = work.wait_for(&session, "idle").await;
    assert_eq!(ended["result"]["output"], "done", "{ended:#}");
    assert_eq!(work.stage.model.request_count(), 1);
    let followed = following.wait_with_output().await.unwrap();
    assert!(followed.status.success(), "{followed:?}");
    let followed = String::from_utf8(followed.stdout).unwrap();
    assert!(followed.contains("  done\n"), "{followed}");
    work.assert_end_is_recorded(3).await;
    let log = said(work.stage.program(&["logs", &session])).await;
    let gap = "…  the events before the last start of the host process are no longer known";
    assert_eq!(log.matches(gap).count(), 1, "{log}");
    assert_eq!(log.matches("no longer known").count(), 1, "{log}");
    let again = work.client.reply(&session, "more", json!({})).await;
    assert_eq!(again["sessionId"], session);
    work.wait_for(&session, "idle").await;
    assert_eq!(work.codex(), codex);
    work.finish().await;
}

/// The client that came second returns first.
#[tokio::test]
async fn clients_keep_their_identities() {
    let script = Script::new().otherwise([Reply::say("done")]);
    let mut work = HostFixture::classic(testkit::codex::newest(), script).await;
    let mut second = client(&work.stage, &[]).await;
    assert_eq!(identity(&mut work.client.client).await, "codex");
    assert_eq!(identity(&mut second).await, "codex-2");
    work.client.client.signal(testkit::Signal::SIGSTOP);
    work.kill_host().await;
    assert_eq!(identity(&mut second).await, "codex-2");
    work.client.client.signal(testkit::Signal::SIGCONT);
    assert_eq!(identity(&mut work.client.client).await, "codex");
    assert!(second.finish().await.success());
    work.finish().await;
}

/// The identity of a client, as soon as it has a host.
async fn identity(client: &mut McpClient) -> String {
    wait_for("the identity", async || {
        let status = client.call_tool("codex_status", json!({})).await;
        structured(&status)["identity"].as_str().map(str::to_owned)
    })
    .await
}

/// A command runs while there is no host.
async fn step_under_way_is_known(release: &str) {
    let waiting = "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo ended";
    let script = Script::new().otherwise([
        Reply::shell(Shell::new(waiting).waiting(Duration::from_secs(30))),
        Reply::say("done"),
    ]);
    let mut work = HostFixture::new(release, script).await;
    let session = work.client.start("work", json!({})).await;
    let runs = |look: &Value| look["events"].to_string().contains("\"commandExecution\"");
    work.client.until(&session, runs).await;
    work.kill_host().await;
    let look = work.wait_for(&session, "running").await;
    let deadline = Instant::now() + TIME_LIMIT;
    let mut events = look["events"].to_string();
    while !events.contains("\"commandExecution\"") {
        assert!(Instant::now() < deadline, "{events}");
        events += &work.wait_for(&session, "running").await["events"].to_string();
    }
    std::fs::write(work.stage.file("go"), "").unwrap();
    let ended = work.wait_for(&session, "idle").await;
    assert_eq!(ended["result"]["output"], "done", "{ended:#}");
    assert_eq!(work.stage.model.request_count(), 2);
    work.finish().await;
}

/// Codex is stopped, and has not read the prompt when the host is killed. Then it executes the
/// prompt, or does not: the session says which, and no prompt is executed twice.
async fn prompt_that_was_just_sent_is_not_lost(release: &str) {
    let script = Script::new().otherwise([Reply::say("done")]);
    let mut work = HostFixture::new(release, script).await;
    let session = work.client.start("one", json!({})).await;
    work.wait_for(&session, "idle").await;
    let codex = work.codex();
    for process in &codex {
        signal(*process, Signal::SIGSTOP);
    }
    let prompt = json!({ "sessionId": session, "prompt": "two" });
    let sent = work.client.client.request_tool("codex_reply", prompt);
    // The reply is answered once Codex has accepted it, so nothing tells that it was written.
    sleep(Duration::from_millis(300)).await;
    work.kill_host().await;
    for process in &codex {
        signal(*process, Signal::SIGCONT);
    }
    let answer = work.client.client.result(&sent).await;
    assert_error(&answer, "HOST_LOST");
    let ended = work.settled(&session).await;
    let counted = work.stage.model.request_count();
    match ended["status"].as_str().unwrap() {
        "idle" => assert!(counted <= 2, "{ended:#}"),
        _ => assert!(
            ended.to_string().contains("could not be continued"),
            "{ended:#}"
        ),
    }
    work.client.reply(&session, "three", json!({})).await;
    work.wait_for(&session, "idle").await;
    let asked = work.stage.model.requests();
    let twos = asked.iter().filter(|request| request.prompt() == "two");
    assert!(twos.count() <= 1);
    work.finish().await;
}

async fn open_question_is_asked_once(release: &str) {
    let touch = Reply::shell(Shell::escalated("echo x >> made.txt", "it is needed"));
    let script = Script::new().otherwise([touch, Reply::say("done")]);
    let mut work = HostFixture::new(release, script).await;
    let session = work.client.start("make it", json!({})).await;
    let asked = work.wait_for(&session, "waiting_approval").await;
    let question = asked["actions"][0].clone();
    for _ in 0..2 {
        work.kill_host().await;
        let asked = work.wait_for(&session, "waiting_approval").await;
        let actions = asked["actions"].as_array().unwrap();
        assert_eq!(actions.len(), 1, "{asked:#}");
        assert_eq!(actions[0]["requestId"], question["requestId"]);
    }
    work.client.decide(&session, &question, "accept").await;
    let ended = work.wait_for(&session, "idle").await;
    assert_eq!(ended["result"]["output"], "done", "{ended:#}");
    let made = std::fs::read_to_string(work.stage.file("made.txt")).unwrap();
    assert_eq!(made, "x\n");
    assert_eq!(work.stage.model.request_count(), 2);
    work.finish().await;
}

/// The next host has the session, and waits for its client before it asks Codex for the question.
async fn question_is_answered_before_its_client_is_back(release: &str) {
    let touch = Reply::shell(Shell::escalated("echo x >> made.txt", "it is needed"));
    let script = Script::new().otherwise([touch, Reply::say("done")]);
    let mut work = HostFixture::new(release, script).await;
    let other = poller(&work.stage, &[]).await;
    let session = work.client.start("make it", json!({})).await;
    work.wait_for(&session, "waiting_approval").await;
    work.client.client.signal(testkit::Signal::SIGSTOP);
    work.kill_host().await;
    let listed = wait_for("the next host", async || {
        let mut listing = work.stage.program(&["ps", "--json"]);
        let listed = listing.kill_on_drop(true).output().await.unwrap();
        listed.status.success().then_some(listed.stdout)
    })
    .await;
    let listed: Value = serde_json::from_slice(&listed).unwrap();
    assert_eq!(listed["work"][0]["state"], "asking", "{listed:#}");
    said(work.stage.program(&["approve", &session])).await;
    work.client.client.signal(testkit::Signal::SIGCONT);
    let ended = work.wait_for(&session, "idle").await;
    assert_eq!(ended["result"]["output"], "done", "{ended:#}");
    assert!(other.client.finish().await.success());
    work.finish().await;
}

/// The client's own process is stopped, so that nobody starts the next host before the turn has
/// ended.
async fn turn_that_ends_without_a_host_is_told(release: &str) {
    let gate = Gate::new();
    let script = Script::new().otherwise([
        Reply::shell("echo x >> made.txt").behind(&gate),
        Reply::say("done"),
    ]);
    let mut work = HostFixture::new(release, script).await;
    let writing = json!({ "sandbox": "workspace-write" });
    let session = work.client.start("work", writing).await;
    gate.reached(1).await;
    work.client.client.signal(testkit::Signal::SIGSTOP);
    work.kill_host().await;
    gate.release();
    wait_for("the end of the turn", async || {
        let has_ended = rollout(&work.stage).contains("\"task_complete\"");
        has_ended.then_some(())
    })
    .await;
    assert_eq!(work.hosts().await, [] as [u32; 0]);
    work.client.client.signal(testkit::Signal::SIGCONT);
    let ended = work.wait_for(&session, "idle").await;
    assert_eq!(ended["result"]["output"], "done", "{ended:#}");
    let made = std::fs::read_to_string(work.stage.file("made.txt")).unwrap();
    assert_eq!(made, "x\n");
    assert_eq!(work.stage.model.request_count(), 2);
    work.finish().await;
}

/// All that Codex has written of its threads.
pub(super) fn rollout(stage: &CodexFixture) -> String {
    let mut all = String::new();
    let mut waiting = vec![stage.home.codex_home().join("sessions")];
    while let Some(path) = waiting.pop() {
        match std::fs::read_dir(&path) {
            Ok(entries) => waiting.extend(entries.map(|entry| entry.unwrap().path())),
            Err(_) => all += &std::fs::read_to_string(&path).unwrap_or_default(),
        }
    }
    all
}

/// Also that of a client that has gone: Codex unloads its thread.
async fn result_of_an_ended_turn_is_kept(release: &str) {
    let script = Script::new().otherwise([Reply::say("done")]);
    let mut work = HostFixture::new(release, script).await;
    let mut gone = poller(&work.stage, &[]).await;
    let sessions = [
        gone.start("one", json!({})).await,
        work.client.start("two", json!({})).await,
    ];
    let mut times = Vec::new();
    for session in &sessions {
        let ended = work.wait_for(session, "idle").await;
        times.push(ended["result"]["completedAt"].clone());
    }
    assert!(gone.client.finish().await.success());
    work.kill_host().await;
    for (session, time) in sessions.iter().zip(times) {
        let ended = work.wait_for(session, "idle").await;
        assert_eq!(ended["result"]["output"], "done", "{ended:#}");
        assert_eq!(ended["result"]["completedAt"], time);
    }
    assert_eq!(work.stage.model.request_count(), 2);
    work.finish().await;
}

/// Also that of a client that has gone.
async fn sessions_of_several_clients_continue(release: &str) {
    let (gate, script) = gated("done");
    let mut work = HostFixture::new(release, script).await;
    let mut gone = poller(&work.stage, &[]).await;
    let mut sessions = vec![
        gone.start("one", json!({})).await,
        gone.start("two", json!({})).await,
    ];
    sessions.push(work.client.start("three", json!({})).await);
    gate.reached(3).await;
    assert!(gone.client.finish().await.success());
    work.kill_host().await;
    gate.release();
    for session in &sessions {
        let ended = work.wait_for(session, "idle").await;
        assert_eq!(ended["result"]["output"], "done", "{ended:#}");
    }
    assert_eq!(work.stage.model.request_count(), 3);
    work.finish().await;
}

/// Its session has been restored without it.
async fn session_of_a_late_client_has_its_tools_again(release: &str) {
    let gate = Gate::new();
    let waiting = Script::new().on("wait", [Reply::say("waited").behind(&gate)]);
    let model = calling_after(waiting);
    let stage = CodexFixture::new(release, model).await;
    let inbox = team(&stage, true);
    let mut work = HostFixture::on(stage, &TEAM).await;
    let mut other = poller(&work.stage, &TEAM).await;
    let session = work.client.start("wait", json!({})).await;
    gate.reached(1).await;
    work.client.client.signal(testkit::Signal::SIGSTOP);
    work.kill_host().await;
    // The events of its turn come when it is restored.
    let poll = json!({ "action": "poll", "sessionId": session, "waitMs": 1000,
        "maxEvents": 1000, "responseMode": "full" });
    let deadline = Instant::now() + TIME_LIMIT;
    loop {
        let seen = other.client.call_tool("codex_check", poll.clone()).await;
        let events = structured(&seen)["events"].as_array();
        if events.is_some_and(|events| !events.is_empty()) {
            break;
        }
        assert!(Instant::now() < deadline, "{seen:#}");
    }
    work.client.client.signal(testkit::Signal::SIGCONT);
    gate.release();
    work.wait_for(&session, "idle").await;
    work.client
        .reply(&session, &write_to_lead("late"), json!({}))
        .await;
    work.wait_for(&session, "idle").await;
    assert_eq!(mail(&inbox), ["late"]);
    assert!(other.client.finish().await.success());
    work.finish().await;
}

/// The summary for a client that has left is a turn that nobody has requested.
async fn session_that_was_summed_up_keeps_its_last_turn(release: &str) {
    let script = Script::new()
        .on("The session ends now.", [Reply::say("a summary")])
        .otherwise([Reply::say("an answer")]);
    let stage = CodexFixture::new(release, script).await;
    let launch = || {
        let launch = stage.launch(&["--host", "--api", "sessions"]);
        launch.env("CODEX_MCP_SUMMARIES", "true")
    };
    let client = started(&launch()).await;
    let mut left = Poller { client };
    let client = started(&launch()).await;
    let client = Poller { client };
    let mut work = HostFixture { stage, client };
    let session = left.start("the task", json!({})).await;
    work.wait_for(&session, "idle").await;
    assert!(left.client.finish().await.success());
    wait_for("the request for a summary", async || {
        (work.stage.model.request_count() == 2).then_some(())
    })
    .await;
    work.wait_for(&session, "idle").await;
    work.kill_host().await;
    let ended = work.wait_for(&session, "idle").await;
    assert_eq!(ended["result"]["output"], "an answer", "{ended:#}");
    let listed = said(work.stage.program(&["ps", "--json"])).await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["work"][0]["task"], "the task", "{listed:#}");
    work.finish().await;
}

/// The session with a turn is older, and is restored later, as it waits for its client.
async fn idle_session_waits_for_no_client(release: &str) {
    let gate = Gate::new();
    let script = Script::new()
        .on("wait", [Reply::say("waited").behind(&gate)])
        .otherwise([Reply::say("done")]);
    let mut work = HostFixture::new(release, script).await;
    let mut late = poller(&work.stage, &[]).await;
    let waiting = late.start("wait", json!({})).await;
    gate.reached(1).await;
    let mut left = poller(&work.stage, &[]).await;
    let idle = left.start("one", json!({})).await;
    work.wait_for(&idle, "idle").await;
    assert!(left.client.finish().await.success());
    late.client.signal(testkit::Signal::SIGSTOP);
    work.kill_host().await;
    work.wait_for(&idle, "idle").await;
    late.client.signal(testkit::Signal::SIGCONT);
    gate.release();
    work.wait_for(&waiting, "idle").await;
    // The first event of each comes when the session is restored.
    let mut times = Vec::new();
    for session in [&idle, &waiting] {
        let poll = json!({ "action": "poll", "sessionId": session, "cursor": 0,
            "maxEvents": 1, "responseMode": "full" });
        let seen = work.client.call("codex_check", poll).await;
        let time = seen["events"][0]["timestamp"].as_str().unwrap();
        times.push(time.to_owned());
    }
    assert!(times.is_sorted(), "{times:?}");
    assert!(late.client.finish().await.success());
    work.finish().await;
}

/// Another client prompts the session before its own one has returned.
async fn idle_session_of_a_late_client_takes_a_prompt(release: &str) {
    for has_turn in [true, false] {
        let gate = Gate::new();
        let script = Script::new()
            .on("two", [Reply::say("second").behind(&gate)])
            .otherwise([Reply::say("first")]);
        let mut work = HostFixture::new(release, script).await;
        let mut late = poller(&work.stage, &[]).await;
        let mut session = late.start("one", json!({})).await;
        work.wait_for(&session, "idle").await;
        if !has_turn {
            let thread = late.get(&session).await["threadId"].clone();
            late.session("cancel", &session).await;
            let resume = json!({ "action": "resume", "threadId": thread });
            let resumed = late.call("codex_session", resume).await;
            session = resumed["sessionId"].as_str().unwrap().to_owned();
        }
        late.client.signal(testkit::Signal::SIGSTOP);
        work.kill_host().await;
        work.reply_to_next_host(&session, "two").await;
        gate.reached(1).await;
        // By now, sessions that wait for their clients would have been restored without them.
        sleep(Duration::from_secs(4)).await;
        work.wait_for(&session, "running").await;
        gate.release();
        let ended = work.wait_for(&session, "idle").await;
        assert_eq!(ended["result"]["output"], "second", "{ended:#}");
        late.client.signal(testkit::Signal::SIGCONT);
        assert!(late.client.finish().await.success());
        work.finish().await;
    }
}

/// Codex is stopped, and has not ended the cancelled turn when the host is killed.
async fn thread_of_a_session_that_was_just_cancelled_is_free(release: &str) {
    let (gate, script) = gated("late");
    let mut work = HostFixture::new(release, script).await;
    let session = work.client.start("work", json!({})).await;
    let thread = work.client.get(&session).await["threadId"].clone();
    gate.reached(1).await;
    let codex = work.codex();
    for process in &codex {
        signal(*process, Signal::SIGSTOP);
    }
    work.client.session("cancel", &session).await;
    work.kill_host().await;
    for process in &codex {
        signal(*process, Signal::SIGCONT);
    }
    work.wait_for(&session, "cancelled").await;
    let elsewhere = AppServer::real(release, &work.stage.home).await;
    let resumed = wait_for("the free thread", async || {
        let resume = json!({ "threadId": thread });
        elsewhere.request("thread/resume", resume).await.ok()
    });
    assert_eq!(resumed.await["thread"]["id"], thread);
    // The shell that the other Codex has started for its snapshot would outlive it.
    wait_for("the shell has ended", async || {
        let left = work.stage.home.processes();
        let is_shell = |process: &Process| process.command.contains("# Snapshot file");
        (!left.iter().any(is_shell)).then_some(())
    })
    .await;
    let pid = elsewhere.pid();
    drop(elsewhere);
    assert_eq!(wait_until_gone(&[pid], TIME_LIMIT).await, []);
    work.finish().await;
}

async fn codex_that_dies_without_a_host_is_reported(release: &str) {
    let gate = Gate::new();
    let script = Script::new()
        .on("work", [Reply::say("done").behind(&gate)])
        .otherwise([Reply::say("again")]);
    let mut work = HostFixture::new(release, script).await;
    let session = work.client.start("work", json!({})).await;
    let thread = work.client.get(&session).await["threadId"].clone();
    gate.reached(1).await;
    work.client.client.signal(testkit::Signal::SIGSTOP);
    work.kill_host().await;
    let codex = work.codex();
    for process in &codex {
        signal(*process, Signal::SIGKILL);
    }
    assert_eq!(wait_until_gone(&codex, TIME_LIMIT).await, []);
    work.client.client.signal(testkit::Signal::SIGCONT);
    let lost = work.settled(&session).await;
    assert_eq!(lost["error"]["code"], "HOST_LOST", "{lost:#}");
    let again = json!({ "threadId": thread, "prompt": "more" });
    let mut classic = client(&work.stage, &[]).await;
    let again = classic.call_tool("codex-reply", again).await;
    assert_completed(&again, "again");
    assert!(classic.finish().await.success());
    work.finish().await;
}

/// The call waits for a lock when the host is killed. Whether it was executed is not known then.
async fn call_of_a_tool_is_not_executed_twice(release: &str) {
    let stage = CodexFixture::new(release, calling_model()).await;
    let inbox = team(&stage, true);
    let mut work = HostFixture::on(stage, &TEAM).await;
    let lock = File::create(inbox.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let session = work.client.start(&write_to_lead("once"), json!({})).await;
    let is_called = |look: &Value| look["events"].to_string().contains("dynamicToolCall");
    work.client.until(&session, is_called).await;
    work.kill_host().await;
    let ended = work.wait_for(&session, "idle").await;
    let output = ended["result"]["output"].as_str().unwrap();
    assert!(output.contains("not known whether"), "{ended:#}");
    drop(lock);
    // The control: the next call is executed.
    work.client
        .reply(&session, &write_to_lead("again"), json!({}))
        .await;
    work.wait_for(&session, "idle").await;
    assert_eq!(mail(&inbox), ["again"]);
    work.finish().await;
}

/// The turn that continues does not name the sub-agent, which the one before has started.
async fn subagent_of_an_earlier_turn_is_answered(release: &str) {
    let (child, parent) = (Gate::new(), Gate::new());
    let begun = || Reply::say("begun");
    let script = Script::new()
        .on("delegate", [Reply::with(spawn_agent), begun(), begun()])
        .on(
            "two",
            [Reply::say("done").behind(&parent), Reply::say("done")],
        )
        .otherwise([
            Reply::call(TOOL, json!({ "path": "a.png" })).behind(&child),
            Reply::with(|request| Reply::say(last_output(request))),
        ]);
    let stage = CodexFixture::new(release, script).await;
    let shown = picture(&stage, "a.png");
    let mut work = HostFixture::on(stage, &[]).await;
    let session = work.client.start("delegate", json!({})).await;
    child.reached(1).await;
    work.wait_for(&session, "idle").await;
    work.client.reply(&session, "two", json!({})).await;
    parent.reached(1).await;
    work.kill_host().await;
    work.wait_for(&session, "running").await;
    child.release();
    wait_for("the picture at the sub-agent", async || {
        let requests = work.stage.model.requests();
        let has_it = requests
            .iter()
            .any(|request| request.images().contains(&shown.as_str()));
        has_it.then_some(())
    })
    .await;
    parent.release();
    work.wait_for(&session, "idle").await;
    work.finish().await;
}
