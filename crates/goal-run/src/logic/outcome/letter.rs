//! The mail to an agent about the end of a run.

use common::text::one_line;
use git_probe::logic::git_state::ChangeKind;
use serde_json::Value;

use crate::logic::artifacts::Artifact;

/// How many artifacts, and how many missing criteria, are listed.
const LISTED: usize = 40;

/// The longest of these lines, in bytes.
const LINE_LIMIT: usize = 300;

/// The text of the mail: the notice, and the artifacts and missing criteria of `result`, a
/// [`RunOutcome`](super::RunOutcome) as JSON. At most 32 KiB.
#[must_use]
pub fn letter(notice: &str, result: &Value) -> String {
    let mut text = one_line(notice, super::NOTICE_LIMIT);
    for (title, key) in [
        ("Made:", "artifacts"),
        ("Made all the same:", "partial"),
        ("Not met:", "missing"),
    ] {
        let things = result.get(key).and_then(Value::as_array);
        let things = things.map_or(&[][..], Vec::as_slice);
        let lines: Vec<String> = things.iter().take(LISTED).filter_map(words).collect();
        if lines.is_empty() {
            continue;
        }
        text += &format!("\n\n{title}");
        for line in &lines {
            text += &format!("\n- {}", one_line(line, LINE_LIMIT));
        }
        let omitted = match key {
            "missing" => 0,
            _ => omitted(result),
        };
        match things.len().saturating_sub(LISTED).saturating_add(omitted) {
            0 => {}
            more => text += &format!("\n- and {more} more"),
        }
    }
    text
}

/// The number of artifacts that the result does not list.
fn omitted(result: &Value) -> usize {
    let more = result.get("more_artifacts").and_then(Value::as_u64);
    more.and_then(|more| usize::try_from(more).ok())
        .unwrap_or(0)
}

fn words(thing: &Value) -> Option<String> {
    match thing {
        Value::String(words) => Some(words.clone()),
        thing => serde_json::from_value(thing.clone()).ok().map(of_artifact),
    }
}

fn of_artifact(artifact: Artifact) -> String {
    match artifact {
        Artifact::PullRequest { url, .. } => format!("pull request {url}"),
        Artifact::IssueComment { url, .. } => format!("comment {url}"),
        Artifact::Push { branch, commit } => format!("pushed {branch} at {commit}"),
        Artifact::Commit { id, subject } => format!("commit {id} {subject}"),
        Artifact::Branch { name, commit } => format!("branch {name} at {commit}"),
        Artifact::File { path, change } => format!("file {path} ({})", of_change(change)),
        Artifact::Command { command } => format!("passes: {command}"),
    }
}

fn of_change(change: ChangeKind) -> &'static str {
    match change {
        ChangeKind::Added => "added",
        ChangeKind::Modified => "modified",
        ChangeKind::Deleted => "deleted",
    }
}
