//! The repository whose submodules are watched: lists the submodules, and the files that git reads
//! in them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use std::{fs, io};

use common::sync::lock;
use safe_files::untrusted_file::{Links, read};
use tokio_util::sync::CancellationToken;

use super::DOT_GIT;
use super::directory::{Directory, DirectoryError};
use super::state::{
    Bytes, Entry, GitDirState, GitdirTarget, HOOKS, SENSITIVE_ENTRIES, SubmoduleState,
};
use super::visit::VisitResult;
use crate::layout::{common_dir_in, gitdir_in, has_worktree};
use crate::{Git, GitError};

/// The largest index that is searched, in bytes, both as a file and as git's listing.
const INDEX_LIMIT: u64 = 256 * 1024 * 1024;

/// How long git may take to list an index.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest file whose contents are kept, in bytes. Git reads no longer `.git` file.
pub(super) const FILE_LIMIT: u64 = 1024 * 1024;

/// The most that is kept of the contents of one hook, and of all hooks of one git directory, in
/// bytes.
const HOOK_LIMIT: u64 = 64 * 1024;
const HOOKS_LIMIT: u64 = 4 * 1024 * 1024;

/// How many entries below `hooks` are recorded, and how deep they lie.
const HOOK_ENTRIES: usize = 10_000;
const HOOK_DEPTH: usize = 8;

/// Bytes that every index with submodules contains: the mode of a submodule, or the name of the
/// part that refers to another file with more entries (gitformat-index(5)).
const MARKS: [&[u8]; 2] = [&[0, 0, 0xe0, 0], b"link"];

