//! Runs on a terminal: questions and progress.

use scripted_model::{Reply, Script, Shell};

use super::super::CodexFixture;
use super::{commit, promising_model};
use crate::terminal::Terminal;

impl CodexFixture {
    fn run_on_terminal(&self, args: &[&str]) -> Terminal {
        let sandbox = ["--sandbox", "workspace-write"];
        Terminal::runs(self.run_command(&[&sandbox, args].concat()))
    }
}

#[tokio::test]
async fn approval_is_asked_on_the_terminal() {
    let touch = || Reply::shell(Shell::escalated("touch asked.txt", "it is wanted"));
    let script = Script::new().otherwise([touch(), Reply::say("Done.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let terminal = stage.run_on_terminal(&["x", "--until", "files=asked.txt"]);
    let question = "Allow it? y: yes, a: yes, also for similar ones, n: no";
    let mut terminal = terminal.shows(question).await;
    assert!(
        terminal.seen.contains("touch asked.txt"),
        "{}",
        terminal.seen
    );
    assert!(!stage.file("asked.txt").exists());
    terminal.types("what?\n");
    terminal.seen.clear();
    let terminal = terminal.shows("Type y, a or n, then Enter.").await;
    let mut terminal = terminal.shows("Allow it?").await;
    terminal.types("y\n");
    let (seen, code) = terminal.ends().await;
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("done after 1 turn"), "{seen}");
    assert!(stage.file("asked.txt").exists());
    assert_eq!(stage.home.processes(), []);
}

#[tokio::test]
async fn write_access_is_offered_before_the_first_turn() {
    let script = Script::new().otherwise([commit("a.txt"), Reply::say("Done.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let args = ["x", "--until", "files=a.txt", "--until", "commits=1"];
    for (answer, code) in [("\n", 3), ("n\n", 3), ("y\n", 0)] {
        let terminal = Terminal::runs(stage.run_command(&args));
        let offer = "Go on with --sandbox workspace-write, for this run and its thread? [y/N]";
        let mut terminal = terminal.shows(offer).await;
        assert!(!terminal.seen.contains("turn 1 of"), "{}", terminal.seen);
        terminal.types(answer);
        let (seen, ended) = terminal.ends().await;
        assert_eq!(ended, Some(code), "{seen}");
        let began = seen.contains("sandbox workspace-write\r\n");
        assert_eq!(began, code == 0, "{seen}");
        assert_eq!(stage.file("a.txt").exists(), code == 0);
    }
}

/// Codex sends no event while its command sleeps, and the line is still redrawn.
#[tokio::test]
async fn progress_line_ticks_during_a_silent_command() {
    let script = Script::new().otherwise([Reply::shell("sleep 9"), Reply::say("Slept.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let mut terminal = stage.run_on_terminal(&["x"]);
    for step in [
        "s\u{1b}[0m  running sleep 9, 1 s",
        "s\u{1b}[0m  running sleep 9, 2 s",
        "s\u{1b}[0m  running sleep 9, 3 s",
        "s\u{1b}[0m  running sleep 9, 4 s",
    ] {
        terminal = terminal.shows(step).await;
    }
    let (during, _) = terminal.seen.split_once("sleep 9, 4 s").unwrap();
    assert!(!during.contains("inspecting"), "{during}");
    let (seen, code) = terminal.ends().await;
    assert_eq!(code, Some(0), "{seen}");
    assert!(
        seen.contains("\u{1b}[1m  turn 1 of 10\u{1b}[0m"),
        "{seen:?}"
    );
    assert!(seen.contains("  110 tokens"), "{seen:?}");
}

/// The limit of the turn is 15 s, and the answer takes twice as long.
#[tokio::test]
async fn time_to_answer_is_shown_and_not_counted() {
    let touch = || Reply::shell(Shell::escalated("touch asked.txt", "it is wanted"));
    let script = Script::new().otherwise([touch(), Reply::say("Done.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let limits = ["--turn-timeout", "15s", "--total-timeout", "25s"];
    let args = [&["x", "--until", "files=asked.txt"][..], &limits].concat();
    let terminal = stage.run_on_terminal(&args);
    let terminal = terminal.shows("Allow it?").await;
    let terminal = terminal.shows("9m59s left to answer").await;
    let mut terminal = terminal.shows("9m3").await;
    terminal.types("y\n");
    let (seen, code) = terminal.ends().await;
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("done after 1 turn"), "{seen}");
}

/// Earlier input may have been meant for another question.
#[tokio::test]
async fn earlier_input_is_no_answer() {
    let touch = |file: &str| Reply::shell(Shell::escalated(format!("touch {file}"), "wanted"));
    let script = Script::new().otherwise([touch("1.txt"), touch("2.txt"), Reply::say("Done.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let terminal = stage.run_on_terminal(&["x", "--max-turns", "1", "--until", "files=2.txt"]);
    let mut terminal = terminal.shows("Allow it?").await;
    terminal.seen.clear();
    terminal.types("y\ny\ny");
    let mut terminal = terminal.shows("Allow it?").await;
    assert!(!stage.file("2.txt").exists());
    terminal.types("n\n");
    let (seen, code) = terminal.ends().await;
    assert_eq!(code, Some(2), "{seen}");
    assert!(stage.file("1.txt").exists());
    assert!(!stage.file("2.txt").exists());
}

#[tokio::test]
async fn criteria_and_artifacts_are_shown_on_the_terminal() {
    let work = Reply::shell("printf x > \"$(printf 'a\\033[31mb.txt')\"");
    let stage = CodexFixture::new(testkit::codex::newest(), promising_model(work)).await;
    let terminal = stage.run_on_terminal(&["x", "--until", "files=*.txt"]);
    let (seen, code) = terminal.ends().await;
    assert_eq!(code, Some(0), "{seen}");
    let before = seen.split("turn 1 of 10").next().unwrap();
    assert!(before.contains("to do    files=*.txt"), "{before}");
    assert!(!before.contains("not met"), "{before}");
    for words in [
        "turn 1 of 10",
        "nothing was executed",
        "not met  files=*.txt",
        "turn 2 of 10: the last turn executed nothing",
        "holds    files=*.txt",
        "done after 2 turns: all criteria hold",
        "new file",
        "Done.",
        "evidence: ",
    ] {
        assert!(seen.contains(words), "{words:?} is missing: {seen}");
    }
    // No text of Codex's choice controls the terminal.
    assert!(!seen.contains("a\u{1b}[31mb.txt"), "{seen:?}");
}
