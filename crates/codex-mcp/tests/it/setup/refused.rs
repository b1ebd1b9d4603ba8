//! Refusals of `setup`: nothing is lost, and the error says what to do.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use safe_files::home_directory::home_directory;
use serde_json::json;
#[cfg(target_os = "linux")]
use testkit::SmallDisk;
use testkit::wait::wait_for;
use testkit::{Home, write_program};

use super::Setup;
use crate::output::CommandOutput;

const MINE: &str = "{ \"mcpServers\": { \"time\": { \"command\": \"uvx\" } } }\n";

/// Cursor's file, with this text.
fn cursor(home: &Home, text: &str) -> PathBuf {
    let path = home.home().join(".cursor/mcp.json");
    fs::create_dir(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn setup_without_a_terminal_fails_and_writes_nothing() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let path = cursor(&home, MINE);
    let said = setup.run(&["cursor"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stdout.contains("+ "), "{said:?}");
    assert!(
        said.stderr.contains("use --yes to write, or --dry-run"),
        "{said:?}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), MINE);
    assert!(!home.state_home().join("codex-mcp/setup").exists());
}

#[test]
fn settings_with_which_the_server_does_not_start_are_reported() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let directory = home.atm_home().join(".config/atm");
    fs::create_dir_all(&directory).unwrap();
    let settings = "[plugins.codex-mcp]\nnotify = \"desktop\"\nhost = 3\n";
    fs::write(directory.join("config.toml"), settings).unwrap();
    let said = setup.run(&["cursor", "--dry-run"]);
    for words in [
        "`notify`: it must be a list in brackets",
        "`host`: it must be true or false",
    ] {
        assert!(said.stderr.contains(words), "{said:?}");
    }
    assert!(
        said.stderr
            .contains("The server does not start with these settings"),
        "{said:?}"
    );
}

#[test]
fn wrong_setting_of_a_directory_or_a_variable_concerns_servers_that_have_it() {
    let home = Home::new("");
    let mut setup = Setup::on_the_newest(&home);
    let text = "[plugins.codex-mcp]\nrequest_timeout_secs = 0\n";
    fs::write(home.work().join(".atm.toml"), text).unwrap();
    crate::trust(&home, &home.work());
    let said = setup.run(&["cursor", "--dry-run"]);
    assert!(
        said.stderr.contains("cannot start in this directory"),
        "{said:?}"
    );
    let variable = ("CODEX_MCP_SANDBOX".into(), "nonsense".into());
    setup.env.push(variable);
    let said = setup.run(&["cursor", "--dry-run"]);
    assert!(
        said.stderr.contains("cannot start with this variable"),
        "{said:?}"
    );
}

#[test]
fn one_broken_file_does_not_keep_the_others_from_being_set_up() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let path = cursor(&home, "{ \"mcpServers\": {");
    let said = setup.run(&["cursor", "zed", "--yes"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stdout.contains("it is not valid JSON"), "{said:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "{ \"mcpServers\": {");
    let zed = home.config_home().join("zed/settings.json");
    assert!(fs::read_to_string(zed).unwrap().contains("codex-mcp"));
}

#[test]
fn read_only_file_stays_as_it_is() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let path = cursor(&home, MINE);
    fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
    let said = setup.run(&["cursor", "--yes"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stdout.contains("is read-only; make it writable"),
        "{said:?}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), MINE);
}

/// What `setup cursor --yes` says to a user whom modes and owners bind. Root is such a user without
/// capabilities.
fn run_bound_by_modes(setup: &Setup<'_>) -> CommandOutput {
    let program = env!("CARGO_BIN_EXE_codex-mcp");
    let is_root = nix::unistd::geteuid().is_root();
    let mut command = setup.program(if is_root { "setpriv" } else { program });
    if is_root {
        command.args(["--inh-caps=-all", "--bounding-set=-all", program]);
    }
    command.args(["setup", "cursor", "--yes"]);
    command.output().unwrap().into()
}

/// As a file of another user is.
#[test]
fn file_that_only_others_may_write_to_stays_as_it_is() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let path = cursor(&home, MINE);
    fs::set_permissions(&path, Permissions::from_mode(0o464)).unwrap();
    let said = run_bound_by_modes(&setup);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stdout.contains("is read-only; make it writable"),
        "{said:?}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), MINE);
}

#[test]
fn file_in_a_read_only_directory_is_refused_before_anything_is_written() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let path = cursor(&home, MINE);
    let directory = path.parent().unwrap();
    fs::set_permissions(directory, Permissions::from_mode(0o555)).unwrap();
    let said = run_bound_by_modes(&setup);
    fs::set_permissions(directory, Permissions::from_mode(0o700)).unwrap();
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stdout.contains("make the directory writable"),
        "{said:?}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), MINE);
    assert!(!home.state_home().join("codex-mcp/setup").exists());
}

/// As `chown` leaves it that names no group.
#[test]
fn file_of_a_foreign_group_gets_that_of_the_user() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let path = cursor(&home, MINE);
    fs::set_permissions(&path, Permissions::from_mode(0o664)).unwrap();
    // Only root can make such a file.
    chown(&path, None, Some(12345)).unwrap();
    let said = run_bound_by_modes(&setup);
    assert!(said.stdout.contains("Cursor: done"), "{said:?}");
    assert!(fs::read_to_string(&path).unwrap().contains("codex-mcp"));
    let about = fs::metadata(&path).unwrap();
    assert_ne!(about.gid(), 12345);
    // Its new group may do no more than everybody.
    assert_eq!(about.mode() & 0o777, 0o644);
}

/// As one that a container shares with its machine.
#[cfg(target_os = "linux")]
#[test]
fn bind_mounted_file_is_not_replaced() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let path = cursor(&home, MINE);
    let script = "mount --bind \"$1\" \"$1\" && exec \"$2\" setup cursor --yes";
    let mut command = setup.program("unshare");
    command
        .args(["--user", "--map-root-user", "--mount"])
        .args(["sh", "-c", script, "sh"])
        .arg(&path)
        .arg(env!("CARGO_BIN_EXE_codex-mcp"));
    let said = CommandOutput::from(command.output().unwrap());
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stdout.contains("is mounted by itself"), "{said:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), MINE);
}