/// A repository and its git program.
#[derive(Debug, Clone)]
pub(super) struct RepoContext {
    git: Git,
    /// The top directory; like all paths here, absolute and without links.
    top: PathBuf,
    git_dir: PathBuf,
    common_dir: PathBuf,
    /// The paths that were moved aside, and where the earlier file could not be written yet.
    unwritten: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl RepoContext {
    pub(super) fn of(git: &Git) -> Self {
        let mut own = git.clone();
        // Protection is needed even if the run has been cancelled.
        own.invocation.bounds.halt = CancellationToken::new();
        own.invocation.bounds.timeout = TIMEOUT;
        own.invocation.bounds.limit = INDEX_LIMIT;
        own.invocation.has_timed_out = Some(Arc::default());
        Self {
            git: own,
            top: git.layout().top.clone(),
            git_dir: git.layout().git_dir.clone(),
            common_dir: git.layout().common_dir.clone(),
            unwritten: Arc::default(),
        }
    }

    pub(super) fn unwritten(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        lock(&self.unwritten)
    }

    /// The contents of the top's index; `None` if the index certainly lists no submodule.
    pub(super) fn index(&self) -> io::Result<Option<Vec<u8>>> {
        index_of_submodules(&self.git_dir.join("index"))
    }

    /// The submodules that an index lists. Git reads a copy, which nobody else can change.
    pub(super) async fn listed(&self, index: Vec<u8>) -> Result<Vec<PathBuf>, GitError> {
        let copy = self.git.view().join("submodules.index");
        fs::write(&copy, index)?;
        let mut git = self.git.clone();
        git.set("GIT_INDEX_FILE", &copy);
        let output = git.output(&["ls-files", "-z", "--stage"], &[]).await;
        fs::remove_file(&copy)?;
        Ok(submodules_in(&output?))
    }

    /// The files that the top's index lists. Each path ends with a NUL.
    pub(super) async fn files(&self) -> Result<Vec<u8>, GitError> {
        let mut git = self.git.clone();
        git.set("GIT_INDEX_FILE", self.git_dir.join("index"));
        git.output(&["ls-files", "-z"], &[]).await
    }

    pub(super) fn top(&self) -> &Path {
        &self.top
    }

    /// Records the state of a submodule.
    pub(super) fn record(&self, path: &Path) -> VisitResult {
        let mut visit = VisitResult::default();
        let state = match self.reach(path) {
            Ok(directory) => self.state(path, &directory, &mut visit),
            Err(DirectoryError::Gone) => Ok(SubmoduleState::ABSENT),
            Err(DirectoryError::Link(_)) => Ok(SubmoduleState::BehindLink),
            Err(DirectoryError::Refused(error)) => Err(error),
        };
        match state {
            Ok(state) => {
                let index = match &state {
                    SubmoduleState::Reached { dot_git, .. } => self.index_below(path, dot_git),
                    SubmoduleState::BehindLink | SubmoduleState::Unknown => Ok(None),
                };
                if visit.take_index(index) {
                    visit.state = Some(state);
                }
            }
            Err(error) => visit.failures.push(error.to_string()),
        }
        visit
    }

    fn state(
        &self,
        path: &Path,
        directory: &Directory,
        visit: &mut VisitResult,
    ) -> io::Result<SubmoduleState> {
        let dot_git = directory.entry(OsStr::new(DOT_GIT), Some(FILE_LIMIT))?;
        let git_dirs = self.git_dirs(path, &dot_git)?;
        let mut exposed = Vec::new();
        for git_dir in git_dirs.iter().filter(|git_dir| self.is_exposed(git_dir)) {
            match git_dir_state(git_dir) {
                Ok(state) => exposed.push(state),
                Err(error) => visit.failures.push(error.to_string()),
            }
        }
        if exposed.iter().any(|state| state.hooks.is_none()) {
            visit.failures.push(
                "its hooks cannot be recorded (they are too many, or cannot be read)".to_owned(),
            );
        }
        Ok(SubmoduleState::Reached {
            git_dirs: git_dirs.iter().map(|git_dir| Bytes::of(git_dir)).collect(),
            dot_git,
            exposed,
        })
    }

    /// The directory of a submodule.
    pub(super) fn reach(&self, path: &Path) -> Result<Directory, DirectoryError> {
        Directory::open(&self.top)?.below(path)
    }

    /// The git directory of a submodule, and the directory that `commondir` in it names, without
    /// links. A link in place of `.git` is followed, as git follows it.
    ///
    /// # Errors
    ///
    /// The errors of reading `commondir`.
    pub(super) fn git_dirs(&self, path: &Path, dot_git: &Entry) -> io::Result<Vec<PathBuf>> {
        let submodule = self.top.join(path);
        let named = |text: &[u8]| submodule.join(gitdir_in(text)?).canonicalize().ok();
        let git_dir = match dot_git {
            Entry::Directory => Some(submodule.join(DOT_GIT)),
            Entry::File { bytes, .. } => named(&bytes.0),
            Entry::Other { target, .. } if !target.0.is_empty() => {
                match submodule.join(DOT_GIT).canonicalize() {
                    Ok(path) if path.is_dir() => Some(path),
                    Ok(path) => match read(&path, FILE_LIMIT, Links::Refused) {
                        Ok(text) => named(&text),
                        Err(error) => return Err(io::Error::other(error)),
                    },
                    Err(_) => None,
                }
            }
            Entry::Missing | Entry::Other { .. } => None,
        };
        let Some(git_dir) = git_dir else {
            return Ok(Vec::new());
        };
        let common_dir = common_dir_in(&git_dir).map_err(io::Error::other)?;
        let common_dir = common_dir.and_then(|path| path.canonicalize().ok());
        Ok([Some(git_dir), common_dir].into_iter().flatten().collect())
    }

    /// Whether a git directory may be one that Codex can write.
    fn is_exposed(&self, git_dir: &Path) -> bool {
        !git_dir.starts_with(&self.common_dir)
    }

    pub(super) fn target(&self, path: &Path, dot_git: &Entry) -> GitdirTarget {
        let git_dirs = match dot_git {
            Entry::File { .. } => self.git_dirs(path, dot_git).unwrap_or_default(),
            _ => Vec::new(),
        };
        let modules = [&self.common_dir, &self.git_dir].map(|above| above.join("modules"));
        let is_module = |git_dir: &PathBuf| {
            let mut above = modules.iter();
            above.any(|above| git_dir != above && git_dir.starts_with(above))
        };
        match git_dirs.as_slice() {
            [git_dir]
                if is_module(git_dir)
                    && has_worktree(git_dir, &self.top.join(path)).unwrap_or(false) =>
            {
                GitdirTarget::IntoRepository
            }
            _ => GitdirTarget::Elsewhere,
        }
    }

    /// The contents of a submodule's index; `None` if the index certainly lists no submodule.
    pub(super) fn index_below(&self, path: &Path, dot_git: &Entry) -> io::Result<Option<Vec<u8>>> {
        match self.git_dirs(path, dot_git)?.first() {
            Some(git_dir) => index_of_submodules(&git_dir.join("index")),
            None => Ok(None),
        }
    }
}

fn git_dir_state(path: &Path) -> io::Result<GitDirState> {
    let git_dir = Directory::open(path).map_err(|error| refused(&error))?;
    let entry = |(below, name): &(Option<&str>, &str)| {
        let name = OsStr::new(name);
        match below {
            None => git_dir.entry(name, Some(FILE_LIMIT)),
            Some(below) => match git_dir.enter(OsStr::new(below)) {
                Ok(below) => below.entry(name, Some(FILE_LIMIT)),
                Err(DirectoryError::Gone) => Ok(Entry::Missing),
                Err(error) => Err(refused(&error)),
            },
        }
    };
    let entries: io::Result<Vec<Entry>> = SENSITIVE_ENTRIES.iter().map(entry).collect();
    Ok(GitDirState {
        path: Bytes::of(path),
        entries: entries?,
        hooks: hooks(&git_dir),
    })
}

fn hooks(git_dir: &Directory) -> Option<BTreeMap<Bytes, Entry>> {
    let mut recorded = Hooks {
        entries: BTreeMap::new(),
        left: HOOKS_LIMIT,
    };
    match git_dir.enter(OsStr::new(HOOKS)) {
        Ok(hooks) => recorded.add(&hooks, Path::new(""), HOOK_DEPTH).ok()?,
        // The target of a link is not compared, only the link itself.
        Err(DirectoryError::Gone | DirectoryError::Link(_)) => {}
        Err(DirectoryError::Refused(_)) => return None,
    }
    Some(recorded.entries)
}

/// Hooks as they are recorded.
struct Hooks {
    entries: BTreeMap<Bytes, Entry>,
    /// How much may still be kept of contents, in bytes.
    left: u64,
}

impl Hooks {
    fn add(&mut self, directory: &Directory, path: &Path, depth: usize) -> io::Result<()> {
        let too_much = || io::Error::other("there are too many hooks");
        for name in directory.names()? {
            let entry = directory.entry(&name, Some(HOOK_LIMIT.min(self.left)))?;
            if self.entries.len() >= HOOK_ENTRIES {
                return Err(too_much());
            }
            match &entry {
                Entry::File { bytes, .. } => {
                    self.left = self.left.saturating_sub(bytes.0.len() as u64);
                }
                Entry::Directory => {
                    let depth = depth.checked_sub(1).ok_or_else(too_much)?;
                    let below = directory.enter(&name).map_err(|error| refused(&error))?;
                    self.add(&below, &path.join(&name), depth)?;
                }
                Entry::Missing | Entry::Other { .. } => {}
            }
            self.entries.insert(Bytes::of(&path.join(&name)), entry);
        }
        Ok(())
    }
}

pub(super) fn refused(error: &DirectoryError) -> io::Error {
    io::Error::other(error.to_string())
}

/// The contents of an index; `None` if the index certainly lists no submodule.
fn index_of_submodules(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let index = match read(path, INDEX_LIMIT, Links::Refused) {
        Ok(index) => index,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(io::Error::other(error)),
    };
    let has = |mark: &&[u8]| index.windows(mark.len()).any(|part| part == *mark);
    Ok(MARKS.iter().any(has).then_some(index))
}

/// Reads `MODE ID STAGE TAB PATH NUL`. A path that leads elsewhere is none.
pub(crate) fn submodules_in(output: &[u8]) -> Vec<PathBuf> {
    let records = output.split(|byte| *byte == 0);
    let submodules = records.filter(|record| record.starts_with(b"160000 "));
    let paths = submodules.filter_map(|record| {
        let tab = record.iter().position(|byte| *byte == b'\t')?;
        Some(OsString::from_vec(record.get(tab + 1..)?.to_owned()))
    });
    paths.map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn submodules_are_read_from_the_list_of_an_index() {
        let output = b"100644 1 0\ta\x00160000 2 0\tsub\x00160000 3 1\tx\ty\n\0";
        assert_eq!(submodules_in(output), ["sub", "x\ty\n"].map(PathBuf::from));
    }

    #[test]
    fn index_without_submodules_is_not_listed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("index");
        assert_eq!(index_of_submodules(&path).unwrap(), None);
        fs::write(&path, b"DIRC\0\0\x81\xa4").unwrap();
        assert_eq!(index_of_submodules(&path).unwrap(), None);
        for text in [&b"DIRC\0\0\xe0\0"[..], b"DIRClink"] {
            fs::write(&path, text).unwrap();
            assert_eq!(index_of_submodules(&path).unwrap().unwrap(), text);
        }
    }
}
