//! Turns: starting, interrupting, how they end.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ThreadId, TurnId};

/// Parameters of `turn/start`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnStartParams<'a> {
    /// The thread to go on with.
    pub thread_id: &'a ThreadId,
    /// The prompt.
    pub input: Vec<UserInput<'a>>,
}

/// A part of a prompt.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum UserInput<'a> {
    /// Words.
    Text {
        /// The words.
        text: &'a str,
    },
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

/// Parameters of what is about a thread as a whole.
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

/// One prompt and all that Codex does for it.
#[derive(Debug, Clone, Deserialize)]
pub struct Turn {
    /// Its name.
    pub id: TurnId,
    /// How it stands.
    pub status: TurnStatus,
    /// Why it failed.
    #[serde(default)]
    pub error: Option<TurnError>,
}

/// How a turn stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TurnStatus {
    /// Ended as it should.
    Completed,
    /// Ended early, on request.
    Interrupted,
    /// Ended by an error.
    Failed,
    /// Still running.
    InProgress,
    /// A value of a newer Codex.
    #[serde(other)]
    Unknown,
}

/// Why a turn failed, or what Codex is about to try again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnError {
    /// What happened, for people.
    pub message: String,
    /// The kind of error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codex_error_info: Option<ErrorInfo>,
    /// More, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_details: Option<String>,
}

impl TurnError {
    /// The kind of error; HTTP status 401, 403, 429 and 503 count as what they mean.
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
}

/// Codex's name for a kind of error: a word, or an object with the word as its
/// only key and particulars such as `httpStatusCode` in it.
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

/// The kinds of error that call for something different of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The conversation no longer fits the model.
    ContextWindowExceeded,
    /// The account has used up what it may use for now.
    UsageLimitExceeded,
    /// Too many requests in a short time.
    RateLimited,
    /// The model's service has too much to do.
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
    fn kinds_come_from_the_word_or_the_http_status() {
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
    fn an_unknown_status_is_taken() {
        let turn: Turn =
            serde_json::from_str(r#"{"id":"t","status":"paused","items":[],"new":1}"#).unwrap();
        assert_eq!(turn.status, TurnStatus::Unknown);
    }
}
