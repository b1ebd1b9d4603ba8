//! Errors of the first inspection.

use std::io;
use std::path::PathBuf;

use git_probe::GitError;

use crate::logic::names::CommandLine;

/// Why a criterion could never be judged here. Found before Codex does anything.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// The directory cannot be used.
    #[error("{}: {source}; name a directory that is there", directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The repository of a run that another process has begun cannot be opened again.
    #[error("cannot open the repository again: {0}")]
    Reopen(GitError),
    /// It is not the repository in which the run has begun.
    #[error("the repository of {} was replaced", .0.display())]
    Replaced(PathBuf),
    /// A criterion needs git, and the directory is in no working tree.
    #[error(
        "`{criterion}` needs a git repository, and {} is in none; name a directory in one, or run git init there",
        directory.display()
    )]
    NoRepository {
        /// The criterion.
        criterion: String,
        /// The directory.
        directory: PathBuf,
    },
    /// There is no git program.
    #[error("`{criterion}` needs the program git, which is not on the PATH; install it")]
    NoGit {
        /// The criterion.
        criterion: String,
    },
    /// There is no gh program.
    #[error("`{criterion}` needs GitHub's program gh, which is not on the PATH; install it")]
    NoGh {
        /// The criterion.
        criterion: String,
    },
    /// The program of a command does not exist.
    #[error(
        "`command={command}` needs the program {}, which does not exist; install it, or write another command",
        program.display()
    )]
    NoProgram {
        /// The command.
        command: CommandLine,
        /// Its program.
        program: PathBuf,
    },
    /// There is no remote to push to.
    #[error(
        "`{criterion}` needs the remote {remote:?}, which this repository doesn't have; add it with git remote add"
    )]
    NoRemote {
        /// The criterion.
        criterion: String,
        /// Its name.
        remote: String,
    },
    /// The user is not logged in to GitHub.
    #[error("gh is not logged in: {0}; run gh auth login")]
    NotLoggedIn(String),
    /// The state at the start cannot be determined, so later nobody could tell what is new.
    #[error("`{criterion}` cannot be judged here: {why}")]
    Start {
        /// The criterion.
        criterion: String,
        /// The cause.
        why: String,
    },
    /// A thread for reading files cannot be spawned.
    #[error("cannot spawn a thread to read files: {0}")]
    Thread(io::Error),
}
