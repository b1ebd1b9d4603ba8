//! The histories of HEAD and of branches, and which of their commits are new.
//!
//! A commit is new if no ref led to it at the start, and if it has not come from elsewhere since,
//! see [`foreign_commits`](super::foreign_commits). A commit that no ref led to, and that somebody
//! has recovered from a reflog, also counts as new.
//!
//! Source: git-rev-list(1).

use std::collections::{BTreeMap, BTreeSet, HashSet};

use git_probe::{Git, GitError};

use super::foreign_commits::foreign_commits;
use super::initial::InitialRefs;
use super::refs::Refs;
use crate::logic::names::BranchName;
use crate::logic::snapshot::{COMMITS_NAMED, Commit, Head, History, Probe};

/// The histories that were found.
#[derive(Debug, Default)]
pub(super) struct Histories {
    pub(super) head: Probe<Head>,
    pub(super) branches: BTreeMap<BranchName, Probe<Option<History>>>,
}

impl Histories {
    /// The histories of HEAD and of these branches.
    pub(super) async fn look(
        git: &Git,
        initial: &InitialRefs,
        refs: &Refs,
        branches: &BTreeSet<BranchName>,
    ) -> Self {
        let named = branches.iter().filter_map(|branch| refs.branch_tip(branch));
        let tips: BTreeSet<&String> = refs.tip.iter().chain(named).collect();
        let lines = match histories(git, initial, refs, &tips).await {
            Ok(lines) => lines,
            Err(error) => return Self::failed(&error.to_string(), branches),
        };
        let line = |tip: &String| lines.get(tip.as_str()).cloned().unwrap_or_default();
        let branch = |branch: &BranchName| {
            let line = refs.branch_tip(branch).map(line);
            (branch.clone(), Probe::Found(line))
        };
        Self {
            head: Probe::Found(Head {
                branch: refs.branch.clone(),
                history: refs.tip.as_ref().map(line).unwrap_or_default(),
            }),
            branches: branches.iter().map(branch).collect(),
        }
    }

    /// Histories that could not be found out, for this reason.
    pub(super) fn failed(why: &str, branches: &BTreeSet<BranchName>) -> Self {
        let failed = |branch: &BranchName| (branch.clone(), Probe::Failed(why.to_owned()));
        Self {
            head: Probe::Failed(why.to_owned()),
            branches: branches.iter().map(failed).collect(),
        }
    }
}

/// The histories by their tips.
async fn histories(
    git: &Git,
    initial: &InitialRefs,
    refs: &Refs,
    tips: &BTreeSet<&String>,
) -> Result<BTreeMap<String, History>, GitError> {
    let led_to: HashSet<&String> = initial.refs.all.values().chain(&initial.refs.tip).collect();
    let mut found = BTreeMap::new();
    for tip in tips {
        let since = match led_to.contains(tip) {
            true => Vec::new(),
            false => initial.since(git, &[tip], &[]).await?,
        };
        found.insert(tip.as_str(), (since, initial.total(git, tip).await?));
    }
    let foreign = match found.values().all(|(since, _)| since.is_empty()) {
        true => HashSet::new(),
        false => foreign_commits(git, initial, refs).await?,
    };
    let mut lines = BTreeMap::new();
    for (tip, (mut since, total)) in found {
        since.retain(|id| !foreign.contains(id));
        let line = History {
            tip: Some(tip.to_owned()),
            tip_is_foreign: foreign.contains(tip),
            total,
            new: u64::try_from(since.len()).unwrap_or(u64::MAX),
            newest: named(git, since.get(..COMMITS_NAMED).unwrap_or(&since)).await?,
        };
        lines.insert(tip.to_owned(), line);
    }
    Ok(lines)
}

/// Commits and the first lines of their messages.
async fn named(git: &Git, ids: &[String]) -> Result<Vec<Commit>, GitError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    // The colon makes a line for an empty subject too.
    let question = [
        "rev-list",
        "--no-walk=unsorted",
        "--encoding=UTF-8",
        "--format=:%s",
        "--stdin",
    ];
    let input: String = ids.iter().map(|id| format!("{id}\n")).collect();
    let told = git.text(&question, input.as_bytes()).await?;
    let mut lines = told.lines();
    let mut commits = Vec::new();
    while let (Some(commit), Some(subject)) = (lines.next(), lines.next()) {
        let commit = commit.strip_prefix("commit ");
        let subject = subject.strip_prefix(':');
        if let (Some(id), Some(subject)) = (commit, subject) {
            commits.push(Commit {
                id: id.to_owned(),
                subject: short(subject),
            });
        }
    }
    Ok(commits)
}

/// How much of a subject is kept, in bytes.
const SUBJECT_LIMIT: usize = 500;

fn short(subject: &str) -> String {
    let mut short = subject.replace(char::is_control, " ");
    short.truncate(short.floor_char_boundary(SUBJECT_LIMIT));
    short
}
