//! Codex's own interactive program on the session of a client, in a real terminal.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use scripted_model::{Gate, Reply, Script, Shell};
use serde_json::{Value, json};
use testkit::Tmux;
use testkit::process::{signal, wait_until_gone};
use tokio::process::Command;
use tokio::time::sleep;

use super::CodexFixture;
use super::sessions::Poller;
use super::thread_tools::{TEAM, calling_model, mail, team, write_to_lead};
use crate::jobs::wait_for;

/// Fast keys are no paste, and Codex does not check for updates.
const CONFIG: &str = "disable_paste_burst = true\ncheck_for_update_on_startup = false\n";

/// The limit of a wait.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The pause between two keys.
const KEY_INTERVAL: Duration = Duration::from_millis(300);

/// A client with a host.
struct AttachFixture {
    stage: CodexFixture,
    client: Poller,
}

impl AttachFixture {
    async fn new(release: &str, script: Script, args: &[&str]) -> Self {
        let stage = CodexFixture::with_config(release, script, CONFIG).await;
        let args = [&["--host"], args].concat();
        let client = Poller::new(&stage, &args).await;
        Self { stage, client }
    }

    /// Polls until the session has this state, also while there is no host; returns what the poll
    /// shows.
    async fn wait_for(&mut self, session: &str, state: &str) -> Value {
        let options = json!({ "pollOptions": { "includeEvents": false } });
        self.client.until_state(session, state, options).await
    }

    async fn kill_host(&self) {
        let all = self.stage.home.processes().into_iter();
        let mut hosts = all.filter(|process| process.command.contains(" host run"));
        let host = hosts.next().unwrap().pid;
        signal(host, Signal::SIGKILL);
        assert_eq!(wait_until_gone(&[host], TIME_LIMIT).await, []);
    }

    /// Opens Codex on the session in a terminal.
    async fn attach(&self, session: &str) -> Tmux {
        let tmux = Tmux::start(&self.stage.home, 100, 40).await;
        let program = env!("CARGO_BIN_EXE_codex-mcp");
        tmux.enters(&format!("{program} attach {session}")).await;
        tmux
    }

    /// Runs our program in `script`, which gives it a terminal; it must refuse. Returns all of its
    /// output.
    async fn refused(&self, args: &str) -> String {
        let line = format!("{} {args}", env!("CARGO_BIN_EXE_codex-mcp"));
        let mut command = Command::new("script");
        command
            .args(["-qec", &line, "/dev/null"])
            .env_clear()
            .envs(self.stage.home.env())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = command.output().await.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(3), "{text}");
        text
    }

    async fn finish(self) {
        assert!(self.client.client.finish().await.success());
        self.stage.stop_hosts().await;
        // What ran in a terminal ends a moment after its tmux.
        wait_for("all processes are gone", async || {
            self.stage.home.processes().is_empty().then_some(())
        })
        .await;
    }
}

/// A model that asks for one command, and says how many turns there have been.
fn asking_model() -> Script {
    let ask = |file: &str| {
        let command = format!("echo x >> {file}");
        Reply::shell(Shell::escalated(&command, "it is needed"))
    };
    Script::new()
        .on("first", [ask("one.txt"), Reply::say("One is there.")])
        .on("second", [ask("two.txt"), Reply::say("Two is there.")])
        .otherwise([Reply::say("Three is there.")])
}

async fn both_sides_work_on_one_thread(release: &str) {
    let mut work = AttachFixture::new(release, asking_model(), &[]).await;
    let session = work.client.start("first", json!({})).await;
    work.wait_for(&session, "waiting_approval").await;
    let codex = work.attach(&session[..13]).await;
    codex.shows("Would you like to run").await;

    // The person in the terminal decides, and the client sees it.
    // A key can be too early.
    wait_for("the answer to the question", async || {
        if !codex.screen().await.contains("Would you like to run") {
            return Some(());
        }
        codex.presses(&["y"]).await;
        sleep(KEY_INTERVAL).await;
        None
    })
    .await;
    let ended = work.wait_for(&session, "idle").await;
    assert_eq!(ended["result"]["output"], "One is there.", "{ended:#}");
    codex.shows("One is there.").await;

    // A turn that begins in the terminal is one of the session. The client decides.
    codex.enters("second").await;
    let asked = work.wait_for(&session, "waiting_approval").await;
    codex.shows("two.txt").await;
    let question = asked["actions"][0].clone();
    work.client.decide(&session, &question, "accept").await;
    let ended = work.wait_for(&session, "idle").await;
    assert_eq!(ended["result"]["output"], "Two is there.", "{ended:#}");
    codex.shows("Two is there.").await;

    // The session continues without the terminal.
    drop(codex);
    work.client.reply(&session, "third", json!({})).await;
    let ended = work.wait_for(&session, "idle").await;
    assert_eq!(ended["result"]["output"], "Three is there.", "{ended:#}");
    for file in ["one.txt", "two.txt"] {
        let made = std::fs::read_to_string(work.stage.file(file)).unwrap();
        assert_eq!(made, "x\n", "{file} is made once");
    }
    work.finish().await;
}

#[tokio::test]
async fn both_sides_work_on_one_thread_v0_153_4() {
    both_sides_work_on_one_thread("0.153.4").await;
}

#[tokio::test]
async fn both_sides_work_on_one_thread_v0_171_0() {
    both_sides_work_on_one_thread("0.171.0").await;
}

