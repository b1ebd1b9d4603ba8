//! The layout of a repository: its working tree and git directories, found without git.
//!
//! Git determines the layout from files that the repository brings along: `core.worktree` of its
//! configuration, or a `.git` file that may name any directory. The author of these files could
//! thereby direct work into another directory of the user. So here the top of the working tree is
//! the directory that contains `.git`, whatever the configuration says, and a `.git` file counts
//! only if the directory that it names links back:
//!
//! | `.git` | the git directory | links back by |
//! | --- | --- | --- |
//! | a directory | `.git` | being there |
//! | a file, linked working tree | `MAIN/.git/worktrees/NAME` | its file `gitdir` |
//! | a file, submodule or `--separate-git-dir` | any | its `core.worktree` |
//!
//! Source: gitrepository-layout(5), git-worktree(1), gitsubmodules(7), git-config(1).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use common::text::shell_word;
use safe_files::untrusted_file::{Links, ReadError, read, read_text};
use serde::{Deserialize, Serialize};

/// The most that is read of one of git's small files, in bytes: they hold a path or the
/// name of a branch.
const POINTER_LIMIT: u64 = 16 * 1024;

/// The most that is read of a git configuration, in bytes.
const CONFIG_LIMIT: u64 = 4 * 1024 * 1024;

/// The most refs, reflogs and directories of these that are checked for links.
const ENTRIES_LIMIT: usize = 200_000;

/// How deep these directories may be nested.
const DEPTH_LIMIT: usize = 32;

/// A repository's directories, absolute and without links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// The top of the working tree.
    pub(crate) top: PathBuf,
    /// The git directory of this working tree: `HEAD` and the index.
    pub git_dir: PathBuf,
    /// The common directory of all working trees: objects, refs, configuration.
    pub(crate) common_dir: PathBuf,
}

/// Why a repository is not used as it is.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// A `.git` file names a directory that does not link back.
    #[error(
        "{} names the git directory {}, which does not link back to it; if both are yours, \
         run `git worktree repair` there, or `git config core.worktree {}` in the git directory",
        dot_git.display(), named.display(), shell_word(top)
    )]
    Unlinked {
        /// The `.git` file.
        dot_git: PathBuf,
        /// The target of the file.
        named: PathBuf,
        /// The directory that it lies in.
        top: PathBuf,
    },
    /// `.git` is a symbolic link.
    #[error(
        "{} is a symbolic link; replace it by a file with the line `gitdir: PATH`",
        .0.display()
    )]
    Link(PathBuf),
    /// A part of the git directory is a symbolic link, through which git would write
    /// elsewhere.
    #[error(
        "{} is a symbolic link, through which git would write outside of the repository; \
         replace it by what it leads to",
        .0.display()
    )]
    WritesElsewhere(PathBuf),
    /// There are more refs than the limit for the check.
    #[error("{} has more than {ENTRIES_LIMIT} entries; run `git pack-refs --all`", .0.display())]
    TooManyEntries(PathBuf),
    /// The configuration puts the working tree elsewhere.
    #[error(
        "core.worktree in {} names {}, which is not where the repository was found ({}); \
         remove the setting if you do not need it",
        config.display(), worktree.display(), top.display()
    )]
    Elsewhere {
        /// The configuration.
        config: PathBuf,
        /// The value of `core.worktree`.
        worktree: PathBuf,
        /// The path of `.git`.
        top: PathBuf,
    },
    /// One of git's files is not a file, or cannot be read.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    /// A directory cannot be resolved.
    #[error("cannot resolve {}: {error}", path.display())]
    Unresolved {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}

impl Layout {
    /// The repository around `directory`, an absolute path; `None` if there is none. The search
    /// ends before the first of the `ceilings`.
    ///
    /// # Errors
    ///
    /// [`LayoutError`] for a repository that is not what it seems to be.
    pub fn around(directory: &Path, ceilings: &[PathBuf]) -> Result<Option<Self>, LayoutError> {
        let top = directory
            .ancestors()
            .take_while(|above| !ceilings.iter().any(|ceiling| above == ceiling))
            .find(|above| is_top(above));
        top.map(Self::at).transpose()
    }

