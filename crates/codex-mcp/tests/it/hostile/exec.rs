//! `codex exec` played by scripts that misbehave.

use std::cell::Cell;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use codex_mcp::jobs::exec::{GARBAGE_LIMIT, News, Outcome, Request, STDERR_LIMIT};
use codex_mcp_core::exec::{Evidence, FailureClass};
use codex_mcp_protocol::codex::ThreadId;
use testkit::Home;
use tokio_util::sync::CancellationToken;

use crate::runs::{assert_failed, assert_said, outcome_of, outcome_with, request_to};

const STARTED: &str = r#"echo '{"type":"thread.started","thread_id":"01a200a4-327e-7ce2-b260-3fbdb333d5f2"}'
echo '{"type":"turn.started"}'
"#;

const DONE: &str = r#"echo '{"type":"item.completed","item":{"type":"agent_message","text":"ok"}}'
echo '{"type":"turn.completed","usage":{}}'
"#;

/// A home in which Codex is this script. Its prompt is on its stdin.
fn played_by(script: &str) -> (Home, Request) {
    let home = Home::new("");
    let codex = home.root().join("codex.sh");
    fs::write(&codex, format!("#!/bin/bash\n{script}")).unwrap();
    fs::set_permissions(&codex, Permissions::from_mode(0o755)).unwrap();
    let request = request_to(&home, codex, "0.169.0", "hi");
    (home, request)
}

async fn ran(script: &str) -> Outcome {
    let (home, request) = played_by(script);
    outcome_of(&home, &request).await
}

#[tokio::test]
async fn garbage_half_lines_and_giant_lines_do_no_harm() {
    let giant = "head -c 17000000 /dev/zero | tr '\\0' x; echo\n";
    let garbage = "printf '\\xff\\xfe{garbage\\x00\\n\\n{\"type\":7}\\n[1]\\nplain words\\n'\n";
    let half = "printf '{\"type\":\"turn.comp'; sleep 0.1; printf 'leted\"}\\r\\n{\"type\":\"half'";
    let script = format!("cat >/dev/null\n{garbage}{STARTED}{giant}{garbage}{DONE}{half}");
    let outcome = ran(&script).await;
    assert_said(&outcome, "ok");
    assert_eq!(outcome.garbage.lines, 10, "{:#?}", outcome.garbage);
    let kept = outcome.garbage.kept.concat();
    assert!(kept.contains("[a line of 17000000 bytes]"), "{kept}");
}

#[tokio::test]
async fn floods_on_both_streams_are_taken_in_and_bounded() {
    let flood = "for i in $(seq 20); do seq -f 'a line of noise with the number %.0f' 5000 >&2 & \
        seq -f 'stdout %.0f' 5000; done; wait\n";
    let outcome = ran(&format!("cat >/dev/null\n{STARTED}{flood}{DONE}")).await;
    assert_said(&outcome, "ok");
    assert_eq!(outcome.garbage.lines, 100_000);
    assert!(outcome.garbage.kept.concat().len() < GARBAGE_LIMIT + 100);
    assert!(outcome.stderr.len() < STDERR_LIMIT + 100);
}

#[tokio::test]
async fn an_end_without_an_answer_is_a_failure() {
    for (script, class, words) in [
        ("exit 0", FailureClass::EmptyOutput, "without a word"),
        ("echo odd >&2", FailureClass::EmptyOutput, "odd"),
        ("exit 7", FailureClass::Exit, "code 7"),
        (
            "echo odd >&2; exit 7",
            FailureClass::Exit,
            "code 7; it said: odd",
        ),
        ("kill -9 $$", FailureClass::Signal, "signal 9"),
        ("kill -SEGV $$", FailureClass::Signal, "signal 11"),
        (
            "echo 'Error: 401 Unauthorized' >&2; exit 1",
            FailureClass::Auth,
            "401",
        ),
        (
            "echo 'no quota left' >&2; exit 1",
            FailureClass::RateLimit,
            "quota",
        ),
        ("exit 127", FailureClass::Exit, "127"),
    ] {
        let message = assert_failed(&ran(script).await, class);
        assert!(message.contains(words), "{script}: {message}");
    }
    let cut_short = format!("cat >/dev/null\n{STARTED}exit 0");
    let outcome = ran(&cut_short).await;
    assert_failed(&outcome, FailureClass::EmptyOutput);
    assert!(outcome.digest.session.is_some());
}

#[tokio::test]
async fn a_program_that_can_not_be_run_is_told() {
    let (home, request) = played_by("");
    fs::remove_file(&request.codex.native).unwrap();
    let outcome = outcome_of(&home, &request).await;
    let message = assert_failed(&outcome, FailureClass::NotStarted);
    assert!(message.contains("codex.sh"), "{message}");
}

/// The prompt isn't read here, and is longer than a pipe holds.
#[tokio::test]
async fn silence_ends_with_the_time() {
    let (home, mut request) =
        played_by("trap '' TERM\nsleep 1000 &\nwhile true; do sleep 1000; done");
    request.prompt = "x".repeat(1_000_000);
    request.timeout = Duration::from_millis(300);
    let outcome = outcome_of(&home, &request).await;
    let message = assert_failed(&outcome, FailureClass::Timeout);
    assert_eq!(message, "agent timed out after 300ms");
}

