//! A git worktree for one run, so that the user's own stays as it is.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use uuid::Uuid;

use crate::engine::run::run;
use crate::engine::spawn::Program;

/// How long git may take to check out a repository (10 min): a large one over a slow
/// disk, with files of Git LFS to fetch.
const PATIENCE: Duration = Duration::from_secs(600);

/// How much of the name of a run names its worktree, in characters.
const TAG: usize = 8;

/// Why there is no worktree.
#[derive(Debug, thiserror::Error)]
pub enum WorktreeError {
    /// There is no repository to make one of.
    #[error("{} is in no git repository, so it has no worktrees; run `git init` there, or leave --worktree out", .0.display())]
    NoRepository(PathBuf),
    /// Git can't be run.
    #[error("git can't be run: {0}")]
    NoGit(io::Error),
    /// Git refuses.
    #[error("git {what}: {words}")]
    Git {
        /// What it was to do.
        what: &'static str,
        /// What it says.
        words: String,
    },
}

/// A worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worktree {
    /// The folder in it that corresponds to the one that was named.
    pub folder: PathBuf,
    /// Its top folder.
    pub top: PathBuf,
    /// The branch that is checked out in it.
    pub branch: String,
    origin: PathBuf,
}

impl Worktree {
    /// Makes one of the repository around `folder`, below `home`, on a new branch from
    /// what is checked out.
    ///
    /// # Errors
    ///
    /// [`WorktreeError`]. There is no worktree then.
    pub async fn make(folder: &Path, home: &Path) -> Result<Self, WorktreeError> {
        let tag = Uuid::new_v4().simple().to_string();
        Self::of(folder, home, &tag).await
    }

    /// The same for the run of this name, of which the first eight characters count:
    /// where there is one of it already, that one.
    ///
    /// # Errors
    ///
    /// [`WorktreeError`].
    pub async fn of(folder: &Path, home: &Path, run: &str) -> Result<Self, WorktreeError> {
        let top = git(folder, "rev-parse", ["--show-toplevel"]).await;
        let top = top.map_err(|error| match error {
            WorktreeError::Git { .. } => WorktreeError::NoRepository(folder.to_owned()),
            error => error,
        })?;
        let origin = PathBuf::from(top);
        let tag: String = run.chars().take(TAG).collect();
        let name = origin.file_name().unwrap_or_default().to_string_lossy();
        let top = home.join(format!("{name}-{tag}"));
        let branch = format!("codex-mcp/run-{tag}");
        let args: [OsString; 6] = [
            "add".into(),
            "--quiet".into(),
            "-b".into(),
            (&branch).into(),
            (&top).into(),
            "HEAD".into(),
        ];
        if !top.is_dir() {
            git(&origin, "worktree", args).await?;
        }
        let below = folder.strip_prefix(&origin).unwrap_or(Path::new(""));
        Ok(Self {
            folder: top.join(below),
            top,
            branch,
            origin,
        })
    }

    /// Removes it and its branch, for a run that has made nothing.
    ///
    /// # Errors
    ///
    /// [`WorktreeError`], also if there is something in it after all; it stays then.
    pub async fn remove(&self) -> Result<(), WorktreeError> {
        let args: [OsString; 2] = ["remove".into(), (&self.top).into()];
        git(&self.origin, "worktree", args).await?;
        let args = ["-d", "--quiet", &self.branch];
        git(&self.origin, "branch", args).await?;
        Ok(())
    }
}

/// A worktree that stays when its run is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Its top folder.
    pub path: PathBuf,
    /// The branch that is checked out in it.
    pub branch: String,
}

impl Kept {
    /// The worktree, if something was made in it; else it is removed.
    pub async fn tidied(worktree: Worktree, made: bool) -> Option<Self> {
        if !made {
            match worktree.remove().await {
                Ok(()) => return None,
                // There is something in it after all.
                Err(error) => tracing::debug!("the worktree stays: {error}"),
            }
        }
        Some(Self {
            path: worktree.top,
            branch: worktree.branch,
        })
    }
}

/// What git answers, without the newline.
async fn git<A: Into<OsString>>(
    folder: &Path,
    what: &'static str,
    args: impl IntoIterator<Item = A>,
) -> Result<String, WorktreeError> {
    let args = [what.into()]
        .into_iter()
        .chain(args.into_iter().map(Into::into));
    let mut program = Program::new(Path::new("git"), args.collect::<Vec<OsString>>());
    program.cwd = Some(folder.to_owned());
    let finished = run(&program, PATIENCE)
        .await
        .map_err(WorktreeError::NoGit)?;
    match finished.succeeded() {
        true => Ok(finished.stdout.trim_end_matches('\n').to_owned()),
        false => Err(WorktreeError::Git {
            what,
            words: finished.stderr.trim().to_owned(),
        }),
    }
}
