//! Which files a run changed: what git sees changed between its start and its end,
//! and what Codex reports.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::event::EditKind;
use serde::{Deserialize, Serialize};

/// How many changed files are told; all are counted.
pub const FILES_LIMIT: usize = 1000;

/// What git says of a working tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GitState {
    /// The commit that is checked out; `None` before the first one.
    pub head: Option<String>,
    /// The files that differ from it, by their paths from the top of the tree, and
    /// how they look, in any form that can be compared.
    pub dirty: BTreeMap<String, Look>,
}

/// How a file that differs from the commit looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// What became of it.
    pub kind: ChangeKind,
    /// What git says of it, and what differs when it is written to.
    pub stamp: String,
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It is another than it was.
    Modified,
    /// It is gone.
    Deleted,
}

/// Who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SeenBy {
    /// Git does.
    Git,
    /// Codex does.
    Codex,
    /// Both do.
    Both,
}

/// A file that a run changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedFile {
    /// Its path from the top of the repository, or else an absolute one.
    pub path: String,
    /// What became of it.
    pub kind: ChangeKind,
    /// Who says so.
    pub seen_by: SeenBy,
}

/// What a run changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// The first files, by their paths, see [`FILES_LIMIT`].
    pub files: Vec<ChangedFile>,
    /// How many files more there are.
    pub more: usize,
    /// The commit that was checked out at the start.
    pub head_before: Option<String>,
    /// The commit that was checked out at the end.
    pub head_after: Option<String>,
    /// Why git couldn't tell all of it. What Codex reports is told all the same.
    pub incomplete: Option<String>,
}

impl Changes {
    /// What changed between two states of one tree. `committed` are the files that
    /// differ between the two commits. A file that was written to and is as long as
    /// before and of the same time counts as unchanged; one that was written anew
    /// with what was in it counts as changed.
    #[must_use]
    pub fn between(
        before: &GitState,
        after: &GitState,
        committed: &BTreeMap<String, ChangeKind>,
    ) -> BTreeMap<String, ChangeKind> {
        let mut changed = committed.clone();
        for (path, look) in &after.dirty {
            if before.dirty.get(path) != Some(look) {
                changed.insert(path.clone(), kind_now(before.dirty.get(path), look));
            }
        }
        for (path, look) in &before.dirty {
            if !after.dirty.contains_key(path)
                && let Entry::Vacant(entry) = changed.entry(path.clone())
            {
                entry.insert(kind_when_clean(look.kind));
            }
        }
        changed
    }

    /// All that is known: `seen` by git, and `reported` by Codex with absolute
    /// paths, which are told from `root`, the top of the tree, on.
    pub fn tell(
        &mut self,
        seen: &BTreeMap<String, ChangeKind>,
        reported: &BTreeMap<String, EditKind>,
        root: Option<&str>,
    ) {
        let mut files: BTreeMap<String, (ChangeKind, SeenBy)> = seen
            .iter()
            .map(|(path, kind)| (path.clone(), (*kind, SeenBy::Git)))
            .collect();
        for (path, kind) in reported {
            let path = below(root, path).unwrap_or(path).to_owned();
            files
                .entry(path)
                .and_modify(|(_, seen_by)| *seen_by = SeenBy::Both)
                .or_insert((reported_kind(*kind), SeenBy::Codex));
        }
        self.more = files.len().saturating_sub(FILES_LIMIT);
        let told = files.into_iter().take(FILES_LIMIT);
        self.files = told
            .map(|(path, (kind, seen_by))| ChangedFile {
                path,
                kind,
                seen_by,
            })
            .collect();
    }
}

/// A new file that was there before was changed, if it still is.
fn kind_now(before: Option<&Look>, now: &Look) -> ChangeKind {
    match (before.map(|look| look.kind), now.kind) {
        (Some(ChangeKind::Added), ChangeKind::Added) => ChangeKind::Modified,
        (_, kind) => kind,
    }
}

/// What was new is gone, what was gone is back, and what was changed is as in the
/// commit. What has been committed is known from the commits.
fn kind_when_clean(before: ChangeKind) -> ChangeKind {
    match before {
        ChangeKind::Added => ChangeKind::Deleted,
        ChangeKind::Modified => ChangeKind::Modified,
        ChangeKind::Deleted => ChangeKind::Added,
    }
}

fn reported_kind(kind: EditKind) -> ChangeKind {
    match kind {
        EditKind::Add => ChangeKind::Added,
        EditKind::Delete => ChangeKind::Deleted,
        EditKind::Update => ChangeKind::Modified,
    }
}

fn below<'a>(root: Option<&str>, path: &'a str) -> Option<&'a str> {
    path.strip_prefix(root?)?.strip_prefix('/')
}

#[cfg(test)]
mod tests {
    use super::ChangeKind::{Added, Deleted, Modified};
    use super::*;

    fn state(files: &[(&str, ChangeKind, &str)]) -> GitState {
        let look = |kind, stamp: &str| Look {
            kind,
            stamp: stamp.to_owned(),
        };
        GitState {
            head: None,
            dirty: files
                .iter()
                .map(|(path, kind, stamp)| ((*path).to_owned(), look(*kind, stamp)))
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
    fn only_what_differs_from_the_start_is_changed() {
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
            Changes::between(&before, &after, &committed),
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

    #[test]
    fn git_and_codex_are_told_together() {
        let seen = kinds(&[("a", Modified), ("b", Added)]);
        let reported = BTreeMap::from([
            ("/repo/b".to_owned(), EditKind::Add),
            ("/repository/c".to_owned(), EditKind::Delete),
        ]);
        let mut changes = Changes::default();
        changes.tell(&seen, &reported, Some("/repo"));
        let told: Vec<(&str, ChangeKind, SeenBy)> = changes
            .files
            .iter()
            .map(|file| (file.path.as_str(), file.kind, file.seen_by))
            .collect();
        assert_eq!(
            told,
            [
                ("/repository/c", Deleted, SeenBy::Codex),
                ("a", Modified, SeenBy::Git),
                ("b", Added, SeenBy::Both),
            ]
        );
    }

    #[test]
    fn files_past_the_limit_are_counted() {
        let seen = (0..FILES_LIMIT + 5)
            .map(|number| (number.to_string(), Added))
            .collect();
        let mut changes = Changes::default();
        changes.tell(&seen, &BTreeMap::new(), None);
        assert_eq!((changes.files.len(), changes.more), (FILES_LIMIT, 5));
    }
}
