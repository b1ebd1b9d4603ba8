//! `codex-mcp` without a verb: the overview at a terminal, the server on a pipe; and `--version`.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::pty::openpty;
use serde_json::{Value, json};
use testkit::wait::wait_until_readable;
use testkit::{Home, write_program};

use crate::terminal::Terminal;

const PROGRAM: &str = env!("CARGO_BIN_EXE_codex-mcp");

/// A Codex that answers as one without a login, and writes down its arguments.
const LOGGED_OUT: &str = "#!/bin/sh\necho \"$*\" >> \"$CALLS\"\ncase $1 in\n\
     --version) echo 'codex-cli 0.169.0' ;;\n\
     login) echo 'Not logged in' >&2; exit 1 ;;\n\
     *) exit 2 ;;\nesac\n";

fn codex(home: &Home, text: &str) -> PathBuf {
    let path = home.tmp().join("codex");
    write_program(&path, text);
    path
}

/// The program in a home, with a Codex.
fn program(home: &Home, codex: &Path) -> Command {
    let mut command = home.command(PROGRAM);
    command
        .env("CODEX_MCP_CODEX_BIN", codex)
        .env("CALLS", home.tmp().join("calls"));
    command
}

/// All files of a home, but for those of the Codex of the test.
fn files(home: &Home) -> Vec<PathBuf> {
    fn add(directory: &Path, all: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                add(&path, all);
            }
            all.push(path);
        }
    }
    let mut all = Vec::new();
    add(home.root(), &mut all);
    all.retain(|path| !path.ends_with("calls"));
    all.sort();
    all
}

