//! The state of a git working tree, and what changed between two states of it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::{Deserialize, Serialize};

/// The state of a working tree, as git reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitState {
    /// The commit that is checked out; `None` before the first one.
    pub head: Option<String>,
    /// The files that differ from that commit, by their paths from the top of the tree.
    pub dirty: BTreeMap<String, FileState>,
}

/// A file that differs from the commit that is checked out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// The kind of the file's change.
    pub kind: ChangeKind,
    /// Git's status of the file, with its size, mode and times. It is only compared for equality.
    pub stamp: String,
}

/// The kind of change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// The file is new.
    Added,
    /// The content or the mode of the file differs.
    Modified,
    /// The file was deleted.
    Deleted,
}

impl GitState {
    /// The files that changed between this state and a later one of the same tree. `committed` are
    /// the files that differ between the two commits. A file that was written to, or replaced by a
    /// copy of itself, counts as changed even if its content is the same as before.
    #[must_use]
    pub fn changed_until(
        &self,
        later: &Self,
        committed: &BTreeMap<String, ChangeKind>,
    ) -> BTreeMap<String, ChangeKind> {
        let mut changed = committed.clone();
        for (path, now) in &later.dirty {
            let before = self.dirty.get(path);
            if before != Some(now) {
                changed.insert(path.clone(), kind_of_change(before, now));
            }
        }
        for (path, before) in &self.dirty {
            if !later.dirty.contains_key(path)
                && let Entry::Vacant(entry) = changed.entry(path.clone())
            {
                entry.insert(kind_when_clean(before.kind));
            }
        }
        changed
    }
}

/// The kind of change of a file that differs now. A file that was new before and still is was
/// modified.
fn kind_of_change(before: Option<&FileState>, now: &FileState) -> ChangeKind {
    match (before.map(|before| before.kind), now.kind) {
        (Some(ChangeKind::Added), ChangeKind::Added) => ChangeKind::Modified,
        (_, kind) => kind,
    }
}

/// A file that no longer differs: a new one was deleted, a deleted one is back, and a
/// modified one was reverted. Committed files are known from the commits.
fn kind_when_clean(before: ChangeKind) -> ChangeKind {
    match before {
        ChangeKind::Added => ChangeKind::Deleted,
        ChangeKind::Modified => ChangeKind::Modified,
        ChangeKind::Deleted => ChangeKind::Added,
    }
}

#[cfg(test)]
mod tests {
    use super::ChangeKind::{Added, Deleted, Modified};
    use super::*;

    fn state(files: &[(&str, ChangeKind, &str)]) -> GitState {
        let file = |kind, stamp: &str| FileState {
            kind,
            stamp: stamp.to_owned(),
        };
        GitState {
            head: None,
            dirty: files
                .iter()
                .map(|(path, kind, stamp)| ((*path).to_owned(), file(*kind, stamp)))
                .collect(),
        }
    }

    fn kinds(files: &[(&str, ChangeKind)]) -> BTreeMap<String, ChangeKind> {
        files
            .iter()
            .map(|(path, kind)| ((*path).to_owned(), *kind))
            .collect()
    }

    #[test]
    fn changes_are_differences_from_the_start() {
        let before = state(&[
            ("as-it-was", Modified, "1"),
            ("reverted", Modified, "1"),
            ("removed", Added, "1"),
            ("restored", Deleted, "1"),
            ("worked-on", Added, "1"),
            ("committed", Added, "1"),
        ]);
        let after = state(&[
            ("as-it-was", Modified, "1"),
            ("worked-on", Added, "2"),
            ("new", Added, "1"),
            ("gone", Deleted, ""),
        ]);
        let committed = kinds(&[("committed", Added)]);
        assert_eq!(
            before.changed_until(&after, &committed),
            kinds(&[
                ("committed", Added),
                ("gone", Deleted),
                ("new", Added),
                ("removed", Deleted),
                ("restored", Added),
                ("reverted", Modified),
                ("worked-on", Modified),
            ])
        );
    }
}