/// The host is killed while the person works in the terminal, and a turn begins there before the
/// next host has taken over.
async fn terminal_stays_connected_when_the_host_is_killed(release: &str) {
    let mut work = AttachFixture::new(release, asking_model(), &[]).await;
    let session = work.client.start("third", json!({})).await;
    work.wait_for(&session, "idle").await;
    let codex = work.attach(&session).await;
    codex.shows("Three is there.").await;
    work.client.client.signal(testkit::Signal::SIGSTOP);
    work.kill_host().await;
    codex.enters("first").await;
    codex.shows("one.txt").await;
    work.client.client.signal(testkit::Signal::SIGCONT);
    let asked = work.wait_for(&session, "waiting_approval").await;
    let question = asked["actions"][0].clone();
    work.client.decide(&session, &question, "accept").await;
    let ended = work.wait_for(&session, "idle").await;
    assert_eq!(ended["result"]["output"], "One is there.", "{ended:#}");
    codex.shows("One is there.").await;
    drop(codex);
    work.finish().await;
}

#[tokio::test]
async fn terminal_stays_connected_when_the_host_is_killed_v0_153_4() {
    terminal_stays_connected_when_the_host_is_killed("0.153.4").await;
}

#[tokio::test]
async fn terminal_stays_connected_when_the_host_is_killed_v0_171_0() {
    terminal_stays_connected_when_the_host_is_killed("0.171.0").await;
}

/// Codex names a review differently at its end.
#[tokio::test]
async fn review_in_the_terminal_ends() {
    let script = Script::new().otherwise([Reply::say("No fault.")]);
    let release = testkit::codex::newest();
    let mut work = AttachFixture::new(release, script, &[]).await;
    let session = work.client.start("begin", json!({})).await;
    work.wait_for(&session, "idle").await;
    let codex = work.attach(&session).await;
    codex.shows("No fault.").await;
    codex.enters("/review look for faults").await;
    codex.shows("Code review finished").await;
    work.wait_for(&session, "idle").await;
    work.client.reply(&session, "more", json!({})).await;
    work.wait_for(&session, "idle").await;
    drop(codex);
    work.finish().await;
}

/// The tools of the session are answered once, by its client.
async fn tools_work_while_a_terminal_is_open(release: &str) {
    let stage = CodexFixture::with_config(release, calling_model(), CONFIG).await;
    let inbox = team(&stage, true);
    let args = [&["--host"], &TEAM[..]].concat();
    let client = Poller::new(&stage, &args).await;
    let mut work = AttachFixture { stage, client };
    let session = work.client.start("hello", json!({})).await;
    work.wait_for(&session, "idle").await;
    let codex = work.attach(&session).await;
    codex.shows("hello").await;
    let said = write_to_lead("once");
    work.client.reply(&session, &said, json!({})).await;
    let ended = work.wait_for(&session, "idle").await;
    let output = ended["result"]["output"].as_str().unwrap();
    assert!(!output.contains("not available"), "{ended:#}");
    assert_eq!(mail(&inbox), ["once"]);
    drop(codex);
    work.finish().await;
}

#[tokio::test]
async fn tools_work_while_a_terminal_is_open_v0_153_4() {
    tools_work_while_a_terminal_is_open("0.153.4").await;
}

#[tokio::test]
async fn tools_work_while_a_terminal_is_open_v0_171_0() {
    tools_work_while_a_terminal_is_open("0.171.0").await;
}

/// A command of Codex can replace the directory of another session by a link to the user's home.
#[tokio::test]
async fn replaced_directory_is_not_opened() {
    let script = Script::new().otherwise([Reply::say("done")]);
    let release = testkit::codex::newest();
    let mut work = AttachFixture::new(release, script, &[]).await;
    let (directory, moved) = (work.stage.file("src"), work.stage.file("old"));
    std::fs::create_dir(&directory).unwrap();
    let session = work.client.start("work", json!({ "cwd": directory })).await;
    work.wait_for(&session, "idle").await;
    std::fs::rename(&directory, &moved).unwrap();
    std::os::unix::fs::symlink(work.stage.home.home(), &directory).unwrap();
    let refused = work.refused(&format!("attach {session}")).await;
    assert!(refused.contains("src"), "{refused}");
    // The control: the directory is back.
    std::fs::remove_file(&directory).unwrap();
    std::fs::rename(&moved, &directory).unwrap();
    let codex = work.attach(&session).await;
    codex.shows("done").await;
    drop(codex);
    work.finish().await;
}

#[tokio::test]
async fn older_codex_names_the_other_way() {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("done").behind(&gate)]);
    let mut work = AttachFixture::new("0.104.0", script, &[]).await;
    let session = work.client.start("wait", json!({})).await;
    gate.reached(1).await;
    let refused = work.refused(&format!("attach {session}")).await;
    assert!(
        refused.contains("and continue its thread with `codex resume "),
        "{refused}"
    );
    gate.release();
    work.wait_for(&session, "idle").await;
    work.finish().await;
}

/// Nobody would be held to the bound in Codex's own program.
#[tokio::test]
async fn bounded_session_is_not_opened() {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("done").behind(&gate)]);
    let bound = ["--max-sandbox", "workspace-write"];
    let release = testkit::codex::newest();
    let mut work = AttachFixture::new(release, script, &bound).await;
    let session = work.client.start("wait", json!({})).await;
    gate.reached(1).await;
    let refused = work.refused(&format!("attach {session}")).await;
    assert!(refused.contains("max_sandbox"), "{refused}");
    let refused = work.refused("attach 0123abcd").await;
    assert!(refused.contains("there is no session"), "{refused}");
    assert!(refused.contains("codex-mcp jobs show"), "{refused}");
    let refused = work.refused("attach sess_none").await;
    assert!(refused.contains("there is no session"), "{refused}");
    let refused = work.refused(&format!("attach {session} </dev/null")).await;
    assert!(refused.contains("needs a terminal"), "{refused}");
    gate.release();
    work.wait_for(&session, "idle").await;
    work.finish().await;
}