#[tokio::test]
async fn a_prompt_to_log_in_is_not_waited_for() {
    let stdout = "echo 'Follow these steps to sign in using device code authorization:'\n";
    let stderr = "echo '2. Enter this one-time code (expires in 15 minutes)' >&2\n";
    for prompt in [stdout, stderr] {
        let outcome = ran(&format!("{STARTED}{prompt}sleep 1000")).await;
        assert_failed(&outcome, FailureClass::Auth);
        assert!(outcome.failure.unwrap().hint().contains("codex login"));
    }
}

#[tokio::test]
async fn another_session_than_the_one_asked_for_is_not_gone_on_with() {
    let (home, mut request) = played_by(&format!("{STARTED}sleep 1000"));
    let wanted = "01a200a4-327e-7ce2-b260-3fbdb333d5ff";
    request.resume = Some(ThreadId::parse(wanted).unwrap());
    let outcome = outcome_of(&home, &request).await;
    let message = assert_failed(&outcome, FailureClass::UnknownSession);
    assert!(message.contains(wanted), "{message}");
    assert_eq!(outcome.digest.session, None);
}

#[tokio::test]
async fn events_are_told_as_they_come() {
    let (home, request) = played_by(&format!("cat >/dev/null\n{STARTED}sleep 1000"));
    let cancel = CancellationToken::new();
    let told = Cell::new(0);
    let note = |news: News<'_>| {
        told.set(told.get() + 1);
        if let News::Event(event, line) = news {
            assert!(line.contains("started"), "{event:?}");
            if line.contains("turn.started") {
                cancel.cancel();
            }
        }
    };
    let outcome = outcome_with(&home, &request, note, cancel.clone()).await;
    assert_failed(&outcome, FailureClass::Cancelled);
    assert_eq!(told.get(), 4);
}

/// The prompt comes when git has looked, so that nothing is done unseen.
#[tokio::test]
async fn what_codex_does_with_its_prompt_is_seen() {
    let script = format!("cat > prompt.txt\n{STARTED}{DONE}");
    let (home, request) = played_by(&script);
    let outcome = outcome_of(&home, &request).await;
    assert_said(&outcome, "ok");
    let files = outcome.changes.files.iter();
    let paths: Vec<&str> = files.map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["prompt.txt"]);
    assert_eq!(
        fs::read_to_string(home.work().join("prompt.txt")).unwrap(),
        "hi"
    );
    assert_eq!(outcome.digest.evidence, Evidence::default());
}

#[tokio::test]
async fn programs_that_a_repository_names_are_not_run() {
    let script = format!("cat >/dev/null; echo more >> README.md; echo x > a\n{STARTED}{DONE}");
    let (home, request) = played_by(&script);
    let trap = format!("touch {}; cat", home.root().join("trapped").display());
    let git = |key: &str| home.git(&["config", key, &trap]);
    for key in [
        "core.fsmonitor",
        "core.sshCommand",
        "diff.evil.command",
        "diff.evil.textconv",
        "diff.external",
    ] {
        git(key);
    }
    home.git(&["config", "core.hooksPath", "hooks"]);
    let hooks = home.work().join("hooks");
    fs::create_dir(&hooks).unwrap();
    fs::write(
        hooks.join("post-index-change"),
        format!("#!/bin/sh\n{trap}"),
    )
    .unwrap();
    for name in ["evil", "e=v.i l"] {
        for kind in ["clean", "smudge", "process"] {
            git(&format!("filter.{name}.{kind}"));
        }
        home.git(&["config", &format!("filter.{name}.required"), "true"]);
    }
    let attributes = home.work().join(".gitattributes");
    fs::write(attributes, "* filter=evil diff=evil\n").unwrap();
    // Another length than in the index: git has to look into the file.
    fs::write(home.work().join("README.md"), "dirty\n").unwrap();
    let outcome = outcome_of(&home, &request).await;
    assert_said(&outcome, "ok");
    assert_eq!(outcome.changes.incomplete, None);
    let files = outcome.changes.files.iter();
    let paths: Vec<&str> = files.map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["README.md", "a"]);
    assert!(!home.root().join("trapped").exists());
}

#[tokio::test]
async fn a_broken_repository_is_told_and_no_obstacle() {
    let (home, request) = played_by(&format!("cat >/dev/null\n{STARTED}{DONE}"));
    fs::write(home.work().join(".git/config"), "[broken").unwrap();
    let outcome = outcome_of(&home, &request).await;
    assert_said(&outcome, "ok");
    assert!(outcome.changes.incomplete.unwrap().contains("config"));
}

/// What is left of the process group keeps the streams open.
#[tokio::test]
async fn what_holds_the_streams_open_is_ended_too() {
    let left = "setsid sleep 1000 &\n(trap '' TERM; setsid sleep 1000) &\n";
    let outcome = ran(&format!("cat >/dev/null\n{STARTED}{left}{DONE}")).await;
    assert_said(&outcome, "ok");
}
