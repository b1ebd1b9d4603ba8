//! What MCP clients see.
//!
//! ```text
//! transport ── rmcp ── front ── tools/<tool> ── turn ── engine
//!                                                │
//!                                   question: what Codex asks, put to the client
//!                                   answer, error: what comes back
//! ```

mod answer;
mod error;
mod front;
mod question;
mod tools;
mod transport;
mod turn;

pub use front::{Front, Patience};
pub use tools::Api;
pub use transport::LineTransport;
