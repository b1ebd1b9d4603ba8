//! What can go wrong in the engine.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use codex_config::profile::ProfileError;
use codex_config::trust::TrustError;
use codex_protocol::codex::{Method, ThreadId};
use codex_protocol::rpc::ErrorObject;
use safe_files::directory::ReplacedDirectory;
use safe_files::off_runtime::OffRuntimeError;
use supervise::exit::Exit;

use super::backend::LaunchError;
use super::command::{LONGEST_PROMPT, SessionId};
use crate::logic::session::{BeyondTheEnd, DecisionRefused, PromptRefused};
use crate::picture::PictureError;

/// A yes by which a command would leave a sandbox that a setting bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a yes to this question lets a command leave the sandbox, which {0} forbids; decline it")]
pub struct ApprovalOutOfBounds(
    /// The setting, and its source.
    pub String,
);

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
    /// This release of Codex is older than the request.
    #[error("this Codex does not know {0}; newer releases do")]
    UnknownMethod(Method),
    /// The thread has no such background terminal.
    #[error("there is no background terminal {0:?}; action terminals lists them")]
    NoTerminal(String),
    /// Codex's model provider wants a login, and there is none.
    #[error("Codex has no login for its model provider; run `codex login`")]
    NoLogin,
    /// Whether the user trusts the directory can't be found out.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// Codex has no such thread.
    #[error("there is no thread {0}, or nothing has been said in it yet")]
    NoThread(ThreadId),
    /// Somebody else holds the thread.
    #[error("thread {0} is in use, here or in another Codex process")]
    ThreadInUse(ThreadId),
    /// A turn of the thread is under way.
    #[error(transparent)]
    Busy(#[from] PromptRefused),
    /// There is no such session.
    #[error("there is no session {0}")]
    NoSession(SessionId),
    /// Several sessions begin so.
    #[error("several sessions begin with {prefix}: {known}; give more of the id")]
    AmbiguousSession {
        /// What was given.
        prefix: String,
        /// The first of them.
        known: String,
    },
    /// The session is over.
    #[error("session {session} was cancelled; its thread is {thread}")]
    Cancelled {
        /// The session.
        session: SessionId,
        /// Its thread, which can be resumed.
        thread: ThreadId,
    },
    /// The prompt was taken back before Codex had it.
    #[error("the turn of session {0} was ended before Codex had the prompt")]
    Withdrawn(SessionId),
    /// No turn of the session runs.
    #[error("no turn of session {0} is running")]
    NotRunning(SessionId),
    /// The thread's session was cancelled, and its last turn has not ended yet.
    #[error("the last turn of thread {0} is still being ended")]
    StillEnding(ThreadId),
    /// The thread is in use, and what is wanted can't be changed meanwhile.
    #[error(
        "thread {thread} is in use by session {session}: its config, profile and instructions \
         are fixed until that session is cancelled"
    )]
    Live {
        /// The thread.
        thread: ThreadId,
        /// Its session.
        session: SessionId,
    },
    /// Only a new thread can be kept from being written down.
    #[error("a thread that is resumed has been written down, so it can't be ephemeral")]
    AlreadyWritten,
    /// The thread can't be forked.
    #[error("thread {thread} can't be forked: {why}")]
    CantFork {
        /// The thread.
        thread: ThreadId,
        /// Codex's reason.
        why: String,
    },
    /// There are too many sessions.
    #[error("there are too many sessions")]
    TooManySessions,
    /// An override of `config.toml` doesn't have the form that Codex wants.
    #[error("{key}: {error}")]
    BadOverride {
        /// Its key.
        key: &'static str,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// A look can't be had.
    #[error(transparent)]
    BeyondTheEnd(#[from] BeyondTheEnd),
    /// A decision can't be taken.
    #[error(transparent)]
    Decision(#[from] DecisionRefused),
    /// The operator does not allow a decision.
    #[error(transparent)]
    OutOfBounds(#[from] ApprovalOutOfBounds),
    /// The working directory isn't there.
    #[error("the working directory {} is not there, or not a directory", .0.display())]
    NoDirectory(PathBuf),
    /// Only Codex knows where the thread works.
    #[error(
        "the working directory of thread {0} cannot be read from Codex's file of it; resume it \
         with `cwd`, so that your trust in the directory can be looked up first"
    )]
    UnknownDirectory(ThreadId),
    /// A directory of the thread leads to another place now.
    #[error(transparent)]
    Replaced(#[from] ReplacedDirectory),
    /// Our own working directory is gone.
    #[error("the directory that codex-mcp was started in is gone: {0}")]
    NoCurrentDirectory(io::Error),
    /// A profile can't be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The prompt is longer than Codex takes.
    #[error(
        "the prompt has {length} characters, and Codex takes at most {LONGEST_PROMPT}; put the \
         long part into a file and name that"
    )]
    TooLong {
        /// How long it is, in characters.
        length: usize,
    },
    /// A picture cannot be given to Codex.
    #[error(transparent)]
    Picture(#[from] PictureError),
    /// A file system does not answer.
    #[error("cannot read files: {0}")]
    Files(#[from] OffRuntimeError),
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

    /// The same for forking it.
    pub(super) fn about_fork(self, thread: &ThreadId) -> Self {
        let why = match self.about(thread) {
            Self::Refused { refusal, .. } => refusal.message,
            error @ (Self::NoThread(_) | Self::ThreadInUse(_)) => error.to_string(),
            error => return error,
        };
        Self::CantFork {
            thread: thread.clone(),
            why,
        }
    }
}
