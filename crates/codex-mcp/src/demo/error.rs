//! Why a demo did not come to its end.

use std::io;
use std::path::PathBuf;

use super::cast::CastError;
use super::install::InstallError;
use super::stage::StageError;
use super::talk::TalkError;
use super::work::WorkError;

/// Why the demo did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// There is no Codex for it.
    #[error(transparent)]
    Cast(#[from] CastError),
    /// The scripted model can't start.
    #[error(transparent)]
    Model(#[from] scripted_model::StartError),
    /// The directory can't be set up or removed.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// The server can't be started.
    #[error("codex-mcp serve can't be started: {0}")]
    Server(io::Error),
    /// The conversation did not go as it should.
    #[error(
        "{error}\nIf this Codex is old, update it with `npm install -g @openai/codex@latest`, or \
         name another one with --codex-bin.{}", logged(.words)
    )]
    Talk {
        /// Why.
        error: TalkError,
        /// The last that the server logged.
        words: String,
    },
    /// The run did not go as it should.
    #[error(
        "{0}\nIf this Codex is old, update it with `npm install -g @openai/codex@latest`, or \
         name another one with --codex-bin."
    )]
    Work(#[from] WorkError),
    /// Codex says that it did what it did not do.
    #[error("Codex reports success, but {} is not there as it should be", .0.display())]
    NoFile(PathBuf),
    /// The output can't be written.
    #[error("the output can't be written: {0}")]
    Output(#[from] io::Error),
}

fn logged(words: &str) -> String {
    if words.is_empty() {
        String::new()
    } else {
        format!("\nThe log of the server ends with:\n{words}")
    }
}

/// What a demo that ended early was ended by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The user, with a signal.
    Signal,
    /// The reader of the output, who has gone.
    Reader,
    /// Something that failed.
    Failure,
}

impl DemoError {
    /// What ended the demo.
    #[must_use]
    pub fn cause(&self) -> Cause {
        match self {
            Self::Cast(CastError::Install(InstallError::Interrupted))
            | Self::Talk {
                error: TalkError::Interrupted,
                ..
            }
            | Self::Work(WorkError::Interrupted) => Cause::Signal,
            Self::Output(error)
            | Self::Cast(CastError::Output(error))
            | Self::Work(WorkError::Output(error))
            | Self::Talk {
                error: TalkError::Output(error),
                ..
            } if error.kind() == io::ErrorKind::BrokenPipe => Cause::Reader,
            _ => Cause::Failure,
        }
    }
}
