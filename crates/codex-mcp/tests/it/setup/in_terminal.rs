//! `setup` where a person can be asked.

use std::fs;

use testkit::Home;

use super::Setup;
use crate::terminal::Terminal;

#[tokio::test]
async fn changes_are_written_only_after_a_yes() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let file = home.home().join(".cursor/mcp.json");
    let mut terminal = Terminal::runs(setup.command(&["cursor"]))
        .shows("[y/N]")
        .await;
    terminal.types("\n");
    let (seen, code) = terminal.ends().await;
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("Nothing was written."), "{seen}");
    assert!(!file.exists());

    let mut terminal = Terminal::runs(setup.command(&["cursor"]))
        .shows("[y/N]")
        .await;
    terminal.types("y\n");
    let mut terminal = terminal.shows("Log in to Codex now? [y/N]").await;
    terminal.types("n\n");
    let (seen, code) = terminal.ends().await;
    assert_eq!(code, Some(0), "{seen}");
    for words in ["answers, with", "not logged in", "Have Codex explain"] {
        assert!(seen.contains(words), "{seen}");
    }
    assert!(fs::read_to_string(&file).unwrap().contains("codex-mcp"));
}

/// A login of the real Codex listens on a port that is always the same, so here its settings forbid
/// it.
#[tokio::test]
async fn login_is_that_of_codex() {
    let home = Home::new("forced_login_method = \"api\"\n");
    let setup = Setup::on_the_newest(&home);
    let mut terminal = Terminal::runs(setup.command(&["cursor"]))
        .shows("[y/N]")
        .await;
    terminal.types("y\n");
    let mut terminal = terminal.shows("Log in to Codex now? [y/N]").await;
    terminal.types("y\n");
    let (seen, code) = terminal.ends().await;
    assert!(seen.contains("ChatGPT login is disabled"), "{seen}");
    assert_eq!(code, Some(1), "{seen}");
    assert_eq!(home.processes(), []);
}
