//! Refuses names of new refs by which git would find these refs instead of something else.
//!
//! Git resolves the short name `x` to the first that exists of `x`, `refs/x`, `refs/tags/x`,
//! `refs/heads/x`, `refs/remotes/x` and `refs/remotes/x/HEAD`; where it checks out, a branch comes
//! first. So a new ref is refused if it shares one of its short names with an existing ref, and so
//! is a branch or tag whose name stands for something else: `HEAD`, the beginning of an object's
//! ID, a branch of a remote.
//!
//! Git cannot keep a ref `x/y` next to `x`, because their names are paths of files. Such a new ref
//! is refused, too.
//!
//! Source: gitrevisions(7), git-check-ref-format(1).

use std::collections::{BTreeMap, BTreeSet};

use crate::logic::commit_id::looks_like_commit_id;
use crate::{Git, GitError};

/// Names that stand for a commit, in addition to those that end with `_HEAD`. On a file system that
/// ignores case, their lower-case forms do, too.
const PSEUDO_REFS: [&str; 10] = [
    "@",
    "AUTO_MERGE",
    "BISECT_HEAD",
    "CHERRY_PICK_HEAD",
    "FETCH_HEAD",
    "HEAD",
    "MERGE_HEAD",
    "ORIG_HEAD",
    "REBASE_HEAD",
    "REVERT_HEAD",
];

/// The names that are in use in a repository.
#[derive(Debug, Clone, Default)]
pub(super) struct TakenNames {
    /// Refs by their short and whole names.
    taken: BTreeMap<String, String>,
    paths: RefPaths,
    remotes: BTreeSet<String>,
}

/// The whole names of refs.
#[derive(Debug, Clone, Default)]
pub(super) struct RefPaths(BTreeSet<String>);

impl RefPaths {
    /// Adds a ref.
    pub(super) fn add(&mut self, name: &str) {
        self.0.insert(name.to_owned());
    }

    /// The ref that keeps git from storing a ref of this name, if there is one.
    pub(super) fn in_the_way(&self, name: &str) -> Option<&str> {
        let mut above = name.match_indices('/').filter_map(|(at, _)| name.get(..at));
        let above = above.find_map(|above| self.0.get(above));
        let prefix = format!("{name}/");
        let below = || {
            let first = self.0.range(prefix.clone()..).next();
            first.filter(|below| below.starts_with(&prefix))
        };
        above.or_else(below).map(String::as_str)
    }
}

impl TakenNames {
    /// The names of a repository: its refs of all kinds, and its remotes.
    pub(super) async fn of_repository(git: &Git) -> Result<Self, GitError> {
        let output = git
            .text(&["for-each-ref", "--format=%(refname)"], &[])
            .await?;
        let keys = git.settings.iter().filter_map(|one| one.key.to_str());
        let remotes = keys.filter_map(|key| {
            let (name, _) = key.strip_prefix("remote.")?.rsplit_once('.')?;
            Some(name.to_owned())
        });
        Ok(Self::new(output.lines(), remotes))
    }

    /// The names taken by these refs and remotes.
    pub(super) fn new<'a>(
        refs: impl Iterator<Item = &'a str>,
        remotes: impl Iterator<Item = String>,
    ) -> Self {
        let mut names = Self {
            taken: BTreeMap::new(),
            paths: RefPaths::default(),
            remotes: remotes.collect(),
        };
        for name in refs {
            names.add(name);
        }
        names
    }

    /// Adds a ref that exists from now on.
    pub(super) fn add(&mut self, name: &str) {
        if let Some(remote) = name.strip_prefix("refs/remotes/") {
            let remote = remote.split('/').next().unwrap_or_default();
            self.remotes.insert(remote.to_owned());
        }
        self.paths.add(name);
        for short in short_names(name) {
            self.taken.insert(short.to_owned(), name.to_owned());
        }
    }

    /// The ref that keeps git from storing a ref of this name, if there is one.
    pub(super) fn in_the_way(&self, name: &str) -> Option<&str> {
        self.paths.in_the_way(name)
    }

    /// The reason why a new ref must not get this name; `None` if it may.
    pub(super) fn refusal(&self, name: &str) -> Option<String> {
        let other = short_names(name).find_map(|short| self.taken.get(short));
        if let Some(other) = other {
            return Some(format!("git could take it for {other}"));
        }
        if let Some(other) = self.in_the_way(name) {
            return Some(format!("it conflicts with {other}"));
        }
        let own = ["refs/heads/", "refs/tags/"].into_iter();
        let own = own.filter_map(|kind| name.strip_prefix(kind)).next()?;
        let upper = own.to_ascii_uppercase();
        if PSEUDO_REFS.contains(&upper.as_str()) || own.ends_with("_HEAD") {
            return Some("git has a meaning of its own for that name".to_owned());
        }
        if own.starts_with('-') {
            return Some("git would take that name for an option".to_owned());
        }
        if own.starts_with("refs/") {
            return Some("that name looks like the whole name of another ref".to_owned());
        }
        if looks_like_commit_id(own) {
            return Some("that name looks like the id of a commit".to_owned());
        }
        let is_of = |remote: &&String| {
            let below = own.strip_prefix(remote.as_str());
            below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
        };
        let remote = self.remotes.iter().find(is_of)?;
        Some(format!("that name looks like one of the remote {remote}"))
    }
}

