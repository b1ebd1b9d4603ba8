//! The finding for one criterion.

use std::collections::{BTreeMap, BTreeSet};

use codex_engine::logic::describe::line;
use common::text::{counted, first_names};
use git_probe::logic::git_state::ChangeKind;

use super::Finding;
use crate::logic::artifacts;
use crate::logic::criteria::Criterion;
use crate::logic::glob::Glob;
use crate::logic::names::{BranchName, CommandLine, Issue};
use crate::logic::review::ReviewEnd;
use crate::logic::snapshot::{
    CommandEnd, History, Preexisting, Probe, Snapshot, is_content_unknown,
};

/// How many things are named in one line.
const NAMED: usize = 5;

/// How much of the end of a command's output is shown, in bytes.
const TAIL_SHOWN: usize = 180;

/// The snapshots of the start and of now, to be compared.
pub(super) struct Comparison<'a> {
    pub(super) start: &'a Snapshot,
    pub(super) now: &'a Snapshot,
    pub(super) preexisting: Preexisting,
}

/// A finding, or why there is none.
type FindingResult = Result<Finding, String>;

fn satisfied(found: impl Into<String>) -> FindingResult {
    let found = found.into();
    Ok(Finding::Satisfied { found })
}

/// A missing requirement, and an instruction for Codex.
fn not_yet(missing: impl Into<String>, instruction: impl Into<String>) -> FindingResult {
    Ok(Finding::not_yet(missing, instruction))
}

/// A requirement that is checked once all others hold.
fn not_run(missing: impl Into<String>) -> FindingResult {
    let missing = missing.into();
    Ok(Finding::NotRun { missing })
}

