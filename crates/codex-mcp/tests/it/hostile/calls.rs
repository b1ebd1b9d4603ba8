//! The turns of jobs with a misbehaving Codex.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use codex_engine::Engine;
use codex_engine::logic::work::{Evidence, FailureClass};
use codex_protocol::codex::ThreadId;
use job_queue::call::{CallOutcome, CallRequest, CallUpdate, run};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use testkit::Home;
use testkit::fake::{Action, FakeCodex, Plan, Question, TurnEnd, fake_codex_path};
use tokio_util::sync::CancellationToken;

use crate::jobs::{play_codex, wait_for, wait_for_file};
use crate::runs::{assert_failed, assert_said, engine_of, outcome_of, outcome_with, request};

/// A home, and an engine whose Codex runs this script in each turn.
fn played_by(script: &str) -> (Home, Engine) {
    let home = Home::new("");
    let codex = home.root().join("codex.sh");
    play_codex(&home, &codex, script);
    let engine = engine_of(&home, codex);
    (home, engine)
}

/// A home, and an engine whose Codex follows this plan.
pub(super) fn planned(plan: &Plan) -> (Home, Engine, FakeCodex) {
    let home = Home::new("");
    let fake = FakeCodex::new(&home, plan);
    let [plan, log] = fake.env();
    let variables = [plan, log].map(|(name, path): (&str, PathBuf)| (name.into(), path.into()));
    let mut env = home.env();
    env.extend(variables);
    let engine = engine_of(&home, fake_codex_path()).with_env(env);
    (home, engine, fake)
}

/// A plan with actions in place of a turn.
fn on_prompt(actions: impl Into<Vec<Action>>) -> Plan {
    Plan::new().on("turn/start", actions)
}

#[tokio::test]
async fn codex_exit_during_the_turn_has_its_own_failure() {
    for (action, class, words) in [
        (Action::Exit { code: 0 }, FailureClass::Exit, "code 0"),
        (Action::Exit { code: 7 }, FailureClass::Exit, "code 7"),
        (Action::Kill { signal: 9 }, FailureClass::Signal, "signal 9"),
    ] {
        let plan = on_prompt([Action::Answer, Action::StartTurn, action]);
        let (home, engine, _fake) = planned(&plan);
        let outcome = outcome_of(&home, &engine, &request(&home, "hi")).await;
        let message = assert_failed(&outcome, class);
        assert!(message.contains(words), "{message}");
        assert!(outcome.lost_codex);
        assert!(outcome.digest.session.is_some());
        engine.shut_down().await;
    }
}

#[tokio::test]
async fn turn_without_an_answer_is_a_failure() {
    let plan = on_prompt([
        Action::Answer,
        Action::StartTurn,
        Action::EndTurn(TurnEnd::Completed),
    ]);
    let (home, engine, _fake) = planned(&plan);
    let outcome = outcome_of(&home, &engine, &request(&home, "hi")).await;
    assert_failed(&outcome, FailureClass::EmptyOutput);
    assert!(!outcome.lost_codex);
    engine.shut_down().await;
}

#[tokio::test]
async fn program_that_cannot_run_is_reported() {
    let (home, engine) = played_by(":");
    fs::remove_file(home.root().join("codex.sh")).unwrap();
    let outcome = outcome_of(&home, &engine, &request(&home, "hi")).await;
    let message = assert_failed(&outcome, FailureClass::NotStarted);
    assert!(message.contains("codex.sh"), "{message}");
}

