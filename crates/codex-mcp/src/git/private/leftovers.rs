//! Directories of runs that were interrupted, and of those that still work.
//!
//! A run that was killed leaves its directory behind, with commits that the repository
//! may not have, or only half. The next run in the same repository takes them over before
//! it begins.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use codex_mcp_core::text::visible_line;

use super::lock::{DirectoryLock, LOCK};
use super::{ALL, KEPT, PrivateGit, SYNCED, Synced};
use crate::git::view::state_directory;
use crate::git::{Git, GitError};

/// How many directories are looked at.
const DIRECTORIES_LIMIT: usize = 1000;

/// The directory of a run, as `codex-mcp doctor` reports it.
#[derive(Debug)]
pub(crate) struct Leftover {
    /// The directory.
    pub(crate) path: PathBuf,
    /// The top of the repository that it belongs to, if that is known.
    pub(crate) repository: Option<PathBuf>,
    /// What is known of it.
    pub(crate) state: LeftoverState,
}

/// What is known of the directory of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeftoverState {
    /// A run is using it.
    InUse,
    /// Its run was interrupted.
    Interrupted,
    /// Its run has reported that it stays, with a copy of the refs and objects in this
    /// directory.
    Kept(PathBuf),
    /// It cannot be read, for this reason.
    Unreadable(String),
}

/// Lists the directories of all runs of this user.
///
/// # Errors
///
/// Those of the file system.
pub(crate) fn leftovers() -> io::Result<Vec<Leftover>> {
    let Some(state) = state_directory(|name| std::env::var_os(name)) else {
        return Ok(Vec::new());
    };
    let directories = directories(&state.join(ALL))?;
    Ok(directories.into_iter().filter_map(leftover).collect())
}

/// `None` for what a run has not finished making or removing.
fn leftover(path: PathBuf) -> Option<Leftover> {
    let synced = Synced::load(&path);
    let repository = synced.as_ref().ok().and_then(|synced| synced.as_ref());
    let repository = repository.map(|synced| PathBuf::from(&synced.top));
    let state = match (DirectoryLock::is_held(&path), synced) {
        (Ok(true), _) => LeftoverState::InUse,
        (Ok(false), Ok(None)) => return None,
        (Ok(false), Ok(Some(_))) => match path.join(KEPT) {
            kept if kept.is_dir() => LeftoverState::Kept(kept),
            _ => LeftoverState::Interrupted,
        },
        (Err(error), _) | (_, Err(error)) => LeftoverState::Unreadable(error.to_string()),
    };
    Some(Leftover {
        path,
        repository,
        state,
    })
}

/// The directories of runs, sorted by their names.
fn directories(all: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(all) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut directories = Vec::new();
    for entry in entries.take(DIRECTORIES_LIMIT) {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            directories.push(entry.path());
        }
    }
    directories.sort();
    Ok(directories)
}

/// Takes over what interrupted runs have left of this repository, all but the run of this
/// name, and removes what nobody needs. Returns what the caller has to know, a line each.
pub(crate) async fn recover(git: &Git, run: &str) -> Vec<String> {
    let all = match super::all(git) {
        Ok(all) => all,
        Err(error) => return vec![error.to_string()],
    };
    let directories = match directories(&all) {
        Ok(directories) => directories,
        Err(error) => return vec![format!("cannot list {}: {error}", shown(&all))],
    };
    let mut warnings = Vec::new();
    for directory in directories {
        if directory.file_name().is_some_and(|name| name == run) {
            continue;
        }
        match recover_one(git, &directory).await {
            Ok(found) => warnings.extend(found),
            Err(error) => warnings.push(format!(
                "what an interrupted run has left in {} cannot be taken over: {error}; remove \
                 that directory if you need none of its commits",
                shown(&directory)
            )),
        }
    }
    warnings
}

/// Why the directory of an interrupted run stays as it is.
#[derive(Debug, thiserror::Error)]
enum NotRecovered {
    /// It cannot be read or removed.
    #[error(transparent)]
    Directory(#[from] io::Error),
    /// Its commits cannot be taken over.
    #[error(transparent)]
    TakeOver(#[from] GitError),
}

async fn recover_one(git: &Git, directory: &Path) -> Result<Vec<String>, NotRecovered> {
    let lock = match DirectoryLock::try_take(directory) {
        Ok(Some(lock)) => lock,
        // A run is using it, or has just removed it.
        Ok(None) => return Ok(Vec::new()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let Some(synced) = Synced::load(directory)? else {
        // Codex gets a directory only after this file is there.
        remove(directory)?;
        return Ok(Vec::new());
    };
    let is_here = synced.git_dir == git.layout().git_dir.as_os_str();
    // The caller has been told of one that is kept.
    if !is_here || directory.join(KEPT).is_dir() {
        return Ok(Vec::new());
    }
    let mut private = PrivateGit::at(directory.to_owned(), lock, git);
    private.synced = synced.clone();
    private.is_half_taken = true;
    private.check()?;
    let taken = private.take_over().await?;
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let name = visible_line(&name);
    let about = |warning: String| format!("interrupted run {name}: {warning}");
    let mut warnings: Vec<String> = taken.warnings.into_iter().map(about).collect();
    if private.synced != synced {
        let refs = match taken.refs.as_slice() {
            [] => "its index".to_owned(),
            refs => refs.join(", "),
        };
        warnings.push(about(format!("its work was taken over ({refs})")));
    }
    warnings.extend(private.keep().map(about));
    Ok(warnings)
}

/// Empties the directory of a run but for its lock. `synced.json` goes first: without it,
/// what is there counts for nothing.
pub(super) fn clear(directory: &Path) -> io::Result<()> {
    match fs::remove_file(directory.join(SYNCED)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name() == LOCK {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// Removes the directory of a run, whose lock the caller holds. Another process that has
/// waited for the lock may be making the directory anew at once.
pub(super) fn remove(directory: &Path) -> io::Result<()> {
    clear(directory)?;
    fs::remove_file(directory.join(LOCK))?;
    fs::remove_dir(directory)
}

/// A path in one line.
fn shown(path: &Path) -> String {
    visible_line(&path.display().to_string()).into_owned()
}
