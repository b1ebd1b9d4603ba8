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
mod dialogs;
mod error;
mod front;
mod incoming;
mod progress;
mod question;
mod request_state;
mod resources;
mod tools;
mod transport;
mod turn;
mod waiting;

pub use front::{Decider, Front, Patience};
pub use resources::{Stdio, StdioMode};
pub use tools::Api;
pub use transport::LineTransport;
