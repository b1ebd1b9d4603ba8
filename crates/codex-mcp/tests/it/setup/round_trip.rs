//! Set up, set up again, removed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::{Home, write_program};

use super::{CLIENTS, Setup};
use crate::output::CommandOutput;

/// The actions that were planned, by client.
fn actions<'a>(object: &'a Value) -> Vec<(&'a str, &'a str)> {
    let changes = object["changes"].as_array().unwrap().iter();
    let word = |change: &'a Value, name: &str| change[name].as_str().unwrap();
    changes
        .map(|change| {
            assert_eq!(change.get("error"), None, "{change:#}");
            (word(change, "client"), word(change, "action"))
        })
        .collect()
}

/// The text without white space, and without the commas that go with an entry.
fn without_space(text: &str) -> String {
    text.replace(
        |character: char| character.is_whitespace() || character == ',',
        "",
    )
}

fn each(action: &str) -> Vec<(&'static str, &str)> {
    CLIENTS.iter().map(|client| (client.name, action)).collect()
}

#[test]
fn every_client_is_set_up_and_its_file_is_restored_byte_for_byte() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    setup.write_all();

    let shown = setup.json(&["--dry-run"]);
    assert_eq!(actions(&shown), each("add"), "{shown:#}");
    assert_eq!(shown["written"], false);
    for client in &CLIENTS {
        assert_eq!(setup.read(client), client.before, "{}", client.name);
    }

    let written = setup.json(&["--yes", "--api", "sessions", "--tools", "sessions,runs"]);
    assert_eq!(actions(&written), each("add"), "{written:#}");
    assert!(
        written["checks"][0]["tools"].as_u64() > Some(3),
        "{written:#}"
    );
    let checks = written["checks"].as_array().unwrap();
    assert_eq!(checks.len(), CLIENTS.len(), "{written:#}");
    assert!(written["doctor"]["checks"].is_array(), "{written:#}");
    let after: Vec<String> = CLIENTS.iter().map(|client| setup.read(client)).collect();
    for (client, after) in CLIENTS.iter().zip(&after) {
        assert!(after.contains(env!("CARGO_BIN_EXE_codex-mcp")), "{after}");
        assert!(after.contains("sessions,runs"), "{after}");
        let words = client.before.split_whitespace();
        let mut words = words.map(|word| word.trim_matches(['{', '}', '[', ']', ',']));
        let lost = words.find(|word| !after.contains(word));
        assert_eq!(lost, None, "{after}");
    }

    let again = setup.json(&["--yes", "--api", "sessions", "--tools", "sessions,runs"]);
    assert_eq!(actions(&again), each("none"), "{again:#}");
    for (client, after) in CLIENTS.iter().zip(&after) {
        assert_eq!(&setup.read(client), after, "{}", client.name);
    }

    let removed = setup.json(&["--remove", "--yes"]);
    assert_eq!(actions(&removed), each("restore"), "{removed:#}");
    for client in &CLIENTS {
        assert_eq!(setup.read(client), client.before, "{}", client.name);
    }
    let nothing = setup.json(&["--remove", "--yes"]);
    assert_eq!(nothing["changes"], json!([]), "{nothing:#}");
}

#[test]
fn edits_since_then_survive_a_removal() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    setup.write_all();
    setup.json(&["--yes"]);
    let edited = |text: &str, (after, more): (&str, &str)| {
        assert!(text.contains(after), "{text}");
        text.replacen(after, &format!("{after}{more}"), 1)
    };
    for client in &CLIENTS {
        let text = edited(&setup.read(client), client.edit);
        fs::write(setup.path(client), text).unwrap();
    }
    let removed = setup.json(&["--remove", "--yes"]);
    assert_eq!(actions(&removed), each("remove"), "{removed:#}");
    for client in &CLIENTS {
        let (now, wanted) = (setup.read(client), edited(client.before, client.edit));
        assert!(!now.contains("codex-mcp"), "{now}");
        // A table that had no server is gone with the last one, with what stood in it.
        let has_others = |text: &str| ["time", "developer"].iter().any(|name| text.contains(name));
        if has_others(client.before) {
            assert_eq!(
                without_space(&now),
                without_space(&wanted),
                "{}",
                client.name
            );
        }
        assert!(
            now.contains(client.edit.1.trim_matches([' ', ',', '\n'])),
            "{now}"
        );
    }
}