#[test]
fn server_of_another_kind_keeps_its_name() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let text = MINE.replace("time", "codex");
    let path = cursor(&home, &text);
    let said = setup.run(&["cursor", "--yes"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stdout
            .contains("choose a name for codex-mcp with --name"),
        "{said:?}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    let said = setup.run(&["cursor", "--yes", "--name", "delegate"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(fs::read_to_string(&path).unwrap().contains("\"uvx\""));
}

#[test]
fn link_of_the_user_is_followed_and_one_of_a_repository_is_not() {
    let home = Home::new("");
    let mut setup = Setup::on_the_newest(&home);
    setup.install("codex-mcp", env!("CARGO_BIN_EXE_codex-mcp").as_ref());
    let path = cursor(&home, MINE);
    let kept = home.root().join("dotfiles.json");
    fs::rename(&path, &kept).unwrap();
    symlink(&kept, &path).unwrap();

    symlink(home.home().join(".cursor"), home.work().join(".cursor")).unwrap();
    let said = setup.run(&["cursor", "--project", "--yes"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stdout
            .contains("is a link, which is not followed in a repository; remove it"),
        "{said:?}"
    );
    assert_eq!(fs::read_to_string(&kept).unwrap(), MINE);

    let said = setup.run(&["cursor", "--yes"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
    assert!(fs::read_to_string(&kept).unwrap().contains("codex-mcp"));

    // The removal looks for entries that are left.
    let names = |args: &[&str], link: &Path| {
        let said = setup.run(args);
        assert_eq!(said.code, 0, "{said:?}");
        said.stdout.contains(&*link.to_string_lossy())
    };
    let remove = ["--project", "--remove", "--yes"];
    assert!(!names(&remove, &home.work().join(".cursor")));

    setup.json(&["vscode", "--project", "--yes"]);
    let directory = home.work().join(".vscode");
    let moved = home.root().join("vscode");
    fs::rename(&directory, &moved).unwrap();
    symlink(&moved, &directory).unwrap();
    assert!(!names(&["--remove", "--yes"], &directory));
}

#[test]
fn file_to_which_two_clients_link_is_changed_for_both() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let kept = home.root().join("dotfiles.json");
    fs::write(&kept, MINE).unwrap();
    for link in [".cursor/mcp.json", ".codeium/windsurf/mcp_config.json"] {
        let link = home.home().join(link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(&kept, &link).unwrap();
    }
    setup.json(&["cursor", "windsurf", "--yes"]);
    let text = fs::read_to_string(&kept).unwrap();
    assert!(text.contains("codex-mcp"), "{text}");
    setup.json(&["cursor", "windsurf", "--remove", "--yes"]);
    let text = fs::read_to_string(&kept).unwrap();
    assert!(
        text.contains("uvx") && !text.contains("codex-mcp"),
        "{text}"
    );
}

/// Whoever wrote the repository would otherwise have a program run by the check.
#[tokio::test]
async fn entry_of_a_repository_runs_none_of_its_programs_in_the_check() {
    let home = Home::new("");
    let mut setup = Setup::on_the_newest(&home);
    setup.install("codex-mcp", env!("CARGO_BIN_EXE_codex-mcp").as_ref());
    let mark = home.root().join("ran");
    let evil = home.work().join("codex-mcp");
    write_program(&evil, &format!("#!/bin/sh\ntouch {}\n", mark.display()));
    let args = ["serve", "--backend", "mcp-server", "--codex-bin"];
    let evil = evil.display().to_string();
    for (entry, control) in [
        (
            json!({ "command": "./codex-mcp", "env": { "CODEX_MCP_CODEX_BIN": evil, "PATH": "." } }),
            vec![evil.as_str()],
        ),
        (
            json!({ "command": "codex-mcp", "args": ([&args[..], &[&evil]].concat()) }),
            [&[env!("CARGO_BIN_EXE_codex-mcp")], &args[..], &[&evil]].concat(),
        ),
    ] {
        let text = json!({ "mcpServers": { "codex": entry } }).to_string();
        fs::write(home.work().join(".mcp.json"), &text).unwrap();
        for state in ["brings `codex` up to date", "is set up already"] {
            let said = setup.run(&["claude-code", "--project", "--yes"]);
            assert_eq!(said.code, 0, "{said:?}");
            let warning = said
                .stdout
                .lines()
                .find(|line| line.contains("not checked"));
            assert!(warning.is_some_and(|line| line.contains(&evil)), "{said:?}");
            for words in [state, "answers, with"] {
                assert!(said.stdout.contains(words), "{said:?}");
            }
            assert!(!mark.exists(), "{text}");
        }
        // As a control: the program runs if the server is started as that entry says.
        let (program, args) = control.split_first().unwrap();
        let mut command = setup.program(program);
        let mut started = command.args(args).stdin(Stdio::piped()).spawn().unwrap();
        wait_for("the program of the entry", async || {
            mark.exists().then_some(())
        })
        .await;
        // The end of its input ends it.
        started.wait().unwrap();
        fs::remove_file(&mark).unwrap();
    }
}

/// The file of the account that runs the tests is only read.
#[test]
fn file_is_in_the_home_of_the_account_without_home() {
    let home = Home::new("");
    let mut setup = Setup::on_the_newest(&home);
    setup.env.push(("HOME".into(), "".into()));
    // The user of a container may have no account.
    let Some(account) = home_directory(|_| None) else {
        let said = setup.run(&["cursor", "--dry-run"]);
        assert!(said.stderr.contains("set HOME to its path"), "{said:?}");
        return;
    };
    let shown = setup.json(&["cursor", "--dry-run"]);
    let file = account.join(".cursor/mcp.json");
    assert_eq!(shown["changes"][0]["file"], file.to_str().unwrap());
}

#[test]
fn machine_without_clients_says_how_to_name_one() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    fs::remove_file(home.codex_home().join("config.toml")).unwrap();
    let said = setup.run(&["--yes"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stderr
            .contains("no MCP client was found here; name one"),
        "{said:?}"
    );
    let said = setup.run(&["cursr", "--yes"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.stderr.contains("cursor"), "{said:?}");
}

#[test]
fn failed_backup_changes_nothing() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let path = cursor(&home, MINE);
    fs::create_dir(home.state_home().join("codex-mcp")).unwrap();
    fs::write(home.state_home().join("codex-mcp/setup"), "in the way").unwrap();
    let said = setup.run(&["cursor", "--yes"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), MINE);
}

#[cfg(target_os = "linux")]
#[test]
fn change_whose_last_receipt_fails_is_reported_as_made() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let path = cursor(&home, MINE);
    // It has room for two files: the copy, and one version of the receipts.
    let _disk = SmallDisk::on(&home.state_home().join("codex-mcp/setup"), 8);
    let run = |args: &[&str]| {
        let said = setup.run(args);
        assert_eq!(said.code, 0, "{said:?}");
        for words in [
            "Cursor: done",
            "receipt of this change could not be updated",
        ] {
            assert!(said.stdout.contains(words), "{said:?}");
        }
        fs::read_to_string(&path).unwrap()
    };
    let text = run(&["cursor", "--yes"]);
    assert!(text.contains("codex-mcp"), "{text}");
    assert_eq!(run(&["cursor", "--remove", "--yes"]), MINE);
}

#[cfg(target_os = "linux")]
#[test]
fn entry_of_the_user_is_removed_by_name_after_a_change_that_failed() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let disk = SmallDisk::on(&home.home().join(".cursor"), 64);
    let path = disk.path().join("mcp.json");
    let text = r#"{"mcpServers": {"codex": {"command": "codex-mcp", "args": ["serve"]}}}"#;
    fs::write(&path, text).unwrap();
    let ballast = disk.fill();
    let said = setup.run(&["cursor", "--yes"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    drop(ballast);

    let removed = setup.json(&["cursor", "--remove", "--yes"]);
    assert_eq!(removed["changes"][0]["action"], "remove", "{removed:#}");
    let left = fs::read_to_string(&path).unwrap();
    assert!(!left.contains("codex-mcp"), "{left}");
}

#[test]
fn check_says_what_the_server_said_before_it_ended() {
    let home = Home::new("");
    let setup = Setup::on_the_newest(&home);
    let cursor = home.home().join(".cursor/mcp.json");
    fs::create_dir(cursor.parent().unwrap()).unwrap();
    for (members, reason) in [
        (
            r#""env": {"CODEX_MCP_SANDBOX": "nonsense"}"#,
            "CODEX_MCP_SANDBOX",
        ),
        (r#""cwd": "/no/such/directory""#, "in /no/such/directory: "),
        (
            r#""args": ["serve", "--api", "nonsense"]"#,
            "error: invalid value 'nonsense'",
        ),
    ] {
        let text =
            format!(r#"{{"mcpServers": {{"codex": {{"command": "codex-mcp", {members}}}}}}}"#);
        fs::write(&cursor, text).unwrap();
        let said = setup.run(&["cursor", "--yes"]);
        assert_eq!(said.code, 1, "{said:?}");
        let lines = said.stdout.lines();
        let mut lines = lines.filter(|line| line.contains("does not answer"));
        assert!(lines.next().unwrap().contains(reason), "{}", said.stdout);
    }
}
