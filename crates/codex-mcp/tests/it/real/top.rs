//! `codex-mcp top` in a real terminal, with the real Codex behind it.

use nix::sys::signal::Signal;
use scripted_model::{Gate, Reply, Script, Shell};
use serde_json::json;
use testkit::Tmux;
use testkit::process::signal;

use super::sessions::Poller;
use super::{CodexFixture, on_oldest_and_newest};
use crate::jobs::wait_for;
use crate::terminal::Terminal;

on_oldest_and_newest!(question_is_answered_by_keys);

/// Clears the screen, and sets the title.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;evil\u{7}\u{9b}31m\u{202e}";

/// A client with a host, and a terminal that shows its work.
struct TopFixture {
    stage: CodexFixture,
    client: Poller,
    terminal: Tmux,
}

impl TopFixture {
    async fn new(release: &str, script: Script) -> Self {
        let stage = CodexFixture::new(release, script).await;
        let client = Poller::new(&stage, &["--host"]).await;
        let terminal = Tmux::start(&stage.home, 80, 24).await;
        let fixture = Self {
            stage,
            client,
            terminal,
        };
        fixture.open().await;
        fixture
    }

    async fn open(&self) {
        let program = env!("CARGO_BIN_EXE_codex-mcp");
        let codex = testkit::codex::native_binary(&self.stage.release);
        let line = format!("CODEX_MCP_CODEX_BIN={} {program} top", codex.display());
        self.terminal.enters(&line).await;
        self.terminal.shows("j/k move").await;
    }

    /// Opens the only work, once it has this state.
    async fn enter(&self, state: &str) {
        self.terminal.shows(state).await;
        self.terminal.presses(&["Enter"]).await;
        self.terminal.shows("q back").await;
    }

    /// Waits for the shell's prompt, and checks that the terminal is as it was.
    async fn is_restored(&mut self) -> u8 {
        let code = self.terminal.prompt().await;
        let flags = "#{alternate_on}#{cursor_flag}";
        assert_eq!(self.terminal.tells(flags).await, "01");
        // grep finds nothing, as the terminal is not in raw mode.
        self.terminal.enters("stty -a | grep -e -icanon").await;
        assert_eq!(self.terminal.prompt().await, 1);
        code
    }

    /// Sends our process a signal.
    fn signal(&self, kind: Signal) {
        let all = self.stage.home.processes();
        let is_it = |command: &str| command.ends_with("codex-mcp top");
        let top = all.iter().find(|process| is_it(&process.command));
        signal(top.unwrap().pid, kind);
    }

    async fn finish(self) {
        drop(self.terminal);
        assert!(self.client.client.finish().await.success());
        self.stage.stop_hosts().await;
        wait_for("the end of all processes", async || {
            self.stage.home.processes().is_empty().then_some(())
        })
        .await;
    }
}

fn asking_model() -> Script {
    let touch = Reply::shell(Shell::escalated("touch made.txt", "it is needed"));
    Script::new().otherwise([touch, Reply::say(format!("Done {HOSTILE} now."))])
}

async fn question_is_answered_by_keys(release: &str) {
    let mut top = TopFixture::new(release, asking_model()).await;
    top.client
        .start(&format!("make it {HOSTILE}"), json!({}))
        .await;
    let list = top.terminal.shows("1 needs you").await;
    assert!(list.contains("Needs you"), "{list}");
    top.enter("asking").await;
    let open = top.terminal.shows("1 Allow once").await;
    assert!(open.contains("touch made.txt"), "{open}");

    // A number alone decides nothing, and neither does another key behind it.
    top.terminal.presses(&["1"]).await;
    top.terminal.shows("Enter: Allow once").await;
    top.terminal.presses(&["y"]).await;
    top.terminal.shows("Nothing was done").await;
    assert!(!top.stage.file("made.txt").exists());

    // On a small screen, the choices are there too.
    top.terminal.resizes(40, 10).await;
    top.terminal.shows("1 Allow once").await;
    top.terminal.resizes(80, 24).await;
    top.terminal.presses(&["1"]).await;
    top.terminal.shows("Enter: Allow once").await;
    top.terminal.presses(&["Enter"]).await;
    // A long word is continued in the next line, behind the scroll bar.
    let unwrapped = |screen: &str| -> String {
        let of_text = |it: &char| !it.is_whitespace() && !"▲█║▼".contains(*it);
        screen.chars().filter(of_text).collect()
    };
    let shows_message = |screen: &str| {
        let text = unwrapped(screen);
        let mut parts = ["Done", "\\u{1b}[2J", "\\u{9b}31m", "\\u{202e}now."].iter();
        parts.all(|part| text.contains(part))
    };
    top.terminal.shows_such("the message", shows_message).await;
    assert!(top.stage.file("made.txt").exists());
    assert_ne!(top.terminal.tells("#{pane_title}").await, "evil");

    top.terminal.presses(&["q"]).await;
    top.terminal.shows("Idle and ended").await;
    top.terminal.presses(&["q"]).await;
    assert_eq!(top.is_restored().await, 0);
    top.finish().await;
}