#[test]
fn files_that_were_not_there_are_removed_again() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let names: Vec<&str> = CLIENTS.iter().map(|client| client.name).collect();
    fs::remove_file(home.codex_home().join("config.toml")).unwrap();
    let mut missing: Vec<PathBuf> = Vec::new();
    for client in &CLIENTS {
        let path = setup.path(client);
        let directories = path.ancestors().skip(1);
        let directories = directories.take_while(|directory| !directory.exists());
        missing.extend(directories.map(Path::to_owned));
    }
    assert!(missing.contains(&home.home().join(".cursor")));
    let written = setup.json(&[&names[..], &["--yes"]].concat());
    assert_eq!(actions(&written), each("add"), "{written:#}");
    for client in &CLIENTS {
        assert!(setup.path(client).exists(), "{}", client.name);
    }
    let removed = setup.json(&["--remove", "--yes"]);
    assert_eq!(actions(&removed), each("restore"), "{removed:#}");
    for client in &CLIENTS {
        assert!(!setup.path(client).exists(), "{}", client.name);
    }
    missing.retain(|directory| directory.exists());
    assert!(missing.is_empty(), "{missing:?}");
    assert!(home.codex_home().exists());
}

#[test]
fn shared_files_of_a_repository_name_the_program_without_its_directory() {
    let home = Home::new("");
    let mut setup = Setup::on_the_newest(&home);
    setup.install("codex-mcp", env!("CARGO_BIN_EXE_codex-mcp").as_ref());
    let with_project = || {
        CLIENTS
            .iter()
            .filter_map(|client| Some((client.name, client.project?)))
    };
    let names: Vec<&str> = with_project().map(|(name, _)| name).collect();
    let written = setup.json(&[&names[..], &["--project", "--yes"]].concat());
    assert!(
        written["checks"][0]["tools"].as_u64() > Some(0),
        "{written:#}"
    );
    for change in written["changes"].as_array().unwrap() {
        assert_eq!(change.get("warnings"), None, "{change:#}");
    }
    for (name, file) in with_project() {
        let text = fs::read_to_string(home.work().join(file)).unwrap();
        assert!(text.contains("\"codex-mcp\""), "{name}: {text}");
        assert!(
            !text.contains(&*home.root().to_string_lossy()),
            "{name}: {text}"
        );
    }
    let remove = || setup.json(&[&names[..], &["--project", "--remove", "--yes"]].concat());
    remove();
    let said = setup.run(&["claude-code", "codex", "--project", "--yes"]);
    for words in [
        "Claude Code asks each user",
        "Codex (the client) reads the file only",
    ] {
        assert!(said.stdout.contains(words), "{}", said.stdout);
    }
    remove();
    assert_eq!(
        setup
            .home
            .git(&["status", "--porcelain", "--untracked-files=all"]),
        ""
    );
}

#[test]
fn earlier_servers_are_replaced_and_that_is_said() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let cursor = home.home().join(".cursor/mcp.json");
    fs::create_dir(cursor.parent().unwrap()).unwrap();
    let old = r#"{"mcpServers": {"helper": {"command": "npx", "args": ["-y", "@leo000001/codex-mcp@latest"], "env": {"A": "b"}}}}"#;
    fs::write(&cursor, old).unwrap();
    fs::write(
        home.codex_home().join("config.toml"),
        "[mcp_servers.agent]\ncommand = \"codex\"\nargs = [\"mcp-server\"]\n",
    )
    .unwrap();
    let said = setup.run(&["cursor", "codex", "--yes"]);
    assert_eq!(said.code, 0, "{said:?}");
    for words in [
        "`helper` replaces the npm package @leo000001/codex-mcp",
        // Not to be taken for the Codex that works, of which the checks speak.
        "Codex (the client): `agent` replaces codex mcp-server",
        "restart Cursor, Codex (the client) if they are running",
    ] {
        assert!(said.stdout.contains(words), "{}", said.stdout);
    }
    let text = fs::read_to_string(&cursor).unwrap();
    let now: Value = serde_json::from_str(&text).unwrap();
    let server = &now["mcpServers"]["helper"];
    assert_eq!(server["command"], env!("CARGO_BIN_EXE_codex-mcp"));
    assert_eq!(server["args"], json!(["serve", "--api", "sessions"]));
    assert_eq!(server["env"], json!({ "A": "b" }));
    setup.json(&["--remove", "--yes"]);
    assert_eq!(fs::read_to_string(&cursor).unwrap(), old);
}

