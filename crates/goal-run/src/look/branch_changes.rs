//! The files that have changed on the branches that criteria name, checked out or not.
//!
//! Source: git-merge-base(1).

use std::collections::BTreeMap;

use git_probe::logic::git_state::ChangeKind;
use git_probe::{Git, GitError};

use super::initial::InitialRefs;
use super::refs::optional_line;
use crate::logic::names::BranchName;
use crate::logic::snapshot::{History, Probe};

/// The changes on each branch whose last commit is another one than at the start.
pub(super) async fn look(
    git: &Git,
    initial: &InitialRefs,
    branches: &BTreeMap<BranchName, Probe<Option<History>>>,
) -> BTreeMap<BranchName, Probe<BTreeMap<String, ChangeKind>>> {
    let mut found = BTreeMap::new();
    for (branch, history) in branches {
        let history = history.found().and_then(Option::as_ref);
        let tip = history.and_then(|history| history.tip.as_ref());
        let moved = tip.filter(|tip| initial.refs.branch_tip(branch) != Some(*tip));
        if let Some(tip) = moved {
            let changes = match changes(git, initial, branch, tip).await {
                Ok(changes) => Probe::Found(changes),
                Err(error) => Probe::Failed(error.to_string()),
            };
            found.insert(branch.clone(), changes);
        }
    }
    found
}

async fn changes(
    git: &Git,
    initial: &InitialRefs,
    branch: &BranchName,
    tip: &str,
) -> Result<BTreeMap<String, ChangeKind>, GitError> {
    let base = match (initial.refs.branch_tip(branch), &initial.refs.tip) {
        (Some(before), _) => Some(before.clone()),
        // A new branch can begin at an older commit than HEAD. Commits after that one are not
        // missing from the branch: they were never part of it.
        (None, Some(head)) => optional_line(git, &["merge-base", head, tip]).await?,
        (None, None) => None,
    };
    git.committed(base.as_deref(), Some(tip)).await
}
