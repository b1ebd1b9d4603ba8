//! Searches a working tree for git repositories, including those that git at the top ignores.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{DOT_GIT, shown};

/// How many entries of directories are read, and for how long.
const ENTRIES: usize = 500_000;
const BUDGET: Duration = Duration::from_secs(5);

/// How many directories a warning names.
const NAMED: usize = 3;

/// The entries that make a directory with a `HEAD` a repository without a `.git`: both of [`BARE`],
/// or [`COMMON_DIR`], as in the git directory of a linked worktree.
const BARE: [&str; 2] = ["objects", "refs"];
const COMMON_DIR: &str = "commondir";

/// The repositories in a working tree without the top one, as paths from the top.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct SearchResult {
    #[serde(with = "crate::bytes::paths")]
    pub(super) repositories: BTreeSet<PathBuf>,
    /// The first directories that were not searched, and how many there are.
    #[serde(with = "crate::bytes::paths")]
    unsearched: Vec<PathBuf>,
    unsearched_count: usize,
}

/// Searches breadth first. Links are not followed.
pub(super) fn repositories_below(top: &Path) -> SearchResult {
    let until = Instant::now() + BUDGET;
    let mut found = SearchResult::default();
    let mut queue = VecDeque::from([PathBuf::new()]);
    let mut left = ENTRIES;
    while let Some(directory) = queue.pop_front() {
        if left == 0 || Instant::now() >= until {
            found.skip(directory);
            continue;
        }
        found.search(top, directory, &mut queue, &mut left);
    }
    found
}

/// Whether git takes a directory for a repository's git directory.
pub(super) fn is_bare(path: &Path) -> bool {
    let has = |name: &str| path.join(name).symlink_metadata().is_ok();
    has("HEAD") && (BARE.into_iter().all(has) || has(COMMON_DIR))
}

impl SearchResult {
    fn search(
        &mut self,
        top: &Path,
        directory: PathBuf,
        queue: &mut VecDeque<PathBuf>,
        left: &mut usize,
    ) {
        let path = top.join(&directory);
        let is_top = directory.as_os_str().is_empty();
        if !is_top && is_bare(&path) {
            // A directory can be made to look like a repository and still have others below it.
            self.repositories.insert(directory.clone());
        }
        let Ok(entries) = fs::read_dir(&path) else {
            self.skip(directory);
            return;
        };
        for entry in entries {
            let (Some(fewer), Ok(entry)) = (left.checked_sub(1), entry) else {
                self.skip(directory);
                return;
            };
            *left = fewer;
            let name = entry.file_name();
            if name == DOT_GIT {
                if !is_top {
                    self.repositories.insert(directory.clone());
                }
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                queue.push_back(directory.join(name));
            }
        }
    }

    fn skip(&mut self, directory: PathBuf) {
        self.unsearched_count += 1;
        if self.unsearched.len() < NAMED {
            self.unsearched.push(directory);
        }
    }

    /// The warning about directories that were not searched, if any.
    pub(super) fn warning(&self) -> Option<String> {
        if self.unsearched.is_empty() {
            return None;
        }
        let names: Vec<String> = self.unsearched.iter().map(|path| shown(path)).collect();
        Some(format!(
            "{} directories of the working tree were not searched for git repositories of their \
             own, as they cannot be read, or there are more than {ENTRIES} entries, or it took \
             more than {} s: {}. What Codex changes in the settings of such repositories is not \
             named: look at them before you run git there",
            self.unsearched_count,
            BUDGET.as_secs(),
            names.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_are_found_with_and_without_a_working_tree() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path();
        for path in [
            ".git/modules/x/.git",
            "own/.git/hooks",
            "own/deep/.git",
            "bare/objects",
            "bare/refs",
            "half/objects",
            "bare/refs/below/.git",
        ] {
            fs::create_dir_all(top.join(path)).unwrap();
        }
        for path in ["bare/HEAD", "half/HEAD"] {
            fs::write(top.join(path), "ref: refs/heads/main\n").unwrap();
        }
        fs::create_dir(top.join("linked")).unwrap();
        fs::write(top.join("linked/.git"), "gitdir: /x\n").unwrap();
        std::os::unix::fs::symlink("own", top.join("link")).unwrap();
        let found = repositories_below(top);
        let expected = ["bare", "bare/refs/below", "linked", "own", "own/deep"].map(PathBuf::from);
        assert_eq!(found.repositories, BTreeSet::from(expected));
        assert_eq!(found.warning(), None);
        assert!(repositories_below(&top.join("none")).warning().is_some());
    }
}
