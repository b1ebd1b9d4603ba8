//! Why a run can't be judged.

use std::io;
use std::path::PathBuf;

use crate::logic::names::CommandLine;

/// Why what is asked for could never be judged here: said before Codex does anything.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// The directory can't be used.
    #[error("{}: {source}; name a directory that is there", directory.display())]
    Directory {
        /// Which.
        directory: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Git is needed, and the directory isn't in a working tree.
    #[error(
        "`{criterion}` needs a git repository, and {} is in none; name a directory in one, or run git init there",
        directory.display()
    )]
    NoRepository {
        /// What needs it.
        criterion: String,
        /// The directory.
        directory: PathBuf,
    },
    /// There is no git program.
    #[error("`{criterion}` needs the program git, which is not on the PATH; install it")]
    NoGit {
        /// What needs it.
        criterion: String,
    },
    /// There is no gh program.
    #[error("`{criterion}` needs GitHub's program gh, which is not on the PATH; install it")]
    NoGh {
        /// What needs it.
        criterion: String,
    },
    /// The program of a command is not there.
    #[error(
        "`command={command}` needs the program {}, which is not there; install it, or write another command",
        program.display()
    )]
    NoProgram {
        /// The command.
        command: CommandLine,
        /// Its program.
        program: PathBuf,
    },
    /// There is nothing to push to.
    #[error(
        "`{criterion}` needs the remote {remote:?}, which this repository doesn't have; add it with git remote add"
    )]
    NoRemote {
        /// What needs it.
        criterion: String,
        /// Its name.
        remote: String,
    },
    /// GitHub doesn't know us.
    #[error("gh is not logged in: {0}; run gh auth login")]
    NotLoggedIn(String),
    /// How it is now can't be told, so that nobody could tell later what is new.
    #[error("`{criterion}` can't be judged here: {why}")]
    Start {
        /// What could not be.
        criterion: String,
        /// Why not.
        why: String,
    },
    /// The system has no thread to give.
    #[error("no thread to read files on: {0}")]
    Thread(io::Error),
}
