//! Whether Codex can use its model provider, and with what.
//!
//! Without a login Codex begins a turn all the same and tries to reach its provider for
//! minutes. So each app-server is asked once, when it starts. It never sees a login that
//! comes later (0.104.0, 0.153.4 and 0.169.0); where one is missing, it is ended, and
//! the next call starts another. Variables such as OPENAI_API_KEY are no login for the
//! app-server of these releases.

use std::time::Duration;

use codex_protocol::codex::{
    AccountReadParams, AccountReadResponse, Method, ThreadResponse, ThreadSettings,
};
use serde_json::Value;

use super::connection::{CallError, Connection};

/// How long Codex may take to answer `account/read`. It takes some 10 ms, and longer for a
/// ChatGPT account with 0.169.0, which asks its backend.
const PATIENCE: Duration = Duration::from_secs(5);

/// The provider that Codex has built in.
const OPENAI: &str = "openai";

/// The type of the accounts that have usage limits.
const CHATGPT: &str = "chatgpt";

/// What Codex says of its login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Account {
    /// An account of ChatGPT, whose use is limited.
    ChatGpt,
    /// An API key, or none is needed.
    Unlimited,
    /// Codex cannot tell: 0.169.0 asks its backend, which refuses.
    Unknown,
    /// Codex does not answer, as its backend does not.
    Silent,
    /// The provider of the configuration wants one, and there is none.
    Missing,
}

impl Account {
    /// Asks Codex. A failure is left to the turns: they tell more.
    pub(super) async fn read(connection: &Connection) -> Self {
        let params = AccountReadParams::default();
        let told = connection
            .call(Method::AccountRead, &params, PATIENCE)
            .await;
        match told {
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

    /// Whether usage limits may apply to a thread. `provider` is the one that the thread names;
    /// without it, the configured provider counts.
    pub(super) fn limits(self, provider: Option<&str>) -> bool {
        matches!(self, Self::ChatGpt | Self::Unknown | Self::Silent)
            && provider.is_none_or(|named| named == OPENAI)
    }

    /// Whether it keeps a new thread with these settings from working: a thread may have
    /// another provider than the configuration.
    pub(super) fn stops_new(self, settings: &ThreadSettings) -> bool {
        self == Self::Missing && !settings.config.contains_key("model_provider")
    }

    /// Whether it keeps a thread from working that was taken up: it has the provider that
    /// it began with.
    pub(super) fn stops_resumed(self, thread: &ThreadResponse) -> bool {
        self == Self::Missing && thread.model_provider.as_deref() == Some(OPENAI)
    }
}
