//! The findings about stdin and stdout.

use serde::{Deserialize, Serialize};

/// The reaction to stdin or stdout that can't carry the protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StdioMode {
    /// Warn, and continue.
    #[default]
    Auto,
    /// Refuse to start.
    Strict,
    /// Do not check.
    Off,
}

/// The findings about stdin and stdout.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stdio {
    /// The reaction to problems.
    pub mode: StdioMode,
    /// The problems, in words.
    pub warnings: Vec<String>,
}
