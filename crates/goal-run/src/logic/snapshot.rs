//! The state of a repository and its remotes, as inspected by the shell.
//!
//! A snapshot is taken when a run begins and after each turn, always of the run's own repository,
//! wherever Codex has worked. The shell collects only the facts that the criteria need, and records
//! why a fact could not be determined.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codex_engine::logic::session::Steps;
use codex_engine::logic::work::{Evidence, Refusal};
use git_probe::logic::git_state::{ChangeKind, GitState};
use serde::{Deserialize, Serialize};

use super::names::{BranchName, CommandLine, Issue};
use super::review::{BranchBase, OtherBranch, ReviewEnd};

/// How many commits are named; all are counted.
pub const COMMITS_NAMED: usize = 100;

/// The beginning of the fingerprint of a file that cannot be read.
pub(crate) const UNREADABLE: &str = "unreadable";

/// The beginning of the fingerprint of a file that was replaced when it was to be read.
pub(crate) const CHANGING: &str = "changing";

/// Whether the fingerprint of a file says nothing about its content.
pub(super) fn is_content_unknown(fingerprint: &str) -> bool {
    [UNREADABLE, CHANGING]
        .iter()
        .any(|begin| fingerprint.starts_with(begin))
}

/// A fact, or why it is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Probe<T> {
    /// The fact.
    Found(T),
    /// The reason why the fact could not be found out: a line for people.
    Failed(String),
}

impl<T> Default for Probe<T> {
    fn default() -> Self {
        Self::Failed("nobody has looked".to_owned())
    }
}

impl<T> Probe<T> {
    /// The fact.
    ///
    /// # Errors
    ///
    /// The reason why the fact is unknown.
    pub fn get(&self) -> Result<&T, &str> {
        match self {
            Self::Found(found) => Ok(found),
            Self::Failed(why) => Err(why),
        }
    }

    /// The fact, if it is known.
    #[must_use]
    pub fn found(&self) -> Option<&T> {
        self.get().ok()
    }
}

/// The state of a repository at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The working tree.
    pub tree: Probe<Tree>,
    /// The checked-out branch or commit.
    pub head: Probe<Head>,
    /// The branches that criteria name; `None` if a branch does not exist.
    pub branches: BTreeMap<BranchName, Probe<Option<History>>>,
    /// The files that differ since the start on each of those branches whose last commit has
    /// changed, if a criterion needs them.
    pub branch_changes: BTreeMap<BranchName, Probe<BTreeMap<String, ChangeKind>>>,
    /// The branches of the remote, as the remote itself lists them, with their last commits.
    /// Fetched remote-tracking refs are not used.
    pub remote: Probe<BTreeMap<String, String>>,
    /// Whether a branch of the remote led to the checked-out commit at the start. Only determined
    /// if a branch of the remote is at that commit now.
    pub remote_had_tip: bool,
    /// The files that match patterns of criteria, including ignored files, by their paths from the
    /// top. Each has a fingerprint of its content, so that touching a file does not count as a
    /// change.
    pub files: Probe<BTreeMap<String, String>>,
    /// The open pull requests from the checked-out branch.
    pub pull_requests: Probe<Vec<PullRequest>>,
    /// The user's comments on the issues that criteria name.
    pub comments: BTreeMap<Issue, Probe<Vec<Comment>>>,
    /// The ends of the commands that criteria name. None is run at the start.
    pub commands: BTreeMap<CommandLine, Probe<CommandEnd>>,
    /// The review of the changes; `None` if this state was not reviewed.
    pub review: Option<Probe<ReviewEnd>>,
}

/// The working tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// The status by git, which lists new files one by one, and no ignored ones.
    pub state: GitState,
    /// The files that differ between HEAD at the start and HEAD now.
    pub committed: BTreeMap<String, ChangeKind>,
}

impl Tree {
    /// The files that have changed since `start`.
    #[must_use]
    pub fn changed_since(&self, start: &Self) -> BTreeMap<String, ChangeKind> {
        start.state.changed_until(&self.state, &self.committed)
    }
}

/// The checked-out branch or commit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The branch; `None` for a detached HEAD.
    pub branch: Option<String>,
    /// The commits that lead to HEAD.
    pub history: History,
}

/// The commits that lead to a ref.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// The last commit; `None` before the first one.
    pub tip: Option<String>,
    /// Whether the last commit was fetched after the start, as by `git pull`.
    pub tip_is_foreign: bool,
    /// The number of commits.
    pub total: u64,
    /// The number of commits to which no branch, tag or remote branch led at the start.
    pub new: u64,
    /// The latest new commits, newest first, see [`COMMITS_NAMED`].
    pub newest: Vec<Commit>,
}

impl History {
    /// Whether the branch has new commits, all of which were fetched.
    pub(super) fn is_foreign(&self) -> bool {
        self.tip_is_foreign && self.new == 0
    }
}

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The full ID of the commit.
    pub id: String,
    /// The first line of the commit message.
    pub subject: String,
}

/// Whether something at GitHub is older than the run, by GitHub's own clock: the first query
/// may not list everything that existed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Age {
    /// Made during the run.
    New,
    /// Made before the run.
    Old,
}

