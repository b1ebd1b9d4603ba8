//! A private git directory for each run, in which Codex commits.
//!
//! Anyone who can write to a repository's `.git` can make the user's next git command run programs:
//! hooks, filters, a file system monitor. So Codex is not given access to it. Codex's commands get
//! a private git directory instead (`GIT_DIR`, `GIT_WORK_TREE`). It borrows the repository's
//! objects and has its refs, index, settings and remotes; the repository's hooks run from their
//! usual location, inside the sandbox. After each turn the program takes over the changes: objects
//! (checked by fsck), refs, the checked-out branch or commit, and the index. Anything else that was
//! written there stays behind.
//!
//! Commands that leave the sandbox, by a rule or an approval of the user, get the same variables.
//! So git's settings, which can name programs, are in a directory that the sandbox cannot write to
//! (`GIT_COMMON_DIR`). Links in it lead to the files that git writes. `config.worktree` and
//! `commondir` of `GIT_DIR` are not read.
//!
//! ```text
//!   Codex's commands ──► private/ ──► quarantine/ ──fetch, fsck──► REPOSITORY/objects
//!          │                │         (objects only)
//!          │                └── refs, HEAD, index: read here, written by git update-ref …
//!          └───────────► common/  config, info, links into private/: only read
//! ```
//!
//! - `continuation`: the record with which another process continues a killed run.
//! - `contents`: what a private directory and its settings begin with.
//! - `refs`: refs, as the private directory has them.
//! - `objects`: transfers objects into the repository.
//! - `index`: the index.
//! - `plan`: which refs are moved, and which are kept aside.
//! - `names`: refuses names of new refs that would hide others, or that git cannot keep next to
//!   them.
//! - `aside`: the refs that keep commits which are not taken over under their own names.
//! - `tracking`: whether remote-tracking refs match the remote.
//! - `trees`: the contents of the trees of new commits.
//! - `takeover`: takes over commits and the index; `journal` records this beforehand.
//! - `reflogs`: copies the reflogs of the private directory.
//! - `directory_identity`: tells a directory from another one at the same path.
//! - `remove`: removes directories that Codex could write to.
//! - `leftovers`: the directories of interrupted runs.
//!
//! Every step of a takeover can be repeated, and `synced.json` is written last. So a takeover that
//! was killed after it had begun to change the repository is finished by repeating it.
//!
//! Source: gitrepository-layout(5), git-config(1), git-update-ref(1).

mod aside;
mod contents;
mod continuation;
mod directory_identity;
mod index;
mod journal;
mod leftovers;
mod names;
mod objects;
mod plan;
mod reflogs;
mod refs;
mod remove;
mod takeover;
#[cfg(test)]
mod tests;
mod tracking;
mod trees;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{fs, io, mem};

use common::text::{first_names, shell_word};
use safe_files::directory_lock::DirectoryLock;
use safe_files::state_directory::state_directory;
use safe_files::untrusted_file::{Links, read};
use serde::{Deserialize, Serialize};
use supervise::io_thread::IoThread;

use super::setting::Setting;
use super::submodules::shown;
use super::{Git, GitError};
use directory_identity::DirectoryIdentity;
use objects::Transfer;
use refs::Refs;
use remove::remove_tree;

pub(crate) use index::entries as index_entries;
pub(crate) use refs::entry as reference;
pub(crate) use tracking::source as tracked_ref;
pub(crate) use trees::{counted as trees, parents as commit};

pub use continuation::PrivateGitRecord;
pub use leftovers::{Leftover, LeftoverState, leftovers, recover};
pub use takeover::Takeover;

/// The directory of private git directories, below the state directory.
const ALL: &str = "git-private";

/// The directory that Codex may write to, below that of the run.
const PRIVATE: &str = "private";

/// The directory that Codex may only read, below that of the run: git's settings.
const COMMON: &str = "common";

/// The record of the last takeover, in the directory of the run, where Codex cannot write.
const SYNCED: &str = "synced.json";

/// The index at the last takeover, as git lists it.
const BASE: &str = "index.base";

