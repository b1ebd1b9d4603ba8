//! Which files a run changed: what git sees changed between its start and its end,
//! and what Codex reports.

use std::collections::BTreeMap;

use git_probe::logic::git_state::ChangeKind;
use serde::{Deserialize, Serialize};

use super::event::EditKind;

/// How many changed files are told; all are counted.
pub const FILES_LIMIT: usize = 1000;

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
