//! The record with which another process continues to protect the submodules of a killed run.
//!
//! Codex may have changed the working tree since the process was killed, and may still be changing
//! it. So nothing is read anew: the states from before Codex began are those of the record and of
//! the notes.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::context::RepoContext;
use super::nested::PlainDirectories;
use super::notes::{Notes, NotesDirectory, RunStart, SharedLock, TIMEOUT};
use super::programs::ProgramFiles;
use super::search::SearchResult;
use super::state::Bytes;
use super::{Submodules, Watch, notes_directory, on_disk, pause};
use crate::{Git, GitError};

/// The state of [`Submodules`] that only its process has. Together with the notes in the state
/// directory, another process can continue from it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SubmodulesRecord {
    watch: Option<WatchRecord>,
    plain: Option<Arc<PlainDirectories>>,
    found: SearchResult,
    programs: Option<Arc<ProgramFiles>>,
}

/// The same of submodules under protection.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct WatchRecord {
    top: Vec<Bytes>,
    /// Absolute paths that were moved aside, and where the earlier file could not be written yet.
    unwritten: Vec<Bytes>,
}

impl Submodules {
    /// The record with which another process can continue if this one is killed.
    pub fn record(&self) -> SubmodulesRecord {
        SubmodulesRecord {
            watch: self.watch.as_ref().map(Watch::record),
            plain: self.plain.as_ref().map(|(_, plain)| Arc::clone(plain)),
            found: self.found.clone(),
            programs: self.programs.clone(),
        }
    }

    /// Continues the protection of a run whose process was killed. Codex's commands may be running:
    /// nothing is compared or restored before the next [`restore`](Self::restore). If another run
    /// has begun since, the state that it has recorded is used.
    ///
    /// # Errors
    ///
    /// [`GitError`] if the notes of the killed run are gone or unreadable, or if another run does
    /// not release its lock.
    pub async fn continuing(git: &Git, record: SubmodulesRecord) -> Result<Self, GitError> {
        let context = RepoContext::of(git);
        let watch = match record.watch {
            Some(watch) => Some(watch.continuing(git, &context).await?),
            None => None,
        };
        Ok(Self {
            watch,
            plain: record.plain.map(|plain| (context, plain)),
            found: record.found,
            programs: record.programs,
        })
    }
}

impl Watch {
    fn record(&self) -> WatchRecord {
        let unwritten = self.context.unwritten();
        WatchRecord {
            top: self.top.iter().map(|path| Bytes::of(path)).collect(),
            unwritten: unwritten.iter().map(|path| Bytes::of(path)).collect(),
        }
    }
}

impl WatchRecord {
    async fn continuing(self, git: &Git, context: &RepoContext) -> Result<Watch, GitError> {
        let (notes, lock) = admitted(&notes_directory(git)?).await?;
        let unwritten: Vec<PathBuf> = self
            .unwritten
            .iter()
            .chain(&notes.unwritten)
            .map(|path| path.as_path().to_owned())
            .collect();
        context.unwritten().extend(unwritten);
        Ok(Watch {
            context: context.clone(),
            top: self.top.into_iter().map(Bytes::into_path).collect(),
            notes,
            lock,
        })
    }
}

/// Takes the lock of an active run again, and returns it with the notes that apply.
async fn admitted(directory: &NotesDirectory) -> Result<(Arc<Notes>, SharedLock), GitError> {
    if !directory.is_there() {
        return Err(gone());
    }
    let until = Instant::now() + TIMEOUT;
    loop {
        let place = directory.clone();
        let (lock, notes) = match on_disk(move || place.try_begin()).await? {
            RunStart::Shared(lock, notes) => return Ok((Arc::new(notes), lock)),
            RunStart::Wait => {
                pause(until).await?;
                continue;
            }
            RunStart::Alone(lock, Some(notes)) => (lock, notes.map_err(GitError::Submodules)?),
            RunStart::Alone(_, None) => return Err(gone()),
        };
        let notes = Arc::new(notes);
        let own = Arc::clone(&notes);
        if let Some(lock) = on_disk(move || lock.write(&own)).await? {
            return Ok((notes, lock));
        }
    }
}

fn gone() -> GitError {
    let why = "the record of the killed run is gone: another run has restored its submodules";
    GitError::Submodules(io::Error::other(why))
}
