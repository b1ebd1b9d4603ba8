//! What can go wrong in the engine.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use codex_mcp_core::session::{DecisionRefused, PromptRefused};
use codex_mcp_protocol::codex::{Method, ThreadId};
use codex_mcp_protocol::rpc::ErrorObject;

use super::backend::LaunchError;
use super::command::SessionId;
use super::exit::Exit;
use super::profile::ProfileError;

/// What can go wrong in the engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// There is no Codex to work with.
    #[error(transparent)]
    Launch(#[from] Arc<LaunchError>),
    /// Codex ended while it was needed.
    #[error("Codex {0}")]
    Gone(Exit),
    /// Codex doesn't answer.
    #[error("Codex did not answer {method} within {} s", .after.as_secs())]
    Silent {
        /// What it was asked.
        method: Method,
        /// For how long it was waited.
        after: Duration,
    },
    /// Codex answered something else than was asked.
    #[error("Codex answered {method} in a way that is not understood: {error}")]
    Unreadable {
        /// What it was asked.
        method: Method,
        /// Why it isn't understood.
        error: serde_json::Error,
    },
    /// Codex refused.
    #[error("Codex refused {method}: {}", .refusal.message)]
    Refused {
        /// What it was asked.
        method: Method,
        /// Its reason.
        refusal: ErrorObject,
    },
    /// Codex has no such thread.
    #[error("there is no thread {0}, or nothing has been said in it yet")]
    NoThread(ThreadId),
    /// Another process holds the thread.
    #[error("thread {0} is open in another Codex process")]
    ThreadInUse(ThreadId),
    /// A turn of the thread is under way.
    #[error(transparent)]
    Busy(#[from] PromptRefused),
    /// There is no such session.
    #[error("there is no session {0}")]
    NoSession(SessionId),
    /// A decision can't be taken.
    #[error(transparent)]
    Decision(#[from] DecisionRefused),
    /// The working folder isn't there.
    #[error("the working folder {} is not there, or not a folder", .0.display())]
    NoFolder(PathBuf),
    /// Our own working folder is gone.
    #[error("the folder that codex-mcp was started in is gone: {0}")]
    NoCurrentFolder(io::Error),
    /// A profile can't be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

impl EngineError {
    /// Makes Codex's words about resuming `thread` into an error of its own,
    /// where they are known (0.104.0 to 0.169.0).
    pub(super) fn about(self, thread: &ThreadId) -> Self {
        let Self::Refused { refusal, .. } = &self else {
            return self;
        };
        let words = refusal.message.as_str();
        if words.contains("no rollout found") || words.contains("thread not found") {
            Self::NoThread(thread.clone())
        } else if words.contains("active writer") {
            Self::ThreadInUse(thread.clone())
        } else {
            self
        }
    }
}
