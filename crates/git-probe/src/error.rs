//! Why a question to git has no answer.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use common::text::shell_word;
use supervise::exit::Exit;

use super::layout::LayoutError;

/// The most settings that the user and the repository may have together.
pub(super) const SETTINGS_LIMIT: usize = 5000;

/// Why git gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// Git cannot be started, or took too long.
    #[error("git cannot be run: {0}")]
    Unusable(io::Error),
    /// A needed file cannot be read or written, or git's output is refused.
    #[error("{0}")]
    Refused(#[from] io::Error),
    /// Git did not answer within the time limit.
    #[error(
        "git did not answer within {} s (slow disk, or a named pipe in place of one of its files)",
        .0.as_secs().max(1)
    )]
    TimedOut(Duration),
    /// The program git does not exist.
    #[error("there is no program git on the PATH")]
    Missing,
    /// Git failed.
    #[error("git {exit}: {words}")]
    Failed {
        /// How git exited.
        exit: Exit,
        /// The first line of its stderr.
        words: String,
    },
    /// There is no repository around the directory.
    #[error("there is no git repository around {}", .0.display())]
    NoRepository(PathBuf),
    /// The layout of the repository is refused.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The repository belongs to another user, and this one does not trust it.
    #[error(
        "{} belongs to another user; if you trust what is in it, run \
         `git config --global --add safe.directory {}`",
        .0.display(), shell_word(.0)
    )]
    Others(PathBuf),
    /// The view of the repository cannot be made.
    #[error("cannot make a view of the repository in the state directory: {0}")]
    View(io::Error),
    /// The state of submodules cannot be recorded, or the record not removed.
    #[error("cannot use the record of the submodules in the state directory: {0}")]
    Submodules(io::Error),
    /// There are more settings than `SETTINGS_LIMIT`.
    #[error("git has more than {SETTINGS_LIMIT} settings for the repository")]
    TooManySettings,
    /// Git's output exceeds the limit.
    #[error("git's output exceeds the limit")]
    TooMuch,
    /// The question was cancelled.
    #[error("asking git was cancelled")]
    Cancelled,
}

impl GitError {
    /// Whether there is no repository.
    pub fn is_no_repository(&self) -> bool {
        matches!(self, Self::NoRepository(_))
    }
}
