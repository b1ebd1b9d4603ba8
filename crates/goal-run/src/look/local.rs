//! The local state that a verdict is based on, kept for a later comparison.

use std::collections::{BTreeMap, BTreeSet};

use git_probe::logic::git_state::GitState;

use super::refs::Refs;
use crate::logic::names::BranchName;
use crate::logic::snapshot::{Head, History, Snapshot};

/// How many changed files are named.
const FILES_NAMED: usize = 3;

/// The working tree, HEAD, the branches that criteria name, and the files that match their
/// patterns. Parts that could not be read are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LocalState {
    pub(super) tree: Option<GitState>,
    pub(super) refs: Option<LocalRefs>,
    pub(super) files: Option<BTreeMap<String, String>>,
}

/// The targets of the refs that criteria name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LocalRefs {
    /// The branch that is checked out.
    branch: Option<String>,
    /// The commit that is checked out.
    tip: Option<String>,
    branches: BTreeMap<BranchName, Option<String>>,
}

impl LocalRefs {
    pub(super) fn new(refs: Refs, branches: &BTreeSet<BranchName>) -> Self {
        let tip = |name: &BranchName| (name.clone(), refs.branch_tip(name).cloned());
        Self {
            branches: branches.iter().map(tip).collect(),
            branch: refs.branch,
            tip: refs.tip,
        }
    }

    fn of(snapshot: &Snapshot) -> Option<Self> {
        let Head { branch, history } = snapshot.head.found()?;
        let tip = |line: &Option<History>| line.as_ref().and_then(|line| line.tip.clone());
        let branches = snapshot.branches.iter();
        let branches = branches.map(|(name, line)| Some((name.clone(), tip(line.found()?))));
        Some(Self {
            branch: branch.clone(),
            tip: history.tip.clone(),
            branches: branches.collect::<Option<_>>()?,
        })
    }
}

impl From<&Snapshot> for LocalState {
    fn from(snapshot: &Snapshot) -> Self {
        Self {
            tree: snapshot.tree.found().map(|tree| tree.state.clone()),
            refs: LocalRefs::of(snapshot),
            files: snapshot.files.found().cloned(),
        }
    }
}

impl LocalState {
    /// The differences from `before` in words; `None` if there are none. Parts that could not
    /// be read before are not compared.
    pub(crate) fn difference(&self, before: &Self) -> Option<String> {
        let Self { tree, refs, files } = self;
        if before.refs.is_some() && before.refs != *refs {
            return Some("what is checked out, or a branch that was asked for".to_owned());
        }
        let tree = before.tree.as_ref().map(|before| match tree {
            Some(now) => different(&before.dirty, &now.dirty),
            None => vec!["the working tree, which cannot be read".to_owned()],
        });
        let files = before.files.as_ref().map(|before| match files {
            Some(now) => different(before, now),
            None => vec!["the files that were asked for, which cannot be read".to_owned()],
        });
        let names: BTreeSet<String> = tree.into_iter().chain(files).flatten().collect();
        let more = names.len().saturating_sub(FILES_NAMED);
        let mut named: Vec<String> = names.into_iter().take(FILES_NAMED).collect();
        if more > 0 {
            named.push(format!("and {more} more"));
        }
        (!named.is_empty()).then(|| named.join(", "))
    }
}

/// The keys whose values differ.
fn different<T: PartialEq>(one: &BTreeMap<String, T>, other: &BTreeMap<String, T>) -> Vec<String> {
    let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    let differ = keys
        .into_iter()
        .filter(|key| one.get(*key) != other.get(*key));
    differ.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_names_what_changed() {
        let state = |names: &[&str]| {
            let files = names.iter().map(|name| ((*name).to_owned(), String::new()));
            LocalState {
                files: Some(files.collect()),
                ..LocalState::default()
            }
        };
        let (before, same) = (state(&["a"]), state(&["a"]));
        assert_eq!(same.difference(&before), None);
        let more = state(&["a", "b", "c", "d", "e"]);
        let words = more.difference(&before);
        assert_eq!(words.as_deref(), Some("b, c, d, and 1 more"));
        let unread = LocalState::default();
        assert!(unread.difference(&before).is_some());
        assert_eq!(before.difference(&unread), None);
    }
}
