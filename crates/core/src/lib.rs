//! The state machines of codex-mcp, without any I/O.
//!
//! A machine takes what happened, and where it matters when, and returns what
//! is to be done about it; a shell elsewhere does it. Nothing in here reads a
//! clock, a file or an environment variable, or waits.
//!
//! - [`job`]: a prompt that outlives the client that submitted it.
//! - [`proxy`]: the router between an MCP client and a `codex mcp-server`.
#![cfg_attr(
    test,
    expect(
        clippy::unwrap_used,
        clippy::panic,
        clippy::indexing_slicing,
        reason = "a failed test panics"
    )
)]

pub mod proxy;
