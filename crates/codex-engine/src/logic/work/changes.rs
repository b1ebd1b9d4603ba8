//! The files that a run changed, according to git between its start and its end, and to
//! Codex.

use std::collections::BTreeMap;

use git_probe::logic::git_state::ChangeKind;
use serde::{Deserialize, Serialize};

use super::event::EditKind;

/// The most changed files that are listed; all are counted.
pub const FILES_LIMIT: usize = 1000;

/// The source of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeSource {
    /// Git.
    Git,
    /// Codex.
    Codex,
    /// Both.
    Both,
}

/// A file that a run changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedFile {
    /// Its path from the top of the repository, or else an absolute one.
    pub path: String,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The source of a change.
    pub seen_by: ChangeSource,
}

/// The changes of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// The first files, by their paths, see [`FILES_LIMIT`].
    pub files: Vec<ChangedFile>,
    /// How many further files there are.
    pub more: usize,
    /// The commit that was checked out at the start.
    pub head_before: Option<String>,
    /// The commit that was checked out at the end.
    pub head_after: Option<String>,
    /// Why git could not determine all changes. Codex's reports are listed anyway.
    pub incomplete: Option<String>,
}

impl Changes {
    /// Merges the changes `seen` by git with those `reported` by Codex, whose absolute
    /// paths are made relative to `root`, the top of the tree.
    pub fn merge(
        &mut self,
        seen: &BTreeMap<String, ChangeKind>,
        reported: &BTreeMap<String, EditKind>,
        root: Option<&str>,
    ) {
        let mut files: BTreeMap<String, (ChangeKind, ChangeSource)> = seen
            .iter()
            .map(|(path, kind)| (path.clone(), (*kind, ChangeSource::Git)))
            .collect();
        for (path, kind) in reported {
            let path = below(root, path).unwrap_or(path).to_owned();
            files
                .entry(path)
                .and_modify(|(_, seen_by)| *seen_by = ChangeSource::Both)
                .or_insert((reported_kind(*kind), ChangeSource::Codex));
        }
        self.more = files.len().saturating_sub(FILES_LIMIT);
        let listed = files.into_iter().take(FILES_LIMIT);
        self.files = listed
            .map(|(path, (kind, seen_by))| ChangedFile {
                path,
                kind,
                seen_by,
            })
            .collect();
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
    use super::*;
    use git_probe::logic::git_state::ChangeKind::Added;
    use git_probe::logic::git_state::ChangeKind::Deleted;
    use git_probe::logic::git_state::ChangeKind::Modified;

    fn kinds(files: &[(&str, ChangeKind)]) -> BTreeMap<String, ChangeKind> {
        files
            .iter()
            .map(|(path, kind)| ((*path).to_owned(), *kind))
            .collect()
    }

    #[test]
    fn changes_of_git_and_codex_are_merged() {
        let seen = kinds(&[("a", Modified), ("b", Added)]);
        let reported = BTreeMap::from([
            ("/repo/b".to_owned(), EditKind::Add),
            ("/repository/c".to_owned(), EditKind::Delete),
        ]);
        let mut changes = Changes::default();
        changes.merge(&seen, &reported, Some("/repo"));
        let listed: Vec<(&str, ChangeKind, ChangeSource)> = changes
            .files
            .iter()
            .map(|file| (file.path.as_str(), file.kind, file.seen_by))
            .collect();
        assert_eq!(
            listed,
            [
                ("/repository/c", Deleted, ChangeSource::Codex),
                ("a", Modified, ChangeSource::Git),
                ("b", Added, ChangeSource::Both),
            ]
        );
    }

    #[test]
    fn files_past_the_limit_are_counted() {
        let seen = (0..FILES_LIMIT + 5)
            .map(|number| (number.to_string(), Added))
            .collect();
        let mut changes = Changes::default();
        changes.merge(&seen, &BTreeMap::new(), None);
        assert_eq!((changes.files.len(), changes.more), (FILES_LIMIT, 5));
    }
}
