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
mod defaults;
mod deliveries;
mod dialogs;
#[cfg(test)]
mod docs;
mod error;
mod front;
mod incoming;
mod instructions;
mod notices;
mod own_server;
mod progress;
pub mod proxy;
mod question;
mod request_image;
mod request_state;
mod resources;
mod team_tools;
mod thread_tools;
mod tools;
mod transport;
mod turn;
mod waiting;
mod warnings;

pub use defaults::Defaults;
pub use deliveries::Deliveries;
pub use front::{Decider, Front, Patience};
pub use request_image::{Answer, Eyes, serve_eyes};
pub use resources::{Stdio, StdioMode};
pub use team_tools::serve_team_tools;
pub use thread_tools::{Approval, OurTools};
pub use tools::{Api, Group, Groups};
pub use transport::LineTransport;
pub use warnings::Warnings;
