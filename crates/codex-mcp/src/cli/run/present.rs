//! The result of a run, for people and programs.

use std::io::{self, Write};
use std::path::Path;

use common::output;
use common::text::{counted, shell_word};
use goal_run::logic::outcome::Reason;
use goal_run::notify::Delivery;
use goal_run::words;
use goal_run::worktree::KeptWorktree;
use serde::Serialize;

use super::resume::Continuation;
use crate::cli::stored::complain;

/// How many artifacts are shown; `--json` has more.
const SHOWN: usize = 50;

/// The result of a run, with its worktree and its notices.
#[derive(Serialize)]
pub(super) struct RunReport {
    #[serde(flatten)]
    pub(super) done: goal_run::RunResult,
    #[serde(rename = "worktree", skip_serializing_if = "Option::is_none")]
    pub(super) kept: Option<KeptWorktree>,
    #[serde(rename = "notified", skip_serializing_if = "Vec::is_empty")]
    pub(super) told: Vec<Delivery>,
    #[serde(flatten)]
    pub(super) continuation: Continuation,
    /// The hint about a read-only sandbox.
    #[serde(skip)]
    pub(super) read_only: Option<&'static str>,
}

/// The remains of a worktree, with the commands that remove them.
fn left(path: Option<&Path>, branch: &str) -> Vec<String> {
    match path {
        Some(path) => vec![
            format!("worktree: {} on branch {branch}", path.display()),
            format!(
                "  git worktree remove {} when it is merged",
                shell_word(path)
            ),
        ],
        None => vec![
            format!("branch: {branch} of a worktree that is removed"),
            format!(
                "  git branch -D {} when nobody needs it",
                shell_word(branch)
            ),
        ],
    }
}

impl RunReport {
    /// Prints the result for a person.
    pub(super) fn present(&self) -> io::Result<()> {
        let mut out = output::stdout();
        for line in self.lines() {
            writeln!(out, "{line}")?;
        }
        let response = self.done.response.trim();
        if !response.is_empty() {
            writeln!(out)?;
            output::answer(response)?;
            writeln!(out)?;
        }
        if let Some(review) = self.open_review() {
            writeln!(out, "The review of the last turn:")?;
            output::answer(review)?;
            writeln!(out)?;
        }
        for line in self.hints() {
            writeln!(out, "{line}")?;
        }
        for told in &self.told {
            match &told.result {
                Ok(()) => complain("notified", &told.to.to_string()),
                Err(error) => complain("warning", &format!("cannot notify {}: {error}", told.to)),
            }
        }
        Ok(())
    }

    /// The review after the last turn of a run that is not done.
    fn open_review(&self) -> Option<&str> {
        let outcome = &self.done.outcome;
        outcome.reason?;
        outcome.evidence.log.last()?.review.as_deref()
    }

    fn lines(&self) -> Vec<String> {
        let outcome = &self.done.outcome;
        let turns = counted(outcome.turns, "turn");
        let mut lines = vec![match outcome.reason {
            None => words::done(&turns, outcome.verified),
            Some(reason) => format!("not done after {turns}: {}", reason.words()),
        }];
        lines.extend(outcome.why.iter().map(|why| format!("  {why}")));
        lines.extend(outcome.hint.iter().map(|hint| format!("  {hint}")));
        let made = outcome.made();
        lines.extend(made.iter().take(SHOWN).map(|artifact| {
            let (what, which) = words::artifact(artifact);
            // File names may contain any character.
            format!("  {what:<12} {}", which.replace(['\n', '\t'], " "))
        }));
        let more = made.len().saturating_sub(SHOWN) + outcome.more_artifacts;
        if more > 0 {
            lines.push(format!("  and {more} more"));
        }
        // Missing criteria mean nothing if Codex could not work.
        let missing = outcome.missing.iter();
        let missing = missing.filter(|_| outcome.reason != Some(Reason::CouldNotRun));
        lines.extend(missing.map(|missing| format!("  {:<12} {missing}", "not met")));
        lines.extend(self.read_only.map(|advice| format!("  {advice}")));
        lines
    }

    /// Hints on what to do next.
    fn hints(&self) -> Vec<String> {
        let mut hints = Vec::new();
        if let Some(KeptWorktree { path, branch }) = &self.kept {
            hints.extend(left(path.as_deref(), branch));
        }
        hints.extend(words::usage(
            &self.done.usage,
            self.done.rate_limits.as_ref(),
        ));
        if let Some(command) = &self.continuation.command {
            let what = match self.done.outcome.reason {
                None => "to ask more of the thread (type the task, then Ctrl-D)",
                Some(_) => "to continue",
            };
            hints.push(format!("{what}: {command}"));
        }
        hints.extend(self.continuation.hint.clone());
        if let Some(file) = &self.done.evidence_file {
            hints.push(format!("evidence: {}", file.display()));
        }
        hints
    }
}
