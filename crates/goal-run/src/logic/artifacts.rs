//! The artifacts of a run, and whether a turn has added any.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use git_probe::logic::git_state::ChangeKind;
use serde::{Deserialize, Serialize};

use super::names::Issue;
use super::snapshot::{CommandEnd, History, Probe, Snapshot, Tree};

/// A result of a run that anyone can check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Artifact {
    /// A pull request.
    #[serde(rename = "pr")]
    PullRequest {
        /// The address of the pull request.
        url: String,
        /// The number of the pull request in its repository.
        number: u64,
    },
    /// A comment.
    IssueComment {
        /// The address of the comment.
        url: String,
        /// The issue.
        issue: Issue,
    },
    /// A branch of the remote that is now at the checked-out commit.
    Push {
        /// The branch, by its name at the remote.
        branch: String,
        /// The commit.
        commit: String,
    },
    /// A commit.
    Commit {
        /// The full ID of the commit.
        id: String,
        /// The first line of the commit message.
        subject: String,
    },
    /// A branch that is new, or has new commits.
    Branch {
        /// The name of the branch.
        name: String,
        /// The last commit of the branch.
        commit: String,
    },
    /// A changed file.
    File {
        /// The path of the file from the top of the repository.
        path: String,
        /// The kind of change.
        change: ChangeKind,
    },
    /// A command that exits with 0.
    Command {
        /// The command as it was written.
        command: String,
    },
}

/// The artifacts that are new `now` compared with `start`, the most important ones first.
#[must_use]
pub fn new_artifacts(start: &Snapshot, now: &Snapshot) -> Vec<Artifact> {
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

/// The new artifacts, followed by all commands that exit with 0.
#[must_use]
pub fn all_artifacts(start: &Snapshot, now: &Snapshot) -> Vec<Artifact> {
    let mut artifacts = new_artifacts(start, now);
    let good =
        |end: &Probe<CommandEnd>| matches!(end.found(), Some(CommandEnd::Exited { code: 0, .. }));
    let commands = now.commands.iter().filter(|(_, end)| good(end));
    artifacts.extend(commands.map(|(command, _)| Artifact::Command {
        command: command.to_string(),
    }));
    artifacts
}

/// The histories of HEAD and of the branches.
fn histories(now: &Snapshot) -> impl Iterator<Item = &History> {
    let head = now.head.found().map(|head| &head.history);
    let branches = now
        .branches
        .values()
        .filter_map(|branch| branch.found()?.as_ref());
    head.into_iter().chain(branches)
}

fn commits(now: &Snapshot) -> Vec<Artifact> {
    let mut known = HashSet::new();
    let commits = histories(now).flat_map(|line| &line.newest);
    commits
        .filter(|commit| known.insert(&commit.id))
        .map(|commit| Artifact::Commit {
            id: commit.id.clone(),
            subject: commit.subject.clone(),
        })
        .collect()
}

fn branches(start: &Snapshot, now: &Snapshot) -> Vec<Artifact> {
    let branch = |(name, probe): (_, &Probe<Option<History>>)| {
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

/// Whether a turn has made something new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gain {
    /// There is something that did not exist after any earlier turn.
    Something,
    /// Everything existed before, at the start or later.
    Nothing,
}

/// All artifacts that a run has made so far. A return to an earlier state is no gain, so a run
/// gains nothing by changing something back and forth.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SeenArtifacts {
    fingerprints: HashSet<u64>,
}

impl SeenArtifacts {
    /// Records the state after a turn, and returns whether it has something new.
    pub fn record(&mut self, start: &Snapshot, now: &Snapshot) -> Gain {
        let before = self.fingerprints.len();
        self.fingerprints.extend(fingerprints(start, now));
        match self.fingerprints.len() > before {
            true => Gain::Something,
            false => Gain::Nothing,
        }
    }
}

/// The fingerprints of all that is new.
fn fingerprints(start: &Snapshot, now: &Snapshot) -> HashSet<u64> {
    let mut fingerprints = HashSet::new();
    for artifact in new_artifacts(start, now) {
        // Files are covered below, by the fingerprints of their contents.
        match artifact {
            Artifact::PullRequest { url, .. } | Artifact::IssueComment { url, .. } => {
                fingerprints.insert(fingerprint(&("url", url)));
            }
            Artifact::Push { branch, commit } => {
                fingerprints.insert(fingerprint(&("push", branch, commit)));
            }
            Artifact::Branch { name, commit } => {
                fingerprints.insert(fingerprint(&("branch", name, commit)));
            }
            Artifact::Commit { .. } | Artifact::File { .. } | Artifact::Command { .. } => {}
        }
    }
    for line in histories(now).filter(|line| line.new > 0) {
        fingerprints.insert(fingerprint(&("tip", &line.tip)));
    }
    if let (Some(now), Some(start)) = (now.tree.found(), start.tree.found()) {
        fingerprints.extend(tree_fingerprints(start, now));
    }
    for path in now.new_files(start) {
        let stamp = now.files.found().and_then(|files| files.get(path));
        fingerprints.insert(fingerprint(&("file", path, stamp)));
    }
    fingerprints
}

/// The fingerprints of uncommitted changes. Committed ones have that of their commit.
fn tree_fingerprints(start: &Tree, now: &Tree) -> Vec<u64> {
    let changed = now.changed_since(start).into_keys();
    let uncommitted = changed.filter(|path| !now.committed.contains_key(path));
    uncommitted
        .map(|path| {
            let look = now.state.dirty.get(&path);
            fingerprint(&("tree", &path, look.map(|look| &look.stamp)))
        })
        .collect()
}

fn fingerprint(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}
