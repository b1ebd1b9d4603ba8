//! The errors of the demo.

use std::io;
use std::path::PathBuf;

use codex_protocol::codex::Release;

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
    #[error("{error}{}{}", to_update(.release), logged(.words))]
    Conversation {
        /// The error of the conversation.
        error: ConversationError,
        /// The release of the Codex, if it is known.
        release: Option<Release>,
        /// The last lines that the server logged.
        words: String,
    },
    /// The run failed.
    #[error("{error}{}", to_update(.release))]
    Work {
        /// The error of the run.
        error: WorkError,
        /// The release of the Codex, if it is known.
        release: Option<Release>,
    },
    /// Codex reports success, but its file is missing or wrong.
    #[error("Codex reports success, but {} is not there as it should be", .0.display())]
    NoFile(PathBuf),
    /// The output can't be written.
    #[error("cannot write to stdout: {0}")]
    Output(#[from] io::Error),
}

/// The advice to update a Codex that is older than those that the demo is tested with.
fn to_update(release: &Option<Release>) -> String {
    match release {
        Some(release) if *release < Release::OLDEST_TESTED => format!(
            "\nCodex {release} is older than {}, the oldest release that is tested. Update it with \
             `npm install -g @openai/codex@latest`, or name another one with --codex-bin.",
            Release::OLDEST_TESTED
        ),
        _ => String::new(),
    }
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
            | Self::Work {
                error: WorkError::Interrupted,
                ..
            } => Cause::Signal,
            Self::Output(error)
            | Self::DemoCodex(CodexError::Output(error))
            | Self::Work {
                error: WorkError::Output(error),
                ..
            }
            | Self::Conversation {
                error: ConversationError::Output(error),
                ..
            } if error.kind() == io::ErrorKind::BrokenPipe => Cause::Reader,
            _ => Cause::Failure,
        }
    }
}
