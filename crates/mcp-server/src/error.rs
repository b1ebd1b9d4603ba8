//! Errors as MCP clients see them: a code, a message and a hint.

use codex_config::profile::ProfileError;
use codex_engine::logic::session::{DecisionRefused, PromptRefused};
use codex_engine::logic::work::{FailureClass, class_of_turn};
use codex_engine::{EngineError, LaunchError, StartError};
use codex_protocol::codex::{ErrorKind, ThreadId, TurnError};
use goal_run::reviewer::ReviewError;
use job_queue::thread_ids::ThreadPrefixError;
use safe_files::directory::ReplacedDirectory;
use serde_json::{Map, Value, json};
use settings::bounds::OutOfBounds;

use super::code::{Code, Retry};

/// The error of a tool call.
#[derive(Debug, Clone)]
pub struct ToolError {
    code: Code,
    message: String,
    /// The thread that the call was about, once it is known.
    thread: Option<ThreadId>,
    /// The text that Codex had written until then.
    partial: String,
}

/// The set of names and hints for an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorNames {
    /// Our own names and hints.
    Own,
    /// The names of the npm package @leo000001/codex-mcp, which has fewer codes.
    Sessions,
}

impl ErrorNames {
    fn of(self, code: Code) -> (&'static str, &'static str) {
        match self {
            Self::Own => (code.row().name, code.row().hint),
            Self::Sessions => (code.name_for_sessions(), code.hint_for_sessions()),
        }
    }
}

impl From<ThreadPrefixError> for ToolError {
    fn from(error: ThreadPrefixError) -> Self {
        let code = match error {
            ThreadPrefixError::Unknown { .. } => Code::ThreadNotFound,
            ThreadPrefixError::Ambiguous { .. } => Code::InvalidArgument,
            ThreadPrefixError::File(_) => Code::TeamFiles,
        };
        Self::new(code, error.to_string())
    }
}

impl From<OutOfBounds> for ToolError {
    fn from(error: OutOfBounds) -> Self {
        Self::new(Code::OutOfBounds, error.to_string())
    }
}

impl From<ReplacedDirectory> for ToolError {
    fn from(error: ReplacedDirectory) -> Self {
        Self::new(Code::DirectoryReplaced, error.to_string())
    }
}

impl ToolError {
    /// An error without a thread.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            thread: None,
            partial: String::new(),
        }
    }

    /// The same error, with the thread in which the caller can continue.
    pub fn in_thread(mut self, thread: &ThreadId) -> Self {
        self.thread = Some(thread.clone());
        self
    }

    pub(super) fn with_note(mut self, note: &str) -> Self {
        self.message = format!("{note}: {}", self.message);
        self
    }

    /// The error, with the text that Codex had written before it.
    pub fn with_partial(mut self, partial: String) -> Self {
        self.partial = partial;
        self
    }

    /// Whether the call was refused because of its arguments, before anything was done.
    pub(super) fn is_invalid_argument(&self) -> bool {
        self.code == Code::InvalidArgument
    }

    /// Whether the error reports that Codex has died.
    pub(super) fn reports_death(&self) -> bool {
        self.code == Code::CodexDied
    }

    /// The message of the error.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn partial(&self) -> &str {
        &self.partial
    }

    /// `Error [CODE]: what happened. What to do.`
    pub fn text(&self) -> String {
        self.text_in(ErrorNames::Own)
    }

    /// The text with the names and hints of this set.
    pub(super) fn text_in(&self, names: ErrorNames) -> String {
        let (name, hint) = names.of(self.code);
        let message = self.message.trim_end_matches('.');
        let end = if message.ends_with('?') { "" } else { "." };
        format!("Error [{name}]: {message}{end} {hint}")
    }

    /// The error as an object, which has the same members in all tools.
    pub(super) fn object(&self, names: ErrorNames) -> Value {
        let (name, hint) = names.of(self.code);
        json!({
            "code": name,
            "message": self.message,
            "hint": hint,
            "retryable": self.code.row().retry == Retry::Worthwhile,
        })
    }

    /// The error with the status of its turn, and the thread where it is known.
    pub fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        details.insert("error".to_owned(), self.object(ErrorNames::Own));
        details.insert("status".to_owned(), self.status().into());
        if let Some(thread) = &self.thread {
            details.insert("threadId".to_owned(), json!(thread));
        }
        details
    }

    fn status(&self) -> &'static str {
        match self.code {
            Code::Timeout => "timeout",
            Code::Interrupted | Code::Cancelled | Code::ShuttingDown => "interrupted",
            _ => "failed",
        }
    }
}

