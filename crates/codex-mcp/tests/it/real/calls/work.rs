//! Commands, changed files, and resumed sessions.

use std::fs;

use codex_engine::logic::work::{ChangeSource, FailureClass};
use codex_protocol::codex::{SandboxMode, ThreadId};
use git_probe::logic::git_state::ChangeKind::{self, Added, Deleted, Modified};
use job_queue::call::CallUpdate;
use scripted_model::{Patch, Reply, Script};
use tokio_util::sync::CancellationToken;

use super::CodexFixture;
use crate::real::on_oldest_and_newest;
use crate::runs::{assert_failed, assert_said};

on_oldest_and_newest!(
    session_is_resumed_with_its_context,
    unknown_session_is_an_error,
    changes_of_the_job_are_told_from_earlier_ones,
    commands_and_file_changes_are_recorded,
    work_outside_of_git_is_recorded,
);

const OLD_ID: &str = "01a200a4-327e-7ce2-b260-3fbdb333d5ff";

async fn commands_and_file_changes_are_recorded(release: &str) {
    // Codex 0.153.4 may miss output that a command writes at once.
    let script = Script::new().otherwise([
        Reply::shell("sleep 1; echo said; echo more >> README.md; echo new > 'a file'; exit 3"),
        Reply::patch(Patch::new().add("patched.txt", "hello\n")),
        Reply::say("Done."),
    ]);
    let stage = CodexFixture::new(release, script).await;
    let mut request = stage.request("work");
    request.sandbox = Some(SandboxMode::WorkspaceWrite);
    request.keep_stream = true;
    let mut sessions: Vec<ThreadId> = Vec::new();
    let mut events = 0;
    let note = |news: CallUpdate<'_>| match news {
        CallUpdate::Session(id) => sessions.push(id.clone()),
        CallUpdate::Event(..) => events += 1,
        CallUpdate::Questions(_) | CallUpdate::Followed(_) => panic!("nothing is asked"),
        CallUpdate::Record(_) => {}
        CallUpdate::Lost(number) => panic!("{number} events are lost"),
    };
    let outcome = stage
        .run_turn_with(&request, note, CancellationToken::new())
        .await;
    assert_said(&outcome, "Done.");
    assert_eq!(outcome.digest.session.as_ref(), sessions.first());
    assert_eq!(sessions.len(), 1);
    assert_eq!(outcome.stream.lines.len(), events);

    let command = &outcome.digest.commands[0];
    assert!(command.command.contains("echo said"), "{command:?}");
    assert_eq!(
        (command.exit_code, command.output.trim()),
        (Some(3), "said")
    );
    assert_eq!(outcome.digest.evidence.commands, 1);
    assert_eq!(outcome.digest.evidence.file_changes, 1);
    assert_eq!(
        files(&outcome),
        [
            ("README.md", Modified, ChangeSource::Git),
            ("a file", Added, ChangeSource::Git),
            ("patched.txt", Added, ChangeSource::Both),
        ]
    );
}

fn files(outcome: &job_queue::call::CallOutcome) -> Vec<(&str, ChangeKind, ChangeSource)> {
    assert_eq!(outcome.changes.incomplete, None);
    let files = outcome.changes.files.iter();
    files
        .map(|file| (file.path.as_str(), file.kind, file.seen_by))
        .collect()
}

async fn changes_of_the_job_are_told_from_earlier_ones(release: &str) {
    let script = Script::new().otherwise([
        Reply::shell(
            "git rm -q README.md; git add before.txt; git commit -qm next; \
             echo more >> touched.txt; rm gone.txt",
        ),
        Reply::say("Done."),
    ]);
    let stage = CodexFixture::new(release, script).await;
    for name in ["before.txt", "untouched.txt", "touched.txt", "gone.txt"] {
        fs::write(stage.file(name), "was here\n").unwrap();
    }
    let mut request = stage.request("work");
    request.sandbox = Some(SandboxMode::DangerFullAccess);
    let outcome = stage.run_turn(&request).await;
    assert_said(&outcome, "Done.");
    assert_eq!(
        files(&outcome),
        [
            ("README.md", Deleted, ChangeSource::Git),
            ("before.txt", Added, ChangeSource::Git),
            ("gone.txt", Deleted, ChangeSource::Git),
            ("touched.txt", Modified, ChangeSource::Git),
        ]
    );
    assert_eq!(
        outcome.changes.head_before,
        Some(stage.home.git(&["rev-parse", "HEAD~"]))
    );
    assert_eq!(
        outcome.changes.head_after,
        Some(stage.home.git(&["rev-parse", "HEAD"]))
    );
}

async fn session_is_resumed_with_its_context(release: &str) {
    let script = Script::new()
        .on(
            "go on",
            [Reply::shell("echo x > made.txt"), Reply::say("Two.")],
        )
        .otherwise([Reply::say("One.")]);
    let stage = CodexFixture::new(release, script).await;
    let first = stage.run_turn(&stage.request("the number is 7")).await;
    assert_said(&first, "One.");
    let mut request = stage.request("go on");
    request.resume = first.digest.session.clone();
    request.sandbox = Some(SandboxMode::WorkspaceWrite);
    let second = stage.run_turn(&request).await;
    assert_said(&second, "Two.");
    assert_eq!(second.digest.session, first.digest.session);
    assert_eq!(second.digest.usage.unwrap().input_tokens, 300);
    assert_eq!(files(&second), [("made.txt", Added, ChangeSource::Git)]);
    let asked = stage.model.requests().pop().unwrap();
    assert!(asked.user_messages().contains(&"the number is 7"));
    assert!(asked.assistant_messages().contains(&"One."));
}

async fn unknown_session_is_an_error(release: &str) {
    let stage = CodexFixture::new(release, Script::new().otherwise([Reply::say("never")])).await;
    let mut request = stage.request("go on");
    request.resume = Some(ThreadId::parse(OLD_ID).unwrap());
    let outcome = stage.run_turn(&request).await;
    let message = assert_failed(&outcome, FailureClass::UnknownSession);
    assert!(message.contains(OLD_ID), "{message}");
    assert!(stage.model.requests().is_empty());
    assert_eq!(outcome.digest.session, None);
}

async fn work_outside_of_git_is_recorded(release: &str) {
    let script = Script::new().otherwise([
        Reply::patch(Patch::new().add("patched.txt", "hello\n")),
        Reply::say("Done."),
    ]);
    let stage = CodexFixture::new(release, script).await;
    let mut request = stage.request("work");
    request.sandbox = Some(SandboxMode::DangerFullAccess);
    let directory = tempfile::tempdir().unwrap();
    let cwd = directory.path().canonicalize().unwrap();
    request.cwd.clone_from(&cwd);
    let outcome = stage.run_turn(&request).await;
    assert_said(&outcome, "Done.");
    let path = cwd.join("patched.txt");
    assert_eq!(
        files(&outcome),
        [(path.to_str().unwrap(), Added, ChangeSource::Codex)]
    );
    assert_eq!(outcome.changes.head_after, None);

    request.cwd = cwd.join("absent");
    let message = assert_failed(&stage.run_turn(&request).await, FailureClass::NotStarted);
    assert!(message.contains("absent"), "{message}");
}