/// A copy of a private directory that stays, without files that Codex may have planted. Where it
/// exists, the caller has been told of the directory.
const KEPT: &str = "kept";

/// A file next to [`KEPT`], present if a takeover has failed or was skipped: the next run tries
/// again.
const RETRY: &str = "retry";

/// The most that is read of an index, or of git's listing of one, in bytes.
const INDEX_LIMIT: u64 = 256 * 1024 * 1024;

/// The most that is copied of another file, in bytes.
const FILE_LIMIT: u64 = 4 * 1024 * 1024;

/// The longest reflog that is read, in bytes.
const LOG_LIMIT: u64 = 16 * 1024 * 1024;

/// How long the removal of a directory that was not closed is waited for (1 s).
const DROP_WAIT: Duration = Duration::from_secs(1);

/// Prints a path if the index is split. That is a state of the index, and needs no setting.
const SHARED_INDEX: &[&str] = &["rev-parse", "--shared-index-path"];

/// The values that git reads as false. All others are forms of true, or invalid.
const FALSE: [&str; 5] = ["false", "no", "off", "0", ""];

/// The private git directory of a run.
#[derive(Debug)]
pub struct PrivateGit {
    /// The private git directory.
    directory: PathBuf,
    /// The git program, for the repository itself.
    git: Git,
    synced: SyncedState,
    /// The common refs when the run, in its first process, opened the directory; empty in the
    /// recovery of an interrupted run.
    first: Refs,
    /// Whether a takeover has begun and not been completed, or was skipped.
    takeover_incomplete: bool,
    /// The directories that Codex's commits make submodules, which were refused.
    refused: Vec<PathBuf>,
    /// Works with files whose number Codex decides.
    io_thread: IoThread,
    /// The lock on the private directory; `None` once it is closed.
    lock: Option<DirectoryLock>,
}

/// The state of the repository and the private directory when they were last the same: at the
/// beginning of the run, or after a takeover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SyncedState {
    /// The top of the repository.
    top: OsString,
    /// The repository's git directory.
    git_dir: DirectoryIdentity,
    /// The common directory of the repository's working trees.
    common_dir: DirectoryIdentity,
    refs: Refs,
    /// The stamp of the private index.
    index: Option<String>,
}

impl PrivateGit {
    /// Creates the private directory for the run of this name, or reopens the one that the run had
    /// before.
    ///
    /// # Errors
    ///
    /// [`GitError`]; nothing is left behind then.
    pub async fn open(git: &Git, run: &str) -> Result<Self, GitError> {
        let directory = all(git)?.join(run);
        let lock = DirectoryLock::create(&directory).await;
        let mut private = Self::at(directory, lock.map_err(GitError::View)?, git)?;
        let synced = SyncedState::load(&private.directory).map_err(GitError::View)?;
        if let Some(synced) = synced {
            private.synced = synced;
        }
        let (run, refs) = (private.directory.clone(), private.synced.refs.clone());
        let reading = private.with_files(move || Ok(retention_reason(&run, &refs, false)));
        if reading.await?.is_none() {
            private.begin().await?;
        }
        private.write_common().await?;
        private.first = private.synced.refs.clone();
        let kept = private.directory.join(KEPT);
        private.with_files(move || remove_tree(&kept)).await?;
        remove_file(&private.directory.join(RETRY))?;
        let (view, refs) = (&private.git.view, &private.synced.refs.all);
        let logs = view.take_logs_from(&private.logs(), refs);
        logs.map_err(GitError::View)?;
        Ok(private)
    }

