//! Keeps Codex from having programs run through the submodules of a repository.
//!
//! The user's `git status` runs another git in each directory that the index lists as a submodule
//! (mode 160000), with the settings that this git finds there. Codex's sandbox protects `.git` at
//! the top from being written, and with it the git directories of submodules in `.git/modules`. It
//! protects neither a submodule's own `.git` nor a git directory that lies elsewhere. So their
//! state is recorded before Codex begins, compared while its commands are stopped, and restored
//! where it differs.
//!
//! | what git reads | may change | compared |
//! | --- | --- | --- |
//! | the index of the top, `.git/modules` | no | no |
//! | `SUBMODULE/.git`, file, directory or link | yes | yes |
//! | settings and hooks of a git directory elsewhere | yes | yes |
//! | its index, which can list more submodules | yes | read again each time |
//!
//! - `continuation`: the record with which another process continues a killed run.
//! - `context`: lists the submodules, and records the state of one.
//! - `state`: recorded state, and the action for each difference.
//! - `restore`: restores one submodule.
//! - `visit`: the result of a visit to one submodule.
//! - `notes`: the recorded state on the disk, shared by the runs that are active at the same time.
//! - `directory`: opening and renaming without following links.
//! - `nested`: repositories that are created in directories of the repository's own files.
//! - `programs`: files of the working tree that git uses by the user's settings.
//! - `search`: finds other repositories in the working tree. Those that existed before are recorded
//!   as submodules are; new ones are named at the end.
//!
//! Source: gitsubmodules(7), gitrepository-layout(5), git-config(1).

mod context;
mod continuation;
mod directory;
mod nested;
mod notes;
mod programs;
mod restore;
mod search;
mod state;
mod visit;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::text::{first_names, visible_line};
use safe_files::off_runtime;
use safe_files::state_directory::state_directory;
use tokio::time::{Instant, sleep};

use self::context::RepoContext;
use self::nested::PlainDirectories;
use self::notes::{Notes, NotesDirectory, PAUSE, RunStart, SharedLock, TIMEOUT};
use self::programs::ProgramFiles;
use self::search::{SearchResult, repositories_below};
use self::state::{Bytes, SubmoduleState};
use self::visit::VisitResult;
use super::{Git, GitError, written};

pub use self::continuation::SubmodulesRecord;

pub(crate) use self::context::submodules_in;
pub(crate) use self::nested::directories_in;
pub(super) use self::nested::move_aside;

/// The most unrecorded submodules that are visited below a single other submodule, or below the
/// top.
const LIMIT: usize = 1000;

/// How long the visits to all submodules may take.
const BUDGET: Duration = Duration::from_secs(60);

const DOT_GIT: &str = ".git";

/// The repositories within a repository as they were before Codex began.
#[derive(Debug)]
pub struct Submodules {
    watch: Option<Watch>,
    plain: Option<(RepoContext, Arc<PlainDirectories>)>,
    /// The repositories in the working tree.
    found: SearchResult,
    programs: Option<Arc<ProgramFiles>>,
}

/// Submodules under protection.
#[derive(Debug)]
struct Watch {
    context: RepoContext,
    /// The submodules that the index of the top lists.
    top: Vec<PathBuf>,
    notes: Arc<Notes>,
    lock: SharedLock,
}

impl Submodules {
    /// The value for work outside of a repository.
    pub fn none() -> Self {
        Self {
            watch: None,
            plain: None,
            found: SearchResult::default(),
            programs: None,
        }
    }

    /// Records the state of the repository's submodules, and returns warnings for the user. Codex
    /// must not be able to write yet. If another run is active, the state that it has recorded is
    /// used. If a run was killed, its submodules are restored first.
    ///
    /// # Errors
    ///
    /// [`GitError`] if git cannot list the submodules, or if the notes cannot be written.
    pub async fn note(git: &Git) -> Result<(Self, Vec<String>), GitError> {
        let context = RepoContext::of(git);
        let directory = notes_directory(git)?;
        let own = context.clone();
        let top = match on_disk(move || own.index()).await? {
            Some(index) => context.listed(index).await?,
            None => Vec::new(),
        };
        let (own, files) = (context.clone(), context.files().await?);
        let plain = on_disk(move || Ok(PlainDirectories::of(&own, &files))).await?;
        let plain = Some((context.clone(), Arc::new(plain)));
        let root = context.top().to_owned();
        let found = on_disk(move || Ok(repositories_below(&root))).await?;
        let own = git.clone();
        let programs = on_disk(move || Ok(ProgramFiles::of(&own))).await?;
        let incomplete: Vec<String> = found
            .warning()
            .into_iter()
            .chain(programs.warning())
            .collect();
        let programs = Some(Arc::new(programs));
        let mut noted = Self {
            watch: None,
            plain,
            found,
            programs,
        };
        if top.is_empty() && noted.found.repositories.is_empty() && !directory.is_there() {
            return Ok((noted, incomplete));
        }
        let (notes, lock, mut warnings) = begin(&context, &top, &noted.found, &directory).await?;
        warnings.extend(incomplete);
        noted.watch = Some(Watch {
            context,
            top,
            notes,
            lock,
        });
        Ok((noted, warnings))
    }

