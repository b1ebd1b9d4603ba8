//! The errors of the demo.

use std::io;
use std::path::PathBuf;

use super::conversation::ConversationError;
use super::demo_codex::CodexError;
use super::install::InstallError;
use super::work::WorkError;
use super::workspace::WorkspaceError;

/// Why the demo ended early.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// There is no Codex for the demo.
    #[error(transparent)]
    DemoCodex(#[from] CodexError),
    /// The scripted model can't start.
    #[error(transparent)]
    Model(#[from] scripted_model::StartError),
    /// The directory can't be set up or removed.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The server can't be started.
    #[error("cannot start codex-mcp serve: {0}")]
    Server(io::Error),
    /// The conversation failed.
    #[error(
        "{error}\nIf this Codex is old, update it with `npm install -g @openai/codex@latest`, or \
         name another one with --codex-bin.{}", logged(.words)
    )]
    Conversation {
        /// The error of the conversation.
        error: ConversationError,
        /// The last lines that the server logged.
        words: String,
    },
    /// The run failed.
    #[error(
        "{0}\nIf this Codex is old, update it with `npm install -g @openai/codex@latest`, or \
         name another one with --codex-bin."
    )]
    Work(#[from] WorkError),
    /// Codex reports success, but its file is missing or wrong.
    #[error("Codex reports success, but {} is not there as it should be", .0.display())]
    NoFile(PathBuf),
    /// The output can't be written.
    #[error("cannot write to stdout: {0}")]
    Output(#[from] io::Error),
}

fn logged(words: &str) -> String {
    if words.is_empty() {
        String::new()
    } else {
        format!("\nThe log of the server ends with:\n{words}")
    }
}

/// Who or what ended a demo early.
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
    /// The cause of the early end.
    #[must_use]
    pub fn cause(&self) -> Cause {
        match self {
            Self::DemoCodex(CodexError::Install(InstallError::Interrupted))
            | Self::Conversation {
                error: ConversationError::Interrupted,
                ..
            }
            | Self::Work(WorkError::Interrupted) => Cause::Signal,
            Self::Output(error)
            | Self::DemoCodex(CodexError::Output(error))
            | Self::Work(WorkError::Output(error))
            | Self::Conversation {
                error: ConversationError::Output(error),
                ..
            } if error.kind() == io::ErrorKind::BrokenPipe => Cause::Reader,
            _ => Cause::Failure,
        }
    }
}
