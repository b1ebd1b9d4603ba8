//! `setup` where something else gets in its way: another program, another `setup`, or files of its
//! own that were damaged. Nothing of the user's is lost.

use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::{Value, json};
use testkit::wait::wait_for;
use testkit::{Home, write_program};

use super::{CLIENTS, Setup};
use crate::terminal::Terminal;

/// A configuration of Claude Code, of which nothing may get lost.
const OF_CLAUDE_CODE: &str = "{\n  \"userID\": \"0a\",\n  \"mcpServers\": {\n    \"time\": {\n      \"command\": \"uvx\"\n    }\n  }\n}\n";

/// What a `claude` does that fails at its work.
const FAILS: &str = "echo no, not today >&2; exit 3";

/// One that leaves a trace.
const RUNS: &str = "touch ~/ran";

fn cursor(home: &Home) -> PathBuf {
    home.home().join(".cursor/mcp.json")
}

/// The directory of the receipts and copies.
fn receipts(home: &Home) -> PathBuf {
    home.state_home().join("codex-mcp/setup")
}

/// Puts a script on PATH as Claude Code. Returns where its configuration is.
fn install_claude(setup: &mut Setup<'_>, script: &str) -> PathBuf {
    let program = setup.home.root().join("claude.sh");
    write_program(&program, &format!("#!/bin/sh\n{script}\n"));
    setup.install("claude", &program);
    setup.home.home().join(".claude.json")
}

/// The commands of Claude Code and Codex write a file anew, without comments and what they do not
/// know.
#[test]
fn command_of_a_client_is_run_only_where_there_is_no_file() {
    let home = Home::new("");
    let mut setup = Setup::on_the_newest(&home);
    let file = install_claude(&mut setup, RUNS);
    let trace = home.home().join("ran");
    fs::write(&file, OF_CLAUDE_CODE).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    setup.json(&["claude-code", "--yes"]);
    assert!(!trace.exists());
    setup.json(&["claude-code", "--remove", "--yes"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), OF_CLAUDE_CODE);
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // As a control: it is run.
    fs::remove_file(&file).unwrap();
    setup.json(&["claude-code", "--yes"]);
    assert!(trace.exists());
    assert!(fs::read_to_string(&file).unwrap().contains("codex-mcp"));
}

#[test]
fn failed_command_of_a_client_is_said_and_made_up_for() {
    let home = Home::new("");
    let mut setup = Setup::on_the_newest(&home);
    let file = install_claude(&mut setup, FAILS);
    let done = setup.json(&["claude-code", "--yes"]);
    let note = done["changes"][0]["note"].as_str().unwrap_or_default();
    assert!(note.contains("no, not today"), "{done:#}");
    assert!(fs::read_to_string(&file).unwrap().contains("codex-mcp"));
    setup.json(&["claude-code", "--remove", "--yes"]);
    assert!(!file.exists());
}

#[tokio::test]
async fn command_of_a_client_keeps_no_other_setup_waiting() {
    let home = Home::new("");
    let mut setup = Setup::on_the_newest(&home);
    let waits = "touch ~/started; until test -e ~/go; do sleep 0.05; done";
    let file = install_claude(&mut setup, waits);
    let mut slow = setup.command(&["claude-code", "--yes"]);
    let mut slow = slow.stdout(Stdio::null()).spawn().unwrap();
    let started = home.home().join("started");
    wait_for("the command of the client", async || {
        started.exists().then_some(())
    })
    .await;
    setup.json(&["cursor", "--yes"]);
    fs::write(home.home().join("go"), "").unwrap();
    assert!(slow.wait().unwrap().success());
    assert!(fs::read_to_string(&file).unwrap().contains("codex-mcp"));
    // Both have receipts.
    setup.json(&["--remove", "--yes"]);
    assert!(!file.exists() && !cursor(&home).exists());
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
fn restore_is_independent_of_later_options() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    setup.write_all();
    setup.json(&["--yes", "--tools", "sessions"]);
    setup.json(&["--yes", "--team", "blue"]);
    for client in &CLIENTS {
        let text = setup.read(client);
        assert!(text.contains("blue") && text.contains("--tools"), "{text}");
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
fn concurrent_setups_lose_no_receipt() {
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
    // The lock and the receipts: no copy is left.
    assert_eq!(fs::read_dir(receipts(&home)).unwrap().count(), 2);
}

/// Whoever works in the repository can put a link in the place of a directory at any time.
#[test]
fn directory_of_a_repository_that_becomes_a_link_leads_nowhere() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let mine = cursor(&home);
    fs::create_dir(mine.parent().unwrap()).unwrap();
    fs::write(&mine, "{}\n").unwrap();
    let theirs = home.work().join(".cursor");
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join("mcp.json"), "{}\n").unwrap();
    let link = home.root().join("link");
    std::os::unix::fs::symlink(mine.parent().unwrap(), &link).unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                exchange(&theirs, &link);
            }
        });
        for _ in 0..10 {
            setup.run(&["cursor", "--project", "--yes"]);
            setup.run(&["cursor", "--project", "--remove", "--yes"]);
        }
        // Before anything is checked: the thread would not end.
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let files = fs::read_dir(mine.parent().unwrap()).unwrap();
    assert_eq!(files.count(), 1);
    assert_eq!(fs::read_to_string(&mine).unwrap(), "{}\n");
}

