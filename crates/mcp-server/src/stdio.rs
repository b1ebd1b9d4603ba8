//! What is known about stdin and stdout.

use serde::Serialize;

/// What to do where stdin and stdout can't carry the protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StdioMode {
    /// Say so, and go on.
    #[default]
    Auto,
    /// Refuse to start.
    Strict,
    /// Don't look.
    Off,
}

/// What is known about stdin and stdout.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stdio {
    /// What to do about them.
    pub mode: StdioMode,
    /// What is wrong with them, in words.
    pub warnings: Vec<String>,
}