    /// Restores the entries that Codex has changed, so that git runs no program because of them,
    /// and returns warnings for the user. Codex's commands must not be running.
    pub async fn restore(&self) -> Vec<String> {
        let mut warnings = match &self.watch {
            Some(watch) => restore(&watch.context, &watch.top, &watch.notes).await,
            None => Vec::new(),
        };
        if let Some((context, plain)) = &self.plain {
            let (context, plain) = (context.clone(), Arc::clone(plain));
            let restored = off_runtime::run(move || plain.restore(&context)).await;
            warnings.extend(restored.unwrap_or_else(|error| {
                vec![format!(
                    "whether repositories were made in the working tree is not known: {error}"
                )]
            }));
        }
        warnings
    }

    /// Names the repositories that were created in the working tree. They stay, as they may be what
    /// the user has asked for.
    async fn new_repositories(&self) -> Vec<String> {
        let Some((context, _)) = &self.plain else {
            return Vec::new();
        };
        let submodules = self.watch.as_ref().map_or(&[][..], |watch| &watch.top);
        let root = context.top().to_owned();
        let now = match off_runtime::run(move || repositories_below(&root)).await {
            Ok(now) => now,
            Err(error) => {
                let why = "whether Codex has made repositories in the working tree is not known";
                return vec![format!("{why}: {error}")];
            }
        };
        let before = &self.found;
        let is_new =
            |path: &&PathBuf| !before.repositories.contains(*path) && !submodules.contains(*path);
        let new: Vec<String> = now
            .repositories
            .iter()
            .filter(is_new)
            .map(|path| shown(path))
            .collect();
        let named = new.iter().take(NAMED).map(|path| {
            format!(
                "{path}/ is a git repository of its own, which was made during the run, and Codex \
                 can have written its settings: look at them (.git/config and .git/hooks) before \
                 you add it to this repository or run git in it"
            )
        });
        let mut warnings: Vec<String> = named.collect();
        if new.len() > NAMED {
            warnings.push(format!("{} more directories like this", new.len() - NAMED));
        }
        if before.warning().is_none() {
            warnings.extend(now.warning());
        }
        warnings
    }

    /// Names the changed files that git uses by the user's settings.
    async fn changed_programs(&self) -> Vec<String> {
        let Some(programs) = self.programs.clone() else {
            return Vec::new();
        };
        let changes = off_runtime::run(move || programs.changes()).await;
        changes.unwrap_or_else(|error| {
            let what = "whether hooks and included settings in the working tree have changed";
            vec![format!("{what} is not known: {error}")]
        })
    }

    /// Restores for the last time, after Codex has ended, and removes the notes.
    pub async fn finish(self) -> Vec<String> {
        let mut warnings = self.restore().await;
        warnings.extend(self.new_repositories().await);
        warnings.extend(self.changed_programs().await);
        let Some(Watch { context, lock, .. }) = self.watch else {
            return warnings;
        };
        let unwritten = context
            .unwritten()
            .iter()
            .map(|path| Bytes::of(path))
            .collect();
        if let Err(error) = on_disk(move || lock.release(unwritten)).await {
            warnings.push(format!(
                "{error}; the next run restores them as they were before"
            ));
        }
        warnings
    }
}

/// How many new repositories are named.
const NAMED: usize = 10;

/// The directory of the repository's notes.
fn notes_directory(git: &Git) -> Result<NotesDirectory, GitError> {
    let no_home =
        || GitError::Submodules(io::Error::other("neither HOME nor XDG_STATE_HOME is set"));
    let state = state_directory(|name| git.variable(name)).ok_or_else(no_home)?;
    Ok(NotesDirectory::of(&git.layout().git_dir, &state))
}

/// Pauses before another attempt to take the lock of an active run. An error after `until`.
async fn pause(until: Instant) -> Result<(), GitError> {
    if Instant::now() >= until {
        let error = io::Error::other("another run does not release its lock");
        return Err(GitError::Submodules(error));
    }
    sleep(PAUSE).await;
    Ok(())
}

/// Takes the lock of an active run, and returns it with the notes that apply.
async fn begin(
    context: &RepoContext,
    top: &[PathBuf],
    found: &SearchResult,
    directory: &NotesDirectory,
) -> Result<(Arc<Notes>, SharedLock, Vec<String>), GitError> {
    let mut restored = Vec::new();
    let until = Instant::now() + TIMEOUT;
    loop {
        let place = directory.clone();
        let (lock, left) = match on_disk(move || place.try_begin()).await? {
            RunStart::Shared(lock, notes) => return Ok((Arc::new(notes), lock, restored)),
            RunStart::Wait => {
                pause(until).await?;
                continue;
            }
            RunStart::Alone(lock, left) => (lock, left),
        };
        if let Some(left) = left {
            restored.extend(restore_left(context, top, left).await);
        }
        let recorded: Vec<PathBuf> = top.iter().chain(&found.repositories).cloned().collect();
        let (notes, warnings) = record(context, &recorded).await;
        let notes = Arc::new(notes);
        let own = Arc::clone(&notes);
        if let Some(lock) = on_disk(move || lock.write(&own)).await? {
            return Ok((notes, lock, [restored, warnings].concat()));
        }
    }
}