/// Codex ignores the interrupt, so its process is ended.
#[tokio::test]
async fn codex_that_never_ends_a_turn_is_ended() {
    let plan =
        on_prompt([Action::Answer, Action::StartTurn]).on("turn/interrupt", [Action::Answer]);
    let (home, engine, fake) = planned(&plan);
    let request = request(&home, "hi");
    let cancel = CancellationToken::new();
    let running = outcome_with(&home, &engine, &request, |_| (), cancel.clone());
    let cancelling = async {
        fake.wait_for_method("turn/start").await;
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(running, cancelling);
    assert_failed(&outcome, FailureClass::Cancelled);
    assert_eq!(fake.started().len(), 1);
    fake.set_plan(&Plan::new());
    let outcome = outcome_of(&home, &engine, &request).await;
    assert_said(&outcome, testkit::fake::HELLO);
    assert_eq!(fake.started().len(), 2);
    engine.shut_down().await;
    assert_eq!(home.processes(), []);
}

#[tokio::test]
async fn silent_start_times_out() {
    for method in ["initialize", "thread/start", "turn/start"] {
        let (home, engine, _fake) = planned(&Plan::new().on(method, [Action::Hang]));
        let mut request = request(&home, "hi");
        request.timeout = Duration::from_millis(300);
        let outcome = outcome_of(&home, &engine, &request).await;
        assert_failed(&outcome, FailureClass::Timeout);
        engine.shut_down().await;
        assert_eq!(home.processes(), []);
    }
}

/// The job has nobody to ask.
#[tokio::test]
async fn questions_are_declined() {
    let question = Question::approval("rm -rf /");
    let asking = Action::Ask {
        method: question.method,
        params: question.params,
    };
    let plan = on_prompt([
        Action::Answer,
        Action::StartTurn,
        asking,
        Action::say("ok"),
        Action::EndTurn(TurnEnd::Completed),
    ]);
    let (home, engine, fake) = planned(&plan);
    let outcome = outcome_of(&home, &engine, &request(&home, "hi")).await;
    assert_said(&outcome, "ok");
    let received = fake.received();
    let answered = |message: &&serde_json::Value| message["result"]["decision"] == "decline";
    assert_eq!(received.iter().filter(answered).count(), 1, "{received:#?}");
    let begun = received
        .iter()
        .find(|message| message["method"] == "thread/start");
    assert_eq!(begun.unwrap()["params"]["approvalPolicy"], "never");
    engine.shut_down().await;
}

#[tokio::test]
#[cfg_attr(
    portable,
    ignore = "without a subreaper, a process that has lost its parent stays"
)]
async fn events_are_reported_as_they_arrive() {
    let (home, engine) = played_by("sleep 1000");
    let cancel = CancellationToken::new();
    let mut told = Vec::new();
    let note = |news: CallUpdate<'_>| match news {
        CallUpdate::Event(_, line) => {
            told.push(line.to_owned());
            if line.contains("turn.started") {
                cancel.cancel();
            }
        }
        CallUpdate::Session(_)
        | CallUpdate::Questions(_)
        | CallUpdate::Followed(_)
        | CallUpdate::Record(_) => {}
        CallUpdate::Lost(number) => panic!("{number} events are lost"),
    };
    let outcome = outcome_with(&home, &engine, &request(&home, "hi"), note, cancel.clone()).await;
    assert_failed(&outcome, FailureClass::Cancelled);
    assert_eq!(told.len(), 2, "{told:?}");
    engine.shut_down().await;
}

