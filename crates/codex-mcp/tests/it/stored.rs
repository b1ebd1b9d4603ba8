//! The records of servers, as the verbs show them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use agent_team::Claim;
use agent_team::logic::ThreadName;
use agent_team::logic::registry::{Change, Entry, ThreadUpdate, TurnState};
use agent_team::registry::{Mode, Registry};
use agent_team::summary::Summaries;
use serde_json::{Value, json};
use testkit::Home;

use crate::output::CommandOutput;
use crate::terminal::Terminal;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Runs the program in the home.
fn run(home: &Home, args: &[&str]) -> Output {
    home.command(env!("CARGO_BIN_EXE_codex-mcp"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn say(home: &Home, args: &[&str]) -> CommandOutput {
    run(home, args).into()
}

/// Writes the user's settings of codex-mcp.
fn set(home: &Home, lines: &str) {
    let directory = home.atm_home().join(".config/atm");
    fs::create_dir_all(&directory).unwrap();
    let text = format!("[plugins.codex-mcp]\n{lines}\n");
    fs::write(directory.join("config.toml"), text).unwrap();
}

/// The names of the threads in the output of `threads --json`.
fn threads(home: &Home, args: &[&str]) -> Vec<String> {
    let said = say(home, &[&["threads", "--json"], args].concat());
    assert_eq!(said.code, 0, "{}", said.stderr);
    let all: Value = serde_json::from_str(&said.stdout).unwrap();
    let all = all["threads"].as_array().unwrap();
    let name = |thread: &Value| thread["thread_id"].as_str().unwrap().to_owned();
    all.iter().map(name).collect()
}

/// Records a thread with a summary.
fn keep(home: &Home, identity: &str, thread: &str, days: u32, status: &str) {
    let at = SystemTime::now() - DAY * days;
    let at = humantime(at);
    let entry: Entry = serde_json::from_value(json!({
        "thread_id": thread, "identity": identity, "status": status, "repo_name": "repo",
        "started_at": at, "last_active": at, "turns": 3, "tag": format!("tag of {thread}"),
    }))
    .unwrap();
    let identity = identity.parse().unwrap();
    let mut registry = Registry::open(&home.atm_home(), &identity, Mode::Document).unwrap();
    let entry = Box::new(entry);
    registry.apply(&Change::Begin { entry }).unwrap();
    let summaries = Summaries::of(&home.atm_home(), &identity);
    let text = format!("What {thread} was about.\n");
    summaries.write(&thread.parse().unwrap(), &text).unwrap();
}

fn humantime(at: SystemTime) -> String {
    common::timestamp::timestamp(at)
}

fn directory(home: &Home, identity: &str) -> PathBuf {
    let sessions = home.atm_home().join(".config/atm/codex-sessions");
    sessions.join(identity)
}

#[test]
fn wrong_setting_does_not_hide_work_and_starts_none() {
    let home = Home::new("");
    set(&home, "notify = \"desktop\"");
    let wrong = "config.toml: line 2, column 10: `notify`: it must be a list";
    let said = say(&home, &["ps"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stderr.starts_with("warning: "), "{said:?}");
    assert!(said.stderr.contains(wrong), "{said:?}");
    let without = "a `codex-mcp run` without --detach is not listed";
    assert!(said.stdout.contains(without), "{said:?}");
    let said = say(&home, &["web", "link"]);
    assert!(
        said.stderr.contains("the endpoint does not run"),
        "{said:?}"
    );
    for verb in [
        &["jobs", "submit", "x"][..],
        &["jobs", "retry", "0123abcd"],
        &["run", "--until", "commits=1", "x"],
        &["review"],
    ] {
        let said = say(&home, verb);
        assert_eq!(said.code, 3, "{verb:?}: {said:?}");
        let error = said.stderr.lines().find(|line| line.starts_with("error: "));
        assert!(error.unwrap().contains(wrong), "{verb:?}: {said:?}");
    }
    // The default of these settings could show more work, or another store.
    for line in ["max_sandbox = \"none\"", "store = 7"] {
        set(&home, &format!("notify = \"desktop\"\n{line}"));
        let said = say(&home, &["ps"]);
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.stderr.contains("error: "), "{said:?}");
    }
}

#[test]
fn log_of_workers_is_bounded_where_the_settings_cannot_be_read() {
    for (bound, length, is_set_aside) in [
        ("", (1 << 20) + 1, true),
        ("max_log_bytes = 4194304", (1 << 20) + 1, false),
        ("max_log_bytes = 65536", 65_537, true),
    ] {
        let home = Home::new("");
        set(&home, &format!("notify = \"desktop\"\n{bound}"));
        let log = home.state_home().join("codex-mcp/worker.log");
        fs::create_dir_all(log.parent().unwrap()).unwrap();
        fs::write(&log, vec![b'x'; length]).unwrap();
        let start = || {
            home.command(env!("CARGO_BIN_EXE_codex-mcp"))
                .args(["worker", "--on-demand"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(File::options().append(true).open(&log).unwrap())
                .status()
                .unwrap()
        };
        for starts in 1..=2 {
            assert!(!start().success());
            let told = fs::read_to_string(&log).unwrap();
            let count = told.matches("`notify`: it must be a list").count();
            assert_eq!(count, starts, "{bound}: {} bytes", told.len());
        }
        let older = fs::metadata(log.with_extension("log.1"));
        let older = older.ok().map(|older| older.len());
        assert_eq!(older, is_set_aside.then_some(length as u64), "{bound}");
    }
}

#[tokio::test]
async fn warning_is_broken_between_words_only_where_stderr_is_a_terminal() {
    let home = Home::new("");
    set(&home, "notify = \"desktop\"");
    let whole = say(&home, &["ps"]).stderr;
    assert!(whole.lines().any(|line| line.len() > 80), "{whole}");
    let on_terminal = |script: &str| {
        let mut command = home.command("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_codex-mcp")]);
        Terminal::with_columns(80, command).ends()
    };
    let (seen, _) = on_terminal("exec \"$0\" ps >/dev/null").await;
    let mut lines = seen.lines();
    assert!(lines.all(|line| line.chars().count() <= 80), "{seen}");
    let words = seen.split_whitespace();
    assert!(words.eq(whole.split_whitespace()), "{seen}");
    let (seen, _) = on_terminal("exec \"$0\" ps 2>told").await;
    let told = fs::read_to_string(home.work().join("told")).unwrap();
    assert_eq!(told, whole, "{seen}");
}

#[test]
fn empty_thread_list_says_how_to_get_threads() {
    let home = Home::new("");
    let said = say(&home, &["threads"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert!(said.stdout.contains("no threads yet"), "{}", said.stdout);
    assert_eq!(threads(&home, &[]), [""; 0]);
    let said = say(&home, &["threads", "--repo", "x"]);
    assert!(said.stdout.contains("no such threads"), "{}", said.stdout);
    assert!(!directory(&home, "").exists());
}

#[test]
fn threads_of_all_identities_are_listed_and_filtered() {
    let home = Home::new("");
    keep(&home, "codex", "one", 3, "ended");
    keep(&home, "codex", "two", 1, "active");
    keep(&home, "arch", "three", 2, "interrupted");
    assert_eq!(threads(&home, &[]), ["two", "three", "one"]);
    assert_eq!(threads(&home, &["--identity", "arch"]), ["three"]);
    assert_eq!(threads(&home, &["--identity", "nobody"]), [""; 0]);
    assert_eq!(threads(&home, &["--repo", "other"]), [""; 0]);
    // No server holds the thread.
    assert_eq!(threads(&home, &["--status", "active"]), [""; 0]);
    assert_eq!(
        threads(&home, &["--status", "interrupted"]),
        ["two", "three"]
    );
    // As in the table, all three have ended.
    assert_eq!(
        threads(&home, &["--status", "ended"]),
        ["two", "three", "one"]
    );
    let claim = Claim::take(&home.atm_home(), &"codex".parse().unwrap(), None, |_| true).unwrap();
    assert_eq!(threads(&home, &["--status", "active"]), ["two"]);
    drop(claim);
    let said = say(&home, &["threads"]);
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert!(
        lines[0].starts_with("THREAD  IDENTITY  STATE  LAST TURN  SUMMARY  AGE "),
        "{}",
        lines[0]
    );
    assert!(
        lines[1].starts_with("two     codex     ended  -          no       1d "),
        "{}",
        lines[1]
    );
    assert!(lines[1].ends_with("tag of two"), "{}", lines[1]);
    assert!(lines[3].contains("ended  -          yes "), "{}", lines[3]);
    assert!(!said.stdout.contains('\u{1b}'));
}

#[test]
fn old_threads_are_removed_and_listed() {
    let home = Home::new("");
    keep(&home, "codex", "new", 29, "ended");
    keep(&home, "codex", "old", 31, "ended");
    keep(&home, "codex", "older", 90, "active");
    keep(&home, "arch", "other", 40, "interrupted");
    keep(&home, "arch", "strange", 99, "frozen");
    let claim = Claim::take(&home.atm_home(), &"codex".parse().unwrap(), None, |_| true).unwrap();
    let said = say(&home, &["threads", "--prune", "--dry-run"]);
    assert!(
        said.stdout.starts_with("Would remove 2 threads:"),
        "{}",
        said.stdout
    );
    assert_eq!(threads(&home, &["--prune"]), ["old", "other"]);
    assert_eq!(threads(&home, &[]), ["new", "older", "strange"]);
    assert!(directory(&home, "codex").join("new/summary.md").exists());
    assert!(!directory(&home, "codex").join("old").exists());
    drop(claim);
    let said = say(&home, &["threads", "--prune", "--older-than", "2months"]);
    assert!(
        said.stdout.starts_with("Removing 1 thread:\n\nTHREAD "),
        "{}",
        said.stdout
    );
    assert!(said.stdout.contains("older "), "{}", said.stdout);
    assert_eq!(threads(&home, &[]), ["new", "strange"]);
    let said = say(&home, &["threads", "--prune"]);
    assert_eq!(said.stdout, "There is nothing to remove.\n");
}

#[test]
fn unreadable_registry_is_reported_and_the_rest_listed() {
    let home = Home::new("");
    keep(&home, "codex", "one", 3, "ended");
    let broken = directory(&home, "broken");
    fs::create_dir(&broken).unwrap();
    fs::write(broken.join("registry.broken.json"), "{").unwrap();
    let said = say(&home, &["threads"]);
    assert_eq!(said.code, 1);
    assert!(
        said.stderr.contains("registry.broken.json: it is not"),
        "{}",
        said.stderr
    );
    assert!(said.stdout.contains("\none "), "{}", said.stdout);
}

#[test]
fn summary_is_printed_or_its_absence_explained() {
    let home = Home::new("");
    keep(&home, "codex", "one", 3, "ended");
    let said = say(&home, &["summary", "one"]);
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (0, "What one was about.\n")
    );
    fs::remove_file(directory(&home, "codex").join("one/summary.md")).unwrap();
    for (thread, code, words) in [
        ("one", 1, "codex-reply continues the thread itself"),
        ("on", 1, "thread one has no summary"),
        ("two", 1, "`codex-mcp threads` lists those that are"),
        ("../codex/one", 2, "is not a name"),
    ] {
        let said = say(&home, &["summary", thread]);
        assert_eq!((said.code, said.stdout.as_str()), (code, ""));
        assert!(said.stderr.contains(words), "{}", said.stderr);
    }
}

#[test]
fn summary_is_found_by_id_prefix() {
    let home = Home::new("");
    keep(&home, "codex", "0199a213-one", 3, "ended");
    keep(&home, "arch", "0199a213-two", 2, "ended");
    let said = say(&home, &["summary", "0199a213-t"]);
    assert_eq!(
        said.stdout, "What 0199a213-two was about.\n",
        "{}",
        said.stderr
    );
    let said = say(&home, &["summary", "0199a213"]);
    assert_eq!((said.code, said.stdout.as_str()), (1, ""));
    for words in [
        "several threads begin with 0199a213",
        "  0199a213-one  3d ago",
        "-two",
    ] {
        assert!(said.stderr.contains(words), "{}", said.stderr);
    }
}

#[test]
fn last_turn_and_prompt_of_a_thread_are_shown() {
    let home = Home::new("");
    keep(&home, "codex", "one", 3, "active");
    let identity = "codex".parse().unwrap();
    let mut registry = Registry::open(&home.atm_home(), &identity, Mode::Document).unwrap();
    let update = ThreadUpdate {
        turns: 1,
        prompt: Some("Fix the failing test".to_owned()),
        ..ThreadUpdate::default()
    };
    let thread_id: ThreadName = "one".parse().unwrap();
    let touched = Change::Touch {
        thread_id: thread_id.clone(),
        at: SystemTime::now(),
        update: Box::new(update),
    };
    registry.apply(&touched).unwrap();
    // No server holds the thread, so its turn is not running.
    let row = |home: &Home| {
        say(home, &["threads"])
            .stdout
            .lines()
            .nth(1)
            .unwrap()
            .to_owned()
    };
    assert!(
        row(&home).starts_with("one     ended  interrupted  no  "),
        "{}",
        row(&home)
    );
    let state = TurnState::Completed;
    registry
        .apply(&Change::TurnEnded { thread_id, state })
        .unwrap();
    assert!(
        row(&home).starts_with("one     ended  completed  no  "),
        "{}",
        row(&home)
    );
    assert!(
        row(&home).ends_with("tag of one: Fix the failing test"),
        "{}",
        row(&home)
    );
    let said = say(&home, &["threads", "--json"]);
    let all: Value = serde_json::from_str(&said.stdout).unwrap();
    let shown = &all["threads"][0];
    assert_eq!(shown["last_turn"], "completed");
    assert_eq!(shown["summary"], false);
    assert_eq!(shown["prompt"], "Fix the failing test");
}

#[test]
fn wrong_command_line_suggests_the_right_one() {
    let home = Home::new("");
    for (args, words) in [
        (&["threads", "--older-than", "1d"][..], "--prune"),
        (
            &["threads", "--prune", "--older-than", "x"],
            "such as 90s, 2m, 12h or 7d",
        ),
        (&["threads", "--status", "x"], "active, ended, interrupted"),
        (&["threads", "--identity", "a/b"], "is not a name"),
        (&["summary"], "THREAD_ID"),
        (&["completions", "cmd"], "bash"),
    ] {
        let said = say(&home, args);
        assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{args:?}");
        assert!(said.stderr.contains(words), "{}", said.stderr);
    }
}

#[test]
fn missing_home_directory_is_reported() {
    let home = Home::new("");
    let output = Command::new(env!("CARGO_BIN_EXE_codex-mcp"))
        .arg("threads")
        .env_clear()
        .current_dir(home.work())
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr.contains("neither ATM_HOME nor HOME is set"),
        "{stderr}"
    );
}

#[test]
fn completion_script_runs_the_program() {
    let home = Home::new("");
    let mut scripts = BTreeSet::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = say(&home, &["completions", shell]);
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{shell}");
        assert!(said.stdout.contains("_CODEX_MCP_COMPLETE"), "{shell}");
        scripts.insert(said.stdout);
    }
    assert_eq!(scripts.len(), 5);
}

#[test]
fn manual_lists_every_visible_verb() {
    let home = Home::new("");
    let said = say(&home, &["man"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    for verb in [
        "serve", "demo", "doctor", "config", "jobs", "threads", "summary", "man",
    ] {
        assert!(said.stdout.contains(verb), "{verb}");
    }
    assert!(!said.stdout.contains("guard"), "{}", said.stdout);
    let page = say(&home, &["man", "threads"]);
    assert!(
        page.stdout.contains(".TH codex-mcp-threads 1"),
        "{}",
        page.stdout
    );
    assert!(page.stdout.contains("older"), "{}", page.stdout);
    let page = say(&home, &["man", "jobs", "submit"]);
    let title = ".TH codex-mcp-jobs-submit 1";
    assert!(page.stdout.contains(title), "{}", page.stdout);
    assert!(page.stdout.contains("sandbox"), "{}", page.stdout);
    for verb in [&[][..], &["eyes"], &["jobs", "submit"]] {
        let page = say(&home, &[&["man"], verb].concat()).stdout;
        let title = [&["codex-mcp"], verb].concat().join("-");
        let version = env!("CARGO_PKG_VERSION");
        let line = format!(".TH {title} 1  \"codex-mcp {version}\" \n");
        assert!(page.contains(&line), "{line}: {page}");
    }
    for hidden in [&["guard"][..], &["x"], &["jobs", "x"], &["jobs", "help"]] {
        let said = say(&home, &[&["man"], hidden].concat());
        assert_eq!(said.code, 1);
        assert!(said.stderr.contains("there is no verb"), "{}", said.stderr);
    }
}

/// Writes more than a pipe holds, to a closed pipe.
#[test]
fn closed_stdout_is_no_failure() {
    let home = Home::new("");
    for number in 0..200 {
        keep(&home, "codex", &format!("thread-{number}"), 1, "ended");
    }
    for args in [
        &["threads", "--json"][..],
        &["completions", "zsh"],
        &["man"],
    ] {
        let mut child = home
            .command(env!("CARGO_BIN_EXE_codex-mcp"))
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), stderr.as_str()),
            (Some(0), ""),
            "{args:?}"
        );
    }
}