#[test]
fn program_of_the_npm_package_is_told_from_ours_of_the_same_name() {
    let home = Home::new("");
    let mut setup = Setup::on_the_newest(&home);
    let script = home
        .root()
        .join("lib/node_modules/@leo000001/codex-mcp/dist/index.js");
    write_program(&script, "#!/usr/bin/env node\n");
    setup.install("codex-mcp", &script);
    let cursor = home.home().join(".cursor/mcp.json");
    fs::create_dir(cursor.parent().unwrap()).unwrap();
    fs::write(
        &cursor,
        r#"{"mcpServers": {"codex": {"command": "codex-mcp"}}}"#,
    )
    .unwrap();
    let written = setup.json(&["cursor", "--yes"]);
    assert_eq!(actions(&written), [("cursor", "replace")], "{written:#}");
    let now: Value = serde_json::from_str(&fs::read_to_string(&cursor).unwrap()).unwrap();
    let server = &now["mcpServers"]["codex"];
    assert_eq!(server["command"], env!("CARGO_BIN_EXE_codex-mcp"));
    assert_eq!(server["args"], json!(["serve", "--api", "sessions"]));
}

/// The difference that `setup cursor` of the program at this path would make.
fn planned_by(setup: &Setup<'_>, program: &Path) -> String {
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    fs::hard_link(env!("CARGO_BIN_EXE_codex-mcp"), program).unwrap();
    let mut command = setup.program(program.to_str().unwrap());
    command.args(["setup", "cursor", "--dry-run", "--json"]);
    let said = CommandOutput::from(command.output().unwrap());
    assert_eq!(said.code, 0, "{said:?}");
    let planned: Value = serde_json::from_str(&said.stdout).unwrap();
    planned["changes"][0]["diff"].as_str().unwrap().to_owned()
}

#[test]
fn entry_does_not_name_a_program_that_is_gone_tomorrow() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    // On the same file system as the program, which is a large one.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let package = "node_modules/codex-mcp-linux-x64";
    let cache = directory
        .path()
        .join("bunx-0-codex-mcp@latest")
        .join(package);
    let diff = planned_by(&setup, &cache.join("bin/codex-mcp"));
    assert!(diff.contains("\"command\": \"npx\""), "{diff}");

    let store = directory.path().join("pnpm/global/5/.pnpm");
    let installed = store.join("codex-mcp-linux-x64@0.1.0").join(package);
    let link = store.join(package);
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    symlink(&installed, &link).unwrap();
    let diff = planned_by(&setup, &installed.join("bin/codex-mcp"));
    let stays = format!("\"command\": \"{}/bin/codex-mcp\"", link.display());
    assert!(diff.contains(&stays), "{diff}");
}

/// Other users of the machine can read command lines.
#[test]
fn variables_of_an_entry_reach_the_server_without_its_command_line() {
    let home = Home::new("");
    let mut setup = Setup::on_the_newest(&home);
    let arguments = home.root().join("arguments");
    let env = home.root().join("env.sh");
    let script = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$@\" >{}\nexec /usr/bin/env \"$@\"\n",
        arguments.display()
    );
    write_program(&env, &script);
    setup.install("env", &env);
    let entry = "[mcp_servers.codex]\ncommand = \"codex-mcp\"\nargs = [\"serve\"]\n\
                 [mcp_servers.codex.env]\nCODEX_MCP_SANDBOX = \"nonsense\"\n";
    fs::write(home.codex_home().join("config.toml"), entry).unwrap();
    let said = setup.run(&["codex", "--yes"]);
    assert_eq!(said.code, 1, "{said:?}");
    let mut lines = said.stdout.lines();
    let reason = lines.find(|line| line.contains("does not answer"));
    assert!(reason.unwrap().contains("CODEX_MCP_SANDBOX"), "{said:?}");
    let arguments = fs::read_to_string(arguments).unwrap();
    assert!(arguments.contains("-u\nTMPDIR\n"), "{arguments}");
    assert!(!arguments.contains("nonsense"), "{arguments}");
}

