//! Other programs.

use supervise::exit::Exit;

use super::super::facts::Asked;
use super::super::report::{Check, Finding};
use super::words::{one_line, what_happened};

pub(super) fn git(asked: &Asked) -> Finding {
    match version(asked) {
        Some(version) => Finding::ok(Check::Git, version.as_str()).with_value(version),
        None => Finding::warning(
            Check::Git,
            missing(asked),
            "Install git: Codex sees by it what has changed, and most tasks end in a commit.",
        ),
    }
}

pub(super) fn gh(asked: &Asked, login: &Asked) -> Finding {
    let Some(version) = version(asked) else {
        return Finding::note(Check::Gh, missing(asked))
            .with_hint("Install it from https://cli.github.com to work with pull requests.");
    };
    let finding = if matches!(login, Asked::Ended(finished) if finished.succeeded()) {
        Finding::ok(Check::Gh, format!("{version}, logged in"))
    } else {
        Finding::note(Check::Gh, format!("{version}, not logged in"))
            .with_hint("Run `gh auth login` to work with pull requests.")
    };
    finding.with_value(version)
}

/// The version in `git version 2.47.3` and `gh version 2.83.0 (2025-11-04)`:
/// the third word.
fn version(asked: &Asked) -> Option<String> {
    match asked {
        Asked::Ended(finished) if finished.succeeded() => {
            finished.stdout.split_whitespace().nth(2).map(one_line)
        }
        _ => None,
    }
}

/// 127 is the exit code for a program that isn't there, see
/// [`spawn`](supervise::spawn::spawn).
fn missing(asked: &Asked) -> String {
    match asked {
        Asked::Ended(finished) if finished.exit == Exit::Code(127) => "not installed".to_owned(),
        other => format!("asked for its version, it {}", what_happened(other)),
    }
}
