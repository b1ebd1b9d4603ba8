//! `codex-mcp host restart`: the next host continues the turns of a host that restarts.

use super::*;

on_both_releases!(
    turn_and_question_outlast_a_restart,
    turn_without_a_client_outlasts_a_restart,
    interruption_and_message_right_after_a_restart_are_not_lost,
    restart_after_a_kill_starts_the_next_host,
    waiting_call_gets_its_answer_after_a_restart,
);

/// What the command says when the next host has the sessions.
const RESTARTED: &str = "the host process has restarted";

/// Restarts the host; returns what the command says.
async fn restart(stage: &CodexFixture) -> String {
    let told = said(stage.program(&["host", "restart"])).await;
    told.trim_end().to_owned()
}

impl HostFixture {
    /// Restarts the host, and checks that another one has its Codex.
    async fn hand_over(&self) {
        let (hosts, codex) = (self.hosts().await, self.codex());
        let told = restart(&self.stage).await;
        assert_eq!(told, RESTARTED);
        let next = self.hosts().await;
        assert_eq!(next.len(), 1, "{next:?}");
        assert_ne!(next, hosts);
        assert_eq!(self.codex(), codex);
    }
}

async fn turn_and_question_outlast_a_restart(release: &str) {
    let gate = Gate::new();
    let touch = Reply::shell(Shell::escalated("echo x >> made.txt", "it is needed"));
    let script = Script::new()
        .on("wait", [Reply::say("waited").behind(&gate)])
        .otherwise([touch, Reply::say("made")]);
    let mut work = HostFixture::new(release, script).await;
    let running = work.client.start("wait", json!({})).await;
    gate.reached(1).await;
    let asking = work.client.start("make it", json!({})).await;
    let asked = work.wait_for(&asking, "waiting_approval").await;
    let question = asked["actions"][0].clone();
    for _ in 0..2 {
        work.hand_over().await;
        work.wait_for(&running, "running").await;
        let asked = work.wait_for(&asking, "waiting_approval").await;
        let actions = asked["actions"].as_array().unwrap();
        assert_eq!(actions.len(), 1, "{asked:#}");
        assert_eq!(actions[0]["requestId"], question["requestId"]);
    }
    work.client.decide(&asking, &question, "accept").await;
    let ended = work.wait_for(&asking, "idle").await;
    assert_eq!(ended["result"]["output"], "made", "{ended:#}");
    gate.release();
    let ended = work.wait_for(&running, "idle").await;
    assert_eq!(ended["result"]["output"], "waited", "{ended:#}");
    let made = std::fs::read_to_string(work.stage.file("made.txt")).unwrap();
    assert_eq!(made, "x\n");
    assert_eq!(work.stage.model.request_count(), 3);
    work.finish().await;
}

/// The next host is there before any client.
async fn turn_without_a_client_outlasts_a_restart(release: &str) {
    let (gate, script) = gated("done");
    let stage = CodexFixture::new(release, script).await;
    let mut gone = poller(&stage, &[]).await;
    let session = gone.start("work", json!({})).await;
    gate.reached(1).await;
    assert!(gone.client.finish().await.success());
    let told = restart(&stage).await;
    assert_eq!(told, RESTARTED);
    let listed = said(stage.program(&["ps", "--json"])).await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["work"][0]["id"], session, "{listed:#}");
    gate.release();
    let mut work = HostFixture::on(stage, &[]).await;
    let ended = work.wait_for(&session, "idle").await;
    assert_eq!(ended["result"]["output"], "done", "{ended:#}");
    assert_eq!(work.stage.model.request_count(), 1);
    work.finish().await;
}

/// Commands may write files without a question.
fn unconfined() -> Value {
    json!({ "sandbox": "danger-full-access" })
}

