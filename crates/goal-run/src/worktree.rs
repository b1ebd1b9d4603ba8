//! A git worktree for one run, so that the user's working tree stays unchanged.
//!
//! Git is asked by `git_probe`, as Codex may write to the repository: none of its hooks and
//! filters is run. Files of Git LFS stay the committed pointers; `git lfs pull` in the
//! worktree fetches them.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::json::lossy_path;
use git_probe::{Bounds, Git, GitError};
use safe_files::{directory, state_file};
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::look::InspectOptions;

/// How long git may take to check out a repository (10 min), such as a large one to a slow
/// disk.
const TIMEOUT: Duration = Duration::from_secs(600);

/// How much of git's output is read, in bytes.
const LIMIT: u64 = 1024 * 1024;

/// How many characters of a run's name are in the name of its worktree.
const TAG: usize = 8;

const CHECK_OUT: &[&str] = &["reset", "--hard", "--quiet", "--no-recurse-submodules"];

/// Lists ignored files too, as no other copy of them exists.
const UNCOMMITTED_WORK: &[&str] = &[
    "status",
    "--porcelain",
    "--ignored",
    "--untracked-files=normal",
    "--ignore-submodules=dirty",
];

/// Why there is no worktree.
#[derive(Debug, thiserror::Error)]
pub enum WorktreeError {
    /// The directory is in no repository.
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
    /// The run was cancelled.
    #[error("cancelled before the worktree was created")]
    Cancelled,
    /// Git failed.
    #[error("no worktree can be made of the repository of {}: {words}", directory.display())]
    Git {
        /// The directory.
        directory: PathBuf,
        /// Git's message.
        words: String,
    },
}