    /// The private directory below this directory of a run, as if it were empty.
    fn at(directory: PathBuf, lock: DirectoryLock, git: &Git) -> io::Result<Self> {
        let mut git = git.clone();
        git.invocation.bounds.limit = INDEX_LIMIT;
        git.invocation.bounds.halt = git.invocation.bounds.halt.child_token();
        // Timeouts of questions about the working tree must not shorten the time limits of
        // questions here.
        git.invocation.has_timed_out = Some(Arc::default());
        let layout = git.layout();
        let synced = SyncedState {
            top: layout.top.clone().into(),
            git_dir: DirectoryIdentity::of(&layout.git_dir)?,
            common_dir: DirectoryIdentity::of(&layout.common_dir)?,
            refs: Refs::default(),
            index: None,
        };
        Ok(Self {
            directory,
            git,
            synced,
            first: Refs::default(),
            takeover_incomplete: false,
            refused: Vec::new(),
            io_thread: IoThread::start()?,
            lock: Some(lock),
        })
    }

    /// Works with files whose number Codex decides: the runtime must not wait for that.
    async fn with_files<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.io_thread.run(work).await.map_err(io::Error::other)?
    }

    /// The private directory, which must be writable for Codex's commands.
    pub fn path(&self) -> PathBuf {
        self.directory.join(PRIVATE)
    }

    /// The directory of the settings, which must not be writable for Codex's commands.
    fn common(&self) -> PathBuf {
        self.directory.join(COMMON)
    }

    /// The variables that lead Codex's commands to both directories.
    pub fn variables(&self) -> [(&'static str, PathBuf); 3] {
        [
            ("GIT_DIR", self.path()),
            ("GIT_COMMON_DIR", self.common()),
            ("GIT_WORK_TREE", self.git.root().to_owned()),
        ]
    }

    /// Leaves what Codex has made since the last takeover to the next run, as Codex's commands may
    /// still be running.
    pub async fn skip_takeover(&mut self) {
        // Stays so if this future is dropped.
        let was_incomplete = mem::replace(&mut self.takeover_incomplete, true);
        let refs = self.refs().await;
        let is_same = refs.is_ok_and(|refs| refs.are_same_locally(&self.synced.refs))
            && index::stamp(&self.path().join("index")) == self.synced.index;
        self.takeover_incomplete = was_incomplete || !is_same;
    }

    /// Removes the directory, or returns a message for the user with the reason why it stays. The
    /// user gets a copy in which git runs nothing that Codex has planted.
    ///
    /// Processes that Codex has left behind may still write to the directory itself.
    pub async fn close(mut self) -> Option<String> {
        let io_thread = self.io_thread.clone();
        let directory = self.directory.clone();
        let closing = io_thread.run(move || {
            let kept = self.keep();
            if kept.is_none() {
                // A failure is ignored: the remaining files do no harm.
                let _ = leftovers::remove(&self.directory);
            }
            // After the removal of the transfer, also if nobody waits for it any more: a retry makes
            // a transfer at the same path.
            let lock = self.lock.take();
            self.io_thread.submit(move || drop(lock));
            kept
        });
        let closed = closing.await;
        io_thread.flush().await;
        closed.unwrap_or_else(|error| {
            Some(format!(
                "Cannot remove Codex's git directory {}: {error}. The next run that commits in this \
                 repository imports its commits, or removes it.",
                directory.display()
            ))
        })
    }

    /// Makes the copy for the user, if the directory stays.
    fn keep(&self) -> Option<String> {
        let synced = &self.synced.refs;
        let why = retention_reason(&self.directory, synced, self.takeover_incomplete)?;
        let (path, all) = (self.path(), self.directory.display());
        let warning = format!(
            "Kept Codex's git directory {}: {why}. Do not run git in it. ",
            path.display()
        );
        let what_to_do = match self.copy_for_user() {
            Ok(copy) => format!(
                "To get a ref, run `git fetch {} REF`. {}Then delete {all}.",
                shell_word(copy),
                self.advice_on_refused()
            ),
            Err(error) => format!("Cannot make a copy of it that is safe to fetch from: {error}."),
        };
        Some(warning + &what_to_do)
    }

    /// Advice for the user before merging refused commits.
    fn advice_on_refused(&self) -> String {
        let names = self.refused.iter().map(|path| shown(path));
        match self.refused.is_empty() {
            true => String::new(),
            false => format!(
                "Its commits make submodules of {}: before you merge or check them out, make sure \
                 that there is no .git in them, as your git would run programs that its settings \
                 name. ",
                first_names(names, plan::NAMED)
            ),
        }
    }

    /// The remote branches to which Codex has pushed commits that were not taken over: those that
    /// have moved to the tip of one of Codex's branches.
    pub async fn pushed(&self) -> Vec<String> {
        let Ok(theirs) = self.refs().await else {
            return Vec::new();
        };
        let is_own = |id: &String| {
            let mut all = theirs.all.iter();
            all.any(|(name, tip)| name.starts_with("refs/heads/") && tip == id)
        };
        let remote = theirs.all.iter().filter_map(|(name, id)| {
            let branch = name.strip_prefix("refs/remotes/")?;
            let is_new = self.synced.refs.all.get(name) != Some(id);
            (is_new && is_own(id)).then(|| branch.to_owned())
        });
        remote.collect()
    }

    fn copy_for_user(&self) -> io::Result<PathBuf> {
        let transfer = Transfer::new(&self.git, &self.directory, &self.io_thread)?;
        let retry = self.directory.join(RETRY);
        match self.takeover_incomplete {
            true => fs::write(retry, "")?,
            false => remove_file(&retry)?,
        }
        transfer.copy(&self.path(), &self.directory.join(KEPT))
    }

    async fn begin(&mut self) -> Result<(), GitError> {
        let directory = self.directory.clone();
        self.with_files(move || leftovers::clear(&directory))
            .await?;
        self.check().await?;
        self.git.refresh()?;
        let refs = Refs::of_repository(&self.git).await?;
        self.fill(&refs).map_err(GitError::View)?;
        let base = index::IndexListing::of_repository(&self.git).await?;
        fs::write(self.directory.join(BASE), base.0)?;
        self.synced.index = index::stamp(&self.path().join("index"));
        self.synced.refs = refs;
        self.save().map_err(GitError::View)
    }

    /// Refuses a repository whose features a takeover could not reproduce.
    async fn check(&self) -> Result<(), GitError> {
        let layout = self.git.layout();
        layout.check_writable()?;
        let is_there = |name: &str| layout.git_dir.join(name).symlink_metadata().is_ok();
        let under_way = UNFINISHED.into_iter().find(|(name, _)| {
            let is_step = !name.contains('/') && !matches!(*name, "modules" | "worktrees");
            is_step && is_there(name)
        });
        let is_set = |key: &str| self.git.settings.iter().any(|one| one.key == key);
        let is_true = |key: &str| {
            let mut set = self.git.settings.iter().rev();
            let last = set.find(|one| one.key == key).map(Setting::value);
            last.is_some_and(|value| !FALSE.iter().any(|no| value.eq_ignore_ascii_case(no)))
        };
        let shared_index = self.git.output(SHARED_INDEX, &[]).await?;
        let why = match under_way {
            Some(_) => "a merge, rebase, cherry-pick or revert is under way; finish or abort it",
            None if is_true("core.sparsecheckout") => {
                "it has a sparse checkout; run `git sparse-checkout disable`"
            }
            None if is_true("core.splitindex") || !shared_index.is_empty() => {
                "its index is split; run `git config core.splitIndex false && git update-index \
                 --no-split-index`"
            }
            None if is_set("extensions.refstorage") => "its refs are not kept in files",
            None => return Ok(()),
        };
        let top = layout.top.display();
        let why = format!("Codex cannot commit in {top}: {why}, and try again");
        Err(io::Error::other(why).into())
    }

    /// The id of an object in this repository.
    fn id_length(&self) -> index::IdLength {
        let is_format = |one: &&Setting| one.key == "extensions.objectformat";
        let format = self.git.settings.iter().rev().find(is_format);
        index::IdLength(match format.is_some_and(|one| one.value() == "sha256") {
            true => 64,
            false => 40,
        })
    }

    fn save(&self) -> io::Result<()> {
        self.replace(SYNCED, &serde_json::to_vec(&self.synced)?)
    }

    /// Replaces a file in the directory of the run atomically.
    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = self.directory.join(format!("{name}.new"));
        fs::write(&new, bytes)?;
        fs::rename(new, self.directory.join(name))
    }

    /// The refs that the private directory has now.
    async fn refs(&self) -> io::Result<Refs> {
        let path = self.path();
        self.with_files(move || Refs::of_directory(&path)).await
    }
}

