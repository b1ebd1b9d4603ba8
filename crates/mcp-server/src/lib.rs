//! The MCP server: the tools that clients see, their calls, and the resources.
//!
//! ```text
//!            lines                     one call                    a turn
//! client ─► transport ─► rmcp ─► front ─────────► tools/<tool> ─► turn ─► codex_engine
//!                                  │                                │
//!                                  │                                └► question: what Codex asks,
//!                                  ├► settings::bounds: refused       put to the client
//!                                  └► job_queue, agent_team           before anything begins
//! ```
//!
//! [`Front`] is rmcp's handler. It finds the tool, checks the call against the operator's
//! bounds, and hands it to the engine, to the queue of jobs or to the team. What goes wrong
//! becomes a [`Code`](code::Code) with a hint in one place, [`error`].
//!
//! The proxy of the old backend answers calls of the same tools, and takes them from here.
//!
//! ```
//! use mcp_server::code::Code;
//! use mcp_server::error::ToolError;
//!
//! // Programs read the code, people the hint.
//! let error = ToolError::new(Code::UsageLimit, "the usage limit is reached");
//! assert_eq!(error.details()["error"]["code"], "USAGE_LIMIT");
//! ```
#![cfg_attr(
    test,
    expect(
        clippy::unwrap_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::disallowed_methods,
        reason = "a failed test panics, and a test opens the files that it wrote"
    )
)]

mod answer;
pub mod code;
pub mod defaults;
pub mod deliveries;
mod dialogs;
#[cfg(test)]
mod docs;
pub mod error;
pub mod front;
pub mod incoming;
mod instructions;
mod notices;
mod own_server;
mod progress;
mod question;
mod request_image;
mod request_state;
mod resources;
mod team_tools;
mod thread_tools;
pub mod tools;
mod transport;
mod turn;
mod waiting;
pub mod warnings;

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