/// The prompt is sent after git's inspection, so that no change is missed.
#[tokio::test]
async fn work_of_codex_on_its_prompt_is_seen() {
    let (home, engine) = played_by(r#"printf %s "$1" > prompt.txt"#);
    let outcome = outcome_of(&home, &engine, &request(&home, "hi")).await;
    assert_said(&outcome, "ok");
    assert_eq!(changed(&outcome), ["prompt.txt"]);
    let written = fs::read_to_string(home.work().join("prompt.txt")).unwrap();
    assert_eq!(written, "hi");
    assert_eq!(outcome.digest.evidence, Evidence::default());
    engine.shut_down().await;
}

/// The next job to resume it would get its sandbox, so it must not come to this Codex.
#[tokio::test]
async fn thread_that_stays_loaded_is_reported() {
    let error = Action::Error {
        code: -32603,
        message: "busy".to_owned(),
    };
    let not_unloaded = Plan::new().on("thread/archive", [error]);
    for (plan, leaves_threads) in [(Plan::new(), false), (not_unloaded, true)] {
        let (home, engine, _fake) = planned(&plan);
        let outcome = outcome_of(&home, &engine, &request(&home, "hi")).await;
        assert_said(&outcome, testkit::fake::HELLO);
        assert_eq!(outcome.leaves_threads, leaves_threads);
        engine.shut_down().await;
    }
}

/// The second of two jobs that resume a thread at once does not get the session, and with it
/// the sandbox, of the first, for which git still looks.
#[tokio::test]
async fn jobs_resuming_one_thread_do_not_share_its_session() {
    let plan = Plan::new()
        .on("thread/resume", [Action::gate("one"), Action::Proceed])
        .nth(1)
        .on("thread/resume", [Action::gate("two"), Action::Proceed])
        .nth(2);
    let (home, engine, fake) = planned(&plan);
    // Git reads it when it compares the file beside it, which has the same length.
    let below = home.work().join("below");
    fs::create_dir(&below).unwrap();
    fs::write(below.join("file"), "x").unwrap();
    home.git(&["add", "below/file"]);
    fs::write(below.join("file"), "y").unwrap();
    let pipe = below.join(".gitattributes");
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();

    let mut first = request(&home, "hi");
    let thread = "01a20893-2524-7010-b19d-7cb3af946392";
    first.resume = Some(ThreadId::parse(thread).unwrap());
    let mut second = first.clone();
    second.cwd = home.home();
    let never = CancellationToken::new();
    let resumes = || {
        let received = fake.received().into_iter();
        let resumes = received.filter(|one| one["method"] == "thread/resume");
        resumes.count()
    };
    let second = async {
        wait_for("the first request", async || (resumes() == 1).then_some(())).await;
        let ordering = async {
            wait_for("both requests", async || (resumes() == 2).then_some(())).await;
            fake.open_gate("one");
            let is_there = async || (engine.threads().len() == 1).then_some(());
            wait_for("the session", is_there).await;
            fake.open_gate("two");
        };
        let running = run(&engine, &second, |_| (), never.clone());
        let (outcome, ()) = tokio::join!(running, ordering);
        let prompts = fake.received().into_iter();
        let prompts = prompts.filter(|one| one["method"] == "turn/start").count();
        // A reader that waits for the pipe is woken, and finds no file the next time.
        let writer = fs::File::options()
            .read(true)
            .write(true)
            .open(&pipe)
            .unwrap();
        fs::remove_file(&pipe).unwrap();
        drop(writer);
        assert_failed(&outcome, FailureClass::SessionBusy);
        assert_eq!(prompts, 0);
    };
    let (first, ()) = tokio::join!(run(&engine, &first, |_| (), never.clone()), second);
    assert_said(&first, testkit::fake::HELLO);
    engine.shut_down().await;
}

/// A home, an engine whose Codex runs this script in each turn and unloads the thread when a
/// gate is opened, and a request for it with the file in which git notes what it is asked.
fn unloading_late(script: &str) -> (Home, Engine, FakeCodex, CallRequest, PathBuf) {
    let run = Action::Run {
        script: script.to_owned(),
    };
    let plan = on_prompt([Action::Answer, run])
        .on("thread/archive", [Action::gate("unload"), Action::Proceed]);
    let (home, engine, fake) = planned(&plan);
    let trace = home.root().join("trace");
    let mut request = request(&home, "hi");
    request.env.push(("GIT_TRACE".into(), trace.clone().into()));
    (home, engine, fake, request, trace)
}

/// The number of git inspections.
fn looks(trace: &Path) -> usize {
    let asked = fs::read_to_string(trace).unwrap_or_default();
    asked.matches("built-in: git status").count()
}

#[tokio::test]
#[cfg_attr(portable, ignore = "without /proc, nobody knows whether processes run")]
async fn git_inspection_overlaps_unloading_the_thread() {
    let (_home, engine, fake, request, trace) = unloading_late("echo x > made.txt");
    let opening = async {
        fake.wait_for_method("thread/archive").await;
        wait_for("a look", async || (looks(&trace) == 2).then_some(())).await;
        assert!(!has_received(&fake, "thread/unarchive"));
        fake.open_gate("unload");
    };
    let running = async {
        let outcome = run(&engine, &request, |_| (), CancellationToken::new()).await;
        // By now another process can have the thread.
        assert!(has_received(&fake, "thread/unarchive"));
        outcome
    };
    let (outcome, ()) = tokio::join!(running, opening);
    assert_said(&outcome, "ok");
    assert_eq!(changed(&outcome), ["made.txt"]);
    assert!(!outcome.leaves_threads);
    engine.shut_down().await;
}

/// Codex ends the process of a command with the thread. Until then it may change files, and
/// nothing but Codex knows that it is the thread's.
#[tokio::test]
async fn git_inspection_waits_for_unmarked_processes() {
    let script = "(unset CODEX_MCP_TURN; exec setsid sh -c 'while [ ! -e \"$HOME/go\" ]; do \
        sleep 0.01; done; echo x > late.txt; mv late.txt written.txt') > /dev/null 2>&1 &";
    let (home, engine, fake, request, trace) = unloading_late(script);
    let changing = async {
        fake.wait_for_method("thread/archive").await;
        fs::write(home.home().join("go"), "").unwrap();
        wait_for_file(&home.work().join("written.txt")).await;
        assert_eq!(looks(&trace), 1);
        fake.open_gate("unload");
    };
    let running = run(&engine, &request, |_| (), CancellationToken::new());
    let (outcome, ()) = tokio::join!(running, changing);
    assert_said(&outcome, "ok");
    assert_eq!(changed(&outcome), ["written.txt"]);
    engine.shut_down().await;
}

/// Only the user's own ignore rules count.
#[tokio::test]
async fn git_setting_made_in_a_turn_hides_no_change() {
    let (home, engine) = played_by(
        r#"echo x > made.txt; echo made.txt > .git/hidden
        printf '[core]\n\texcludesFile = %s\n' "$PWD/.git/hidden" >> .git/config"#,
    );
    let outcome = outcome_of(&home, &engine, &request(&home, "hi")).await;
    assert_said(&outcome, "ok");
    assert_eq!(changed(&outcome), ["made.txt"]);
    // The control: the next job starts with the new settings.
    assert_eq!(home.git(&["status", "--porcelain"]), "");
    engine.shut_down().await;
}

fn has_received(fake: &FakeCodex, method: &str) -> bool {
    fake.received().iter().any(|one| one["method"] == method)
}

/// The paths of the files that were changed.
fn changed(outcome: &CallOutcome) -> Vec<&str> {
    let files = outcome.changes.files.iter();
    files.map(|file| file.path.as_str()).collect()
}

/// The process ignores signals, and has a session of its own.
#[tokio::test]
#[cfg_attr(
    portable,
    ignore = "without a subreaper, a process that has lost its parent stays"
)]
async fn leftover_processes_of_a_script_are_ended() {
    let (home, engine) = played_by("(trap '' TERM HUP; setsid sleep 1000) & setsid sleep 1000 &");
    let outcome = outcome_of(&home, &engine, &request(&home, "hi")).await;
    assert_said(&outcome, "ok");
    engine.shut_down().await;
}

#[tokio::test]
async fn programs_named_by_the_repository_are_not_run() {
    let (home, engine) = played_by("echo more >> README.md; echo x > a");
    let request = request(&home, "work");
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
    let outcome = outcome_of(&home, &engine, &request).await;
    assert_said(&outcome, "ok");
    assert_eq!(outcome.changes.incomplete, None);
    let files = outcome.changes.files.iter();
    let paths: Vec<&str> = files.map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["README.md", "a"]);
    assert!(!home.root().join("trapped").exists());
    home.git(&["status"]);
    assert!(home.root().join("trapped").exists(), "git itself runs them");
}

#[tokio::test]
async fn broken_repository_is_reported_and_does_not_stop_the_call() {
    let (home, engine) = played_by(":");
    let request = request(&home, "work");
    fs::write(home.work().join(".git/config"), "[broken").unwrap();
    let outcome = outcome_of(&home, &engine, &request).await;
    assert_said(&outcome, "ok");
    assert!(outcome.changes.incomplete.unwrap().contains("config"));
}