/// A home whose Cursor has this configuration.
fn with_cursor(text: &str) -> (Home, PathBuf) {
    let home = Home::new("");
    let file = home.home().join(".cursor/mcp.json");
    fs::create_dir(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    (home, file)
}

#[test]
fn credentials_of_other_entries_are_masked_in_the_diff() {
    let token = format!("ghp_{}", "a1".repeat(18));
    let other =
        json!({ "mcpServers": { "time": { "command": "uvx", "env": { "GITHUB_TOKEN": token } } } });
    let (home, file) = with_cursor(&format!("{other:#}"));
    let setup = Setup::on_the_newest(&home);
    let planned = setup.json(&["cursor", "--dry-run"]);
    let diff = planned["changes"][0]["diff"].as_str().unwrap();
    let said = setup.run(&["cursor", "--yes"]);
    for shown in [diff, &said.stdout] {
        assert!(shown.contains("\"GITHUB_TOKEN\": \"[masked]"), "{shown}");
        assert!(!shown.contains(&token), "{shown}");
    }
    // As a control: the file keeps it.
    assert!(fs::read_to_string(&file).unwrap().contains(&token));
}

const BY_HAND: &str =
    r#"{"mcpServers": {"codex": {"command": "codex-mcp", "args": ["serve", "--team", "mine"]}}}"#;

#[test]
fn entry_that_the_user_has_written_is_only_removed_by_name() {
    let (home, file) = with_cursor(BY_HAND);
    let setup = Setup::on_the_newest(&home);
    let said = setup.run(&["--remove", "--yes"]);
    assert_eq!(said.code, 0, "{said:?}");
    let advice = "which setup has not added: `codex-mcp setup --remove cursor` removes it";
    assert!(said.stdout.contains(advice), "{}", said.stdout);
    assert_eq!(fs::read_to_string(&file).unwrap(), BY_HAND);

    let shared = home.work().join(".cursor/mcp.json");
    fs::create_dir(shared.parent().unwrap()).unwrap();
    fs::write(&shared, BY_HAND).unwrap();
    let said = setup.run(&["--remove", "--project", "--yes"]);
    let advice = "`codex-mcp setup --remove --project cursor` removes it";
    assert!(said.stdout.contains(advice), "{}", said.stdout);

    let removed = setup.json(&["cursor", "--remove", "--yes"]);
    assert_eq!(actions(&removed), [("cursor", "remove")], "{removed:#}");
    let copy = removed["changes"][0]["copy"].as_str().unwrap();
    assert_eq!(fs::read_to_string(copy).unwrap(), BY_HAND);
}

#[test]
fn entry_that_the_user_has_written_is_restored() {
    let (home, file) = with_cursor(BY_HAND);
    let setup = Setup::on_the_newest(&home);
    let written = setup.json(&["cursor", "--yes"]);
    assert_eq!(actions(&written), [("cursor", "update")], "{written:#}");
    let removed = setup.json(&["--remove", "--yes"]);
    assert_eq!(actions(&removed), [("cursor", "restore")], "{removed:#}");
    assert_eq!(fs::read_to_string(&file).unwrap(), BY_HAND);
    let nothing = setup.json(&["--remove", "--yes"]);
    assert_eq!(nothing["changes"], json!([]), "{nothing:#}");
    assert_eq!(fs::read_to_string(&file).unwrap(), BY_HAND);
}

#[test]
fn entry_that_the_user_has_written_is_put_back_into_an_edited_file() {
    let (home, file) = with_cursor(BY_HAND);
    let setup = Setup::on_the_newest(&home);
    setup.json(&["cursor", "--yes"]);
    // What later changes find is no longer the user's.
    setup.json(&["cursor", "--yes", "--tools", "sessions"]);
    setup.json(&["cursor", "--yes", "--name", "second"]);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen('{', "{\"mine\": 1,", 1)).unwrap();
    let removed = setup.json(&["--remove", "--yes"]);
    assert_eq!(actions(&removed), [("cursor", "remove")], "{removed:#}");
    let read = || -> Value { serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap() };
    let by_hand: Value = serde_json::from_str(BY_HAND).unwrap();
    assert_eq!(read()["mcpServers"], by_hand["mcpServers"]);
    assert_eq!(read()["mine"], 1);

    // It is the user's as before.
    let nothing = setup.json(&["--remove", "--yes"]);
    assert_eq!(nothing["changes"], json!([]), "{nothing:#}");
    assert_eq!(read()["mcpServers"], by_hand["mcpServers"]);
    let removed = setup.json(&["cursor", "--remove", "--yes"]);
    assert_eq!(actions(&removed), [("cursor", "remove")], "{removed:#}");
    assert_eq!(read()["mcpServers"].get("codex"), None);
}

