//! The log on stderr. stdout belongs to the protocol.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

/// Chooses what is logged, in `tracing-subscriber`'s filter syntax.
const VARIABLE: &str = "CODEX_MCP_LOG";

/// rmcp tells about each message at `info`, which is too much for ours.
const DEFAULT: &str = "warn,codex_mcp=info";

/// Starts logging.
pub(super) fn start() {
    let filter = EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .init();
}
