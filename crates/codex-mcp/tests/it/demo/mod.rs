//! `codex-mcp demo`: it completes, and leaves nothing behind.

mod installing;
mod work;

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use codex_protocol::codex::Release;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::client::TIME_LIMIT;
use testkit::process::wait_until_gone;
use testkit::{Home, codex, write_program};

/// The texts that the reader must see, in this order.
const STORY: [&str; 41] = [
    "codex-mcp demo",
    "nothing is charged",
    "1. Set the stage",
    "Codex",
    "2. Connect",
    "→ initialize",
    "← result",
    "→ tools/list",
    "codex-reply",
    "3. Hand a task to Codex",
    "→ tools/call  codex",
    "Create hello.txt",
    "← notifications/progress",
    "← elicitation/create",
    "May I write hello.txt?",
    "action  accept",
    "completed",
    "4. Ask again in the same thread",
    "→ tools/call  codex-reply",
    "You asked: \"Create hello.txt",
    "5. Hold Codex to the result",
    "$ codex-mcp run \"Put hello.txt into French",
    "--until files=bonjour.txt --until commits=1",
    "to do    files=bonjour.txt",
    "turn 1 of 10\n",
    "nothing was executed",
    "promised \"i will\"",
    "not met  commits=1: the checked-out branch has 0 new commits and needs 1",
    "turn 2 of 10: the last turn executed nothing, so Codex is told to do the work",
    "executed",
    "holds    commits=1: the checked-out branch has 1 new commit",
    "done after 2 turns: all criteria hold",
    "new file     bonjour.txt",
    "That of the demo cannot be continued",
    "6. See what is there",
    "$ git log --oneline",
    "Say hello in French",
    "bonjour.txt | 1 +",
    "+Bonjour de Codex.",
    "+Hello from Codex.",
    "Done in",
];

/// A Codex that prints its version and nothing else.
const SILENT_CODEX: &str = "#!/bin/sh
if [ \"$1\" = --version ]; then echo codex-cli 9.9.9; else exec sleep 600; fi
";

fn demo(home: &Home, args: &[&str]) -> Command {
    let mut command = home.command(env!("CARGO_BIN_EXE_codex-mcp"));
    command
        .arg("demo")
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn with_release(home: &Home, version: &str) -> Command {
    let codex = codex::npm_shim(version);
    demo(home, &["--codex-bin", codex.to_str().unwrap()])
}

/// A demo with only these programs on PATH.
fn with_programs(home: &Home, programs: &[&str]) -> Command {
    let directory = home.root().join("programs");
    fs::create_dir_all(&directory).unwrap();
    for program in programs {
        let _ = symlink(on_path(program), directory.join(program));
    }
    let mut command = demo(home, &[]);
    command.env("PATH", directory);
    command
}

fn on_path(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn stderr_of_failed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    text(&output.stderr)
}

fn entries(directory: &Path) -> Vec<OsString> {
    fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect()
}

/// The directory of demos.
fn demos(home: &Home) -> PathBuf {
    home.state_home().join("codex-mcp/demo")
}

/// Checks that no process and no file is left, neither in temporary directories nor in the
/// user's.
async fn assert_nothing_is_left(home: &Home) {
    let pids: Vec<u32> = home.processes().iter().map(|one| one.pid).collect();
    assert_eq!(wait_until_gone(&pids, TIME_LIMIT).await, []);
    for directory in [
        home.tmp(),
        home.home(),
        home.cache_home(),
        home.state_home(),
    ] {
        assert_eq!(entries(&directory), [""; 0], "{}", directory.display());
    }
    assert_eq!(entries(&home.codex_home()), ["config.toml"]);
}

/// Reads the output up to a line with `text` in it.
fn read_until(reader: &mut impl BufRead, text: &str) {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert_ne!(reader.read_line(&mut line).unwrap(), 0, "no {text:?}");
    }
}

fn terminate(child: &Child) {
    let pid = Pid::from_raw(child.id().try_into().unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
}

#[tokio::test]
async fn demo_completes_on_each_release_and_leaves_nothing() {
    for version in codex::releases() {
        let home = Home::new("");

        let output = with_release(&home, version).output().unwrap();

        assert!(output.status.success(), "{version}: {output:?}");
        assert_eq!(text(&output.stderr), "", "{version}");
        let told = text(&output.stdout);
        assert!(told.contains(&format!("codex-cli {version}")), "{told}");
        assert!(!told.contains('\x1b'), "no colours in a pipe");
        let told = in_one_line(&told);
        let mut rest = told.as_str();
        // A run cannot commit with Codex 0.104.0.
        let can_commit = version != "0.104.0";
        let story = STORY
            .into_iter()
            .filter(|part| can_commit || !part.contains("commits=1"));
        for part in story {
            let (_, after) = rest.split_once(&in_one_line(part)).unwrap_or_else(|| {
                unreachable!("{version}: {part:?} is missing or too early in:\n{told}")
            });
            rest = after;
        }
        assert_nothing_is_left(&home).await;
    }
}

/// A text without its line breaks, as lines are wrapped.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn kept_directory_can_be_inspected() {
    let home = Home::new("");

    let mut command = with_release(&home, codex::newest());
    let output = command.arg("--keep").output().unwrap();

    let told = text(&output.stdout);
    let (_, kept) = told.rsplit_once("Kept: ").unwrap();
    let directory = Path::new(kept.lines().next().unwrap());
    assert_eq!(directory.parent().unwrap(), demos(&home));
    // A longer name would more often be broken in the question, which has 78 columns.
    assert_eq!(directory.file_name().unwrap().len(), 6);
    for (file, content) in [
        ("hello.txt", "Hello from Codex.\n"),
        ("bonjour.txt", "Bonjour de Codex.\n"),
    ] {
        let file = directory.join("project").join(file);
        assert_eq!(fs::read_to_string(file).unwrap(), content);
    }
    let evidence = entries(&directory.join("home/.local/state/codex-mcp/runs"));
    assert_eq!(evidence.len(), 1, "{evidence:?}");
    fs::remove_dir_all(home.state_home().join("codex-mcp")).unwrap();
    assert_nothing_is_left(&home).await;
}

#[tokio::test]
async fn colours_follow_the_option() {
    let home = Home::new("");
    let mut command = with_release(&home, codex::newest());

    let output = command.env("CLICOLOR_FORCE", "1").output().unwrap();

    let told = text(&output.stdout);
    assert!(told.contains("\x1b[1m\x1b[33mpromised"), "{told:?}");
    assert!(told.contains("\x1b[1m\x1b[32mholds"), "{told:?}");
    assert_nothing_is_left(&home).await;
}

#[tokio::test]
async fn signal_during_the_demo_leaves_nothing() {
    let home = Home::new("");
    let codex = home.root().join("silent/codex");
    write_program(&codex, SILENT_CODEX);
    let mut child = demo(&home, &["--codex-bin", codex.to_str().unwrap()])
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stdout.take().unwrap());
    read_until(&mut told, "→ tools/call");

    terminate(&child);

    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 15));
    assert_eq!(text(&output.stderr), "");
    assert_nothing_is_left(&home).await;
}