impl Comparison<'_> {
    pub(super) fn judge(&self, criterion: &Criterion) -> Finding {
        let found = match criterion {
            Criterion::Files(glob) => self.files(glob),
            Criterion::Commits { count, branch } => self.commits(*count, branch.as_ref()),
            Criterion::Branch(branch) => self.branch(branch),
            Criterion::Pushed => self.pushed(),
            Criterion::PullRequest => self.pull_request(),
            Criterion::IssueComment(issue) => self.comment(issue),
            Criterion::Clean => self.clean(),
            Criterion::Command(command) => self.command(command),
            Criterion::Review => self.review(),
            Criterion::DiffWithin(paths) => self.diff_within(paths),
        };
        let why = |why: String| Finding::Unknown { why: line(&why) };
        found.unwrap_or_else(why)
    }

    pub(super) fn has_something_new(&self) -> bool {
        !artifacts::new_artifacts(self.start, self.now).is_empty()
    }

    fn counts_preexisting(&self) -> bool {
        self.preexisting == Preexisting::Counts
    }

    fn files(&self, glob: &Glob) -> FindingResult {
        let there = self.now.files.get()?;
        let fitting: Vec<&String> = there.keys().filter(|path| glob.matches(path)).collect();
        if fitting.is_empty() {
            let missing = match glob.plain() {
                Some(_) => format!("the file {glob} does not exist"),
                None => format!("no file matches {glob}"),
            };
            return not_yet(missing, "create it");
        }
        if self.counts_preexisting() {
            return satisfied(about_files(&fitting, "there"));
        }
        let before = self.start.files.get()?;
        let all_new = self.now.new_files(self.start);
        let is_new = |path: &&String| all_new.contains(path.as_str());
        let (new, old): (Vec<&String>, Vec<&String>) = fitting.into_iter().partition(is_new);
        if !new.is_empty() {
            return satisfied(about_files(&new, "new or changed"));
        }
        let is_unknown = |path: &&String| {
            let stamps = [before, there].map(|files| files.get(*path));
            stamps
                .into_iter()
                .flatten()
                .any(|stamp| is_content_unknown(stamp))
        };
        let unknown: Vec<&String> = old.into_iter().filter(is_unknown).collect();
        if !unknown.is_empty() {
            return not_yet(
                about_files(&unknown, "not readable, now or at the start"),
                "create or change what the task asks for, and leave it readable",
            );
        }
        let missing = match glob.plain() {
            Some(_) => format!("the file {glob} is as it was at the start"),
            None => format!("no file that matches {glob} is new or changed"),
        };
        not_yet(missing, "create or change what the task asks for")
    }

    fn commits(&self, count: u32, branch: Option<&BranchName>) -> FindingResult {
        let place = match branch {
            Some(branch) => format!("the branch {branch}"),
            None => "the checked-out branch".to_owned(),
        };
        let commits = match branch {
            Some(branch) => self.history(branch)?,
            None => Some(&self.now.head.get()?.history),
        };
        let Some(commits) = commits else {
            return not_yet(
                format!("{place} does not exist"),
                "create it and commit there",
            );
        };
        let (there, what) = match self.preexisting {
            Preexisting::Counts => (commits.total, "commit"),
            Preexisting::Ignored => (commits.new, "new commit"),
        };
        let has = format!("{place} has {}", counted(there, what));
        match there >= u64::from(count) {
            true => satisfied(has),
            false => not_yet(
                format!("{has} and needs {count}"),
                "commit the work with git add and git commit",
            ),
        }
    }

    fn branch(&self, branch: &BranchName) -> FindingResult {
        let Some(now) = self.history(branch)? else {
            return not_yet(
                format!("the branch {branch} does not exist"),
                "create it and commit the work there",
            );
        };
        let at = short(now.tip.as_deref().unwrap_or("no commit"));
        if self.counts_preexisting() || now.new > 0 {
            return satisfied(format!("{branch} is at {at}"));
        }
        let before = self.start.branches.get(branch);
        match before.unwrap_or(&Probe::default()).get()? {
            None => satisfied(format!("{branch} is new, at {at}")),
            Some(_) => not_yet(
                format!("the branch {branch} was there at the start and has no new commit"),
                "commit the work there",
            ),
        }
    }

    fn history(&self, branch: &BranchName) -> Result<Option<&History>, String> {
        let probe = self.now.branches.get(branch);
        let probe = probe.ok_or_else(|| "nobody has looked".to_owned())?;
        Ok(probe.get()?.as_ref())
    }

    fn pushed(&self) -> FindingResult {
        let head = self.now.head.get()?;
        let remote = self.now.remote.get()?;
        let Some(tip) = head.history.tip.as_deref() else {
            return not_yet("there is no commit yet", "commit the work, then push it");
        };
        let has_it = remote.iter().find(|(_, commit)| *commit == tip);
        let at = short(tip);
        let Some((name, _)) = has_it else {
            return not_yet(
                format!("no branch of the remote is at {at}"),
                "push the checked-out branch with git push",
            );
        };
        if self.counts_preexisting() {
            return satisfied(format!("{} of the remote is at {at}", quoted(name)));
        }
        self.start.remote.get()?;
        match self.now.pushed(self.start).first() {
            Some((name, _)) => satisfied(format!("{} of the remote is at {at}", quoted(name))),
            None if head.history.is_foreign() => not_yet(
                format!("the checked-out commit {at} was only fetched, and none was made here"),
                "commit the work, then push it",
            ),
            None => not_yet(
                "the remote had the checked-out commit at the start",
                "commit the work, then push it",
            ),
        }
    }

    fn pull_request(&self) -> FindingResult {
        let there = self.now.pull_requests.get()?;
        let counted = match self.preexisting {
            Preexisting::Counts => there.first(),
            Preexisting::Ignored => {
                self.start.pull_requests.get()?;
                self.now.new_pull_requests(self.start).first().copied()
            }
        };
        match (counted, there.first()) {
            (Some(request), _) => satisfied(format!("{} is open", request.url)),
            (None, Some(old)) => not_yet(
                format!("{} was open at the start", old.url),
                "open a new pull request from a branch of its own",
            ),
            (None, None) => not_yet(
                "no pull request is open from the checked-out branch",
                "push it, then open one with gh pr create",
            ),
        }
    }

    fn comment(&self, issue: &Issue) -> FindingResult {
        let probe = self.now.comments.get(issue);
        let there = probe.ok_or("nobody has looked")?.get()?;
        let (comment, what) = match self.preexisting {
            Preexisting::Counts => (there.first(), "comment"),
            Preexisting::Ignored => {
                let new = self.now.new_comments(issue, self.start);
                (new.first().copied(), "new comment")
            }
        };
        match comment {
            Some(comment) => satisfied(format!("there is a {what} of yours: {}", comment.url)),
            None => not_yet(
                format!("there is no {what} of yours on {issue}"),
                "write one with gh",
            ),
        }
    }

    fn clean(&self) -> FindingResult {
        let dirty = &self.now.tree.get()?.state.dirty;
        let dirty: Vec<&String> = dirty.keys().collect();
        match dirty.is_empty() {
            true => satisfied("nothing is uncommitted"),
            false => not_yet(
                about_files(&dirty, "not committed"),
                "commit what belongs to the work, and remove only what you have made yourself",
            ),
        }
    }

    fn command(&self, command: &CommandLine) -> FindingResult {
        let Some(probe) = self.now.commands.get(command) else {
            let requirement = Criterion::Command(command.clone()).requirement();
            let when = "it is not run yet; that follows once all else holds";
            return not_run(format!("{requirement} ({when})"));
        };
        let end = probe
            .get()
            .map_err(|why| format!("it could not be run: {why}"))?;
        let command = line(command.as_str());
        match end {
            CommandEnd::Exited { code: 0, .. } => satisfied("it exited with code 0"),
            CommandEnd::Exited { code, tail } if tail.trim().is_empty() => not_yet(
                format!("the command {command} exited with code {code} and wrote nothing"),
                "make it succeed",
            ),
            CommandEnd::Exited { code, tail } => not_yet(
                format!(
                    "the command {command} exited with code {code} and wrote: {}",
                    last(tail)
                ),
                "make it succeed",
            ),
            CommandEnd::Signalled(number) => not_yet(
                format!("the command {command} was ended by signal {number}"),
                "make it succeed",
            ),
            CommandEnd::TimedOut(limit) => not_yet(
                format!(
                    "the command {command} took longer than {} s and was ended",
                    limit.as_secs()
                ),
                "make it succeed sooner",
            ),
        }
    }

    fn review(&self) -> FindingResult {
        let Some(probe) = &self.now.review else {
            return not_run("the changes are not reviewed yet; that follows once all else holds");
        };
        let end = probe
            .get()
            .map_err(|why| format!("the review could not be made: {why}"))?;
        match end {
            ReviewEnd::Passed(summary) => {
                satisfied(format!("the reviewer wants no change: {}", line(summary)))
            }
            ReviewEnd::Failed { first, text } => not_yet(
                format!("the reviewer wants changes: {}", line(first)),
                format!("make those that are right. The review:\n{text}"),
            ),
        }
    }

    fn diff_within(&self, paths: &[Glob]) -> FindingResult {
        let changed = self.now.tree.get()?.changed_since(self.start.tree.get()?);
        if let Some(missing) = outside(&changed, paths, "changed") {
            return not_yet(missing, "take back those changes that are yours");
        }
        let mut all: BTreeSet<&String> = changed.keys().collect();
        for (branch, history) in &self.now.branches {
            let history = history.get()?.as_ref();
            let tip = history.and_then(|history| history.tip.as_deref());
            // An old commit, too, can have other files than the branch had.
            if tip.is_none() || tip == self.start.branch_tip(branch) {
                continue;
            }
            let changed = self.now.branch_changes.get(branch);
            let changed = changed.ok_or("nobody has looked")?.get()?;
            let what = format!("changed on the branch {branch}");
            if let Some(missing) = outside(changed, paths, &what) {
                let advice = "take back those changes that are yours, on that branch";
                return not_yet(missing, advice);
            }
            all.extend(changed.keys());
        }
        satisfied(match all.len() {
            0 => "no file is changed".to_owned(),
            count => format!(
                "{} changed, none outside of what may be changed",
                files_are(count)
            ),
        })
    }
}