/// Exchanges two names.
fn exchange(one: &Path, other: &Path) {
    let cwd = rustix::fs::CWD;
    let flags = rustix::fs::RenameFlags::EXCHANGE;
    rustix::fs::renameat_with(cwd, one, cwd, other, flags).unwrap();
}

/// An edit in between makes it impossible to restore the file.
#[test]
fn replaced_server_is_put_back_into_an_edited_file() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let file = cursor(&home);
    fs::create_dir(file.parent().unwrap()).unwrap();
    let old = json!({ "command": "codex", "args": ["-c", "sandbox_mode=\"read-only\"", "-c", "tui.theme=x", "mcp-server"] });
    fs::write(&file, json!({ "mcpServers": { "agent": old } }).to_string()).unwrap();
    let said = setup.run(&["cursor", "--yes"]);
    assert!(
        said.stdout.contains("`-c tui.theme=x` is left out"),
        "{said:?}"
    );
    let text = fs::read_to_string(&file).unwrap();
    let now: Value = serde_json::from_str(&text).unwrap();
    let args = &now["mcpServers"]["agent"]["args"];
    assert_eq!(*args, json!(["serve", "--sandbox", "read-only"]));
    fs::write(&file, text.replacen('{', "{ \"mine\": 1,", 1)).unwrap();
    setup.json(&["cursor", "--remove", "--yes"]);
    let text = fs::read_to_string(&file).unwrap();
    let now: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(now, json!({ "mine": 1, "mcpServers": { "agent": old } }));
}

#[test]
fn dry_run_writes_nothing() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    setup.run(&["cursor", "--dry-run"]);
    setup.run(&["--remove", "--dry-run"]);
    assert!(!receipts(&home).exists());
    setup.json(&["cursor", "--yes"]);
    let path = receipts(&home).join("receipts.json");
    fs::write(&path, "[{").unwrap();
    let said = setup.run(&["--remove", "--dry-run"]);
    assert!(said.stdout.contains("setup --remove cursor"), "{said:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "[{");
}

/// An alias or a tag means more than the editor sees.
#[test]
fn yaml_that_cannot_be_edited_safely_stays_as_it_is() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let file = home.config_home().join("goose/config.yaml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    for text in [
        "shared: &e\n  dev:\n    name: dev\nextensions: *e\n",
        "extensions: !!map\n  codex:\n    cmd: mine\n",
        "extensions:\n  codex: &c\n    cmd: codex\n    args: [mcp-server]\n  z: *c\n",
        "a: b: c\n",
        "a:\n\tb: 1\n",
        "--- {}\n--- {}\n",
    ] {
        fs::write(&file, text).unwrap();
        let said = setup.run(&["goose", "--yes"]);
        assert_eq!(said.code, 1, "{text}: {said:?}");
        assert!(said.stdout.contains("not changed"), "{text}: {said:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
}

/// Claude Code would start two servers.
#[test]
fn installed_plugin_is_named() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let directory = home.home().join(".claude");
    fs::create_dir(&directory).unwrap();
    for (is_on, is_named) in [(false, false), (true, true)] {
        let settings = json!({ "enabledPlugins": { "codex-mcp@codex-mcp": is_on } });
        fs::write(directory.join("settings.json"), settings.to_string()).unwrap();
        let said = setup.run(&["claude-code", "--dry-run"]);
        let found = said.stdout.contains("the plugin codex-mcp is installed");
        assert_eq!(found, is_named, "{said:?}");
    }
}

#[test]
fn broken_file_of_a_client_that_was_not_set_up_fails_no_removal() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let file = cursor(&home);
    fs::create_dir(file.parent().unwrap()).unwrap();
    fs::write(&file, "{").unwrap();
    setup.json(&["zed", "--yes"]);
    setup.json(&["--remove", "--yes"]);
    // As a control: it does if it is named.
    let said = setup.run(&["cursor", "--remove", "--yes"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stdout.contains("it is not valid JSON"), "{said:?}");
}

#[test]
fn wrong_arguments_have_a_code_of_their_own() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    for args in [
        &["cursor", "--json"][..],
        &["claude-desktop", "--project", "--yes"],
        &["cursor", "--yes", "--codex-bin", "/nothing"],
    ] {
        let said = setup.run(args);
        assert_eq!(said.code, 2, "{said:?}");
    }
}
