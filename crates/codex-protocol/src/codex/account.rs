//! The login with which Codex uses its model provider: `account/read`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Parameters of `account/read` and `account/rateLimits/read`: Codex's defaults, with
/// which `account/read` makes no request.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct AccountReadParams {}

/// Parameters of `config/read`.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigReadParams {
    /// Whether to list the layers too.
    pub include_layers: bool,
}

/// The answer to `account/read`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountReadResponse {
    /// The account at OpenAI or the API key in use.
    #[serde(default)]
    pub account: Option<Map<String, Value>>,
    /// Whether the configured provider requires a login at OpenAI.
    #[serde(default)]
    pub requires_openai_auth: bool,
}
