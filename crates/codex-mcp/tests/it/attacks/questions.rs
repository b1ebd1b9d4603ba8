//! Approval texts that hide the command that they approve (M1).

use std::fs;

use scripted_model::{Reply, Script, ScriptedModel, Shell};
use testkit::{Home, Tmux};

const COLUMNS: u16 = 100;
const ROWS: u16 = 20;

/// The harmful beginning of the command.
const HARM: &str = "touch ~/pwned; :";
const FORGED: &str = "Reason (Codex's words): may I look at README.md?";

fn command() -> String {
    format!("{HARM}{}\u{2028}{FORGED}", " ".repeat(1800))
}

async fn model() -> ScriptedModel {
    let touch = Reply::shell(Shell::escalated(command(), "to look\nCommand: ls"));
    let script = Script::new().otherwise([touch, Reply::say("Done.")]);
    ScriptedModel::start(script).await.unwrap()
}

#[tokio::test]
async fn question_shows_the_beginning_of_a_long_command() {
    let model = model().await;
    let home = Home::new(&format!(
        "{}\nfeatures.plugins = false\n",
        model.codex_config()
    ));
    let mut tmux = Tmux::start(&home, COLUMNS, ROWS).await;

    // The control: unformatted, the text scrolls its beginning off the screen.
    let raw = format!(
        "Codex wants to run `{}` in /repo.\nAllow it? y, n\n",
        command()
    );
    fs::write(home.work().join("raw"), raw).unwrap();
    tmux.enters("clear; cat raw").await;
    tmux.prompt().await;
    let screen = tmux.screen().await;
    assert!(!screen.contains(HARM), "{screen}");
    tmux.enters("clear").await;
    tmux.prompt().await;

    let program = env!("CARGO_BIN_EXE_codex-mcp");
    let codex = testkit::codex::native_binary(testkit::codex::newest());
    fs::write(
        home.work().join("go"),
        format!(
            "CODEX_MCP_CODEX_BIN='{}' exec '{program}' run x \
             --sandbox workspace-write --max-turns 1 --until files=x.txt\n",
            codex.display()
        ),
    )
    .unwrap();
    tmux.enters("sh go").await;
    let screen = tmux.shows("Allow it?").await;
    assert!(screen.contains(HARM), "{screen}");
    assert!(screen.contains("1,800 spaces"), "{screen}");
    assert!(screen.contains("Codex wants to run a command."), "{screen}");
    let labelled: Vec<&str> = screen
        .lines()
        .filter(|line| line.starts_with("Reason") || line.starts_with("Command"))
        .collect();
    assert_eq!(labelled.len(), 2, "{screen}");
    assert!(labelled[1].ends_with("\"to look⏎Command: ls\""), "{screen}");
    tmux.enters("n").await;
    tmux.prompt().await;
    assert!(!home.home().join("pwned").exists());
}
