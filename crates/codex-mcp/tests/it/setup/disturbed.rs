//! `setup` where something else gets in its way: another program, another `setup`, or files of its
//! own that were damaged. Nothing of the user's is lost.

use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Child;

use serde_json::{Value, json};
use testkit::Home;

use super::{CLIENTS, Setup};
use crate::terminal::Terminal;

/// A configuration of Claude Code, of which nothing may get lost.
const OF_CLAUDE_CODE: &str = "{\n  \"userID\": \"0a\",\n  \"mcpServers\": {\n    \"time\": {\n      \"command\": \"uvx\"\n    }\n  }\n}\n";

/// What a `claude` does that fails at its work.
const FAILS: &str = "echo no, not today >&2; exit 3";

/// One that writes its file anew.
const FORGETS: &str =
    "echo '{\"mcpServers\": {\"codex\": {\"command\": \"other\"}}}' > ~/.claude.json";

/// One that crashes while it writes.
const CUTS_OFF: &str = "printf '{\"userID\": ' > ~/.claude.json; exit 1";

/// One that opens the file to everybody.
const OPENS: &str = "chmod 644 ~/.claude.json";

/// One that removes the file.
const REMOVES: &str = "rm ~/.claude.json";

fn cursor(home: &Home) -> PathBuf {
    home.home().join(".cursor/mcp.json")
}

/// The directory of the receipts and copies.
fn receipts(home: &Home) -> PathBuf {
    home.state_home().join("codex-mcp/setup")
}

/// Puts a script on PATH as Claude Code, and writes a configuration that is its owner's alone.
fn install_claude(setup: &mut Setup<'_>, script: &str) -> PathBuf {
    let program = setup.home.root().join("claude.sh");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    setup.install("claude", &program);
    let file = setup.home.home().join(".claude.json");
    fs::write(&file, OF_CLAUDE_CODE).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    file
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn broken_command_of_a_client_costs_none_of_its_settings() {
    for (script, note) in [
        (FAILS, "no, not today"),
        (FORGETS, "it removed other settings, which were restored"),
        (CUTS_OFF, "it removed other settings, which were restored"),
        (REMOVES, "it removed other settings, which were restored"),
        (OPENS, ""),
    ] {
        let home = Home::new("");
        let mut setup = Setup::on_the_newest(&home);
        let file = install_claude(&mut setup, script);
        // As a control: this is what the command does to the file.
        if note.contains("restored") {
            setup
                .program("/bin/sh")
                .args(["-c", script])
                .status()
                .unwrap();
            let text = fs::read_to_string(&file).unwrap_or_default();
            assert!(!text.contains("uvx"), "{script}");
            fs::write(&file, OF_CLAUDE_CODE).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        }
        let done = setup.json(&["claude-code", "--yes"]);
        let said = done["changes"][0]["note"].as_str().unwrap_or_default();
        assert!(said.contains(note), "{script}: {done:#}");
        let now: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(now["userID"], "0a", "{script}");
        assert_eq!(now["mcpServers"]["time"]["command"], "uvx", "{script}");
        assert_eq!(
            now["mcpServers"]["codex"]["command"],
            env!("CARGO_BIN_EXE_codex-mcp"),
            "{script}"
        );
        assert_eq!(mode(&file), 0o600, "{script}");
        setup.json(&["claude-code", "--remove", "--yes"]);
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            OF_CLAUDE_CODE,
            "{script}"
        );
        assert_eq!(mode(&file), 0o600, "{script}");
    }
}

#[test]
fn command_of_a_client_is_not_run_for_a_read_only_file() {
    let home = Home::new("");
    let mut setup = Setup::on_the_newest(&home);
    let file = install_claude(&mut setup, FORGETS);
    fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
    let said = setup.run(&["claude-code", "--yes"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stdout.contains("is read-only"), "{said:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), OF_CLAUDE_CODE);
}

#[tokio::test]
async fn file_that_changes_during_the_question_is_not_written() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let file = cursor(&home);
    fs::create_dir(file.parent().unwrap()).unwrap();
    fs::write(&file, "{}\n").unwrap();
    let mut terminal = Terminal::runs(setup.command(&["cursor"]))
        .shows("[y/N]")
        .await;
    let saved = "{ \"mcpServers\": { \"time\": { \"command\": \"uvx\" } } }\n";
    fs::write(&file, saved).unwrap();
    terminal.types("y\n");
    let (seen, code) = terminal.ends().await;
    assert_eq!(code, Some(1), "{seen}");
    assert!(seen.contains("run the command again"), "{seen}");
    assert_eq!(fs::read_to_string(&file).unwrap(), saved);
}

#[test]
fn other_options_later_do_not_change_what_is_restored() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    setup.write_all();
    setup.json(&["--yes", "--tools", "sessions"]);
    setup.json(&["--yes", "--team", "blue"]);
    for client in &CLIENTS {
        let text = setup.read(client);
        assert!(text.contains("blue") && !text.contains("--tools"), "{text}");
    }
    let kept = setup.json(&["--yes"]);
    assert_eq!(kept["written"], false, "{kept:#}");
    setup.json(&["--remove", "--yes"]);
    for client in &CLIENTS {
        assert_eq!(setup.read(client), client.before, "{}", client.name);
    }
}