#[tokio::test]
async fn overview_shows_state_and_next_command_at_a_terminal() {
    let home = Home::new("");
    let codex = codex(&home, LOGGED_OUT);
    let before = files(&home);
    let terminal = Terminal::runs(program(&home, &codex));
    let (shown, code) = terminal.ends().await;
    assert_eq!(code, Some(0), "{shown}");
    let version = env!("CARGO_PKG_VERSION");
    let login = format!("{} login", codex.display());
    for words in [
        &format!("codex-mcp {version} (checkout)"),
        "0.169.0",
        "not logged in",
        "none under way",
        &login,
        "codex-mcp --help",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(shown.lines().count() <= 15, "{shown}");
    assert_eq!(files(&home), before);
    let calls = fs::read_to_string(home.tmp().join("calls")).unwrap();
    assert_eq!(calls, "--version\nlogin status\n");
    assert_eq!(home.processes(), []);
}

#[tokio::test]
async fn overview_shows_the_state_though_a_setting_is_wrong() {
    let home = Home::new("");
    let directory = home.atm_home().join(".config/atm");
    fs::create_dir_all(&directory).unwrap();
    let text = "[plugins.codex-mcp]\nnotify = \"desktop\"\n";
    fs::write(directory.join("config.toml"), text).unwrap();
    let codex = codex(&home, LOGGED_OUT);
    let (shown, code) = Terminal::runs(program(&home, &codex)).ends().await;
    assert_eq!(code, Some(0), "{shown}");
    for words in ["`notify`:", "none under way", "0.169.0"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
}

#[test]
fn overview_is_plain_where_stdout_is_a_pipe() {
    let home = Home::new("");
    let absent = home.root().join("absent");
    let pty = openpty(None, None).unwrap();
    let end = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
    for args in [&[][..], &["-q"], &["--color", "auto"]] {
        let output = program(&home, &absent)
            .args(args)
            .stdin(end(&pty.slave))
            .output()
            .unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{shown}");
        assert!(shown.contains("is not an executable file"), "{shown}");
        assert!(shown.contains("codex-mcp doctor\n"), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    }
}

/// A line that a client sends.
fn request(id: u32, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

/// The answers to a client's first messages.
fn served(home: &Home, args: &[&str]) -> Vec<Value> {
    let mut server = program(home, &home.root().join("absent"));
    answers(server.args(args).stderr(Stdio::piped()))
}

fn answers(server: &mut Command) -> Vec<Value> {
    let introduction = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
    });
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let lines = [
        request(1, "initialize", &introduction),
        initialized.to_string(),
        request(2, "tools/list", &json!({})),
    ];
    let server = server.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = server.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{}", lines.join("\n")).unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut text = Vec::new();
    let has = |text: &[u8], count| text.iter().filter(|byte| **byte == b'\n').count() >= count;
    while !has(&text, 2) {
        wait_until_readable("the server's answers", &stdout);
        let mut bytes = [0; 4096];
        let length = stdout.read(&mut bytes).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&bytes[..length]);
    }
    // The end of the client ends the server.
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(text).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn server_answers_where_its_log_cannot_be_written() {
    let home = Home::new("");
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut server = program(&home, &home.root().join("absent"));
    server
        .arg("serve")
        .env("CODEX_MCP_LOG", "trace")
        .stderr(full);
    assert_eq!(answers(&mut server).len(), 2);
}

#[test]
fn program_without_a_verb_serves_on_a_pipe() {
    let home = Home::new("");
    let with_verb = served(&home, &["serve"]);
    assert_eq!(with_verb[0]["result"]["serverInfo"]["name"], "codex-mcp");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(with_verb[0]["result"]["serverInfo"]["version"], version);
    for args in [&[][..], &["-q"], &["-C", "."]] {
        assert_eq!(served(&home, args), with_verb, "{args:?}");
    }
}

#[test]
fn help_says_what_the_program_does_without_a_verb() {
    let home = Home::new("");
    let mut help = program(&home, &home.root().join("absent"));
    let output = help.arg("--help").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    let meaning = "shows the current state at a terminal, and serves like `codex-mcp serve`";
    assert!(text.contains(meaning), "{text}");
}

#[test]
fn program_without_a_verb_is_served_by_a_host() {
    let home = Home::new("");
    let absent = home.root().join("absent");
    fs::write(home.work().join(".atm.toml"), "").unwrap();
    let run = |args: &[&str]| {
        let mut command = program(&home, &absent);
        command.args(args).env("CODEX_MCP_HOST", "true");
        command
    };
    let mut child = run(&[])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let status = || {
        let output = run(&["host", "status", "--json"]).output().unwrap();
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        (status[0]["clients"] == 1).then_some(())
    };
    testkit::wait::wait_for_blocking("a host with one client", status);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(run(&["host", "stop"]).output().unwrap().status.success());
}

#[test]
fn closed_stdin_and_wrong_arguments_end_as_before() {
    let home = Home::new("");
    let absent = home.root().join("absent");
    let run = |args: &[&str]| {
        let mut command = program(&home, &absent);
        let output = command.args(args).stdin(Stdio::null()).output().unwrap();
        (
            output.status.code(),
            !output.stdout.is_empty(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, has_printed, _) = run(&[]);
    assert_eq!((code, has_printed), (Some(0), false));
    for (args, code, has_printed) in [
        (&["--help"][..], 0, true),
        (&["help"], 0, true),
        (&["nonsense"], 2, false),
        (&["--nonsense"], 2, false),
        (&["-q", "-v"], 2, false),
        (&["-C", "/no/such/directory"], 2, false),
    ] {
        let said = run(args);
        assert_eq!(
            (said.0, said.1),
            (Some(code), has_printed),
            "{args:?}: {}",
            said.2
        );
    }
}

fn version(program: &Path, home: &Home) -> String {
    let output = Command::new(program)
        .arg("--version")
        .env_clear()
        .envs(home.env())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn version_names_the_channel_of_this_copy() {
    let home = Home::new("");
    let number = env!("CARGO_PKG_VERSION");
    let here = version(Path::new(PROGRAM), &home);
    assert_eq!(here, format!("codex-mcp {number} (checkout)\n"));

    // On the same file system as the program, which is a large one.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let package = directory.path().join("lib/node_modules/codex-mcp/bin");
    fs::create_dir_all(&package).unwrap();
    let installed = package.join("codex-mcp");
    fs::hard_link(PROGRAM, &installed).unwrap();
    let npm = version(&installed, &home);
    assert_eq!(npm, format!("codex-mcp {number} (npm)\n"));
}
