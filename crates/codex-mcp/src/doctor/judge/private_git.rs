//! Private git directories of runs.

use std::path::Path;

use common::text::{shell_word, visible_line};
use git_probe::private::{Leftover, LeftoverState};
use serde_json::json;

use super::super::report::{Check, Finding};

/// The most directories that are listed.
const LISTED: usize = 20;

const CHECK: Check = Check::PrivateGit;

/// The hint for a directory that no run imports.
const ONLY_COPY: &str = "Its commits may exist nowhere else. Do not run git in it.";

pub(super) fn leftovers(found: &Result<Vec<Leftover>, String>) -> Vec<Finding> {
    let found = match found {
        Ok(found) if found.is_empty() => {
            return vec![Finding::ok(CHECK, "no leftover run directories")];
        }
        Ok(found) => found,
        Err(error) => return vec![Finding::not_checked(CHECK, &visible_line(error))],
    };
    let mut findings: Vec<Finding> = found.iter().take(LISTED).map(leftover).collect();
    if let Some(more) = found.len().checked_sub(LISTED).filter(|more| *more > 0) {
        findings.push(Finding::note(CHECK, format!("{more} more")));
    }
    findings
}

fn leftover(leftover: &Leftover) -> Finding {
    let path = shown(&leftover.path);
    let repository = leftover.repository.as_deref().map(shown);
    let of = repository.as_deref().unwrap_or("an unknown repository");
    let (state, message, hint) = match &leftover.state {
        LeftoverState::InUse => ("in-use", format!("{path}: used by a run in {of}"), None),
        LeftoverState::Interrupted => (
            "interrupted",
            format!("{path}: left by an interrupted run in {of}"),
            Some("The next committing run in that repository imports its commits.".to_owned()),
        ),
        LeftoverState::Orphaned => (
            "orphaned",
            format!("{path}: left by an interrupted run in {of}, which is gone or was replaced"),
            Some(ONLY_COPY.to_owned()),
        ),
        LeftoverState::Kept(copy) => (
            "kept",
            format!("{path}: kept from a run in {of}"),
            Some(format!(
                "Take what you need with `git fetch {} REF`, then remove {path}.",
                visible_line(&shell_word(copy))
            )),
        ),
        LeftoverState::Unfinished => (
            "unfinished",
            format!("{path}: what a run that has ended could not remove"),
            Some(format!(
                "It has nothing that was not imported. The next committing run removes it, or \
                 remove {path} yourself."
            )),
        ),
        LeftoverState::Unreadable(error) => (
            "unreadable",
            format!("{path}: cannot be read: {}", visible_line(error)),
            Some(ONLY_COPY.to_owned()),
        ),
    };
    let raw = |path: &Path| path.display().to_string();
    let value = json!({
        "path": raw(&leftover.path),
        "repository": leftover.repository.as_deref().map(raw),
        "state": state,
    });
    let finding = Finding::note(CHECK, message).with_value(value);
    match hint {
        Some(hint) => finding.with_hint(hint),
        None => finding,
    }
}

/// A path in one line.
fn shown(path: &Path) -> String {
    visible_line(&path.display().to_string()).into_owned()
}
