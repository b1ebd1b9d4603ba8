//! `setup` where a person can be asked.

use std::fs;

use testkit::{Home, codex, write_program};

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
    for words in [
        "answers, with",
        "not logged in",
        "Next: log in to Codex, and restart Cursor if it is running.",
        "Have Codex explain",
    ] {
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

#[tokio::test]
async fn missing_codex_is_installed_with_npm_after_a_yes() {
    let home = Home::new("");
    let mut setup = Setup::on_the_newest(&home);
    setup.env.push(("CODEX_MCP_CODEX_BIN".into(), "".into()));
    let codex = codex::native_binary(codex::newest());
    let npm = home.root().join("npm");
    let installed = home.root().join("programs/codex");
    let script = format!(
        "#!/bin/sh\necho \"$*\" > {}\nln -s {} {}\n",
        home.root().join("calls").display(),
        codex.display(),
        installed.display(),
    );
    write_program(&npm, &script);
    setup.install("npm", &npm);
    let answered = async |answer: &'static str| {
        let mut terminal = Terminal::runs(setup.command(&["cursor"]))
            .shows("Write this? [y/N]")
            .await;
        terminal.types("y\n");
        let mut terminal = terminal.shows("npm install -g @openai/codex").await;
        terminal.types(answer);
        terminal
    };
    let (seen, _) = answered("n\n").await.ends().await;
    assert!(seen.contains("no `codex` found"), "{seen}");
    setup.json(&["cursor", "--remove", "--yes"]);

    let mut terminal = answered("y\n").await.shows("Log in to Codex now?").await;
    terminal.types("n\n");
    let (seen, code) = terminal.ends().await;
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("Codex is installed."), "{seen}");
    let calls = fs::read_to_string(home.root().join("calls")).unwrap();
    assert_eq!(calls, "install --global @openai/codex\n");
}
