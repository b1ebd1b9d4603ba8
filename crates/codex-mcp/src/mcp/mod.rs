//! What MCP clients see.
//!
//! ```text
//! transport ── rmcp ── front ── tools/<tool> ── turn ── engine
//!                                                │
//!                                   question: what Codex asks, put to the client
//!                                   answer, error, code: what comes back
//! ```

mod answer;
mod code;
mod error;
mod front;
mod incoming;
mod progress;
mod question;
mod request_state;
mod tools;
mod transport;
mod turn;

pub use front::{Front, Patience};
pub use tools::Api;
pub use transport::LineTransport;