    /// The repository whose `.git` lies in `top`.
    fn at(top: &Path) -> Result<Self, LayoutError> {
        let top = resolved(top)?;
        let dot_git = top.join(".git");
        if dot_git.is_symlink() {
            return Err(LayoutError::Link(dot_git));
        }
        if dot_git.is_file() {
            return Self::linked(top, &dot_git);
        }
        let shared = dot_git.join("commondir");
        if shared.symlink_metadata().is_ok() {
            // Git would read refs and settings from the directory that this file names.
            return Err(LayoutError::Unlinked {
                dot_git,
                named: shared,
                top,
            });
        }
        let config = dot_git.join("config");
        match worktree_in(&config)? {
            Some(named) if !is_same(&dot_git.join(&named), &top) => Err(LayoutError::Elsewhere {
                worktree: dot_git.join(named),
                config,
                top,
            }),
            _ => Ok(Self {
                top,
                git_dir: dot_git.clone(),
                common_dir: dot_git,
            }),
        }
    }

    fn linked(top: PathBuf, dot_git: &Path) -> Result<Self, LayoutError> {
        let text = read(dot_git, POINTER_LIMIT, Links::Refused)?;
        let named = top.join(gitdir_in(&text).unwrap_or(Path::new("")));
        let unlinked = || LayoutError::Unlinked {
            dot_git: dot_git.to_owned(),
            named: named.clone(),
            top: top.clone(),
        };
        let git_dir = named.canonicalize().map_err(|_| unlinked())?;
        if let Some(common_dir) = common_dir_of_worktree(&git_dir) {
            let back = read_text(&git_dir.join("gitdir"), POINTER_LIMIT, Links::Refused);
            let back = back.map_err(|_| unlinked())?;
            return match is_same(&git_dir.join(back.trim()), dot_git) {
                true => Ok(Self {
                    top,
                    git_dir,
                    common_dir,
                }),
                false => Err(unlinked()),
            };
        }
        match has_worktree(&git_dir, &top)? {
            true => Ok(Self {
                top,
                common_dir: git_dir.clone(),
                git_dir,
            }),
            false => Err(unlinked()),
        }
    }

    /// Whether this is a linked working tree, not the repository's main one.
    #[must_use]
    pub(crate) fn is_linked(&self) -> bool {
        self.git_dir != self.common_dir
    }

    /// Refuses a git directory in which writing a ref, a reflog, an object or the index
    /// would write to another place: git follows links there.
    ///
    /// # Errors
    ///
    /// [`LayoutError::WritesElsewhere`], [`LayoutError::TooManyEntries`].
    pub(crate) fn check_writable(&self) -> Result<(), LayoutError> {
        for name in ["HEAD", "index"] {
            no_link(&self.git_dir.join(name))?;
        }
        for name in ["packed-refs", "shallow"] {
            no_link(&self.common_dir.join(name))?;
        }
        let mut left = ENTRIES_LIMIT;
        for directory in [&self.git_dir, &self.common_dir] {
            for name in ["refs", "logs", "worktrees"] {
                no_links_below(&directory.join(name), DEPTH_LIMIT, &mut left)?;
            }
        }
        no_links_below(&self.common_dir.join("objects"), 1, &mut left)
    }

    /// The text of `HEAD`.
    ///
    /// # Errors
    ///
    /// [`ReadError`]. `HEAD` may be a link, as in old repositories.
    pub(crate) fn head(&self) -> Result<String, ReadError> {
        read_text(&self.git_dir.join("HEAD"), POINTER_LIMIT, Links::Followed)
    }
}

fn no_link(path: &Path) -> Result<(), LayoutError> {
    match path.is_symlink() {
        true => Err(LayoutError::WritesElsewhere(path.to_owned())),
        false => Ok(()),
    }
}

/// A directory that cannot be read contains nothing that git could follow either.
fn no_links_below(path: &Path, depth: usize, left: &mut usize) -> Result<(), LayoutError> {
    no_link(path)?;
    let Ok(entries) = fs::read_dir(path) else {
        return Ok(());
    };
    for entry in entries.flatten() {
        *left = left
            .checked_sub(1)
            .ok_or_else(|| LayoutError::TooManyEntries(path.to_owned()))?;
        let kind = entry.file_type();
        if kind.as_ref().is_ok_and(fs::FileType::is_symlink) {
            return Err(LayoutError::WritesElsewhere(entry.path()));
        }
        if depth > 0 && kind.is_ok_and(|kind| kind.is_dir()) {
            no_links_below(&entry.path(), depth - 1, left)?;
        }
    }
    Ok(())
}

