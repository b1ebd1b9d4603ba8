//! A git worktree for one run, so that the user's own stays as it is.
//!
//! Git is asked as `git_probe` does, as the repository is Codex's to write to: no
//! hook of it is run, and no filter. Files of Git LFS stay the pointers that are
//! committed; `git lfs pull` in the worktree fetches them.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use git_probe::{Bounds, Git, GitError};
use safe_files::directory;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::look::InspectOptions;

/// How long git may take to check out a repository (10 min): a large one to a slow
/// disk.
const PATIENCE: Duration = Duration::from_secs(600);

/// How much of one answer of git's is read, in bytes.
const LIMIT: u64 = 1024 * 1024;

/// How much of the name of a run names its worktree, in characters.
const TAG: usize = 8;

const CHECK_OUT: &[&str] = &["reset", "--hard", "--quiet", "--no-recurse-submodules"];

/// Ignored files too: nothing else has them.
const LEFT: &[&str] = &[
    "status",
    "--porcelain",
    "--ignored",
    "--untracked-files=normal",
    "--ignore-submodules=dirty",
];

/// Why there is no worktree.
#[derive(Debug, thiserror::Error)]
pub enum WorktreeError {
    /// There is no repository to make one of.
    #[error("{} is in no git repository, so it has no worktrees; run `git init` there, or leave --worktree out", .0.display())]
    NoRepository(PathBuf),
    /// There is nothing to check out.
    #[error("the repository of {} has no commit yet, so it has no worktrees; commit something first, or leave --worktree out", .0.display())]
    NoCommit(PathBuf),
    /// There is no git.
    #[error(
        "a worktree needs the program git, which is not on the PATH; install it, or leave --worktree out"
    )]
    NoGit,
    /// It is not wanted any more.
    #[error("called off before there was a worktree")]
    GivenUp,
    /// Git refuses.
    #[error("no worktree can be made of the repository of {}: {words}", directory.display())]
    Git {
        /// The directory.
        directory: PathBuf,
        /// What it says.
        words: String,
    },
}

impl WorktreeError {
    fn of(directory: &Path, error: &GitError) -> Self {
        let directory = directory.to_owned();
        match error {
            GitError::Missing => Self::NoGit,
            GitError::GivenUp => Self::GivenUp,
            error if error.is_no_repository() => Self::NoRepository(directory),
            error => Self::Git {
                directory,
                words: error.to_string(),
            },
        }
    }
}

/// A worktree.
#[derive(Debug, Clone)]
pub struct Worktree {
    /// The directory in it that corresponds to the one that was named.
    pub directory: PathBuf,
    /// Its top directory.
    pub top: PathBuf,
    /// The branch that is checked out in it.
    pub branch: String,
    origin: PathBuf,
    means: InspectOptions,
}

impl Worktree {
    /// Makes one of the repository around `directory`, below `home`, on a new branch from
    /// what is checked out. Given up when the means' `halt` is cancelled.
    ///
    /// # Errors
    ///
    /// [`WorktreeError`]. There is no worktree then.
    pub async fn make(
        directory: &Path,
        home: &Path,
        means: InspectOptions,
    ) -> Result<Self, WorktreeError> {
        let tag = Uuid::new_v4().simple().to_string();
        Self::of(directory, home, &tag, means).await
    }

    /// The same for the run of this name, of which the first eight characters count:
    /// where there is one of it already, that one.
    ///
    /// # Errors
    ///
    /// [`WorktreeError`].
    pub async fn of(
        directory: &Path,
        home: &Path,
        run: &str,
        means: InspectOptions,
    ) -> Result<Self, WorktreeError> {
        let told = |error| WorktreeError::of(directory, &error);
        let git = Git::begin(directory, &means.env, bounds(&means.halt));
        let git = git.await.map_err(told)?;
        let origin = git.root().to_owned();
        let commit = git.told(&["rev-parse", "--quiet", "--verify", "HEAD"], &[]);
        commit.await.map_err(|error| match error {
            GitError::Failed { .. } => WorktreeError::NoCommit(directory.to_owned()),
            error => told(error),
        })?;
        let tag: String = run.chars().take(TAG).collect();
        let name = origin.file_name().unwrap_or_default().to_string_lossy();
        let top = home.join(format!("{name}-{tag}"));
        let here = directory.canonicalize();
        let here = here.unwrap_or_else(|_| directory.to_owned());
        let below = here.strip_prefix(&origin).unwrap_or(Path::new(""));
        let worktree = Self {
            directory: top.join(below),
            top,
            branch: format!("codex-mcp/run-{tag}"),
            origin,
            means,
        };
        worktree.set_up(&git).await.map_err(told)?;
        Ok(worktree)
    }

    /// What was begun and can't be finished is taken back: nobody was in it.
    async fn set_up(&self, git: &Git) -> Result<(), GitError> {
        if self.top.is_dir() {
            return self.check_out().await;
        }
        let added = match self.add(git).await {
            Ok(()) => self.check_out().await,
            Err(error) => Err(error),
        };
        let Err(error) = added else {
            return Ok(());
        };
        if let Ok(git) = self.git(&self.origin, &CancellationToken::new()).await {
            let remove = ["worktree", "remove", "--force", "--force"].map(OsStr::new);
            let remove = [&remove[..], &[self.top.as_os_str()]].concat();
            if let Ok(git) = git.in_repository() {
                let _ = git.told(&remove, &[]).await;
                let _ = git.told(&self.unbranch(), &[]).await;
            }
        }
        Err(error)
    }

