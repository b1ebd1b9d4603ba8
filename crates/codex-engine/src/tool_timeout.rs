//! Time limits of MCP tool calls that Codex makes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The origin of a time limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitOrigin {
    /// The default limit: a server's own entry takes precedence.
    #[default]
    Default,
    /// The call named it.
    #[serde(rename = "asked")]
    Requested,
}

/// How long a call of an MCP server's tool may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolLimit {
    /// The longest that one call may take.
    pub limit: Duration,
    /// Whether it takes precedence over a server's own entry.
    pub origin: LimitOrigin,
}

impl ToolLimit {
    /// The limit in whole seconds, rounded up, as Codex's configuration requires.
    pub(crate) fn seconds(self) -> u64 {
        self.limit.as_secs() + u64::from(self.limit.subsec_nanos() > 0)
    }
}

impl LimitOrigin {
    /// Whether this is the default limit.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::Default
    }
}