async fn on_disk<T: Send + 'static>(
    task: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, GitError> {
    let done = off_runtime::run(task).await.map_err(io::Error::other);
    done.flatten().map_err(GitError::Submodules)
}

async fn record(context: &RepoContext, top: &[PathBuf]) -> (Notes, Vec<String>) {
    let mut notes = Notes::default();
    let look = |path: PathBuf| {
        let context = context.clone();
        move || context.record(&path)
    };
    let none = BTreeMap::new();
    let keep = |path: PathBuf, state: Option<SubmoduleState>| {
        let state = state.unwrap_or(SubmoduleState::Unknown);
        notes.submodules.insert(Bytes::of(&path), state);
    };
    let warnings = walk(context, top, &none, look, keep).await;
    (notes, warnings)
}

/// Restores submodules by the notes of a killed run.
async fn restore_left(
    context: &RepoContext,
    top: &[PathBuf],
    left: io::Result<Notes>,
) -> Vec<String> {
    match left {
        Ok(notes) => {
            let unwritten = notes.unwritten.iter();
            let unwritten = unwritten.map(|path| path.as_path().to_owned());
            context.unwritten().extend(unwritten);
            restore(context, top, &Arc::new(notes)).await
        }
        Err(error) => vec![format!(
            "what an interrupted run has recorded of the submodules cannot be read ({error}). \
             Look at their .git before you run git in the repository"
        )],
    }
}

async fn restore(context: &RepoContext, top: &[PathBuf], notes: &Arc<Notes>) -> Vec<String> {
    let look = |path: PathBuf| {
        let (context, notes) = (context.clone(), Arc::clone(notes));
        move || context.restore(&path, notes.submodules.get(&Bytes::of(&path)))
    };
    walk(context, top, &notes.submodules, look, |_, _| {}).await
}

/// Visits each submodule, recorded ones first, and their own submodules too.
async fn walk<V: FnOnce() -> VisitResult + Send + 'static>(
    context: &RepoContext,
    top: &[PathBuf],
    recorded: &BTreeMap<Bytes, SubmoduleState>,
    look: impl Fn(PathBuf) -> V,
    mut keep: impl FnMut(PathBuf, Option<SubmoduleState>),
) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut queue = Queue::default();
    // A path comes before those below it.
    let known = recorded.keys().map(|path| path.as_path().to_owned());
    queue.paths.extend(known);
    queue.seen.extend(queue.paths.iter().cloned());
    queue.add(top.iter().cloned());
    let until = Instant::now() + BUDGET;
    while let Some(path) = queue.paths.pop_front() {
        if Instant::now() >= until {
            queue.unchecked.push(path);
            continue;
        }
        let visit = off_runtime::run(look(path.clone())).await;
        let mut visit = visit.unwrap_or_else(|error| VisitResult::failed(&error));
        if let Some(index) = visit.index.take() {
            match context.listed(index).await {
                Ok(below) => queue.add(below.iter().map(|one| path.join(one))),
                Err(error) => {
                    let failure = format!("the submodules of it cannot be listed ({error})");
                    visit.failures.push(failure);
                    visit.state = None;
                }
            }
        }
        warnings.extend(visit.warning(&path));
        keep(path, visit.state);
    }
    warnings.extend(queue.warning());
    queue
        .unchecked
        .into_iter()
        .for_each(|path| keep(path, None));
    warnings
}

/// The submodules that are to be visited.
#[derive(Debug, Default)]
struct Queue {
    paths: VecDeque<PathBuf>,
    seen: BTreeSet<PathBuf>,
    unchecked: Vec<PathBuf>,
}

impl Queue {
    /// Adds those of one repository that are not in it.
    fn add(&mut self, paths: impl Iterator<Item = PathBuf>) {
        let mut added = 0;
        for path in paths {
            if !self.seen.insert(path.clone()) {
                continue;
            }
            match added < LIMIT {
                true => self.paths.push_back(path),
                false => self.unchecked.push(path),
            }
            added += 1;
        }
    }

    fn warning(&self) -> Option<String> {
        if self.unchecked.is_empty() {
            return None;
        }
        let names = self.unchecked.iter().map(|path| shown(path));
        Some(format!(
            "these submodules were not checked, since there are more than {LIMIT} in one \
             repository or it took more than {} s: {}. Look at their .git before you run git in \
             the repository",
            BUDGET.as_secs(),
            first_names(names, NAMED)
        ))
    }
}

/// A path as a part of a line for people.
pub(super) fn shown(path: &Path) -> String {
    visible_line(&written(path.as_os_str().as_bytes())).into_owned()
}

#[cfg(test)]
mod tests;