    async fn add(&self, git: &Git) -> Result<(), GitError> {
        let args: [&OsStr; 8] = [
            "worktree".as_ref(),
            "add".as_ref(),
            "--quiet".as_ref(),
            "--no-checkout".as_ref(),
            "-b".as_ref(),
            self.branch.as_ref(),
            self.top.as_ref(),
            "HEAD".as_ref(),
        ];
        git.in_repository()?.told(&args, &[]).await.map(drop)
    }

    /// Checks all out, where that has not been done: the index is there then. Git is
    /// asked anew in there, as the user's settings may depend on the worktree.
    async fn check_out(&self) -> Result<(), GitError> {
        let git = self.git(&self.top, &self.means.halt).await?;
        if git.root() != self.top.canonicalize()? {
            let words = format!("{} is there and is no worktree", self.top.display());
            return Err(GitError::Unusable(io::Error::other(words)));
        }
        if !git.layout().git_dir.join("index").exists() {
            git.told(CHECK_OUT, &[]).await?;
        }
        // What is committed there, or was made by an earlier attempt, may be a link.
        let directory = directory::resolved(&self.directory);
        match directory.starts_with(git.root()) {
            true => Ok(()),
            false => {
                let (named, directory) = (self.directory.display(), directory.display());
                let words = format!("{named} leads out of the worktree, to {directory}");
                Err(GitError::Unusable(io::Error::other(words)))
            }
        }
    }

    async fn git(&self, directory: &Path, halt: &CancellationToken) -> Result<Git, GitError> {
        Git::begin(directory, &self.means.env, bounds(halt)).await
    }

    /// Removes it and its branch, unless something may be lost: files that are not
    /// committed, ignored ones too, and commits that nothing else leads to. What is
    /// left is told. Also done when the means' `halt` is cancelled.
    async fn remove(&self) -> Left {
        match self.is_empty().await {
            Ok(true) => {}
            Ok(false) => return Left::All,
            Err(error) => return self.left(&error),
        }
        match self.removed().await {
            Ok(()) => Left::Nothing,
            Err(error) => self.left(&error),
        }
    }

    fn left(&self, why: &GitError) -> Left {
        tracing::warn!("the worktree {} can't be tidied: {why}", self.top.display());
        match self.top.exists() {
            true => Left::All,
            false => Left::Branch,
        }
    }

    /// Whether there is nothing in it that is nowhere else.
    async fn is_empty(&self) -> Result<bool, GitError> {
        let git = self.git(&self.top, &CancellationToken::new()).await?;
        if !git.told(LEFT, &[]).await?.is_empty() || has_submodules(&git).await? {
            return Ok(false);
        }
        let head = git.text(&["rev-parse", "--verify", "HEAD"], &[]).await?;
        let git = self.git(&self.origin, &CancellationToken::new()).await?;
        let branch = format!("refs/heads/{}", self.branch);
        let question = [
            "rev-list",
            "--max-count=1",
            head.trim(),
            &branch,
            "--not",
            "HEAD",
            &format!("--exclude={}", self.branch),
            "--branches",
            "--tags",
            "--remotes",
        ];
        Ok(git.told(&question, &[]).await?.is_empty())
    }

    async fn removed(&self) -> Result<(), GitError> {
        let git = self.git(&self.origin, &CancellationToken::new()).await?;
        let git = git.in_repository()?;
        // By force, as git would look at the files in there with the repository's own
        // filters: that they may go has just been found out.
        let remove = ["worktree", "remove", "--force", "--"].map(OsStr::new);
        let remove = [&remove[..], &[self.top.as_os_str()]].concat();
        git.told(&remove, &[]).await?;
        git.told(&self.unbranch(), &[]).await.map(drop)
    }

    /// Git refuses that where commits would be lost.
    fn unbranch(&self) -> [OsString; 5] {
        let branch = self.branch.as_str();
        ["branch", "-d", "--quiet", "--", branch].map(OsString::from)
    }
}

/// Whether a submodule is checked out: nobody looks for work in there.
async fn has_submodules(git: &Git) -> Result<bool, GitError> {
    let told = git.told(&["ls-files", "-z", "--stage"], &[]).await?;
    let mut submodules = told
        .split(|byte| *byte == 0)
        .filter(|record| record.starts_with(b"160000 "))
        .filter_map(|record| {
            record
                .iter()
                .position(|byte| *byte == b'\t')
                .map(|tab| (record, tab))
        })
        .filter_map(|(record, tab)| record.get(tab + 1..));
    Ok(submodules.any(|path| {
        let dot_git = git.root().join(OsStr::from_bytes(path)).join(".git");
        dot_git.symlink_metadata().is_ok()
    }))
}

fn bounds(halt: &CancellationToken) -> Bounds {
    Bounds {
        patience: PATIENCE,
        limit: LIMIT,
        halt: halt.clone(),
    }
}

/// What is left of a worktree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    Branch,
    All,
}

/// What stays of a worktree when its run is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Its top directory; `None` if only the branch is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Its branch.
    pub branch: String,
}

impl Kept {
    /// The worktree, if something was made in it; else it is removed, and this is what
    /// stays because it may be somebody's work after all.
    pub async fn tidied(worktree: Worktree, made: bool) -> Option<Self> {
        let left = match made {
            true => Left::All,
            false => worktree.remove().await,
        };
        let path = match left {
            Left::Nothing => return None,
            Left::Branch => None,
            Left::All => Some(worktree.top),
        };
        Some(Self {
            path,
            branch: worktree.branch,
        })
    }
}