impl SyncedState {
    /// Reads the state in a run's directory; `None` if there is none.
    fn load(directory: &Path) -> io::Result<Option<Self>> {
        match read(&directory.join(SYNCED), INDEX_LIMIT, Links::Refused) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

/// The directory of private git directories.
fn all(git: &Git) -> Result<PathBuf, GitError> {
    let no_home = || io::Error::other("neither HOME nor XDG_STATE_HOME is set");
    let state = state_directory(|name| git.variable(name));
    let state = state.ok_or_else(no_home).map_err(GitError::View)?;
    Ok(state.join(ALL))
}

/// Copies a file of a git directory, if it is there.
fn copy_file(name: &str, from: &Path, to: &Path, limit: u64) -> io::Result<()> {
    match read(&from.join(name), limit, Links::Refused) {
        Ok(bytes) => fs::write(to.join(name), bytes),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Removes a file, if it is there.
fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Entries for which a git directory is kept, each with the reason in words.
const UNFINISHED: [(&str, &str); 9] = [
    ("modules", "git directories of submodules are in it"),
    ("worktrees", "worktrees belong to it"),
    ("MERGE_HEAD", "a merge in it was not finished"),
    ("CHERRY_PICK_HEAD", "a cherry-pick in it was not finished"),
    ("REVERT_HEAD", "a revert in it was not finished"),
    ("rebase-merge", "a rebase in it was not finished"),
    ("rebase-apply", "a rebase in it was not finished"),
    ("logs/refs/stash", "something was stashed in it"),
    ("lfs/objects", "files of Git LFS are in it"),
];

/// The reason for keeping the directory of a run: the contents that the repository lacks. `synced`
/// are the refs when both were last the same.
fn retention_reason(run: &Path, synced: &Refs, takeover_incomplete: bool) -> Option<String> {
    if !run.join(SYNCED).is_file() {
        return None;
    }
    let path = run.join(PRIVATE);
    let is_empty = |path: &Path| fs::read_dir(path).is_ok_and(|mut all| all.next().is_none());
    let has_some = |path: &Path| path.symlink_metadata().is_ok() && !is_empty(path);
    let mut unfinished = UNFINISHED.into_iter();
    let unfinished = unfinished.find(|(name, _)| has_some(&path.join(name)));
    match (unfinished, Refs::of_directory(&path)) {
        (Some((_, what)), _) => Some(what.to_owned()),
        (None, Ok(refs)) if refs.are_same_locally(synced) => match takeover_incomplete {
            true => Some("its index was not imported".to_owned()),
            false => None,
        },
        (None, Ok(_)) => Some("some refs were not imported".to_owned()),
        (None, Err(error)) => Some(error.to_string()),
    }
}

impl Drop for PrivateGit {
    fn drop(&mut self) {
        let Some(lock) = self.lock.take() else {
            return;
        };
        let directory = self.directory.clone();
        let (synced, takeover_incomplete) =
            (mem::take(&mut self.synced.refs), self.takeover_incomplete);
        let (done, is_done) = mpsc::channel();
        // After work that is still under way.
        self.io_thread.submit(move || {
            if retention_reason(&directory, &synced, takeover_incomplete).is_none() {
                // A failure is ignored: the remaining files do no harm.
                let _ = leftovers::remove(&directory);
            }
            drop(lock);
            // Nobody may be waiting any more.
            let _ = done.send(());
        });
        // The process may be about to end. A later run removes the rest.
        let _ = is_done.recv_timeout(DROP_WAIT);
    }
}

/// The error for a private directory whose path git would misread.
fn unfit(path: &Path) -> io::Error {
    io::Error::other(format!("the path {path:?} has a line break"))
}
