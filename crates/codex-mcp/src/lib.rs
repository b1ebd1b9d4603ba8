//! The program `codex-mcp`, as a library for its own tests and benches.
//!
//! - [`cli`]: one module for each verb of the command line.
//! - [`mcp`]: what MCP clients see.
//! - [`engine`]: Codex's processes and our sessions in them.
//! - [`config`]: where settings come from.
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a failed test panics"))]

pub mod cli;
pub mod config;
pub mod engine;
pub mod mcp;