impl WorktreeError {
    fn of(directory: &Path, error: &GitError) -> Self {
        let directory = directory.to_owned();
        match error {
            GitError::Missing => Self::NoGit,
            GitError::Cancelled => Self::Cancelled,
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
    /// The top directory of the worktree.
    pub top: PathBuf,
    /// The branch that is checked out in it.
    pub branch: String,
    origin: PathBuf,
    options: InspectOptions,
}

impl Worktree {
    /// Creates a worktree of the repository around `directory`, below `home`, on a new branch
    /// from HEAD. Cancelled by the `halt` of `options`.
    ///
    /// # Errors
    ///
    /// [`WorktreeError`]. There is no worktree then.
    pub async fn make(
        directory: &Path,
        home: &Path,
        options: InspectOptions,
    ) -> Result<Self, WorktreeError> {
        let tag = Uuid::new_v4().simple().to_string();
        Self::of(directory, home, &tag, options).await
    }

    /// The worktree of the run of this name, of which the first eight characters count.
    /// Created if it does not exist yet.
    ///
    /// # Errors
    ///
    /// [`WorktreeError`].
    pub async fn of(
        directory: &Path,
        home: &Path,
        run: &str,
        options: InspectOptions,
    ) -> Result<Self, WorktreeError> {
        let failed = |error| WorktreeError::of(directory, &error);
        let git = Git::begin(directory, &options.env, bounds(&options.halt));
        let git = git.await.map_err(failed)?;
        let origin = git.root().to_owned();
        let commit = git.output(&["rev-parse", "--quiet", "--verify", "HEAD"], &[]);
        commit.await.map_err(|error| match error {
            GitError::Failed { .. } => WorktreeError::NoCommit(directory.to_owned()),
            error => failed(error),
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
            options,
        };
        worktree.set_up(&git).await.map_err(failed)?;
        Ok(worktree)
    }

    /// Sets up the worktree, and removes it again if that fails: nobody has used it yet.
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
                let _ = git.output(&remove, &[]).await;
                let _ = git.output(&self.delete_branch(), &[]).await;
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
        git.in_repository()?.output(&args, &[]).await.map(drop)
    }

    /// Checks out all files unless an index shows that this was done. Git is opened anew in
    /// the worktree, as the user's settings may depend on it.
    async fn check_out(&self) -> Result<(), GitError> {
        let git = self.git(&self.top, &self.options.halt).await?;
        if git.root() != self.top.canonicalize()? {
            let words = format!("{} is there and is no worktree", self.top.display());
            return Err(GitError::Unusable(io::Error::other(words)));
        }
        let index = git.layout().git_dir.join("index");
        if !index.exists() {
            // A killed attempt may have left git's lock behind. An earlier attempt that has lost
            // its lease may still be running, but it checks out the same commit, and there is no
            // work yet that could be lost.
            let lock = index.with_extension("lock");
            state_file::remove(&lock).map_err(io::Error::other)?;
            git.output(CHECK_OUT, &[]).await?;
        }
        // A commit or an earlier attempt may have put a link there.
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
        Git::begin(directory, &self.options.env, bounds(halt)).await
    }

    /// Removes the worktree and its branch, unless that would lose work: uncommitted or ignored
    /// files, or commits that no other ref leads to. Returns what is left. Also runs when the
    /// `halt` of `options` is cancelled.
    async fn remove(&self) -> LeftoverWorktree {
        match self.is_empty().await {
            Ok(true) => {}
            Ok(false) => return LeftoverWorktree::All,
            Err(error) => return self.left(&error),
        }
        match self.removed().await {
            Ok(()) => LeftoverWorktree::Nothing,
            Err(error) => self.left(&error),
        }
    }

    fn left(&self, why: &GitError) -> LeftoverWorktree {
        tracing::warn!(
            "the worktree {} cannot be tidied: {why}",
            self.top.display()
        );
        match self.top.exists() {
            true => LeftoverWorktree::All,
            false => LeftoverWorktree::Branch,
        }
    }

    /// Whether nothing would be lost with the worktree.
    async fn is_empty(&self) -> Result<bool, GitError> {
        let git = self.git(&self.top, &CancellationToken::new()).await?;
        if !git.output(UNCOMMITTED_WORK, &[]).await?.is_empty() || has_submodules(&git).await? {
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
        Ok(git.output(&question, &[]).await?.is_empty())
    }

    async fn removed(&self) -> Result<(), GitError> {
        let git = self.git(&self.origin, &CancellationToken::new()).await?;
        let git = git.in_repository()?;
        // With `--force`, as git would otherwise check the files with the repository's own filters.
        // `is_empty` has just found that no work would be lost.
        let remove = ["worktree", "remove", "--force", "--"].map(OsStr::new);
        let remove = [&remove[..], &[self.top.as_os_str()]].concat();
        git.output(&remove, &[]).await?;
        git.output(&self.delete_branch(), &[]).await.map(drop)
    }

    /// Arguments that delete the branch; git refuses if commits would be lost.
    fn delete_branch(&self) -> [OsString; 5] {
        let branch = self.branch.as_str();
        ["branch", "-d", "--quiet", "--", branch].map(OsString::from)
    }
}

/// Whether a submodule is checked out: work in it is not looked for.
async fn has_submodules(git: &Git) -> Result<bool, GitError> {
    let staged = git.output(&["ls-files", "-z", "--stage"], &[]).await?;
    let mut submodules = staged
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
        timeout: TIMEOUT,
        limit: LIMIT,
        halt: halt.clone(),
    }
}

/// How much of a worktree is left after its cleanup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeftoverWorktree {
    Nothing,
    Branch,
    All,
}

/// A worktree, or its branch, that stays after its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeptWorktree {
    /// Its top directory; `None` if only the branch is left.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "lossy_path")]
    pub path: Option<PathBuf>,
    /// Its branch.
    pub branch: String,
}

impl KeptWorktree {
    /// Keeps the worktree if the run has `made` something in it, and removes it otherwise. Returns
    /// the part that stays, which may contain somebody's work in either case.
    pub async fn after_cleanup(worktree: Worktree, made: bool) -> Option<Self> {
        let left = match made {
            true => LeftoverWorktree::All,
            false => worktree.remove().await,
        };
        let path = match left {
            LeftoverWorktree::Nothing => return None,
            LeftoverWorktree::Branch => None,
            LeftoverWorktree::All => Some(worktree.top),
        };
        Some(Self {
            path,
            branch: worktree.branch,
        })
    }
}
