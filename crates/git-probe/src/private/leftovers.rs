//! The directories of interrupted runs, and of runs that are still active.
//!
//! A run that was killed leaves its directory behind, with commits that the repository may not
//! have, or has only in part. The next run in the same repository imports them before it begins. It
//! finishes a takeover that had begun to change the repository. It moves a branch, `HEAD` and the
//! index only if the working tree is still as the run has left it; otherwise the commits are kept
//! below `refs/codex-mcp`.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use common::text::{first_names, visible_line};
use safe_files::directory_lock::{DirectoryLock, LOCK};
use safe_files::state_directory::state_directory;
use supervise::io_thread::IoThread;
use tokio_util::sync::CancellationToken;

use super::plan::NAMED;
use super::remove::remove_tree;
use super::takeover::{AFTER_STOP, Source, Takeover};
use super::{ALL, KEPT, PrivateGit, RETRY, SYNCED, SyncedState};
use crate::invocation::Invocation;
use crate::{Bounds, Git, GitError, until_stopped};

/// The most directories that are examined.
const DIRECTORIES_LIMIT: usize = 1000;

/// The directory of a run, as `codex-mcp doctor` reports it.
#[derive(Debug)]
pub struct Leftover {
    /// The directory.
    pub path: PathBuf,
    /// The top of the repository that it belongs to, if that is known.
    pub repository: Option<PathBuf>,
    /// The state of the leftover.
    pub state: LeftoverState,
}

/// The state of the directory of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeftoverState {
    /// A run is using it.
    InUse,
    /// Its run was interrupted.
    Interrupted,
    /// The run was interrupted, and its repository is gone, or another one is at its path.
    Orphaned,
    /// The run has reported that the directory stays. A copy of the refs and objects is in this
    /// directory.
    Kept(PathBuf),
    /// Its content is not needed any more, but could not be removed.
    Unfinished,
    /// The directory cannot be read, for this reason.
    Unreadable(String),
}

/// Lists the directories of all runs of this user.
///
/// # Errors
///
/// The errors of the file system.
pub fn leftovers() -> io::Result<Vec<Leftover>> {
    let Some(state) = state_directory(|name| std::env::var_os(name)) else {
        return Ok(Vec::new());
    };
    let all = state.join(ALL);
    let (directories, more) = directories(&all)?;
    let left_out = more.map(|why| Leftover {
        path: all,
        repository: None,
        state: LeftoverState::Unreadable(why),
    });
    let found = directories.into_iter().filter_map(leftover);
    Ok(left_out.into_iter().chain(found).collect())
}

/// Examines a directory; `None` if a run is just creating or removing it.
fn leftover(path: PathBuf) -> Option<Leftover> {
    let synced = SyncedState::load(&path);
    let is_there = |synced: &SyncedState| synced.common_dir.is_there();
    let repository = synced.as_ref().ok().and_then(|synced| synced.as_ref());
    let repository = repository.map(|synced| PathBuf::from(&synced.top));
    let state = match (DirectoryLock::is_held(&path), synced) {
        (Ok(true), _) => LeftoverState::InUse,
        (Ok(false), Ok(None)) if has_files(&path) => LeftoverState::Unfinished,
        (Ok(false), Ok(None)) => return None,
        (Ok(false), Ok(Some(synced))) => match path.join(KEPT) {
            kept if kept.is_dir() => LeftoverState::Kept(kept),
            _ if is_there(&synced) => LeftoverState::Interrupted,
            _ => LeftoverState::Orphaned,
        },
        (Err(error), _) | (_, Err(error)) => LeftoverState::Unreadable(error.to_string()),
    };
    Some(Leftover {
        path,
        repository,
        state,
    })
}

/// Whether the directory contains more than its lock. The lock is held while anything in it is
/// created or removed.
fn has_files(directory: &Path) -> bool {
    let mut entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name() != LOCK)
}

/// The directories of runs, sorted by name. If there are more than the limit, also a line that says
/// so.
fn directories(all: &Path) -> io::Result<(Vec<PathBuf>, Option<String>)> {
    let entries = match fs::read_dir(all) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), None)),
        Err(error) => return Err(error),
    };
    let mut directories = Vec::new();
    let mut more = None;
    for entry in entries {
        let entry = entry?;
        if directories.len() == DIRECTORIES_LIMIT {
            more = Some(format!(
                "there are more than {DIRECTORIES_LIMIT} directories, of which the others were \
                 not examined"
            ));
            break;
        }
        if entry.file_type()?.is_dir() {
            directories.push(entry.path());
        }
    }
    directories.sort();
    Ok((directories, more))
}

/// Imports the commits that interrupted runs of this repository have left, except those of the run
/// of this name, and removes directories that nobody needs. Returns warnings for the caller, a line
/// each. Stops soon after `stop` is cancelled.
pub async fn recover(git: &Git, run: &str, stop: &CancellationToken) -> Vec<String> {
    let all = match super::all(git) {
        Ok(all) => all,
        Err(error) => return vec![error.to_string()],
    };
    let (directories, more) = match directories(&all) {
        Ok(directories) => directories,
        Err(error) => return vec![format!("cannot list {}: {error}", shown(&all))],
    };
    let more = more.map(|why| format!("{}: {why}", shown(&all)));
    let mut warnings = Vec::from_iter(more);
    for directory in directories {
        if directory.file_name().is_some_and(|name| name == run) {
            continue;
        }
        if stop.is_cancelled() {
            break;
        }
        match recover_one(git, &directory, stop).await {
            Ok(found) => warnings.extend(found),
            Err(error) => warnings.push(not_imported(&directory, &error.to_string())),
        }
    }
    warnings
}

