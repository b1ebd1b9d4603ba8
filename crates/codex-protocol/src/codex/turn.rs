//! Turns: starting, steering and interrupting them, and how they end.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use strum::VariantNames;

use super::{ApprovalPolicy, SandboxMode, ThreadId, TurnId, WorkspaceWrite};

/// Parameters of `turn/start`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnStartParams<'a> {
    /// The thread to continue.
    pub thread_id: &'a ThreadId,
    /// The prompt.
    pub input: Vec<UserInput<'a>>,
    /// The model's options, from this turn on.
    #[serde(flatten)]
    pub model_options: ModelOptions,
    /// Changes of the thread's settings, from this turn on.
    #[serde(flatten)]
    pub overrides: TurnOverrides,
    /// The form of this turn's final message, as a JSON Schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<&'a Map<String, Value>>,
}

/// Options of the model. Fields that are `None` are left unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelOptions {
    /// The reasoning effort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// How its reasoning is summarised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<ReasoningSummary>,
    /// Its tone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub personality: Option<Personality>,
}

/// Changes of a thread's settings. Fields that are `None` are left unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnOverrides {
    /// Working directory, absolute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// Model name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// When Codex asks for approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_policy: Option<ApprovalPolicy>,
    /// Sandbox for commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_policy: Option<SandboxPolicy>,
}

/// A sandbox with its details, as `turn/start` takes it, where `thread/start` takes a
/// [`SandboxMode`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum SandboxPolicy {
    /// Commands may read everything and write nothing.
    ReadOnly,
    /// Commands may write in the working directory and in a few more.
    #[serde(rename_all = "camelCase")]
    WorkspaceWrite {
        /// Directories that may be written besides.
        writable_roots: Vec<PathBuf>,
        /// Whether commands may use the network.
        network_access: bool,
        /// Whether the directory that TMPDIR names is not writable.
        exclude_tmpdir_env_var: bool,
        /// Whether `/tmp` is not writable.
        exclude_slash_tmp: bool,
    },
    /// No sandbox at all.
    DangerFullAccess,
}

impl SandboxPolicy {
    /// The policy for a mode; `workspace` is what is configured for
    /// `workspace-write`.
    #[must_use]
    pub fn new(mode: SandboxMode, workspace: WorkspaceWrite) -> Self {
        match mode {
            SandboxMode::ReadOnly => Self::ReadOnly,
            SandboxMode::DangerFullAccess => Self::DangerFullAccess,
            SandboxMode::WorkspaceWrite => Self::WorkspaceWrite {
                writable_roots: workspace.writable_roots,
                network_access: workspace.network_access,
                exclude_tmpdir_env_var: workspace.exclude_tmpdir_env_var,
                exclude_slash_tmp: workspace.exclude_slash_tmp,
            },
        }
    }
}

/// The reasoning effort. Not every model accepts every value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
#[expect(missing_docs, reason = "Codex's own words, from least to most")]
pub enum Effort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
}

/// How the model's reasoning is summarised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "Codex's own words")]
pub enum ReasoningSummary {
    Auto,
    Concise,
    Detailed,
    None,
}

/// The model's tone; 0.169.0 accepts the values and ignores them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "Codex's own words")]
pub enum Personality {
    None,
    Friendly,
    Pragmatic,
}

/// A part of a prompt.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum UserInput<'a> {
    /// Text.
    Text {
        /// The text.
        text: &'a str,
    },
    /// A picture in a file that Codex reads.
    LocalImage {
        /// The file, absolute.
        path: &'a Path,
    },
    /// A picture in the message itself.
    Image {
        /// A data URL.
        url: &'a str,
    },
}

/// Parameters of `turn/steer`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnSteerParams<'a> {
    /// The thread.
    pub thread_id: &'a ThreadId,
    /// Its running turn; Codex refuses if another one runs.
    pub expected_turn_id: &'a TurnId,
    /// The added prompt.
    pub input: Vec<UserInput<'a>>,
}

/// Parameters of `turn/interrupt`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnInterruptParams<'a> {
    /// The thread.
    pub thread_id: &'a ThreadId,
    /// Its running turn.
    pub turn_id: &'a TurnId,
}

/// Parameters of requests about a thread as a whole.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ThreadParams<'a> {
    /// The thread.
    pub thread_id: &'a ThreadId,
}

/// The answer to `turn/start`.
#[derive(Debug, Clone, Deserialize)]
pub struct TurnResponse {
    /// The turn that now runs.
    pub turn: Turn,
}

/// A prompt and Codex's work for it.
#[derive(Debug, Clone, Deserialize)]
pub struct Turn {
    /// Its name.
    pub id: TurnId,
    /// Its status.
    pub status: TurnStatus,
    /// Why it failed.
    #[serde(default)]
    pub error: Option<TurnError>,
}

