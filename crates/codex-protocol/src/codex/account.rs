//! Whether Codex can use its model provider.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Parameters of `account/read`: Codex's own defaults, with which it asks nobody. Those of
/// `account/rateLimits/read`, too.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct AccountReadParams {}

/// The answer to `account/read`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountReadResponse {
    /// Who is logged in, or with what: an account at OpenAI or an API key.
    #[serde(default)]
    pub account: Option<Map<String, Value>>,
    /// Whether the provider that the configuration selects wants a login at OpenAI.
    #[serde(default)]
    pub requires_openai_auth: bool,
}
