//! The program `codex-mcp`, as a library for its own tests and benches.
//!
//! - [`cli`]: one module for each verb of the command line.
//! - [`mcp`]: what MCP clients see.
//! - [`config`]: the settings, with the source of every value.
//! - [`bounds`]: what a client may ask for at most.
//! - [`jobs`]: prompts that outlive the client that submitted them.
//! - `thread_ids`: threads by ID prefix.
//! - [`doctor`]: whether work can be done here, and if not, why.
//! - [`demo`]: the program at work, for somebody who has just met it.
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

pub mod cli;
pub mod demo;
pub mod doctor;
pub mod mcp;