/// Such as by a checkout of the repository in which the user keeps the file.
#[test]
fn entry_that_the_user_has_taken_back_is_only_removed_by_name() {
    let (home, file) = with_cursor(BY_HAND);
    let setup = Setup::on_the_newest(&home);
    setup.json(&["cursor", "--yes"]);
    fs::write(&file, BY_HAND).unwrap();
    let said = setup.run(&["--remove", "--yes"]);
    assert_eq!(said.code, 0, "{said:?}");
    let advice = ": `codex-mcp setup --remove cursor` removes it";
    assert!(said.stdout.contains(advice), "{}", said.stdout);
    assert_eq!(fs::read_to_string(&file).unwrap(), BY_HAND);
    let removed = setup.json(&["cursor", "--remove", "--yes"]);
    assert_eq!(actions(&removed), [("cursor", "remove")], "{removed:#}");
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains("codex-mcp"), "{text}");
}

#[test]
fn server_that_the_user_has_removed_is_not_put_back() {
    let (home, file) =
        with_cursor(r#"{"mcpServers": {"codex": {"command": "codex", "args": ["mcp-server"]}}}"#);
    let setup = Setup::on_the_newest(&home);
    setup.json(&["cursor", "--yes"]);
    fs::write(&file, r#"{"mcpServers": {}}"#).unwrap();
    setup.json(&["cursor", "--yes"]);
    let edited = fs::read_to_string(&file).unwrap() + "\n";
    fs::write(&file, edited).unwrap();
    setup.json(&["--remove", "--yes"]);
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains("mcp-server"), "{text}");
}

#[test]
fn reason_for_an_unused_entry_is_reported() {
    let (home, _) = with_cursor(
        r#"{"mcpServers": {"a": {"command": "codex-mcp", "disabled": true}, "b": {"command": "codex", "args": ["mcp-server", "-m", "x", "-c", "approval_policy={}"]}}}"#,
    );
    let setup = Setup::on_the_newest(&home);
    let written = setup.json(&["cursor", "--yes"]);
    let warnings = written["changes"][0]["warnings"].to_string();
    for words in [
        "`a` is switched off",
        "`a` and `b` both start codex-mcp",
        "`-c approval_policy={}` is left out",
    ] {
        assert!(warnings.contains(words), "{warnings}");
    }
    let again = setup.run(&["cursor", "--yes"]).stdout;
    for entry in ["a", "b"] {
        let checked = format!("Cursor (`{entry}`): the server answers");
        assert!(again.contains(&checked), "{again}");
    }
    assert!(!again.contains("restart Cursor"), "{again}");
}

#[test]
fn other_file_of_a_repository_is_used_if_it_is_there() {
    let home = Home::new("");
    let mut setup = Setup::on_the_newest(&home);
    setup.install("codex-mcp", env!("CARGO_BIN_EXE_codex-mcp").as_ref());
    let file = home.work().join("opencode.jsonc");
    fs::write(&file, "// Mine.\n{}\n").unwrap();
    setup.json(&["opencode", "--project", "--yes"]);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("// Mine.\n") && text.contains("codex-mcp"));
    assert!(!home.work().join("opencode.json").exists());
}

#[test]
fn client_that_was_not_named_is_still_set_up_and_that_is_said() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    setup.json(&["cursor", "zed", "--yes"]);
    let said = setup.run(&["cursor", "--remove", "--yes"]);
    let advice = ": `codex-mcp setup --remove zed` removes it";
    assert!(said.stdout.contains(advice), "{}", said.stdout);
}
