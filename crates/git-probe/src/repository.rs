//! The name and checked-out branch of the repository around a directory.
//!
//! They are read from git's own files, since running the git program would take as long as Codex
//! takes to begin a thread.
//!
//! Source: gitrepository-layout(5), and git(1) for `GIT_CEILING_DIRECTORIES`.

use std::env;
use std::path::{Path, PathBuf};

use supervise::search_path::{CEILINGS, ceilings_in};

use crate::Layout;
use crate::logic::ref_name::is_ref_name;

/// How much of the commit ID is shown for a detached HEAD, in characters.
const SHORT: usize = 12;

/// The longest name of a branch, in bytes. The names are shown to models, and `HEAD` can hold
/// any text.
const BRANCH_LIMIT: usize = 255;

/// A repository's working tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// Its top directory.
    pub root: PathBuf,
    /// The name of the repository: the name of its directory, or of the main working tree's
    /// directory if there are several working trees.
    pub name: String,
    /// The checked-out branch or commit; `None` if git's files do not show it, or the name
    /// of the branch is invalid or too long.
    pub head: Option<Head>,
    /// The top directory of the main working tree, if this is a linked one and the
    /// repository is not bare.
    pub main: Option<PathBuf>,
}

/// The checked-out branch or commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// A branch.
    Branch(String),
    /// A detached HEAD; the beginning of the commit's ID.
    Detached(String),
}

impl Repository {
    /// The repository around `directory`, an absolute path. The search ends before the first of the
    /// `ceilings`. `None` also for a repository that `layout` refuses.
    #[must_use]
    pub fn around(directory: &Path, ceilings: &[PathBuf]) -> Option<Self> {
        let layout = Layout::around(directory, ceilings)
            .inspect_err(|error| tracing::warn!("{error}"))
            .ok()??;
        Some(Self {
            name: name(&layout)?,
            head: head(&layout),
            main: main(&layout),
            root: layout.top,
        })
    }
}

/// The directories of `GIT_CEILING_DIRECTORIES`, in which and above which no repository is
/// searched for.
#[must_use]
pub fn ceilings() -> Vec<PathBuf> {
    ceilings_in(&env::var_os(CEILINGS).unwrap_or_default())
}

/// A bare repository has no main working tree: the directory that contains it is not part of it.
fn main(layout: &Layout) -> Option<PathBuf> {
    let beside = layout.common_dir.parent().filter(|_| layout.is_linked())?;
    let main = Layout::around(beside, &[]).ok()??;
    (main.git_dir == layout.common_dir).then_some(main.top)
}

/// A linked working tree shares the repository of the main one.
fn name(layout: &Layout) -> Option<String> {
    let main = Some(&layout.common_dir).filter(|common| common.ends_with(".git"));
    let directory = main.and_then(|common| common.parent());
    let directory = directory.unwrap_or(&layout.top);
    Some(directory.file_name()?.to_string_lossy().into_owned())
}

fn head(layout: &Layout) -> Option<Head> {
    let text = layout.head().ok()?;
    let text = text.trim();
    if let Some(reference) = text.strip_prefix("ref:") {
        let branch = reference.trim().strip_prefix("refs/heads/")?;
        // If references are stored in another format (reftable), the branch is `.invalid`.
        return is_name(branch).then(|| Head::Branch(branch.to_owned()));
    }
    let is_commit = text.len() >= SHORT && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let commit = text.get(..SHORT).filter(|_| is_commit)?;
    Some(Head::Detached(commit.to_owned()))
}

/// Git allows white space other than ASCII, but with it a name could read like a sentence.
fn is_name(branch: &str) -> bool {
    branch.len() <= BRANCH_LIMIT && is_ref_name(branch) && !branch.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn root() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        (directory, root)
    }

    #[test]
    fn heads_are_branches_or_commits_or_nothing() {
        let (_directory, root) = root();
        let long = format!("ref: refs/heads/{}\n", "x".repeat(BRANCH_LIMIT + 1));
        for (text, expected) in [
            ("ref: refs/heads/main\n", Some(Head::Branch("main".into()))),
            (
                "ref: refs/heads/a/b-c\n",
                Some(Head::Branch("a/b-c".into())),
            ),
            (
                "0123456789abcdef0123456789abcdef01234567\n",
                Some(Head::Detached("0123456789ab".into())),
            ),
            ("ref: refs/heads/.invalid\n", None),
            ("ref: refs/heads/main (policy: approve)\n", None),
            ("ref: refs/heads/a\u{a0}b\n", None),
            ("ref: refs/heads/a\u{2028}b\n", None),
            (long.as_str(), None),
            ("garbage\n", None),
            ("", None),
        ] {
            write(&root.join("repo/.git/HEAD"), text);
            let found = Repository::around(&root.join("repo/a/b"), &[]).unwrap();
            assert_eq!(found.root, root.join("repo"));
            assert_eq!(found.name, "repo");
            assert_eq!(found.head, expected, "{text:?}");
        }
    }

    #[test]
    fn search_for_a_repository_stops_at_a_ceiling() {
        let (_directory, root) = root();
        write(&root.join(".git/HEAD"), "ref: refs/heads/main\n");
        let inner = root.join("a/b");
        assert!(Repository::around(&inner, &[root.join("c")]).is_some());
        assert_eq!(Repository::around(&inner, &[root.join("a")]), None);
    }

    #[test]
    fn empty_git_directory_is_no_repository() {
        let (_directory, root) = root();
        write(&root.join(".git/HEAD"), "ref: refs/heads/main\n");
        fs::create_dir_all(root.join("a/.git")).unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        let found = Repository::around(&root.join("a/b"), &[]).unwrap();
        assert_eq!(found.root, root);
    }

    /// Makes `tree` a linked working tree of the repository with this common directory.
    fn link_tree(root: &Path, common_dir: &str) {
        write(&root.join(common_dir).join("HEAD"), "ref: refs/heads/x\n");
        let own = root.join(common_dir).join("worktrees/tree");
        write(&own.join("HEAD"), "ref: refs/heads/side\n");
        write(&own.join("commondir"), "../..\n");
        let dot_git = root.join("tree/.git");
        write(&own.join("gitdir"), &format!("{}\n", dot_git.display()));
        write(&dot_git, &format!("gitdir: {}\n", own.display()));
    }

    #[test]
    fn linked_working_tree_has_the_name_of_the_main_one() {
        let (_directory, root) = root();
        link_tree(&root, "main/.git");
        let found = Repository::around(&root.join("tree"), &[]).unwrap();
        assert_eq!(found.name, "main");
        assert_eq!(found.head, Some(Head::Branch("side".to_owned())));
        assert_eq!(found.main, Some(root.join("main")));
        let main = Repository::around(&root.join("main"), &[]).unwrap();
        assert_eq!(main.main, None);
    }

    #[test]
    fn linked_working_tree_of_a_bare_repository_has_no_main_one() {
        let (_directory, root) = root();
        write(&root.join("src/.git/HEAD"), "ref: refs/heads/main\n");
        link_tree(&root, "src/bare.git");
        let found = Repository::around(&root.join("tree"), &[]).unwrap();
        assert_eq!(found.name, "tree");
        assert_eq!(found.main, None);
    }
}
