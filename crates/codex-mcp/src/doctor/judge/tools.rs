//! Other programs.

use supervise::exit::Exit;

use super::super::facts::CommandOutcome;
use super::super::report::{Check, Finding};
use super::words::{one_line, what_happened};

pub(super) fn git(outcome: &CommandOutcome) -> Finding {
    match version(outcome) {
        Some(version) => Finding::ok(Check::Git, version.as_str()).with_value(version),
        None => Finding::warning(
            Check::Git,
            missing(outcome),
            "Install git: Codex sees by it what has changed, and most tasks end in a commit.",
        ),
    }
}

pub(super) fn gh(outcome: &CommandOutcome, login: &CommandOutcome) -> Finding {
    let Some(version) = version(outcome) else {
        return Finding::note(Check::Gh, missing(outcome))
            .with_hint("Install it from https://cli.github.com to work with pull requests.");
    };
    let finding = if matches!(login, CommandOutcome::Ended(finished) if finished.succeeded()) {
        Finding::ok(Check::Gh, format!("{version}, logged in"))
    } else {
        Finding::note(Check::Gh, format!("{version}, not logged in"))
            .with_hint("Run `gh auth login` to work with pull requests.")
    };
    finding.with_value(version)
}

/// The version in `git version 2.47.3` and `gh version 2.83.0 (2025-11-04)`:
/// the third word.
fn version(outcome: &CommandOutcome) -> Option<String> {
    match outcome {
        CommandOutcome::Ended(finished) if finished.succeeded() => {
            finished.stdout.split_whitespace().nth(2).map(one_line)
        }
        _ => None,
    }
}

/// 127 is the exit code for a program that isn't there, see
/// [`spawn`](supervise::spawn::spawn).
fn missing(outcome: &CommandOutcome) -> String {
    match outcome {
        CommandOutcome::Ended(finished) if finished.exit == Exit::Code(127) => {
            "not installed".to_owned()
        }
        other => format!("asked for its version, it {}", what_happened(other)),
    }
}