/// A sentence about the changed files that no path covers; `None` if there are none. `what`
/// says that they are changed, and where.
fn outside(changed: &BTreeMap<String, ChangeKind>, paths: &[Glob], what: &str) -> Option<String> {
    let is_outside = |path: &&String| !paths.iter().any(|glob| glob.covers(path));
    let outside: Vec<&String> = changed.keys().filter(is_outside).collect();
    let what = format!("{what} outside of what may be changed");
    (!outside.is_empty()).then(|| about_files(&outside, &what))
}

/// A sentence that describes some files, with the first of their names, in quotes, and the number
/// of the others.
fn about_files(files: &[&String], what: &str) -> String {
    let names = first_names(files.iter().map(|name| quoted(name)), NAMED);
    format!("{} {what}: {names}", files_are(files.len()))
}

/// The beginning of a sentence about files.
fn files_are(count: usize) -> String {
    let verb = if count == 1 { "is" } else { "are" };
    format!("{} {verb}", counted(count, "file"))
}

/// The end of an output, on one line. The end is shown since errors come last.
fn last(text: &str) -> String {
    let text = text.trim_end();
    let from = text.ceil_char_boundary(text.len().saturating_sub(TAIL_SHOWN));
    let mark = if from == 0 { "" } else { "… " };
    line(&format!("{mark}{}", text.get(from..).unwrap_or(text)))
}

/// A name from outside, on one line and within bounds.
fn quoted(name: &str) -> String {
    line(&format!("{name:?}"))
}

fn short(commit: &str) -> &str {
    commit.get(..10).unwrap_or(commit)
}
