//! Errors as MCP clients see them: a code, what happened, what to do.

use codex_mcp_core::session::{DecisionRefused, PromptRefused};
use codex_mcp_protocol::codex::{ErrorKind, ThreadId, TurnError};
use serde_json::{Value, json};

use crate::engine::profile::ProfileError;
use crate::engine::{EngineError, LaunchError, StartError};

/// What kind of error; programs may rely on the names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    InvalidArgument,
    CodexNotFound,
    AppServerStartFailed,
    CodexDied,
    CodexSilent,
    CodexRefused,
    ThreadNotFound,
    ThreadInUse,
    SessionNotFound,
    SessionBusy,
    RequestNotFound,
    Timeout,
    Interrupted,
    Cancelled,
    ShuttingDown,
    UsageLimit,
    RateLimited,
    Overloaded,
    Unauthorized,
    ContextWindow,
    ModelNotFound,
    Sandbox,
    Connection,
    TurnFailed,
    Internal,
}

/// Whether the same call may well succeed later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retry {
    Worthwhile,
    Pointless,
}

struct Row {
    name: &'static str,
    retry: Retry,
    hint: &'static str,
}

impl Code {
    fn row(self) -> Row {
        use Retry::{Pointless, Worthwhile};
        let (name, retry, hint) = match self {
            Self::InvalidArgument => (
                "INVALID_ARGUMENT",
                Pointless,
                "Correct the argument and call again.",
            ),
            Self::CodexNotFound => (
                "CODEX_NOT_FOUND",
                Pointless,
                "Install Codex with `npm install -g @openai/codex`, or name it with --codex-bin or CODEX_MCP_CODEX_BIN.",
            ),
            Self::AppServerStartFailed => (
                "APP_SERVER_START_FAILED",
                Pointless,
                "Run `codex-mcp doctor`; it tells what is wrong with this Codex.",
            ),
            Self::CodexDied => (
                "CODEX_DIED",
                Worthwhile,
                "Go on with codex-reply and the threadId: Codex is started again and the thread resumed.",
            ),
            Self::CodexSilent => (
                "CODEX_SILENT",
                Worthwhile,
                "A slow MCP server in Codex's config can be the cause; run `codex-mcp doctor`.",
            ),
            Self::CodexRefused => (
                "CODEX_REFUSED",
                Pointless,
                "Correct what Codex names, then call again.",
            ),
            Self::ThreadNotFound => (
                "THREAD_NOT_FOUND",
                Pointless,
                "Check the threadId and CODEX_HOME, or begin a new thread with the codex tool.",
            ),
            Self::ThreadInUse => (
                "THREAD_IN_USE",
                Worthwhile,
                "Close the Codex that has it open, or begin a new thread with the codex tool.",
            ),
            Self::SessionNotFound => (
                "SESSION_NOT_FOUND",
                Pointless,
                "Go on with codex-reply and the threadId.",
            ),
            Self::SessionBusy => (
                "SESSION_BUSY",
                Worthwhile,
                "Wait until the turn has ended, then call again.",
            ),
            Self::RequestNotFound => (
                "REQUEST_NOT_FOUND",
                Pointless,
                "Look at the open questions again.",
            ),
            Self::Timeout => (
                "TIMEOUT",
                Worthwhile,
                "Go on with codex-reply and the threadId; `--timeout` allows longer turns.",
            ),
            Self::Interrupted => (
                "INTERRUPTED",
                Worthwhile,
                "Go on with codex-reply and the threadId.",
            ),
            Self::Cancelled => (
                "CANCELLED",
                Worthwhile,
                "Go on with codex-reply and the threadId.",
            ),
            Self::ShuttingDown => (
                "SHUTTING_DOWN",
                Worthwhile,
                "Start codex-mcp again and go on with codex-reply and the threadId.",
            ),
            Self::UsageLimit => (
                "USAGE_LIMIT",
                Worthwhile,
                "Wait until the limit is reset; the message says when, if Codex knows.",
            ),
            Self::RateLimited => (
                "RATE_LIMITED",
                Worthwhile,
                "Wait a minute, then go on with codex-reply.",
            ),
            Self::Overloaded => ("OVERLOADED", Worthwhile, "Wait a moment, then call again."),
            Self::Unauthorized => (
                "UNAUTHORIZED",
                Pointless,
                "Log in with `codex login`, or mend the API key of your model provider, then call again.",
            ),
            Self::ContextWindow => (
                "CONTEXT_WINDOW",
                Pointless,
                "Begin a new thread with the codex tool and tell it what matters of this one.",
            ),
            Self::ModelNotFound => (
                "MODEL_NOT_FOUND",
                Pointless,
                "Name another model, or leave the model to Codex's config.",
            ),
            Self::Sandbox => (
                "SANDBOX",
                Pointless,
                "Run `codex-mcp doctor`, or choose another sandbox if you accept the risk.",
            ),
            Self::Connection => (
                "CONNECTION",
                Worthwhile,
                "Check the network and the model provider in Codex's config, then go on with codex-reply.",
            ),
            Self::TurnFailed => (
                "TURN_FAILED",
                Worthwhile,
                "Go on with codex-reply and the threadId.",
            ),
            Self::Internal => (
                "INTERNAL",
                Worthwhile,
                "Call again; the log on stderr tells more.",
            ),
        };
        Row { name, retry, hint }
    }
}

