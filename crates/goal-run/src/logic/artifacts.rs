//! What a run has made, and whether a turn has added to it.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use git_probe::logic::git_state::ChangeKind;
use serde::{Deserialize, Serialize};

use super::names::Issue;
use super::snapshot::{CommandEnd, Line, Probe, Snapshot, Tree};

/// Something that can be looked at without believing anybody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Artifact {
    /// A pull request.
    #[serde(rename = "pr")]
    PullRequest {
        /// Where it is.
        url: String,
        /// Its number.
        number: u64,
    },
    /// A comment.
    IssueComment {
        /// Where it is.
        url: String,
        /// On which issue.
        issue: Issue,
    },
    /// A branch of the remote has become what is checked out.
    Push {
        /// The branch, by its name there.
        branch: String,
        /// The commit.
        commit: String,
    },
    /// A commit.
    Commit {
        /// Its whole hash.
        id: String,
        /// The first line of its message.
        subject: String,
    },
    /// A branch that is new, or has new commits.
    Branch {
        /// Its name.
        name: String,
        /// The commit that it is at.
        commit: String,
    },
    /// A file that was changed.
    File {
        /// Its path from the top of the repository on.
        path: String,
        /// What became of it.
        change: ChangeKind,
    },
    /// A command that exits with 0.
    Command {
        /// It as it was written.
        command: String,
    },
}

/// What is new `now`, of a run that began with `start`: what weighs most comes first.
#[must_use]
pub fn found(start: &Snapshot, now: &Snapshot) -> Vec<Artifact> {
    let requests = now.new_pull_requests(start).into_iter();
    let mut found: Vec<Artifact> = requests
        .map(|request| Artifact::PullRequest {
            url: request.url.clone(),
            number: request.number,
        })
        .collect();
    for issue in now.comments.keys() {
        let comments = now.new_comments(issue, start).into_iter();
        found.extend(comments.map(|comment| Artifact::IssueComment {
            url: comment.url.clone(),
            issue: issue.clone(),
        }));
    }
    let pushed = now.pushed(start).into_iter();
    found.extend(pushed.map(|(branch, commit)| Artifact::Push {
        branch: branch.to_owned(),
        commit: commit.to_owned(),
    }));
    found.extend(commits(now));
    found.extend(branches(start, now));
    found.extend(files(start, now));
    found
}

/// What is new, and after it the commands that exit with 0, new or not.
#[must_use]
pub fn listed(start: &Snapshot, now: &Snapshot) -> Vec<Artifact> {
    let mut listed = found(start, now);
    let good =
        |end: &Probe<CommandEnd>| matches!(end.found(), Some(CommandEnd::Exited { code: 0, .. }));
    let commands = now.commands.iter().filter(|(_, end)| good(end));
    listed.extend(commands.map(|(command, _)| Artifact::Command {
        command: command.to_string(),
    }));
    listed
}

/// The commits that lead to what is checked out, and to the branches.
fn lines(now: &Snapshot) -> impl Iterator<Item = &Line> {
    let head = now.head.found().map(|head| &head.line);
    let branches = now
        .branches
        .values()
        .filter_map(|branch| branch.found()?.as_ref());
    head.into_iter().chain(branches)
}

fn commits(now: &Snapshot) -> Vec<Artifact> {
    let mut known = HashSet::new();
    let commits = lines(now).flat_map(|line| &line.newest);
    commits
        .filter(|commit| known.insert(&commit.id))
        .map(|commit| Artifact::Commit {
            id: commit.id.clone(),
            subject: commit.subject.clone(),
        })
        .collect()
}

fn branches(start: &Snapshot, now: &Snapshot) -> Vec<Artifact> {
    let branch = |(name, probe): (_, &Probe<Option<Line>>)| {
        let line = probe.found()?.as_ref()?;
        let is_new = start.branches.get(name)?.found()?.is_none();
        (is_new || line.new > 0).then(|| Artifact::Branch {
            name: name.to_string(),
            commit: line.tip.clone().unwrap_or_default(),
        })
    };
    now.branches.iter().filter_map(branch).collect()
}

fn files(start: &Snapshot, now: &Snapshot) -> Vec<Artifact> {
    let mut files = match (now.tree.found(), start.tree.found()) {
        (Some(now), Some(start)) => now.changed_since(start),
        _ => Default::default(),
    };
    let before = start.files.found();
    for path in now.new_files(start) {
        let was_there = before.is_some_and(|before| before.contains_key(path));
        let change = match was_there {
            true => ChangeKind::Modified,
            false => ChangeKind::Added,
        };
        files.entry(path.to_owned()).or_insert(change);
    }
    let files = files.into_iter();
    files
        .map(|(path, change)| Artifact::File { path, change })
        .collect()
}

/// Whether a turn has made something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Gain {
    /// There is something that was not there after any turn before.
    Something,
    /// All was there before, at the start or later.
    Nothing,
}

/// What a run has had to show so far. Going back to what was there once is no gain,
/// so that changing something to and fro is none.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    marks: HashSet<u64>,
}

impl Shown {
    /// Takes in what there is after a turn.
    pub fn take(&mut self, start: &Snapshot, now: &Snapshot) -> Gain {
        let before = self.marks.len();
        self.marks.extend(marks(start, now));
        match self.marks.len() > before {
            true => Gain::Something,
            false => Gain::Nothing,
        }
    }
}

/// What is new, each with what changes when it does.
fn marks(start: &Snapshot, now: &Snapshot) -> HashSet<u64> {
    let mut marks = HashSet::new();
    for artifact in found(start, now) {
        // Files have a mark below that changes with what is in them.
        match artifact {
            Artifact::PullRequest { url, .. } | Artifact::IssueComment { url, .. } => {
                marks.insert(mark(&("url", url)));
            }
            Artifact::Push { branch, commit } => {
                marks.insert(mark(&("push", branch, commit)));
            }
            Artifact::Branch { name, commit } => {
                marks.insert(mark(&("branch", name, commit)));
            }
            Artifact::Commit { .. } | Artifact::File { .. } | Artifact::Command { .. } => {}
        }
    }
    for line in lines(now).filter(|line| line.new > 0) {
        marks.insert(mark(&("tip", &line.tip)));
    }
    if let (Some(now), Some(start)) = (now.tree.found(), start.tree.found()) {
        marks.extend(tree_marks(start, now));
    }
    for path in now.new_files(start) {
        let stamp = now.files.found().and_then(|files| files.get(path));
        marks.insert(mark(&("file", path, stamp)));
    }
    marks
}

/// What has been committed is known by its commit.
fn tree_marks(start: &Tree, now: &Tree) -> Vec<u64> {
    let changed = now.changed_since(start).into_keys();
    let uncommitted = changed.filter(|path| !now.committed.contains_key(path));
    uncommitted
        .map(|path| {
            let look = now.state.dirty.get(&path);
            mark(&("tree", &path, look.map(|look| &look.stamp)))
        })
        .collect()
}

fn mark(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}
