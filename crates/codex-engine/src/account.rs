//! Whether Codex can use its model provider.
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

use super::connection::Connection;

/// How long Codex may take to tell. It takes some 10 ms, and asks nobody.
const PATIENCE: Duration = Duration::from_secs(5);

/// The provider that Codex has built in.
const OPENAI: &str = "openai";

/// What Codex says of its login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Account {
    /// There is one, none is needed, or Codex does not tell.
    Usable,
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
                account: None,
                requires_openai_auth: true,
            }) => Self::Missing,
            Ok(_) => Self::Usable,
            Err(error) => {
                tracing::debug!("cannot determine whether Codex has a login: {error}");
                Self::Usable
            }
        }
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