/// What a tool call failed with.
#[derive(Debug, Clone)]
pub(super) struct ToolError {
    code: Code,
    message: String,
    /// The thread that the call was about, once it is known.
    thread: Option<ThreadId>,
    /// What Codex had said until then.
    partial: String,
}

impl ToolError {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            thread: None,
            partial: String::new(),
        }
    }

    pub(super) fn in_thread(mut self, thread: &ThreadId) -> Self {
        self.thread = Some(thread.clone());
        self
    }

    pub(super) fn with_partial(mut self, partial: String) -> Self {
        self.partial = partial;
        self
    }

    pub(super) fn partial(&self) -> &str {
        &self.partial
    }

    /// `Error [CODE]: what happened. What to do.`
    pub(super) fn text(&self) -> String {
        let Row { name, hint, .. } = self.code.row();
        let message = self.message.trim_end_matches('.');
        format!("Error [{name}]: {message}. {hint}")
    }

    /// The error for programs, without the partial text.
    pub(super) fn details(&self) -> Value {
        let Row { name, retry, hint } = self.code.row();
        let mut details = json!({
            "error": {
                "code": name,
                "message": self.message,
                "hint": hint,
                "retryable": retry == Retry::Worthwhile,
            },
            "status": self.status(),
        });
        if let (Some(thread), Some(details)) = (&self.thread, details.as_object_mut()) {
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
                LaunchError::Start(
                    StartError::Spawn(_)
                    | StartError::Ended { .. }
                    | StartError::NotAnAppServer { .. },
                ) => Code::AppServerStartFailed,
            },
            EngineError::Gone(_) => Code::CodexDied,
            EngineError::Silent { .. } => Code::CodexSilent,
            EngineError::Refused { refusal, .. } => refused(refusal.code),
            EngineError::NoThread(_) => Code::ThreadNotFound,
            EngineError::ThreadInUse(_) => Code::ThreadInUse,
            EngineError::Busy(PromptRefused::Running | PromptRefused::Waiting) => Code::SessionBusy,
            EngineError::NoSession(_) => Code::SessionNotFound,
            EngineError::Decision(DecisionRefused::NotOpen) => Code::RequestNotFound,
            EngineError::Decision(DecisionRefused::Wrong(_))
            | EngineError::NoFolder(_)
            | EngineError::Profile(
                ProfileError::BadName
                | ProfileError::Unreadable { .. }
                | ProfileError::Malformed { .. },
            ) => Code::InvalidArgument,
            EngineError::Unreadable { .. } | EngineError::NoCurrentFolder(_) => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}

fn refused(code: i64) -> Code {
    if code == codex_mcp_protocol::rpc::code::CODEX_OVERLOADED {
        Code::Overloaded
    } else {
        Code::CodexRefused
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
            ErrorKind::Other => Code::TurnFailed,
        };
        let message = match error.additional_details {
            Some(details) => format!("{} ({details})", error.message),
            None => error.message,
        };
        Self::new(code, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_happened_and_what_to_do() {
        let error = ToolError::new(Code::SessionBusy, "a turn is still running");
        assert_eq!(
            error.text(),
            "Error [SESSION_BUSY]: a turn is still running. \
             Wait until the turn has ended, then call again."
        );
        assert_eq!(error.details()["error"]["retryable"], true);
    }
}