/// The names by which git finds a ref, the whole one first.
fn short_names(name: &str) -> impl Iterator<Item = &str> {
    let below = name.strip_prefix("refs/");
    let kinds = ["tags/", "heads/", "remotes/"].into_iter();
    let own = kinds.filter_map(move |kind| below?.strip_prefix(kind));
    let remote = || below?.strip_prefix("remotes/")?.strip_suffix("/HEAD");
    [Some(name), below, remote()]
        .into_iter()
        .flatten()
        .chain(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    const THERE: [&str; 5] = [
        "refs/heads/main",
        "refs/tags/v1",
        "refs/remotes/origin/main",
        "refs/remotes/origin/HEAD",
        "refs/stash",
    ];

    #[test]
    fn names_by_which_git_finds_another_ref_are_refused() {
        let names = TakenNames::new(THERE.into_iter(), ["up/stream".to_owned()].into_iter());
        for name in [
            "refs/tags/main",
            "refs/tags/heads/main",
            "refs/heads/v1",
            "refs/heads/tags/v1",
            "refs/heads/origin/main",
            "refs/tags/origin",
            "refs/heads/stash",
            "refs/heads/origin/new",
            "refs/heads/up/stream/x",
            "refs/heads/HEAD",
            "refs/tags/fetch_head",
            "refs/heads/@",
            "refs/heads/refs/heads/new",
            "refs/heads/0123abc",
            "refs/tags/v1-3-g0123abc",
            "refs/heads/-x",
        ] {
            assert!(names.refusal(name).is_some(), "{name}");
        }
        for name in [
            "refs/heads/new",
            "refs/heads/feature/HEAD-of-time",
            "refs/tags/v2",
            "refs/heads/up",
            "refs/heads/cafe",
            "refs/heads/original",
            "refs/heads/sticky_head",
            "refs/notes/commits",
        ] {
            assert_eq!(names.refusal(name), None, "{name}");
        }
    }

    #[test]
    fn names_that_git_cannot_keep_beside_others_are_refused() {
        let there = [
            "refs/heads/feature",
            "refs/heads/fix/a/b",
            "refs/notes/commits",
        ];
        let names = TakenNames::new(there.into_iter(), [].into_iter());
        for (name, other) in [
            ("refs/heads/feature/a", "refs/heads/feature"),
            ("refs/heads/feature/a/b", "refs/heads/feature"),
            ("refs/heads/fix", "refs/heads/fix/a/b"),
            ("refs/heads/fix/a", "refs/heads/fix/a/b"),
            ("refs/notes/commits/x", "refs/notes/commits"),
        ] {
            let why = format!("it conflicts with {other}");
            assert_eq!(names.refusal(name), Some(why), "{name}");
        }
        for name in [
            "refs/heads/feature-a",
            "refs/heads/features/a",
            "refs/heads/fix/a/c",
            "refs/heads/fi",
            "refs/tags/fix/c",
        ] {
            assert_eq!(names.refusal(name), None, "{name}");
        }
    }

    #[test]
    fn name_of_an_added_ref_is_taken() {
        let mut names = TakenNames::default();
        assert_eq!(names.refusal("refs/tags/new"), None);
        names.add("refs/heads/new");
        assert!(names.refusal("refs/tags/new").is_some());
    }
}