/// An open pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRequest {
    /// The address of the pull request.
    pub url: String,
    /// The number of the pull request in its repository.
    pub number: u64,
    /// Whether the pull request is older than the run.
    pub age: Age,
}

/// A comment of the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comment {
    /// The address of the comment.
    pub url: String,
    /// Whether the comment is older than the run.
    pub age: Age,
}

/// The end of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandEnd {
    /// The command exited by itself.
    Exited {
        /// The exit code.
        code: i32,
        /// The end of its output.
        tail: String,
    },
    /// A signal ended the command.
    Signalled(i32),
    /// The command took longer than this limit, and was ended.
    TimedOut(Duration),
}

/// Codex's work since the run began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// The steps of all turns.
    pub evidence: Evidence,
    /// The number of steps that succeeded, in all turns.
    pub succeeded: u64,
    /// The refusal in the last turn that had a successful or a refused step.
    pub refusal: Refusal,
    /// Whether the last turn ended with an answer.
    pub answer: Answer,
}

impl Work {
    /// Adds the steps of a turn and its refusal.
    pub fn add(&mut self, steps: &Steps, refusal: Refusal) {
        self.evidence += steps.evidence;
        self.succeeded += steps.succeeded;
        if steps.succeeded > 0 || refusal != Refusal::None {
            self.refusal = refusal;
        }
    }
}

/// Whether a turn ended with an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The turn has no final message, or did not complete. Earlier messages do not count.
    #[default]
    Missing,
    /// The turn completed with a final message.
    Present,
}

/// Whether state from before the run meets criteria.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preexisting {
    /// Only new things count.
    #[default]
    Ignored,
    /// Old things count too (`--allow-preexisting`).
    Counts,
}

impl Snapshot {
    /// The matching files that are new or changed. A file whose content is unknown, now or at the
    /// start, does not count as changed.
    pub(super) fn new_files<'a>(&'a self, start: &'a Self) -> BTreeSet<&'a str> {
        let (Some(now), Some(before)) = (self.files.found(), start.files.found()) else {
            return BTreeSet::new();
        };
        let is_new = |(path, stamp): &(&String, &String)| match before.get(*path) {
            Some(before) => {
                before != *stamp && !is_content_unknown(before) && !is_content_unknown(stamp)
            }
            None => true,
        };
        let new = now.iter().filter(is_new);
        new.map(|(path, _)| path.as_str()).collect()
    }

    /// The branches of the remote that are at the checked-out commit, unless the remote already had
    /// that commit at the start. Empty if all new commits came from elsewhere: then somebody else
    /// has pushed them.
    pub(super) fn pushed<'a>(&'a self, start: &Self) -> Vec<(&'a str, &'a str)> {
        let head = self.head.found();
        let own = head.filter(|head| !head.history.is_foreign());
        let tip = own.and_then(|head| head.history.tip.as_ref());
        let (Some(tip), Some(remote), Some(before)) =
            (tip, self.remote.found(), start.remote.found())
        else {
            return Vec::new();
        };
        // The remote had this commit already, so another branch for it brings nothing new.
        if self.remote_had_tip || before.values().any(|commit| commit == tip) {
            return Vec::new();
        }
        let pushed = remote.iter().filter(|(_, commit)| *commit == tip);
        pushed
            .map(|(name, commit)| (name.as_str(), commit.as_str()))
            .collect()
    }

    /// The checked-out commit.
    pub(crate) fn tip(&self) -> Option<&str> {
        self.head.found()?.history.tip.as_deref()
    }

    /// The last commit of a branch that criteria name; `None` without one, or if it is unknown.
    pub(super) fn branch_tip(&self, name: &BranchName) -> Option<&str> {
        let history = self.branches.get(name)?.found()?.as_ref()?;
        history.tip.as_deref()
    }

    /// The branches named by criteria that have moved since the start, and whose commit is not the
    /// checked-out one.
    pub(crate) fn other_branches<'a>(&'a self, start: &'a Self) -> Vec<OtherBranch<'a>> {
        let other = |(name, probe): (&'a BranchName, &'a Probe<Option<History>>)| {
            let history = probe.found()?.as_ref()?;
            let tip = history.tip.as_deref()?;
            let (base, before) = match (start.branch_tip(name), start.tip()) {
                (Some(own), _) => (BranchBase::Own(own), Some(own)),
                (None, Some(head)) => (BranchBase::Head(head), Some(head)),
                (None, None) => (BranchBase::Nothing, None),
            };
            let is_other = before != Some(tip) && self.tip() != Some(tip);
            is_other.then(|| OtherBranch {
                name: name.as_str(),
                base,
                tip,
            })
        };
        self.branches.iter().filter_map(other).collect()
    }

    /// The new pull requests.
    pub(super) fn new_pull_requests<'a>(&'a self, start: &Self) -> Vec<&'a PullRequest> {
        let before = start.pull_requests.found().map_or(&[][..], Vec::as_slice);
        let was_there = |url: &str| before.iter().any(|request| request.url == url);
        let requests = self.pull_requests.found().into_iter().flatten();
        requests
            .filter(|request| request.age == Age::New && !was_there(&request.url))
            .collect()
    }

    /// The user's new comments on an issue.
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
