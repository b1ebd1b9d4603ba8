//! How the repository and what belongs to it stand, as the shell has found them.
//!
//! One is taken when a run begins and one after each turn, always of the repository
//! that the run is for, wherever Codex has been at work. The shell looks only at
//! what the criteria ask for; what it could not find out, it says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codex_engine::logic::session::Steps;
use codex_engine::logic::work::{Evidence, Refusal};
use git_probe::logic::git_state::{ChangeKind, GitState};
use serde::{Deserialize, Serialize};

use super::names::{BranchName, CommandLine, Issue};
use super::review::ReviewEnd;

/// How many commits are named; all are counted.
pub const COMMITS_NAMED: usize = 100;

/// What somebody has found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe<T> {
    /// This is how it is.
    Found(T),
    /// It could not be found out, for this reason: a line for people.
    Failed(String),
}

impl<T> Default for Probe<T> {
    fn default() -> Self {
        Self::Failed("nobody has looked".to_owned())
    }
}

impl<T> Probe<T> {
    /// What was found.
    ///
    /// # Errors
    ///
    /// Why nothing was.
    pub fn get(&self) -> Result<&T, &str> {
        match self {
            Self::Found(found) => Ok(found),
            Self::Failed(why) => Err(why),
        }
    }

    /// What was found, if anything.
    #[must_use]
    pub fn found(&self) -> Option<&T> {
        self.get().ok()
    }
}

/// How things stand at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The working tree.
    pub tree: Probe<Tree>,
    /// What is checked out.
    pub head: Probe<Head>,
    /// The branches that criteria name; `None` where there is none of that name.
    pub branches: BTreeMap<BranchName, Probe<Option<Line>>>,
    /// The branches of the remote, by their names there: what it says itself, not
    /// what was fetched.
    pub remote: Probe<BTreeMap<String, String>>,
    /// The files that fit patterns of criteria, by their paths from the top, ignored
    /// ones too; and what differs when what is in one does (a hash of it), so that
    /// touching a file is not changing it.
    pub files: Probe<BTreeMap<String, String>>,
    /// The open pull requests from the branch that is checked out.
    pub pull_requests: Probe<Vec<PullRequest>>,
    /// Our own comments on the issues that criteria name.
    pub comments: BTreeMap<Issue, Probe<Vec<Comment>>>,
    /// What came of the commands that criteria name. At the start none is run.
    pub commands: BTreeMap<CommandLine, Probe<CommandEnd>>,
    /// The review of what the run has made; `None` while there is none of this state.
    pub review: Option<Probe<ReviewEnd>>,
}

/// The working tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// What git says of it. New files are told one by one, ignored ones not at all.
    pub state: GitState,
    /// The files that differ between the commit that was checked out at the start and
    /// the one that is now.
    pub committed: BTreeMap<String, ChangeKind>,
}

impl Tree {
    /// What has changed since `start`.
    #[must_use]
    pub fn changed_since(&self, start: &Self) -> BTreeMap<String, ChangeKind> {
        start.state.changed_until(&self.state, &self.committed)
    }
}

/// What is checked out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// The branch; `None` if it is a mere commit.
    pub branch: Option<String>,
    /// Its commits.
    pub line: Line,
}

/// The commits that lead to somewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// The last one; `None` before the first.
    pub tip: Option<String>,
    /// How many there are.
    pub total: u64,
    /// How many of them no branch, tag or remote branch led to at the start.
    pub new: u64,
    /// The latest of the new ones, the last one first, see [`COMMITS_NAMED`].
    pub newest: Vec<Commit>,
}

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Its whole hash.
    pub id: String,
    /// The first line of its message.
    pub subject: String,
}

/// Whether something at GitHub is older than the run, by GitHub's own clock: what is
/// asked for at the start may not show all that there was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// It was made since.
    New,
    /// It was there before.
    Old,
}

/// An open pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequest {
    /// Where it is.
    pub url: String,
    /// Its number.
    pub number: u64,
    /// Whether it is older than the run.
    pub age: Age,
}

/// A comment of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// Where it is.
    pub url: String,
    /// Whether it is older than the run.
    pub age: Age,
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandEnd {
    /// It exited by itself.
    Exited {
        /// The code.
        code: i32,
        /// The end of what it wrote.
        tail: String,
    },
    /// A signal ended it.
    Signalled(i32),
    /// It took longer than this, and was ended.
    TimedOut(Duration),
}

/// What Codex has done since the run began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// In all turns together.
    pub evidence: Evidence,
    /// Steps that have succeeded, in all turns together.
    pub succeeded: u64,
    /// Whether steps were refused in the last turn that had any that succeeded or were
    /// refused.
    pub refusal: Refusal,
    /// Whether the last turn came to an answer.
    pub answer: Answer,
}

impl Work {
    /// Adds the steps of a turn, and whether Codex was refused anything in it.
    pub fn add(&mut self, steps: &Steps, refusal: Refusal) {
        self.evidence += steps.evidence;
        self.succeeded += steps.succeeded;
        if steps.succeeded > 0 || refusal != Refusal::None {
            self.refusal = refusal;
        }
    }
}

/// Whether a turn came to an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Answer {
    /// It did not, or didn't complete: what was said on the way doesn't count.
    #[default]
    Missing,
    /// It completed with a final message.
    Given,
}

/// Whether what was there at the start counts as done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preexisting {
    /// Only what is new counts.
    #[default]
    Ignored,
    /// It does (`--allow-preexisting`).
    Counts,
}

impl Snapshot {
    /// The files that fit patterns and are other than they were.
    pub(super) fn new_files<'a>(&'a self, start: &'a Self) -> BTreeSet<&'a str> {
        let (Some(now), Some(before)) = (self.files.found(), start.files.found()) else {
            return BTreeSet::new();
        };
        let is_new = |(path, stamp): &(&String, &String)| before.get(*path) != Some(*stamp);
        let new = now.iter().filter(is_new);
        new.map(|(path, _)| path.as_str()).collect()
    }

    /// The branches of the remote that have become what is checked out.
    pub(super) fn pushed<'a>(&'a self, start: &Self) -> Vec<(&'a str, &'a str)> {
        let tip = self.head.found().and_then(|head| head.line.tip.as_ref());
        let (Some(tip), Some(remote), Some(before)) =
            (tip, self.remote.found(), start.remote.found())
        else {
            return Vec::new();
        };
        let pushed = remote
            .iter()
            .filter(|(name, commit)| *commit == tip && before.get(*name) != Some(tip));
        pushed
            .map(|(name, commit)| (name.as_str(), commit.as_str()))
            .collect()
    }

    /// The pull requests that were not there before.
    pub(super) fn new_pull_requests<'a>(&'a self, start: &Self) -> Vec<&'a PullRequest> {
        let before = start.pull_requests.found().map_or(&[][..], Vec::as_slice);
        let was_there = |url: &str| before.iter().any(|request| request.url == url);
        let requests = self.pull_requests.found().into_iter().flatten();
        requests
            .filter(|request| request.age == Age::New && !was_there(&request.url))
            .collect()
    }

    /// Our comments on an issue that were not there before.
    pub(super) fn new_comments<'a>(&'a self, issue: &Issue, start: &Self) -> Vec<&'a Comment> {
        let before = start.comments.get(issue).and_then(Probe::found);
        let was_there = |url: &str| before.is_some_and(|all| all.iter().any(|one| one.url == url));
        let now = self.comments.get(issue).and_then(Probe::found);
        let comments = now.into_iter().flatten();
        comments
            .filter(|comment| comment.age == Age::New && !was_there(&comment.url))
            .collect()
    }
}