impl From<EngineError> for ToolError {
    fn from(error: EngineError) -> Self {
        let code = match &error {
            EngineError::Launch(error) => match error.as_ref() {
                LaunchError::NoCodex(_) => Code::CodexNotFound,
                LaunchError::Ending => Code::ShuttingDown,
                LaunchError::TooOld { .. } | LaunchError::NoAppServer => Code::AppServerStartFailed,
                LaunchError::Start(
                    StartError::Spawn(_)
                    | StartError::Ended { .. }
                    | StartError::NotAnAppServer { .. },
                ) => Code::AppServerStartFailed,
            },
            EngineError::Gone(_) | EngineError::NewThreadLost(_) => Code::CodexDied,
            EngineError::Silent { .. } => Code::CodexSilent,
            EngineError::Refused { refusal, .. } => refused(refusal.code),
            EngineError::NoLogin => Code::Unauthorized,
            EngineError::BadConfiguration(_) => Code::CodexRefused,
            EngineError::OutOfBounds(_) => Code::OutOfBounds,
            EngineError::Replaced(_) => Code::DirectoryReplaced,
            EngineError::NoThread(_) => Code::ThreadNotFound,
            EngineError::ThreadInUse(_) => Code::ThreadInUse,
            EngineError::Busy(PromptRefused::Running) => Code::SessionBusy,
            EngineError::Busy(PromptRefused::Waiting) => Code::SessionWaiting,
            EngineError::NoSession(_) => Code::SessionNotFound,
            EngineError::SessionLost(_) => Code::SessionHostLost,
            EngineError::Cancelled { .. } | EngineError::Busy(PromptRefused::Cancelled) => {
                Code::SessionCancelled
            }
            EngineError::NotRunning(_) => Code::SessionNotRunning,
            EngineError::StillEnding(_) => Code::SessionBusy,
            EngineError::Live { .. } => Code::ThreadLive,
            EngineError::Withdrawn(_) => Code::Interrupted,
            EngineError::TooManySessions => Code::TooManySessions,
            EngineError::CantFork { .. } => Code::CantFork,
            EngineError::Decision(DecisionRefused::NotOpen | DecisionRefused::Closed(_)) => {
                Code::RequestNotFound
            }
            EngineError::Decision(DecisionRefused::Wrong(_))
            | EngineError::AmbiguousSession { .. }
            | EngineError::NoDirectory(_)
            | EngineError::UnknownDirectory(_)
            | EngineError::UnknownMethod(_)
            | EngineError::NoTerminal(_)
            | EngineError::CursorBeyondEnd(_)
            | EngineError::AlreadyWritten
            | EngineError::BadOverride { .. }
            | EngineError::Picture(_)
            | EngineError::TooLong { .. }
            | EngineError::RequestTooLong { .. }
            | EngineError::Trust(_)
            | EngineError::Profile(
                ProfileError::BadName
                | ProfileError::Unreadable { .. }
                | ProfileError::Malformed { .. },
            ) => Code::InvalidArgument,
            EngineError::Unreadable { .. } => Code::Unreadable,
            EngineError::NoCurrentDirectory(_) | EngineError::Files(_) => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}

fn refused(code: i64) -> Code {
    if code == codex_protocol::rpc::code::CODEX_OVERLOADED {
        Code::Overloaded
    } else {
        Code::CodexRefused
    }
}

impl From<ReviewError> for ToolError {
    fn from(error: ReviewError) -> Self {
        let code = match error {
            ReviewError::Engine(error) => return error.into(),
            ReviewError::Git(_)
            | ReviewError::NoCommit(_)
            | ReviewError::NoBase(_)
            | ReviewError::NoHead(_)
            | ReviewError::NoMergeBase(_)
            | ReviewError::NoChanges(_)
            | ReviewError::Clean(_)
            | ReviewError::EmptyCommit(_) => Code::InvalidArgument,
            ReviewError::Failed(_) => Code::TurnFailed,
            ReviewError::TimedOut { .. } => Code::Timeout,
            ReviewError::Interrupted => Code::Interrupted,
        };
        Self::new(code, error.to_string())
    }
}

impl From<TurnError> for ToolError {
    fn from(error: TurnError) -> Self {
        let code = match error.kind() {
            ErrorKind::ContextWindowExceeded => Code::ContextWindow,
            ErrorKind::UsageLimitExceeded => Code::UsageLimit,
            ErrorKind::RateLimited => Code::RateLimited,
            ErrorKind::ServerOverloaded => Code::Overloaded,
            ErrorKind::Unauthorized => Code::Unauthorized,
            ErrorKind::ModelNotFound => Code::ModelNotFound,
            ErrorKind::Sandbox => Code::Sandbox,
            ErrorKind::Connection => Code::Connection,
            ErrorKind::Other => code_by_words(&error),
        };
        let message = match error.additional_details {
            Some(details) => format!("{} ({details})", error.message),
            None => error.message,
        };
        Self::new(code, message)
    }
}

/// The code of an error whose kind Codex does not tell, as before 0.154.
fn code_by_words(error: &TurnError) -> Code {
    match class_of_turn(error) {
        FailureClass::Auth => Code::Unauthorized,
        FailureClass::RateLimit => Code::RateLimited,
        FailureClass::ContextWindow => Code::ContextWindow,
        FailureClass::Overloaded => Code::Overloaded,
        FailureClass::ModelNotFound => Code::ModelNotFound,
        FailureClass::Connection => Code::Connection,
        _ => Code::TurnFailed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_text_has_code_message_and_hint() {
        let error = ToolError::new(Code::SessionBusy, "a turn is still running");
        assert_eq!(
            error.text(),
            "Error [SESSION_BUSY]: a turn is still running. \
             Wait until the turn has ended, then call again."
        );
        assert_eq!(error.object(ErrorNames::Own)["retryable"], true);
        let message = "unknown parameter `promt`; did you mean `prompt`?";
        let error = ToolError::new(Code::InvalidArgument, message);
        assert_eq!(
            error.text(),
            format!("Error [INVALID_ARGUMENT]: {message} Correct the argument and call again.")
        );
    }
}
