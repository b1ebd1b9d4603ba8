//! The prompt of the next turn.

use std::fs;

use scripted_model::{Gate, Reply, Request, Script, Shell};
use testkit::Signal;
use testkit::process::signal;

use super::super::{CodexFixture, on_oldest_and_newest};
use super::{NUDGE, commit, wait_while_running};

on_oldest_and_newest!(
    hanging_turn_is_interrupted_and_the_next_one_continues,
    killed_codex_fails_its_turn_and_the_thread_continues,
    unapproved_command_is_denied_and_reported,
    command_forbidden_by_the_policy_is_reported_as_denied,
);

#[tokio::test]
async fn half_done_work_is_continued_with_the_missing_criteria() {
    let script = Script::new()
        .on(
            "not complete",
            [Reply::shell("echo b > b.txt"), Reply::say("Both.")],
        )
        .otherwise([Reply::shell("echo a > a.txt"), Reply::say("All done!")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let until = ["--until", "files=a.txt", "--until", "files=b.txt"];
    let ran = stage.run(&[&["x"][..], &until].concat()).await;
    ran.assert_done(&["initial", "continuation"]);
    // The instruction for Codex is not printed for the person.
    assert!(!ran.stderr.contains("create it"), "{}", ran.stderr);
    let prompt = &stage.prompts()[1];
    assert!(
        prompt.contains("b.txt does not exist: create it"),
        "{prompt}"
    );
    assert!(
        prompt.contains("b.txt") && !prompt.contains("a.txt"),
        "{prompt}"
    );
}

/// The first three turns only read, and the third is interrupted.
#[tokio::test]
async fn reading_for_several_turns_is_no_stall() {
    let gate = Gate::new();
    let turns = |count| move |request: &Request| request.assistant_messages().len() == count;
    let read = |file: &str, said: &str| [Reply::shell(format!("cat {file}")), Reply::say(said)];
    let script = Script::new()
        .on(
            "took too long",
            [Reply::shell("echo a > a.txt"), Reply::say("Done.")],
        )
        .when(turns(0), read("README.md", "Read one."))
        .when(turns(1), read("README.md", "Read another one."))
        .otherwise([Reply::shell("ls"), Reply::say("never").behind(&gate)]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let ran = stage
        .run(&["x", "--until", "files=a.txt", "--turn-timeout", "20s"])
        .await;
    assert_eq!(ran.result["ok"], true, "{:#}", ran.result);
    let ends: Vec<&str> = ran.turns().iter().map(|(_, end)| *end).collect();
    assert_eq!(&ends[..3], ["completed", "completed", "timed_out"]);
}

/// Whatever Codex claims, the run inspects the repository alone.
#[tokio::test]
async fn work_outside_the_repository_is_no_progress() {
    let script = Script::new().otherwise([
        Reply::shell("echo made > \"$TMPDIR/made.txt\" && ls \"$TMPDIR\""),
        Reply::say("made.txt is in the repository, committed and pushed."),
    ]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let ran = stage.run(&["x", "--until", "files=made.txt"]).await;
    ran.assert_not_done("stalled");
    // The first answer is new.
    assert_eq!(ran.result["turns"], 4);
    assert_eq!(ran.artifact_kinds(), [""; 0]);
    let missing = ran.result["missing"][0].as_str().unwrap();
    assert!(missing.contains("made.txt"), "{missing}");
}

#[tokio::test]
async fn turns_with_only_messages_count_towards_the_limit() {
    let script = Script::new().otherwise([Reply::say("I will.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let ran = stage
        .run(&["x", "--until", "commits=1", "--max-turns", "2"])
        .await;
    ran.assert_not_done("max_turns_exceeded");
    let prompts: Vec<&str> = ran.turns().iter().map(|(prompt, _)| *prompt).collect();
    assert_eq!(prompts, ["initial", "nudge"]);
    let ran = stage
        .run(&["x", "--until", "commits=1", "--stall-after", "1"])
        .await;
    ran.assert_not_done("stalled");
    assert_eq!(ran.result["turns"], 1);
    assert_eq!(ran.artifact_kinds(), [""; 0]);
}

#[tokio::test]
async fn run_without_criteria_needs_work_and_an_answer() {
    let script = Script::new()
        .on(NUDGE, [Reply::shell("true"), Reply::say("Looked at it.")])
        .otherwise([Reply::say("I will.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let ran = stage.run(&["x"]).await;
    ran.assert_done(&["initial", "nudge"]);
}

/// One run has a failing command, the other a refused command before a successful one.
#[tokio::test]
async fn failed_steps_do_not_finish_a_run_without_criteria() {
    let refused = [
        Reply::shell("touch refused.txt"),
        Reply::shell("ls"),
        Reply::say("I can't write here."),
    ];
    let failed = [Reply::shell("false"), Reply::say("Done.")];
    let script = Script::new().on("fail", failed).otherwise(refused);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    for (task, missing) in [
        ("fail", "no step has succeeded"),
        ("write", "a step was refused, and nothing has changed"),
    ] {
        let args = ["--json", task, "--sandbox", "read-only", "--max-turns", "1"];
        let ran = stage
            .finish_run(stage.run_command(&args).spawn().unwrap())
            .await;
        ran.assert_not_done("max_turns_exceeded");
        let told = ran.result["missing"][0].as_str().unwrap();
        assert!(told.starts_with(missing), "{told}");
    }
}

#[tokio::test]
async fn run_without_criteria_is_done_and_not_verified() {
    let script = Script::new().otherwise([Reply::shell("ls"), Reply::say("Looked at it.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let ran = stage.run(&["x"]).await;
    ran.assert_done(&["initial"]);
    assert_eq!(ran.result["verified"], false);
    let output = stage.run_command(&["x"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(0));
    let shown = String::from_utf8(output.stdout).unwrap();
    let first = shown.lines().next().unwrap();
    assert_eq!(first, "done, not verified: no --until was given (1 turn)");
}

async fn hanging_turn_is_interrupted_and_the_next_one_continues(release: &str) {
    let gate = Gate::new();
    let script = Script::new()
        .on("ran into errors", [commit("a.txt"), Reply::say("Done.")])
        .otherwise([Reply::say("never").behind(&gate)]);
    let stage = CodexFixture::new(release, script).await;
    let ran = stage
        .run(&["x", "--until", "commits=1", "--turn-timeout", "20s"])
        .await;
    // On a slow machine the second turn may time out too.
    assert_eq!(ran.result["ok"], true, "{:#}", ran.result);
    assert_eq!(ran.turns()[0], ("initial", "timed_out"));
    assert!(
        ran.turns()[1..]
            .iter()
            .all(|(prompt, _)| *prompt == "recovery")
    );
}

async fn killed_codex_fails_its_turn_and_the_thread_continues(release: &str) {
    let gate = Gate::new();
    let script = Script::new()
        .on("ran into errors", [commit("b.txt"), Reply::say("Done.")])
        .otherwise([
            Reply::shell("echo a > a.txt"),
            Reply::say("never").behind(&gate),
        ]);
    let stage = CodexFixture::new(release, script).await;
    let args = [
        "--json",
        "--sandbox",
        stage.sandbox_for_commits(),
        "the number is 7",
        "--until",
        "commits=1",
    ];
    let mut child = stage.run_command(&args).spawn().unwrap();
    wait_while_running(&mut child, "the gate", || gate.arrivals() > 0).await;
    let is_codex = |process: &&testkit::process::Process| {
        process.command.ends_with("app-server") && !process.command.contains(" guard ")
    };
    let processes = stage.home.processes();
    let codex = processes.iter().find(is_codex).unwrap();
    signal(codex.pid, Signal::SIGKILL);
    let ran = stage.finish_run(child).await;
    ran.assert_done(&["initial", "recovery"]);
    assert_eq!(ran.turns()[0].1, "died");
    let last = stage.model.requests().pop().unwrap();
    let before = last.user_messages();
    assert!(
        before.iter().any(|text| text.contains("the number is 7")),
        "{before:?}"
    );
}

/// Codex itself declines, and asks nobody.
async fn command_forbidden_by_the_policy_is_reported_as_denied(release: &str) {
    let touch = || Reply::shell(Shell::escalated("touch a.txt", "it has to be there"));
    let script = Script::new()
        .on(
            "not allowed",
            [Reply::shell("echo a > a.txt"), Reply::say("Done.")],
        )
        .otherwise([touch(), Reply::say("I will do it when I may.")]);
    let stage = CodexFixture::new(release, script).await;
    let file = stage.home.codex_home().join("config.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("approval_policy = \"never\"\n{text}")).unwrap();
    let ran = stage.run(&["x", "--until", "files=a.txt"]).await;
    ran.assert_done(&["initial", "recovery"]);
    let first = &ran.result["evidence"]["log"][0];
    let denied = first["denied"][0].as_str().unwrap();
    assert!(denied.contains("approval policy is Never"), "{first:#}");
}

async fn unapproved_command_is_denied_and_reported(release: &str) {
    let touch = || Reply::shell(Shell::escalated("touch a.txt", "it has to be there"));
    let script = Script::new()
        .on(
            "not allowed",
            [Reply::shell("echo a > a.txt"), Reply::say("Done.")],
        )
        .otherwise([touch(), Reply::say("I may not.")]);
    let stage = CodexFixture::new(release, script).await;
    let ran = stage.run(&["x", "--until", "files=a.txt"]).await;
    ran.assert_done(&["initial", "recovery"]);
    let first = &ran.result["evidence"]["log"][0];
    let denied = first["denied"][0].as_str().unwrap();
    assert!(denied.contains("touch a.txt"), "{first:#}");
    assert!(ran.stderr.contains("denied   "), "{}", ran.stderr);
    let advice = "declined, as there is no terminal to ask you; --approve always allows";
    assert_eq!(ran.stderr.matches(advice).count(), 1, "{}", ran.stderr);
    fs::remove_file(stage.file("a.txt")).unwrap();
    let args = ["x", "--until", "files=a.txt", "--approve", "always"];
    stage.run(&args).await.assert_done(&["initial"]);
}