fn not_imported(directory: &Path, why: &str) -> String {
    let directory = shown(directory);
    format!("cannot import the commits of an interrupted run from {directory}: {why}")
}

async fn recover_one(
    git: &Git,
    directory: &Path,
    stop: &CancellationToken,
) -> io::Result<Vec<String>> {
    let lock = match DirectoryLock::take_if_free(directory).await {
        Ok(Some(lock)) => lock,
        // A run is using it, or has just removed it.
        Ok(None) => return Ok(Vec::new()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let Some(synced) = SyncedState::load(directory)? else {
        // Without this file, Codex has not been given the directory yet, or nobody needs it.
        let directory = directory.to_owned();
        let remove = move || {
            let removed = remove(&directory);
            drop(lock);
            removed
        };
        let removed = IoThread::start()?.run(remove).await;
        removed.map_err(io::Error::other)??;
        return Ok(Vec::new());
    };
    let is_reported = directory.join(KEPT).is_dir();
    if is_reported && !directory.join(RETRY).is_file() {
        return Ok(Vec::new());
    }
    let Some((git, source)) = working_tree(git, &synced, stop).await else {
        return Ok(Vec::new());
    };
    let age = age(directory);
    let mut private = PrivateGit::at(directory.to_owned(), lock, &git)?;
    private.synced = synced.clone();
    private.takeover_incomplete = true;
    let about = |text: String| about(directory, age, &text);
    let warnings = match private.recovered(source, stop).await {
        Ok(takeover) => {
            let imported = (private.synced != synced || !takeover.refs.is_empty())
                .then(|| imported(&takeover));
            let warnings = takeover.warnings.into_iter().chain(imported);
            warnings.map(about).collect()
        }
        Err(error) => vec![not_imported(directory, &error.to_string())],
    };
    let is_incomplete = private.takeover_incomplete;
    let kept = private.close().await.map(about);
    match is_reported && is_incomplete {
        true => Ok(Vec::new()),
        false => Ok(warnings.into_iter().chain(kept).collect()),
    }
}

/// Git in the working tree of a run, if that is a working tree of this repository.
async fn working_tree(
    git: &Git,
    synced: &SyncedState,
    stop: &CancellationToken,
) -> Option<(Git, Source)> {
    let layout = git.layout();
    if synced.git_dir.is(&layout.git_dir) {
        return Some((git.clone(), Source::InterruptedRun));
    }
    if !synced.common_dir.is(&layout.common_dir) {
        return None;
    }
    let gone = Some((git.clone(), Source::RemovedWorktree));
    if !synced.git_dir.is_there() {
        return gone;
    }
    let Invocation { env, bounds, .. } = &git.invocation;
    let bounds = Bounds {
        halt: bounds.halt.child_token(),
        ..bounds.clone()
    };
    let halt = bounds.halt.clone();
    let begun = Git::begin(Path::new(&synced.top), env, bounds);
    match until_stopped(stop, &halt, AFTER_STOP, begun).await {
        Ok(there) if synced.git_dir.is(&there.layout().git_dir) => {
            Some((there, Source::InterruptedRun))
        }
        _ => gone,
    }
}

impl PrivateGit {
    async fn recovered(
        &mut self,
        source: Source,
        stop: &CancellationToken,
    ) -> Result<Takeover, GitError> {
        if source == Source::InterruptedRun {
            self.check().await?;
        }
        self.take_over_from(source, stop).await
    }
}

/// The time since a run began, or since its commits were last imported.
fn age(directory: &Path) -> Option<Duration> {
    let about = fs::symlink_metadata(directory.join(SYNCED)).ok()?;
    about.modified().ok()?.elapsed().ok()
}

/// A line about a run.
fn about(directory: &Path, age: Option<Duration>, text: &str) -> String {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let name = visible_line(&name);
    // Whole hours are enough for a run that is older than one hour.
    let age = age.map(|age| match age.as_secs() {
        seconds @ ..3600 => Duration::from_secs(seconds),
        seconds => Duration::from_secs(seconds / 3600 * 3600),
    });
    match age {
        Some(age) => {
            let age = humantime::format_duration(age);
            format!("interrupted run {name} (last imported or begun {age} ago): {text}")
        }
        None => format!("interrupted run {name}: {text}"),
    }
}

fn imported(takeover: &Takeover) -> String {
    let refs = match takeover.refs.as_slice() {
        [] => "its index".to_owned(),
        refs => first_names(refs, NAMED),
    };
    match &takeover.head {
        Some(head) => format!("imported {refs}; {head}"),
        None => format!("imported {refs}"),
    }
}

/// Empties the directory of a run except for its lock. `synced.json` is removed first: without it,
/// the remaining content is ignored.
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
            true => remove_tree(&entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// Removes the directory of a run, whose lock the caller holds. Another process that has waited for
/// the lock may create the directory again at once.
pub(super) fn remove(directory: &Path) -> io::Result<()> {
    clear(directory)?;
    fs::remove_file(directory.join(LOCK))?;
    match fs::remove_dir(directory) {
        Err(error) if !is_taken(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Whether another process has begun to use the directory, or has removed it.
fn is_taken(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound
    )
}

/// A path in one line.
fn shown(path: &Path) -> String {
    visible_line(&path.display().to_string()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_imported_refs_are_bounded() {
        let takeover = |count: u32| Takeover {
            warnings: Vec::new(),
            complete: true,
            refs: (0..count).map(|number| format!("r{number}")).collect(),
            head: None,
        };
        assert_eq!(imported(&takeover(0)), "imported its index");
        assert_eq!(imported(&takeover(2)), "imported r0, r1");
        let many = imported(&takeover(1000));
        assert!(many.ends_with(", r19 and 980 more"), "{many}");
    }
}