/// The status of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TurnStatus {
    /// The turn ended by itself.
    Completed,
    /// The turn was interrupted.
    Interrupted,
    /// The turn ended with an error.
    Failed,
    /// The turn is running.
    InProgress,
    /// A value of a newer Codex.
    #[serde(other)]
    Unknown,
}

/// Why a turn failed, or the error after which Codex retries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnError {
    /// What happened, for people.
    pub message: String,
    /// The kind of error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codex_error_info: Option<ErrorInfo>,
    /// Details, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_details: Option<String>,
}

impl TurnError {
    /// The kind of error; HTTP statuses 401, 403, 429 and 503 select the matching kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        let Some(info) = &self.codex_error_info else {
            return ErrorKind::Other;
        };
        match (info.name(), info.http_status()) {
            ("contextWindowExceeded", _) => ErrorKind::ContextWindowExceeded,
            ("usageLimitExceeded" | "sessionBudgetExceeded", _) => ErrorKind::UsageLimitExceeded,
            ("rateLimitExceeded", _) | (_, Some(429)) => ErrorKind::RateLimited,
            ("serverOverloaded", _) | (_, Some(503)) => ErrorKind::ServerOverloaded,
            ("unauthorized", _) | (_, Some(401 | 403)) => ErrorKind::Unauthorized,
            ("modelNotFound", _) => ErrorKind::ModelNotFound,
            ("sandboxError", _) => ErrorKind::Sandbox,
            (
                "httpConnectionFailed"
                | "responseStreamConnectionFailed"
                | "responseStreamDisconnected"
                | "responseTooManyFailedAttempts",
                _,
            ) => ErrorKind::Connection,
            _ => ErrorKind::Other,
        }
    }

    /// Whether a limit of the account is used up, rather than one of the session.
    #[must_use]
    pub fn is_of_the_account(&self) -> bool {
        let info = self.codex_error_info.as_ref();
        info.is_some_and(|info| info.name() == "usageLimitExceeded")
    }
}

/// Codex's name of a kind of error: a word, or an object with the word as its only key
/// and details such as `httpStatusCode` as its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ErrorInfo(Value);

impl ErrorInfo {
    fn name(&self) -> &str {
        match &self.0 {
            Value::String(name) => name,
            Value::Object(object) => object.keys().next().map_or("", String::as_str),
            _ => "",
        }
    }

    fn http_status(&self) -> Option<u64> {
        let particulars = self.0.as_object()?.values().next()?;
        particulars.get("httpStatusCode")?.as_u64()
    }
}

/// The kinds of error that callers handle differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The conversation no longer fits the model.
    ContextWindowExceeded,
    /// The account has reached its usage limit.
    UsageLimitExceeded,
    /// Too many requests in a short time.
    RateLimited,
    /// The model's service is overloaded.
    ServerOverloaded,
    /// Not logged in, or no longer.
    Unauthorized,
    /// There is no such model, or not for this account.
    ModelNotFound,
    /// The sandbox could not be set up or forbade something.
    Sandbox,
    /// The model's service could not be reached.
    Connection,
    /// Anything else.
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(info: &str) -> TurnError {
        serde_json::from_str(&format!(r#"{{"message":"m","codexErrorInfo":{info}}}"#)).unwrap()
    }

    #[test]
    fn error_kind_is_derived_from_the_name_or_the_http_status() {
        for (info, kind) in [
            (r#""usageLimitExceeded""#, ErrorKind::UsageLimitExceeded),
            (
                r#""contextWindowExceeded""#,
                ErrorKind::ContextWindowExceeded,
            ),
            (
                r#"{"httpConnectionFailed":{"httpStatusCode":401}}"#,
                ErrorKind::Unauthorized,
            ),
            (
                r#"{"responseStreamDisconnected":{"httpStatusCode":null}}"#,
                ErrorKind::Connection,
            ),
            (
                r#"{"responseTooManyFailedAttempts":{"httpStatusCode":429}}"#,
                ErrorKind::RateLimited,
            ),
            (r#""somethingNew""#, ErrorKind::Other),
            ("null", ErrorKind::Other),
            ("7", ErrorKind::Other),
        ] {
            assert_eq!(error(info).kind(), kind, "{info}");
        }
    }

    #[test]
    fn unknown_turn_status_is_accepted() {
        let turn: Turn =
            serde_json::from_str(r#"{"id":"t","status":"paused","items":[],"new":1}"#).unwrap();
        assert_eq!(turn.status, TurnStatus::Unknown);
    }
}