/// The copy of before would undo what the user has done since.
#[test]
fn edit_between_two_changes_survives_the_removal() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let file = cursor(&home);
    fs::create_dir(file.parent().unwrap()).unwrap();
    fs::write(&file, "{ \"mcpServers\": {} }\n").unwrap();
    setup.json(&["cursor", "--yes"]);
    let text = fs::read_to_string(&file).unwrap();
    let edited = text.replacen('{', "{ \"mine\": 1,", 1);
    fs::write(&file, &edited).unwrap();
    setup.json(&["cursor", "--yes", "--team", "blue"]);
    let removed = setup.json(&["cursor", "--remove", "--yes"]);
    assert_eq!(removed["changes"][0]["action"], "remove", "{removed:#}");
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("\"mine\": 1") && !text.contains("codex"),
        "{text}"
    );
}

#[test]
fn all_at_once_lose_no_receipt() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    setup.write_all();
    let clients = CLIENTS.iter().take(6);
    let start = |name: &str| -> Child { setup.command(&[name, "--yes"]).spawn().unwrap() };
    let started: Vec<Child> = clients.clone().map(|client| start(client.name)).collect();
    for mut child in started {
        assert!(child.wait().unwrap().success());
    }
    let removed = setup.json(&["--remove", "--yes"]);
    let changes = removed["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 6, "{removed:#}");
    for client in clients {
        assert_eq!(setup.read(client), client.before, "{}", client.name);
    }
}

#[test]
fn damaged_receipts_do_not_keep_entries_from_being_removed() {
    let damages: [fn(&Path); 3] = [
        |directory| fs::write(directory.join("receipts.json"), "[{").unwrap(),
        |directory| fs::remove_dir_all(directory).unwrap(),
        |directory| {
            for file in fs::read_dir(directory).unwrap() {
                let file = file.unwrap();
                if file.file_name().to_string_lossy().starts_with("mcp.json") {
                    fs::remove_file(file.path()).unwrap();
                }
            }
        },
    ];
    for damage in damages {
        let home = Home::new("");
        let setup = Setup::on_the_newest(&home);
        let file = cursor(&home);
        fs::create_dir(file.parent().unwrap()).unwrap();
        fs::write(&file, "{ \"mine\": 1 }\n").unwrap();
        setup.json(&["cursor", "--yes"]);
        damage(&receipts(&home));
        let removed = setup.json(&["cursor", "--remove", "--yes"]);
        assert_eq!(removed["changes"][0]["action"], "remove", "{removed:#}");
        let text = fs::read_to_string(&file).unwrap();
        assert!(
            text.contains("\"mine\": 1") && !text.contains("codex"),
            "{text}"
        );
    }
}

#[test]
fn home_that_is_not_utf_8_is_refused() {
    let home = Home::new("");
    let mut setup = Setup::on_the_newest(&home);
    let odd = home
        .root()
        .join(std::ffi::OsStr::from_bytes(b"h\xff\xfeome"));
    fs::create_dir(&odd).unwrap();
    setup.env.push(("HOME".into(), odd.clone().into()));
    let said = setup.run(&["cursor", "--yes"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stdout.contains("is not UTF-8; rename it"), "{said:?}");
    assert_eq!(fs::read_dir(&odd).unwrap().count(), 0);
}

/// The removal of the user's own entries looks at no repository, but knows of them.
#[test]
fn removal_names_the_files_of_repositories_that_it_leaves() {
    let home = Home::new("");
    let mut setup = Setup::on_the_newest(&home);
    setup.install("codex-mcp", env!("CARGO_BIN_EXE_codex-mcp").as_ref());
    setup.json(&["cursor", "--yes"]);
    setup.json(&["vscode", "--project", "--yes"]);
    let said = setup.run(&["--remove", "--yes"]);
    assert_eq!(said.code, 0, "{said:?}");
    let file = home.work().join(".vscode/mcp.json");
    let left = format!("codex-mcp is still in {}", file.display());
    assert!(said.stdout.contains(&left), "{said:?}");
    setup.json(&["--project", "--remove", "--yes"]);
    assert!(!file.exists());
    let nothing = setup.json(&["--remove", "--yes"]);
    assert_eq!(nothing["changes"], json!([]), "{nothing:#}");
    assert_eq!(fs::read_dir(receipts(&home)).unwrap().count(), 2);
}