/// The clients have gone, so the next host would wait for them.
async fn interruption_and_message_right_after_a_restart_are_not_lost(release: &str) {
    let gate = Gate::new();
    let making = |file: &str| {
        let touch = Reply::shell(format!("echo x >> {file}"));
        [touch.behind(&gate), Reply::say("made")]
    };
    let script = Script::new()
        .on("one", making("one.txt"))
        .on("two", making("two.txt"))
        .otherwise(making("three.txt"));
    let stage = CodexFixture::new(release, script).await;
    let mut gone = poller(&stage, &[]).await;
    let cancelled = gone.start("one", unconfined()).await;
    let interrupted = gone.start("two", unconfined()).await;
    let steered = gone.start("three", unconfined()).await;
    gate.reached(3).await;
    assert!(gone.client.finish().await.success());
    let told = restart(&stage).await;
    assert!(told.starts_with(RESTARTED), "{told}");
    let log = said(stage.program(&["logs", &steered])).await;
    let gap = "…  the events before the last start of the host process are no longer known";
    assert_eq!(log.matches(gap).count(), 1, "{log}");
    said(stage.program(&["steer", &steered, "more"])).await;
    said(stage.program(&["cancel", &cancelled])).await;
    let mut work = HostFixture::on(stage, &[]).await;
    work.client.session("interrupt", &interrupted).await;
    work.hand_over().await;
    gate.release();
    let ended = work.settled(&interrupted).await;
    assert_ne!(ended["result"]["output"], "made", "{ended:#}");
    let ended = work.wait_for(&steered, "idle").await;
    assert_eq!(ended["result"]["output"], "made", "{ended:#}");
    let made = ["one.txt", "two.txt", "three.txt"].map(|file| work.stage.file(file).exists());
    assert_eq!(made, [false, false, true]);
    work.finish().await;
}

/// When its records are opened, a host takes the threads that it finds active for those of a dead one.
#[tokio::test]
async fn idle_session_stays_active_in_the_records_after_a_restart() {
    let script = Script::new().otherwise([Reply::say("done")]);
    let mut work = HostFixture::new(testkit::codex::newest(), script).await;
    let session = work.client.start("work", json!({})).await;
    work.wait_for(&session, "idle").await;
    let before = work.client.call("codex_threads", json!({})).await;
    let thread = &before["threads"][0];
    assert_eq!(thread["status"], "active", "{before:#}");
    work.hand_over().await;
    let after = work.client.call("codex_threads", json!({})).await;
    assert_eq!(after["threads"], before["threads"]);
    work.finish().await;
}

/// The client's own process is stopped, so that nobody else starts the next host.
async fn restart_after_a_kill_starts_the_next_host(release: &str) {
    let (gate, script) = gated("done");
    let mut work = HostFixture::new(release, script).await;
    let session = work.client.start("work", json!({})).await;
    gate.reached(1).await;
    work.client.client.signal(testkit::Signal::SIGSTOP);
    let codex = work.codex();
    work.kill_host().await;
    let told = restart(&work.stage).await;
    assert_eq!(told, RESTARTED);
    assert_eq!(work.hosts().await.len(), 1);
    assert_eq!(work.codex(), codex);
    gate.release();
    work.client.client.signal(testkit::Signal::SIGCONT);
    let ended = work.wait_for(&session, "idle").await;
    assert_eq!(ended["result"]["output"], "done", "{ended:#}");
    assert_eq!(work.stage.model.request_count(), 1);
    work.finish().await;
}

async fn waiting_call_gets_its_answer_after_a_restart(release: &str) {
    let (gate, script) = gated("done");
    let mut work = HostFixture::classic(release, script).await;
    let call = json!({ "prompt": "work" });
    let waiting = work.client.client.request_tool("codex", call);
    gate.reached(1).await;
    work.hand_over().await;
    gate.release();
    let answered = work.client.client.result(&waiting).await;
    assert_completed(&answered, "done");
    assert_eq!(work.stage.model.request_count(), 1);
    work.finish().await;
}

/// Codex 0.104.0 cannot be taken over.
#[tokio::test]
async fn restart_that_would_end_a_turn_is_refused() {
    let (gate, script) = gated("done");
    let mut work = HostFixture::new("0.104.0", script).await;
    let session = work.client.start("work", json!({})).await;
    gate.reached(1).await;
    let hosts = work.hosts().await;
    let mut refused = work.stage.program(&["host", "restart"]);
    let refused = refused.kill_on_drop(true).output().await.unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert!(errors.contains("has 1 turn under way"), "{errors}");
    assert_eq!(work.hosts().await, hosts);
    gate.release();
    let ended = work.wait_for(&session, "idle").await;
    assert_eq!(ended["result"]["output"], "done", "{ended:#}");
    assert_eq!(work.stage.model.request_count(), 1);
    let told = restart(&work.stage).await;
    assert!(told.starts_with("the host process has ended; "), "{told}");
    assert_eq!(work.hosts().await, [] as [u32; 0]);
    work.finish().await;
}
