//! Determines whether Codex is logged in to its model provider, and how.
//!
//! Without a login, Codex begins a turn all the same and tries to reach its provider for minutes.
//! So each app-server is asked for its login when it starts, and again later if it could not
//! answer. A running app-server never notices a later login (0.104.0, 0.153.4 and 0.169.0), so one
//! without a login is ended, and the next call starts another. Variables such as OPENAI_API_KEY do
//! not count as a login for the app-server of these releases.

use std::time::Duration;

use codex_protocol::codex::{
    AccountReadParams, AccountReadResponse, ConfigReadParams, Method, ThreadResponse,
    ThreadSettings,
};
use serde::de::IgnoredAny;
use serde_json::Value;
use tokio::time::Instant;

use super::connection::{CallError, Connection};

/// How long Codex may take to answer `account/read`. It takes some 10 ms, and longer for a
/// ChatGPT account with 0.169.0, which asks its backend.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The pause before Codex is asked again after it could not determine its login.
pub(super) const NEXT_TRY: Duration = Duration::from_secs(5 * 60);

/// The name of Codex's built-in provider.
const OPENAI: &str = "openai";

/// The type of the accounts that have usage limits.
const CHATGPT: &str = "chatgpt";

/// The login of an app-server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Account {
    /// A ChatGPT account, which has usage limits.
    ChatGpt,
    /// An API key, or a provider that needs no login.
    Unlimited,
    /// Codex cannot determine it: 0.169.0 asks its backend, which refuses.
    Unknown,
    /// Codex did not answer, because its backend did not.
    Silent,
    /// The configured provider needs a login, and there is none.
    Missing,
}

/// Why Codex cannot load its configuration, in its words; `None` if it can. Codex then uses
/// its defaults, and reports no account.
pub(super) async fn bad_configuration(connection: &Connection) -> Option<String> {
    let params = ConfigReadParams::default();
    let read: Result<IgnoredAny, CallError> =
        connection.call(Method::ConfigRead, &params, TIMEOUT).await;
    match read {
        Err(CallError::Refused(refusal)) => Some(refusal.message),
        _ => None,
    }
}

/// The login of an app-server, and when Codex was asked for it.
pub(super) struct ReadAccount {
    pub(super) account: Account,
    at: Instant,
}

impl ReadAccount {
    pub(super) async fn read(connection: &Connection) -> Self {
        let account = Account::read(connection).await;
        let at = Instant::now();
        Self { account, at }
    }

    /// Whether to ask Codex again: it could not determine the login, and its backend may answer
    /// now.
    pub(super) fn is_worth_another_try(&self) -> bool {
        let is_open = matches!(self.account, Account::Unknown | Account::Silent);
        is_open && self.at.elapsed() >= NEXT_TRY
    }
}

impl Account {
    /// Asks Codex for its login. A failure is only logged: turns report more about it.
    async fn read(connection: &Connection) -> Self {
        let params = AccountReadParams::default();
        let response = connection.call(Method::AccountRead, &params, TIMEOUT).await;
        match response {
            Ok(AccountReadResponse {
                requires_openai_auth: false,
                ..
            }) => Self::Unlimited,
            Ok(AccountReadResponse { account: None, .. }) => Self::Missing,
            Ok(AccountReadResponse {
                account: Some(account),
                ..
            }) => match account.get("type").and_then(Value::as_str) == Some(CHATGPT) {
                true => Self::ChatGpt,
                false => Self::Unlimited,
            },
            Err(error) => {
                tracing::debug!("cannot determine whether Codex has a login: {error}");
                match error {
                    CallError::TimedOut { .. } => Self::Silent,
                    _ => Self::Unknown,
                }
            }
        }
    }

    /// Whether usage limits may apply to a thread. `provider` is the model provider that the thread
    /// names; `None` stands for the configured one.
    pub(super) fn limits(self, provider: Option<&str>) -> bool {
        matches!(self, Self::ChatGpt | Self::Unknown | Self::Silent)
            && provider.is_none_or(|named| named == OPENAI)
    }

    /// Whether a missing login prevents a new thread with these settings from working: a
    /// thread may have another provider than the configured one.
    pub(super) fn blocks_new(self, settings: &ThreadSettings) -> bool {
        self == Self::Missing && !settings.config.contains_key("model_provider")
    }

    /// Whether a missing login prevents a resumed thread from working: the thread keeps
    /// its first provider.
    pub(super) fn blocks_resumed(self, thread: &ThreadResponse) -> bool {
        self == Self::Missing && thread.model_provider.as_deref() == Some(OPENAI)
    }
}