#[tokio::test]
async fn turn_is_steered_and_the_session_ended_by_keys() {
    let gate = Gate::new();
    let waits = Reply::say("late").behind(&gate);
    let script = Script::new()
        .on("first", [waits])
        .otherwise([Reply::say("later")]);
    let mut top = TopFixture::new(testkit::codex::newest(), script).await;
    top.client.start("first", json!({})).await;
    gate.reached(1).await;
    top.enter("running").await;
    top.terminal.presses(&["s"]).await;
    top.terminal.types("in German").await;
    top.terminal.shows("in German").await;
    top.terminal.presses(&["Enter"]).await;
    top.terminal.shows("Added to the turn.").await;
    gate.release();
    top.terminal.shows("late").await;
    let last = top.stage.model.requests().pop().unwrap();
    assert!(last.user_messages().contains(&"in German"));

    // The next message begins a turn.
    top.terminal.shows("idle").await;
    top.terminal.presses(&["s"]).await;
    top.terminal.types("second").await;
    top.terminal.shows("second").await;
    top.terminal.presses(&["Enter"]).await;
    top.terminal.shows("later").await;
    top.terminal.shows("idle").await;
    top.terminal.presses(&["x"]).await;
    top.terminal.shows("Enter: end the session").await;
    top.terminal.presses(&["Enter"]).await;
    top.terminal.shows("cancelled").await;
    top.terminal.presses(&["C-c"]).await;
    assert_eq!(top.is_restored().await, 0);
    top.finish().await;
}

#[tokio::test]
async fn second_answer_names_the_first_decider() {
    let mut top = TopFixture::new(testkit::codex::newest(), asking_model()).await;
    let session = top.client.start("make it", json!({})).await;
    top.enter("asking").await;
    top.terminal.presses(&["1"]).await;
    top.terminal.shows("Enter: Allow once").await;
    let question = top.client.question(&session).await;
    top.client.decide(&session, &question, "decline").await;
    top.terminal
        .shows("The question was closed meanwhile.")
        .await;
    top.terminal.shows("decline").await;
    assert!(!top.stage.file("made.txt").exists());
    top.terminal.presses(&["C-c"]).await;
    assert_eq!(top.is_restored().await, 0);
    top.finish().await;
}

#[tokio::test]
async fn job_is_shown_and_its_question_answered_by_keys() {
    let mut top = TopFixture::new(testkit::codex::newest(), asking_model()).await;
    let submit = ["submit", "--approval", "ask", "make it"];
    top.stage.jobs(&submit).await;
    top.enter("asking").await;
    top.terminal.shows("1 Allow once").await;
    top.terminal.presses(&["1"]).await;
    top.terminal.shows("Enter: Allow once").await;
    top.terminal.presses(&["Enter"]).await;
    let ended = top.terminal.shows("completed").await;
    assert!(ended.contains("make it"), "{ended}");
    top.terminal.shows("\\u{1b}[2J").await;
    assert!(top.stage.file("made.txt").exists());
    top.terminal.presses(&["q"]).await;
    top.terminal.presses(&["q"]).await;
    assert_eq!(top.is_restored().await, 0);
    assert!(top.client.client.finish().await.success());
    top.stage.stop_hosts().await;
}

#[tokio::test]
async fn terminal_is_given_back_after_signals_and_in_between() {
    let mut top = TopFixture::new(testkit::codex::newest(), asking_model()).await;
    for kind in [Signal::SIGTERM, Signal::SIGHUP] {
        top.signal(kind);
        assert_eq!(top.is_restored().await, 0, "{kind}");
        top.open().await;
    }
    top.terminal.presses(&["C-z"]).await;
    top.is_restored().await;
    top.terminal.enters("fg").await;
    top.terminal.shows("j/k move").await;
    top.terminal.resizes(1, 1).await;
    top.terminal.resizes(80, 24).await;
    top.terminal.shows("j/k move").await;
    top.terminal.presses(&["q"]).await;
    assert_eq!(top.is_restored().await, 0);
    top.finish().await;
}

/// The control sequences of the view itself are a few; those of others are none of them.
#[tokio::test]
async fn hostile_texts_do_not_reach_the_terminal() {
    let stage = CodexFixture::new(testkit::codex::newest(), asking_model()).await;
    let mut client = Poller::new(&stage, &["--host"]).await;
    let session = client.start(&format!("make it {HOSTILE}"), json!({})).await;
    client.question(&session).await;
    let mut command = std::process::Command::new("bash");
    let sized = "stty rows 24 columns 80; exec \"$0\" top";
    command.args(["-c", sized, env!("CARGO_BIN_EXE_codex-mcp")]);
    command.env_clear().envs(stage.home.env());
    command.env("NO_COLOR", "1");
    let mut terminal = Terminal::runs(command).shows("asking").await;
    terminal.types("\r");
    let mut terminal = terminal.shows("u{1b}[2J").await;
    terminal.types("q");
    terminal.types("q");
    let (seen, code) = terminal.ends().await;
    assert_eq!(code, Some(0), "{seen}");
    for hidden in ["\u{1b}[2Jevil", "\u{1b}]0;", "\u{9b}", "\u{202e}", "\u{7}"] {
        assert!(!seen.contains(hidden), "{hidden:?}: {seen:?}");
    }
    // No colours are set: `NO_COLOR`.
    for colour in ["\u{1b}[33", "\u{1b}[36", "\u{1b}[38;5;", "\u{1b}[32"] {
        assert!(!seen.contains(colour), "{colour:?}: {seen:?}");
    }
    assert!(client.client.finish().await.success());
    stage.stop_hosts().await;
    assert_eq!(stage.home.processes(), []);
}

#[tokio::test]
async fn view_without_a_terminal_names_another_verb() {
    let stage = CodexFixture::new(testkit::codex::newest(), Script::new()).await;
    let output = stage.program(&["top"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("codex-mcp ps"), "{text}");
}
