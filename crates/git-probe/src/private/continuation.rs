//! The record with which another process continues the run of a killed one.
//!
//! Codex's commands may be running in the private directory, so no file is changed that they use.

use std::io;
use std::path::{Path, PathBuf};

use safe_files::directory_lock::DirectoryLock;
use serde::{Deserialize, Serialize};

use super::journal::JOURNAL;
use super::refs::Refs;
use super::remove::remove_tree;
use super::{KEPT, PRIVATE, PrivateGit, RETRY, SYNCED, SyncedState, all, remove_file};
use crate::{Git, GitError, Layout};

/// The state of a [`PrivateGit`] that only its process has. Together with the directory of the run,
/// another process can continue from it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PrivateGitRecord {
    first: Refs,
    takeover_incomplete: bool,
    #[serde(with = "crate::bytes::paths")]
    refused: Vec<PathBuf>,
}

impl PrivateGit {
    /// The record with which another process can continue if this one is killed.
    pub fn record(&self) -> PrivateGitRecord {
        PrivateGitRecord {
            first: self.first.clone(),
            takeover_incomplete: self.takeover_incomplete,
            refused: self.refused.clone(),
        }
    }

    /// Reopens the directory of the run of this name, whose process was killed. Codex's commands
    /// may still be running in it: no file is changed that they use.
    ///
    /// # Errors
    ///
    /// [`GitError`] if the directory is gone, is in use by another process, or belongs to another
    /// repository. The directory stays as it is then.
    pub async fn continuing(
        git: &Git,
        run: &str,
        record: PrivateGitRecord,
    ) -> Result<Self, GitError> {
        let directory = all(git)?.join(run);
        let lock = existing(&directory).await?;
        let synced = synced_of(&directory)?;
        if !synced.is_of(git.layout()) {
            return Err(refused(&directory, "belongs to another repository").into());
        }
        let mut private = Self::at(directory, lock, git)?;
        // Without the lock, the directory stays if an error follows.
        let lock = private.lock.take();
        let is_unfinished = private.directory.join(JOURNAL).is_file();
        private.synced = synced;
        private.first = record.first;
        private.takeover_incomplete = record.takeover_incomplete || is_unfinished;
        private.refused = record.refused;
        let (view, refs) = (&private.git.view, &private.synced.refs.all);
        let logs = view.take_logs_from(&private.logs(), refs);
        logs.map_err(GitError::View)?;
        // A copy of this directory would keep the next run from importing the commits.
        let (kept, retry) = (private.directory.join(KEPT), private.directory.join(RETRY));
        let removed = private.with_files(move || {
            remove_tree(&kept)?;
            remove_file(&retry)?;
            Ok(lock)
        });
        private.lock = removed.await?;
        Ok(private)
    }
}

impl SyncedState {
    /// Whether this state belongs to the repository with this layout.
    fn is_of(&self, layout: &Layout) -> bool {
        self.top == layout.top.as_os_str()
            && self.git_dir.is(&layout.git_dir)
            && self.common_dir.is(&layout.common_dir)
    }
}

/// Locks the directory of a run, which must exist.
async fn existing(directory: &Path) -> io::Result<DirectoryLock> {
    match DirectoryLock::take_if_free(directory).await {
        Ok(Some(lock)) => Ok(lock),
        Ok(None) => Err(refused(directory, "is in use by another process")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(gone(directory)),
        Err(error) => Err(error),
    }
}

/// The state at the last takeover of a directory that Codex may still be using.
fn synced_of(directory: &Path) -> io::Result<SyncedState> {
    let synced = SyncedState::load(directory).map_err(|error| {
        let why = format!("cannot be continued: {SYNCED} cannot be read ({error})");
        refused(directory, &why)
    })?;
    let synced = synced.filter(|_| directory.join(PRIVATE).is_dir());
    synced.ok_or_else(|| gone(directory))
}

fn gone(directory: &Path) -> io::Error {
    refused(
        directory,
        "is gone: another run has imported its commits, or it was removed",
    )
}

fn refused(directory: &Path, why: &str) -> io::Error {
    let directory = directory.display();
    io::Error::other(format!("Codex's git directory {directory} {why}"))
}
