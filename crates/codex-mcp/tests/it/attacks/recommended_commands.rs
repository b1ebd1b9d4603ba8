//! Commands that messages recommend, with hostile names in them, run by a shell as printed.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use scripted_model::{Reply, Script};
use testkit::Home;

use super::fixture::RepositoryFixture;

/// The first command in backticks that begins with `begins`.
pub(super) fn recommended_command(text: &str, begins: &str) -> Option<String> {
    let mut quoted = text.split('`').skip(1).step_by(2);
    quoted.find(|it| it.starts_with(begins)).map(str::to_owned)
}

/// Runs a command as a user who copies it does.
pub(super) fn run_in_shell(home: &Home, directory: &Path, command: &str) -> Output {
    let own = Path::new(env!("CARGO_BIN_EXE_codex-mcp")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    Command::new("sh")
        .args(["-c", command])
        .env_clear()
        .envs(home.env())
        .env("PATH", format!("{}:{path}", own.display()))
        .current_dir(directory)
        .output()
        .unwrap()
}

/// The control: the command with the unquoted path.
#[tokio::test]
async fn trust_command_for_a_hostile_directory_name_is_quoted() {
    let script = Script::new().otherwise([Reply::say("done")]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    let root = stage.home.root().canonicalize().unwrap();
    let top = root.join("x;echo>$HOME/caught;true");
    fs::create_dir_all(top.join(".codex-mcp/prompts")).unwrap();
    fs::create_dir(top.join(".codex")).unwrap();
    fs::write(top.join(".codex/config.toml"), "").unwrap();
    fs::write(top.join(".codex-mcp/prompts/nudge.md"), "{task}").unwrap();
    let settings = "[plugins.codex-mcp]\nmodel = \"theirs\"\n";
    fs::write(top.join(".atm.toml"), settings).unwrap();
    let shell = |command: &str| run_in_shell(&stage.home, &top, command);
    shell("git init --quiet");

    shell(&format!("codex-mcp trust {}", top.display()));
    stage.wait_until_attacked().await;
    let mut found = 0;
    for args in [
        &["config"][..],
        &["run", "x", "--sandbox", "read-only", "--max-turns", "1"],
        &["run", "x", "--until", "files=made"],
    ] {
        let told = stage.command(args).current_dir(&top).output().await;
        let told = String::from_utf8(told.unwrap().stderr).unwrap();
        for line in told.lines() {
            let Some(command) = recommended_command(line, "codex-mcp trust ") else {
                continue;
            };
            found += 1;
            let trusted = shell(&command);
            assert!(trusted.status.success(), "{command}: {trusted:?}");
            assert!(!stage.was_attacked(), "{command}");
            let revoked = shell("codex-mcp trust --revoke .");
            assert!(revoked.status.success(), "{command}: {revoked:?}");
        }
    }
    assert!(found >= 4, "{found}");
}
