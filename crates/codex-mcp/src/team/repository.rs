//! The git repository that a folder is in, read from git's own files: asking the
//! git program takes as long as Codex takes to begin a thread.
//!
//! Source: gitrepository-layout(5), git-worktree(1), and git(1) for
//! `GIT_CEILING_DIRECTORIES`.

use std::env;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The most that is read of one of git's files, in bytes: they hold a path or the
/// name of a branch.
const LONGEST: u64 = 16 * 1024;

/// How much of a commit's name is shown of a head that is on no branch.
const SHORT: usize = 12;

/// A repository's working tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// Its top folder.
    pub root: PathBuf,
    /// The name of the repository: of the main working tree's folder, where there
    /// are several.
    pub name: String,
    /// What is checked out; `None` if git's files don't tell.
    pub head: Option<Head>,
}

/// What is checked out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// A branch.
    Branch(String),
    /// No branch, but the commit that begins so.
    Detached(String),
}

impl Repository {
    /// The repository that `folder`, an absolute path, is in. It isn't looked for
    /// in `ceilings` and above.
    #[must_use]
    pub fn around(folder: &Path, ceilings: &[PathBuf]) -> Option<Self> {
        let root = folder
            .ancestors()
            .take_while(|above| !ceilings.iter().any(|ceiling| above == ceiling))
            .find(|above| is_repository(above))?;
        let git = git_folder(root)?;
        Some(Self {
            root: root.to_owned(),
            name: name(root, &git)?,
            head: head(&git),
        })
    }
}

/// The folder of the main working tree, of a linked one with this top folder, without
/// links: git keeps what is the linked one's own in `.git/worktrees/NAME` there. `None` of
/// any other.
#[must_use]
pub fn main_folder(root: &Path) -> Option<PathBuf> {
    if !root.join(".git").is_file() {
        return None;
    }
    let own = git_folder(root)?.canonicalize().ok()?;
    let all = own.parent().filter(|all| all.ends_with("worktrees"))?;
    Some(all.parent()?.parent()?.to_owned())
}

/// The variable of git's that names folders above which no repository is looked for.
pub const CEILINGS: &str = "GIT_CEILING_DIRECTORIES";

/// Above which folders no repository is looked for, by [`CEILINGS`].
#[must_use]
pub fn ceilings() -> Vec<PathBuf> {
    let set = env::var_os(CEILINGS).unwrap_or_default();
    let folders = env::split_paths(&set).filter(|folder| folder.is_absolute());
    folders
        .map(|folder| folder.canonicalize().unwrap_or(folder))
        .collect()
}

/// A folder of that name alone is none, to git neither.
fn is_repository(folder: &Path) -> bool {
    let git = folder.join(".git");
    git.is_file() || git.join("HEAD").exists()
}

/// `.git`, or, in a linked working tree and in a submodule, the folder that this
/// file names.
fn git_folder(root: &Path) -> Option<PathBuf> {
    let dot_git = root.join(".git");
    if dot_git.is_dir() {
        return Some(dot_git);
    }
    let text = read(&dot_git)?;
    let folder = text.strip_prefix("gitdir:")?.trim();
    Some(root.join(folder))
}

/// A linked working tree shares the repository of the main one.
fn name(root: &Path, git: &Path) -> Option<String> {
    let shared = read(&git.join("commondir")).map(|common| git.join(common.trim()));
    let shared = shared.and_then(|common| common.canonicalize().ok());
    let main = shared.as_deref().filter(|common| common.ends_with(".git"));
    let folder = main.and_then(Path::parent).unwrap_or(root);
    Some(folder.file_name()?.to_string_lossy().into_owned())
}

fn head(git: &Path) -> Option<Head> {
    let text = read(&git.join("HEAD"))?;
    let text = text.trim();
    if let Some(reference) = text.strip_prefix("ref:") {
        let branch = reference.trim().strip_prefix("refs/heads/")?;
        // Where references are kept in another form (reftable), this file says so.
        return (branch != ".invalid").then(|| Head::Branch(branch.to_owned()));
    }
    let is_commit = text.len() >= SHORT && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let commit = text.get(..SHORT).filter(|_| is_commit)?;
    Some(Head::Detached(commit.to_owned()))
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = fs::File::open(path).ok()?;
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn root() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        (folder, root)
    }

    #[test]
    fn heads_are_branches_or_commits_or_nothing() {
        let (_folder, root) = root();
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
    fn nothing_is_looked_for_from_a_ceiling_on() {
        let (_folder, root) = root();
        write(&root.join(".git/HEAD"), "ref: refs/heads/main\n");
        let inner = root.join("a/b");
        assert!(Repository::around(&inner, &[root.join("c")]).is_some());
        assert_eq!(Repository::around(&inner, &[root.join("a")]), None);
    }

    #[test]
    fn an_empty_folder_of_that_name_is_no_repository() {
        let (_folder, root) = root();
        write(&root.join(".git/HEAD"), "ref: refs/heads/main\n");
        fs::create_dir_all(root.join("a/.git")).unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        let found = Repository::around(&root.join("a/b"), &[]).unwrap();
        assert_eq!(found.root, root);
    }

    #[test]
    fn a_linked_working_tree_has_a_main_one() {
        let (_folder, root) = root();
        write(&root.join("main/.git/worktrees/tree/HEAD"), "");
        write(&root.join("main/.git/modules/sub/HEAD"), "");
        write(&root.join("worktrees/.git/HEAD"), "");
        let main = root.join("main");
        let absolute = format!("gitdir: {}/.git/worktrees/tree\n", main.display());
        for (text, expected) in [
            (absolute.as_str(), Some(&main)),
            ("gitdir: ../main/.git/worktrees/tree\n", Some(&main)),
            ("gitdir: ../main/.git/modules/sub\n", None),
            ("gitdir: ../main/.git/worktrees/gone\n", None),
            ("garbage", None),
        ] {
            write(&root.join("tree/.git"), text);
            let found = main_folder(&root.join("tree"));
            assert_eq!(found.as_ref(), expected, "{text:?}");
        }
        for none in [main, root.join("worktrees"), root] {
            assert_eq!(main_folder(&none), None);
        }
    }

    #[test]
    fn broken_files_of_git_are_no_repository() {
        let (_folder, root) = root();
        for text in ["", "garbage", "gitdir:"] {
            write(&root.join("repo/.git"), text);
            let found = Repository::around(&root.join("repo"), &[]);
            assert_eq!(found.and_then(|found| found.head), None, "{text:?}");
        }
    }
}