/// The directory that `MAIN/worktrees/NAME` belongs to, if its file `commondir` says the
/// same.
fn common_dir_of_worktree(git_dir: &Path) -> Option<PathBuf> {
    let all = git_dir.parent().filter(|all| all.ends_with("worktrees"))?;
    let common_dir = all.parent()?;
    let output = common_dir_in(git_dir).ok()??;
    is_same(&output, common_dir).then(|| common_dir.to_owned())
}

/// The directory that the file `commondir` of a git directory names, which need not exist. `None`
/// if there is no such file.
///
/// # Errors
///
/// [`ReadError`].
pub(super) fn common_dir_in(git_dir: &Path) -> Result<Option<PathBuf>, ReadError> {
    match read(&git_dir.join("commondir"), POINTER_LIMIT, Links::Refused) {
        Ok(text) => Ok(Some(git_dir.join(path_in(&text)))),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The path that a `.git` file names, parsed as git parses it (`read_gitfile_gently` in git's
/// setup.c): one space follows the colon, and any other white space belongs to the path. `None` for
/// a file that git refuses, and for a path with a zero byte, at which git would cut it.
pub(super) fn gitdir_in(text: &[u8]) -> Option<&Path> {
    let named = path_in(text.strip_prefix(b"gitdir: ")?);
    let bytes = named.as_os_str().as_bytes();
    (!bytes.is_empty() && !bytes.contains(&0)).then_some(named)
}

/// A path without the line ends after it.
fn path_in(text: &[u8]) -> &Path {
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let end = text.iter().rposition(|byte| !is_end(byte));
    let path = text.get(..end.map_or(0, |last| last + 1));
    Path::new(OsStr::from_bytes(path.unwrap_or_default()))
}

/// Whether `core.worktree` of a git directory names this working tree. A git directory that shares
/// the objects and refs of another one is not a submodule's, and does not count.
///
/// # Errors
///
/// [`LayoutError::Unreadable`].
pub(super) fn has_worktree(git_dir: &Path, top: &Path) -> Result<bool, LayoutError> {
    if git_dir.join("commondir").symlink_metadata().is_ok() {
        return Ok(false);
    }
    let worktree = worktree_in(&git_dir.join("config"))?;
    Ok(worktree.is_some_and(|worktree| is_same(&git_dir.join(worktree), top)))
}

/// Git does not take an empty directory named `.git` for a repository either.
fn is_top(directory: &Path) -> bool {
    let dot_git = directory.join(".git");
    dot_git.is_file() || dot_git.join("HEAD").symlink_metadata().is_ok()
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

fn resolved(path: &Path) -> Result<PathBuf, LayoutError> {
    path.canonicalize()
        .map_err(|error| LayoutError::Unresolved {
            path: path.to_owned(),
            error,
        })
}

/// `core.worktree` in the configuration file itself. Included files do not matter: git is always
/// told the working tree.
fn worktree_in(config: &Path) -> Result<Option<String>, LayoutError> {
    let text = match read_text(config, CONFIG_LIMIT, Links::Refused) {
        Ok(text) => text,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut section = String::new();
    let mut worktree = None;
    for line in text.lines() {
        let mut line = line.trim();
        if let Some((name, rest)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            section = name.trim().to_ascii_lowercase();
            line = rest.trim();
        }
        if let Some((key, value)) = line.split_once('=')
            && section == "core"
            && key.trim().eq_ignore_ascii_case("worktree")
        {
            worktree = Some(unquoted(value.trim()));
        }
    }
    Ok(worktree)
}

/// A value as git writes it: in quotes where it has to be, with `\"` and `\\`.
fn unquoted(value: &str) -> String {
    let inner = value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'));
    inner
        .unwrap_or(value)
        .replace("\\\"", "\"")
        .replace("\\\\", "\\")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    /// `main` with a linked working tree `tree`, a submodule `main/sub`, and `victim`.
    struct Scene {
        _directory: tempfile::TempDir,
        root: PathBuf,
    }

    impl Scene {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let root = directory.path().canonicalize().unwrap();
            let scene = Self {
                _directory: directory,
                root,
            };
            for (path, text) in [
                ("main/.git/HEAD", "ref: refs/heads/main\n"),
                ("main/.git/config", "[core]\n\tbare = false\n"),
                ("main/.git/worktrees/tree/HEAD", ""),
                ("main/.git/worktrees/tree/commondir", "../..\n"),
                ("main/.git/worktrees/tree/gitdir", "ROOT/tree/.git\n"),
                ("main/.git/modules/sub/HEAD", ""),
                (
                    "main/.git/modules/sub/config",
                    "[core]\n\tworktree = ../../../sub\n",
                ),
                ("main/sub/.git", "gitdir: ../.git/modules/sub\n"),
                ("tree/.git", "gitdir: ROOT/main/.git/worktrees/tree\n"),
                ("victim/.git/HEAD", "ref: refs/heads/main\n"),
            ] {
                scene.write(path, text);
            }
            scene
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let text = text.replace("ROOT", self.root.to_str().unwrap());
            fs::write(path, text).unwrap();
        }

        fn around(&self, directory: &str) -> Result<Option<Layout>, LayoutError> {
            Layout::around(&self.root.join(directory), &[])
        }

        /// Relative to the root: top, git directory, common directory.
        fn found(&self, directory: &str) -> [String; 3] {
            let layout = self.around(directory).unwrap().unwrap();
            [layout.top, layout.git_dir, layout.common_dir].map(|path| {
                let path = path.strip_prefix(&self.root).unwrap();
                path.to_str().unwrap().to_owned()
            })
        }

        fn refusal(&self, directory: &str) -> String {
            let refused = self.around(directory).unwrap_err().to_string();
            refused.replace(self.root.to_str().unwrap(), "ROOT")
        }
    }

    #[test]
    fn each_kind_of_working_tree_is_found() {
        let scene = Scene::new();
        assert_eq!(scene.found("main/a/b"), ["main", "main/.git", "main/.git"]);
        assert_eq!(
            scene.found("tree"),
            ["tree", "main/.git/worktrees/tree", "main/.git"]
        );
        let module = "main/.git/modules/sub";
        assert_eq!(scene.found("main/sub"), ["main/sub", module, module]);
        assert_eq!(scene.around("").unwrap(), None);
        let ceiling = [scene.root.join("main")];
        let below = Layout::around(&scene.root.join("main/a"), &ceiling);
        assert_eq!(below.unwrap(), None);
    }

    #[test]
    fn main_git_directory_shares_nothing_with_another_one() {
        let scene = Scene::new();
        scene.write("main/.git/commondir", "../../victim/.git\n");
        assert!(scene.refusal("main").contains("does not link back"));
    }

    /// With a plain link to it, work in `evil` would be done in `victim`.
    #[test]
    fn git_file_counts_only_if_the_other_side_links_back() {
        let scene = Scene::new();
        for named in [
            "ROOT/victim/.git",
            "../victim/.git",
            "ROOT/main/.git/worktrees/tree",
            "ROOT/main/.git/modules/sub",
            "ROOT/nowhere",
            "",
        ] {
            scene.write("evil/.git", &format!("gitdir: {named}\n"));
            assert!(
                scene.refusal("evil").contains("does not link back"),
                "{named}"
            );
        }
        scene.write("evil/.git", "garbage");
        assert!(scene.refusal("evil").contains("does not link back"));
        // One's own administrative directory, with another repository's objects.
        scene.write("evil/.git", "gitdir: inner/worktrees/x\n");
        scene.write("evil/inner/worktrees/x/gitdir", "ROOT/evil/.git\n");
        scene.write(
            "evil/inner/worktrees/x/commondir",
            "../../../../victim/.git\n",
        );
        assert!(scene.refusal("evil").contains("does not link back"));
        scene.write("evil/.git", "gitdir: own\n");
        scene.write("evil/own/config", "[core] worktree = ..\n");
        assert_eq!(scene.found("evil"), ["evil", "evil/own", "evil/own"]);
        scene.write("evil/own/commondir", "../../victim/.git\n");
        assert!(scene.refusal("evil").contains("does not link back"));
    }

    #[test]
    fn git_file_is_read_as_git_reads_it() {
        for (text, expected) in [
            ("gitdir: ../x", Some("../x")),
            ("gitdir: ../x\n", Some("../x")),
            ("gitdir: ../x\r\n\n", Some("../x")),
            ("gitdir: ../x \n", Some("../x ")),
            ("gitdir:  ../x\n", Some(" ../x")),
            ("gitdir: ../x\t\n", Some("../x\t")),
            ("gitdir: a\nb\n", Some("a\nb")),
            ("gitdir:../x\n", None),
            ("gitdir:\t../x\n", None),
            (" gitdir: ../x\n", None),
            ("gitdir: a\0b\n", None),
            ("gitdir: \n", None),
            ("gitdir: ", None),
            ("", None),
        ] {
            assert_eq!(
                gitdir_in(text.as_bytes()),
                expected.map(Path::new),
                "{text:?}"
            );
        }
    }

    /// Git would use the directory whose name has the white space.
    #[test]
    fn white_space_in_a_git_file_counts() {
        let scene = Scene::new();
        for named in ["../.git/modules/sub ", " ../.git/modules/sub"] {
            scene.write("main/sub/.git", &format!("gitdir: {named}\n"));
            assert!(scene.refusal("main/sub").contains("does not link back"));
        }
    }

    #[test]
    fn linked_git_directory_is_refused() {
        let scene = Scene::new();
        fs::create_dir(scene.root.join("evil")).unwrap();
        symlink(scene.root.join("victim/.git"), scene.root.join("evil/.git")).unwrap();
        assert!(scene.refusal("evil").contains("is a symbolic link"));
    }

    #[test]
    fn core_worktree_setting_is_refused() {
        let scene = Scene::new();
        for text in [
            "[core]\n\tworktree = ROOT\n",
            "[core]\n\tworktree = \"ROOT\"\n",
            "[CORE]worktree=ROOT\n",
            "[core]\nworktree = ../..\n",
        ] {
            scene.write("main/.git/config", text);
            assert!(scene.refusal("main").contains("core.worktree"), "{text}");
        }
        for text in ["[core]\n\tworktree = ..\n", "[other]\n\tworktree = ROOT\n"] {
            scene.write("main/.git/config", text);
            assert_eq!(scene.found("main")[0], "main", "{text}");
        }
    }

    /// Git follows each of these when it writes.
    #[test]
    fn links_through_which_git_would_write_are_refused() {
        for name in [
            "HEAD",
            "index",
            "packed-refs",
            "refs",
            "refs/heads",
            "refs/heads/a/b",
            "logs",
            "logs/HEAD",
            "logs/refs/heads/main",
            "objects",
            "objects/pack",
            "worktrees/x",
        ] {
            let scene = Scene::new();
            let layout = scene.around("main").unwrap().unwrap();
            layout.check_writable().unwrap();
            let path = scene.root.join("main/.git").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            if path.is_file() {
                fs::remove_file(&path).unwrap();
            }
            symlink(scene.root.join("victim"), &path).unwrap();
            let refused = layout.check_writable().unwrap_err();
            assert!(matches!(refused, LayoutError::WritesElsewhere(_)), "{name}");
        }
    }

    #[test]
    fn named_pipe_in_git_directory_is_refused_at_once() {
        let scene = Scene::new();
        let pipe = |path: &str| {
            let path = scene.root.join(path);
            let _ = fs::remove_file(&path);
            mkfifo(&path, Mode::S_IRWXU).unwrap();
        };
        pipe("main/.git/HEAD");
        let layout = scene.around("main").unwrap().unwrap();
        assert!(matches!(layout.head(), Err(ReadError::NotRegular { .. })));
        pipe("main/.git/config");
        assert!(scene.refusal("main").contains("not a regular file"));
        pipe("main/.git/worktrees/tree/gitdir");
        assert!(scene.refusal("tree").contains("does not link back"));
    }
}
