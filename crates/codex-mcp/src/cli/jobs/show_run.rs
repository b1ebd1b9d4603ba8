//! The sections of `codex-mcp jobs show` about a run: its spec and its result.

use std::time::Duration;

use goal_run::logic::artifacts::Artifact;
use goal_run::logic::machine::RawLimits;
use goal_run::spec::{Approve, RunSpec, WorkspaceMode};
use goal_run::words;
use job_queue::run::result;
use job_queue::run::spec::StoredRun;
use job_queue::store::Job;
use serde_json::Value;

use crate::cli::times::took;

/// Lines under a heading.
pub(super) type Section = (&'static str, Vec<String>);

/// The sections about a run; none for any other job.
pub(super) fn sections(job: &Job) -> Vec<Section> {
    let wanted = match StoredRun::of(&job.request) {
        None => return Vec::new(),
        Some(Ok(kept)) => wanted(&kept.spec),
        Some(Err(error)) => vec![format!("It cannot be read: {error}")],
    };
    let mut sections = vec![("Wanted", wanted)];
    if let Some(result) = result::of(job) {
        let error = job.summary.error.as_deref();
        sections.push(("Result", outcome(&result, error)));
        sections.push(("Made", made(&result)));
        sections.push(("Not met", texts(&result, "missing")));
        sections.push(("More", more(&result)));
        sections.push(("Warnings of the run", texts(&result, "warnings")));
    }
    sections.retain(|(_, lines)| !lines.is_empty());
    sections
}

fn wanted(spec: &RunSpec) -> Vec<String> {
    let mut lines: Vec<String> = spec.criteria.iter().map(ToString::to_string).collect();
    if lines.is_empty() {
        lines.push("that a step of Codex's succeeds, none is refused in the end, and it says that it is done".to_owned());
    }
    let parts = RawLimits::from(spec.limits);
    let time = |millis: Option<u64>| took(Duration::from_millis(millis.unwrap_or_default()));
    lines.push(format!(
        "within {} turns of {}, and {} in all",
        parts.max_turns.unwrap_or_default(),
        time(parts.turn_timeout_ms),
        time(parts.total_timeout_ms),
    ));
    if let Some(tokens) = parts.max_tokens {
        lines.push(format!("with {tokens} tokens at most"));
    }
    if spec.workspace == WorkspaceMode::Worktree {
        lines.push("in a worktree of its own".to_owned());
    }
    if spec.approve == Approve::Always {
        lines.push("Codex's questions are answered with yes".to_owned());
    }
    let notify = spec.notify.iter();
    lines.extend(notify.map(|whom| format!("{whom} is notified of the end")));
    lines
}

/// The outcome, and why. What the error of the job says is left out, as the page shows it too.
fn outcome(result: &Value, error: Option<&str>) -> Vec<String> {
    let count = result.get("turns").and_then(Value::as_u64);
    let count = count.unwrap_or_default();
    let turns = match count {
        1 => "1 turn".to_owned(),
        count => format!("{count} turns"),
    };
    // The turns of a lost worker are not counted.
    let after = match count {
        0 => String::new(),
        _ => format!(" after {turns}"),
    };
    let is_ok = result.get("ok").and_then(Value::as_bool) == Some(true);
    // Results of earlier versions lack the member.
    let verified = result.get("verified").and_then(Value::as_bool);
    let is_verified = verified.unwrap_or(true);
    let reason = text(result, "reason").unwrap_or("nobody knows why");
    let mut lines = vec![match is_ok {
        true => words::done(&turns, is_verified),
        false => format!("not done{after}: {}", reason.replace('_', " ")),
    }];
    let is_told = |why: &str| error.is_some_and(|error| error.contains(why.trim_end_matches('.')));
    let why = text(result, "why").filter(|&why| !is_told(why));
    lines.extend(why.map(str::to_owned));
    lines
}

fn made(result: &Value) -> Vec<String> {
    let of = |key| result.get(key).and_then(Value::as_array);
    let artifacts = of("partial").or_else(|| of("artifacts"));
    let artifacts = artifacts.into_iter().flatten();
    let mut lines: Vec<String> = artifacts
        .filter_map(|artifact| serde_json::from_value::<Artifact>(artifact.clone()).ok())
        .map(|artifact| {
            let (what, which) = words::artifact(&artifact);
            format!("{what:<12} {which}")
        })
        .collect();
    if let Some(more) = result.get("more_artifacts").and_then(Value::as_u64) {
        lines.push(format!("and {more} more"));
    }
    lines
}

fn more(result: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(worktree) = result.get("worktree")
        && let Some(branch) = text(worktree, "branch")
    {
        lines.push(match text(worktree, "path") {
            Some(path) => format!("worktree {path} on branch {branch}"),
            None => format!("branch {branch} of a worktree that is removed"),
        });
    }
    let told = result.get("notified").and_then(Value::as_array);
    lines.extend(told.into_iter().flatten().filter_map(|told| {
        let to = text(told, "to")?;
        Some(match text(told, "error") {
            None => format!("{to} was notified"),
            Some(error) => format!("cannot notify {to}: {error}"),
        })
    }));
    if let Some(file) = text(result, "evidence_file") {
        lines.push(format!("evidence {file}"));
    }
    lines
}

fn texts(result: &Value, key: &str) -> Vec<String> {
    let texts = result.get(key).and_then(Value::as_array);
    let texts = texts.into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

fn text<'a>(result: &'a Value, key: &str) -> Option<&'a str> {
    result.get(key).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_that_the_error_of_the_job_has_is_not_repeated() {
        let why = "there is no commit yet.";
        let result = result::nothing("could_not_run", why);
        let alone = ["not done: could not run"];
        let error = "there is no commit yet. Correct what the message names.";
        assert_eq!(outcome(&result, Some(error)), alone);
        assert_eq!(outcome(&result, Some(why)), alone);
        for other in [None, Some("worker lost")] {
            assert_eq!(outcome(&result, other), [alone[0], why]);
        }
    }
}
