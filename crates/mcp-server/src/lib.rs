//! The MCP server: the tools that clients see, their calls, the prompts and the resources.
//!
//! ```text
//! client ─► transport ─► rmcp ─► handler ─► tools ─┬─► turn_call ─► turn ─► codex_engine
//!                                   ├► prompts     ├─► job_queue      └─► question: Codex's
//!                                   └► resources   └─► agent_team         questions to clients
//! ```
//!
//! `handler` answers MCP's methods and finds the tool of a call. The tool reads its arguments,
//! checks them against the operator's bounds, and hands the work to the engine, the job queue or
//! the team. [`Server`] is the state that all of them share. [`error`] converts every failure into
//! a [`Code`](code::Code) with a hint.
//!
//! The proxy of the old backend serves some of the same tools, and uses this crate for them.
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
mod approval_card;
mod changing;
pub mod code;
mod decision;
pub mod defaults;
pub mod deliveries;
mod dialogs;
#[cfg(test)]
mod docs;
pub mod error;
mod handler;
pub mod incoming;
mod instructions;
mod notices;
mod progress;
mod prompts;
mod question;
pub mod repeated_call;
mod request_image;
mod request_state;
mod resources;
mod server;
pub mod status;
mod stdio;
mod stdio_server;
mod tasks;
mod team_tools;
mod thread_tools;
mod tool_sets;
pub mod tools;
mod transport;
mod turn;
mod turn_call;
mod waiting;
pub mod warnings;

pub use defaults::Defaults;
pub use deliveries::Deliveries;
pub use request_image::{Eyes, PictureDelivery, serve_eyes};
pub use server::{Decider, Server, Timeouts};
pub use stdio::{Stdio, StdioMode};
pub use stdio_server::serve_until_closed;
pub use tasks::{
    AskedHost, OtherHosts, SessionTasks, TaskAct, TaskAnswer, TaskRequest, TaskSubscriptions,
};
pub use team_tools::serve_team_tools;
pub use thread_tools::{Approval, OwnThreadTools};
pub use tool_sets::{Api, Group, Groups};
pub use transport::LineTransport;
pub use warnings::Warnings;
