//! The messages between codex-mcp and its peers, without any I/O.
//!
//! - [`duplicates`] finds objects that name a member twice.
//! - [`lines`] cuts a byte stream into bounded lines.
//! - [`json_values`] bounds the number of values in a text before it is parsed.
//! - [`rpc`] reads and writes JSON-RPC messages whose parameters stay raw.
//! - [`codex`] has the types of the Codex app-server protocol that codex-mcp
//!   uses. They accept unknown fields, methods and enum values: a newer Codex
//!   must never break an older codex-mcp.
#![cfg_attr(
    test,
    expect(
        clippy::unwrap_used,
        clippy::panic,
        clippy::indexing_slicing,
        reason = "a failed test panics"
    )
)]

pub mod codex;
pub mod duplicates;
pub mod json_values;
pub mod lines;
pub mod rpc;