#[tokio::test]
async fn closed_output_is_no_failure() {
    let home = Home::new("");
    let mut child = with_release(&home, codex::newest()).spawn().unwrap();
    let mut told = BufReader::new(child.stdout.take().unwrap());
    read_until(&mut told, "codex-mcp demo");

    drop(told);

    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stderr), "");
    assert_nothing_is_left(&home).await;
}

#[tokio::test]
async fn missing_program_is_named() {
    let home = Home::new("");
    let no_git = stderr_of_failed(&with_programs(&home, &[]).output().unwrap());
    assert!(no_git.contains("`git` is missing"), "{no_git}");

    let no_npm = stderr_of_failed(&with_programs(&home, &["git"]).output().unwrap());
    assert!(no_npm.contains("Install Node.js 18 or newer"), "{no_npm}");

    let wrong = demo(&home, &["--codex-bin", "/bin/sh"]).output().unwrap();
    let wrong = stderr_of_failed(&wrong);
    assert!(wrong.contains("does not answer as Codex does"), "{wrong}");
    assert_nothing_is_left(&home).await;
}

#[tokio::test]
async fn state_directory_in_which_codex_can_write_is_refused() {
    let home = Home::new("");
    let state = tempfile::tempdir_in("/tmp").unwrap();
    let mut command = with_release(&home, codex::newest());

    let output = command
        .env("XDG_STATE_HOME", state.path())
        .output()
        .unwrap();

    let error = stderr_of_failed(&output);
    assert!(error.contains("is below /tmp"), "{error}");
    assert!(error.contains("Set XDG_STATE_HOME to a directory elsewhere"));
    assert_eq!(text(&output.stdout), "", "nothing is announced");
    assert_eq!(entries(state.path()), [""; 0]);
    assert_nothing_is_left(&home).await;
}

#[tokio::test]
async fn failing_codex_is_reported() {
    for (release, is_old) in [("9.9.9", false), ("0.104.0", false), ("0.103.0", true)] {
        let home = Home::new("");
        let broken = format!(
            "#!/bin/sh
if [ \"$1\" = --version ]; then echo codex-cli {release}; else echo out of order >&2; exit 3; fi
"
        );
        let codex = home.root().join("broken/codex");
        write_program(&codex, &broken);

        let output = demo(&home, &["--codex-bin", codex.to_str().unwrap()])
            .output()
            .unwrap();

        let error = stderr_of_failed(&output);
        assert!(error.contains("the tool `codex` failed"), "{error}");
        assert!(error.contains("out of order"), "{error}");
        assert_eq!(error.contains("is older than 0.104.0"), is_old, "{error}");
        assert_nothing_is_left(&home).await;
    }
}

#[test]
fn oldest_release_is_the_oldest_tested() {
    let oldest = Release::OLDEST_TESTED.to_string();
    assert_eq!(codex::releases().first(), Some(&oldest.as_str()));
}
