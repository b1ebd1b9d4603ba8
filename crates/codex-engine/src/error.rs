//! The errors of the engine.

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
use crate::logic::session::{CursorBeyondEnd, DecisionRefused, PromptRefused};
use crate::picture::PictureError;

/// An approval by which a command would leave a sandbox that a setting bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a yes to this question lets a command leave the sandbox, which {0} forbids; decline it")]
pub struct ApprovalOutOfBounds(
    /// The setting, and its source.
    pub String,
);

/// The errors of the engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No app-server is available.
    #[error(transparent)]
    Launch(#[from] Arc<LaunchError>),
    /// Codex ended while it was needed.
    #[error("Codex {0}")]
    Gone(Exit),
    /// Codex does not answer.
    #[error("Codex did not answer {method} within {} s", .after.as_secs())]
    Silent {
        /// The method of the request.
        method: Method,
        /// How long we waited.
        after: Duration,
    },
    /// Codex's response does not have the known shape.
    #[error("Codex answered {method} in a way that is not understood: {error}")]
    Unreadable {
        /// The method of the request.
        method: Method,
        /// Why it cannot be read.
        error: serde_json::Error,
    },
    /// Codex refused the request.
    #[error("Codex refused {method}: {}", .refusal.message)]
    Refused {
        /// The method of the request.
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
    /// Codex's model provider needs a login, and there is none.
    #[error("Codex has no login for its model provider; run `codex login`")]
    NoLogin,
    /// Codex cannot load its configuration, for this reason. It uses its defaults then, and
    /// reports no login.
    #[error("Codex cannot load its configuration: {}; correct it", .0.trim_end())]
    BadConfiguration(String),
    /// The user's trust in the directory cannot be determined.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// Codex has no such thread.
    #[error("there is no thread {0}, or it has no messages yet")]
    NoThread(ThreadId),
    /// A new thread is gone with the Codex that had it.
    #[error("Codex ended before thread {0} had its first turn; begin a new one")]
    NewThreadLost(ThreadId),
    /// Another process holds the thread.
    #[error(
        "thread {0} is in use, here or in another Codex process; `codex-mcp ps` lists the sessions \
         that may have it"
    )]
    ThreadInUse(ThreadId),
    /// A turn of the thread is running.
    #[error(transparent)]
    Busy(#[from] PromptRefused),
    /// There is no such session.
    #[error("there is no session {0}")]
    NoSession(SessionId),
    /// There is no such session, and the sessions of an earlier process are not all known here.
    #[error(
        "there is no session {0}: the last host process has ended, and this one has not taken the \
         session over"
    )]
    SessionLost(SessionId),
    /// Several sessions match an ID prefix.
    #[error("several sessions begin with {prefix}: {known}; give more characters of the ID")]
    AmbiguousSession {
        /// The prefix.
        prefix: String,
        /// The first sessions that match.
        known: String,
    },
    /// The session was cancelled.
    #[error("session {session} was cancelled; its thread is {thread}")]
    Cancelled {
        /// The session.
        session: SessionId,
        /// Its thread, which can be resumed.
        thread: ThreadId,
    },
    /// The prompt was withdrawn before Codex had it.
    #[error("the turn of session {0} was ended before Codex had the prompt")]
    Withdrawn(SessionId),
    /// The session has no running turn.
    #[error("no turn of session {0} is running")]
    NotRunning(SessionId),
    /// The thread's session was cancelled, and its last turn has not ended yet.
    #[error("the last turn of thread {0} has not ended yet")]
    StillEnding(ThreadId),
    /// The thread is in use, and the requested settings cannot be changed meanwhile.
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
    /// Only a new thread can be ephemeral.
    #[error("a resumed thread has a rollout, so it cannot be ephemeral")]
    AlreadyWritten,
    /// The thread cannot be forked.
    #[error("cannot fork thread {thread}: {why}")]
    CantFork {
        /// The thread.
        thread: ThreadId,
        /// Codex's reason.
        why: String,
    },
    /// There are too many sessions.
    #[error("there are too many sessions")]
    TooManySessions,
    /// An override of `config.toml` does not have the form that Codex expects.
    #[error("{key}: {error}")]
    BadOverride {
        /// Its key.
        key: &'static str,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// The cursor of a poll is beyond the end.
    #[error(transparent)]
    CursorBeyondEnd(#[from] CursorBeyondEnd),
    /// A decision was refused.
    #[error(transparent)]
    Decision(#[from] DecisionRefused),
    /// A setting forbids the decision.
    #[error(transparent)]
    OutOfBounds(#[from] ApprovalOutOfBounds),
    /// The working directory does not exist.
    #[error("the working directory {} does not exist, or is not a directory", .0.display())]
    NoDirectory(PathBuf),
    /// Only Codex knows the working directory of the thread.
    #[error(
        "the working directory of thread {0} cannot be read from Codex's file of it; resume it \
         with `cwd`, so that your trust in the directory can be looked up first"
    )]
    UnknownDirectory(ThreadId),
    /// A directory of the thread was replaced by a link.
    #[error(transparent)]
    Replaced(#[from] ReplacedDirectory),
    /// Our own working directory no longer exists.
    #[error("the directory in which codex-mcp was started no longer exists: {0}")]
    NoCurrentDirectory(io::Error),
    /// A profile cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The prompt is longer than Codex accepts.
    #[error(
        "the prompt has {length} characters, and Codex accepts at most {LONGEST_PROMPT}; put the \
         long part into a file and name the file"
    )]
    TooLong {
        /// Its length, in characters.
        length: usize,
    },
    /// A request is longer than Codex accepts, such as one with large pictures.
    #[error("a request of {length} bytes is longer than Codex accepts ({limit} bytes)")]
    RequestTooLong {
        /// Its length, in bytes.
        length: usize,
        /// The longest one, in bytes.
        limit: usize,
    },
    /// A picture cannot be given to Codex.
    #[error(transparent)]
    Picture(#[from] PictureError),
    /// A file system does not answer.
    #[error("cannot read files: {0}")]
    Files(#[from] OffRuntimeError),
}

impl EngineError {
    /// Converts Codex's refusal to resume `thread` into a specific error, if its message
    /// is known (0.104.0 to 0.169.0).
    pub(super) fn about(self, thread: &ThreadId) -> Self {
        let Self::Refused { refusal, .. } = &self else {
            return self;
        };
        let words = refusal.message.as_str();
        let is_missing = ["no rollout found", "thread not found", "is archived"];
        if is_missing.iter().any(|missing| words.contains(missing)) {
            Self::NoThread(thread.clone())
        } else if words.contains("active writer") {
            Self::ThreadInUse(thread.clone())
        } else {
            self
        }
    }

    /// Converts Codex's refusal to fork `thread` into a specific error.
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
