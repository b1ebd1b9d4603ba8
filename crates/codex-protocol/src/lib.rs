//! The messages between codex-mcp and its peers, without any I/O.
//!
//! The peers are Codex, MCP clients and other processes of codex-mcp. None of them is trusted to
//! be brief or correct, so each layer has a limit or passes on what it does not know:
//!
//! ```text
//!  bytes ──► lines: bounded lines ──► rpc: envelope, parameters stay raw ──► codex: typed
//!                                      ▲
//!                json_values, duplicates: checks of a text before it is parsed
//! ```
//!
//! - [`duplicates`] finds objects that name a member twice.
//! - [`lines`] cuts a byte stream into bounded lines.
//! - [`json_values`] bounds the number of values in a text before it is parsed.
//! - [`rpc`] reads and writes JSON-RPC messages whose parameters stay raw.
//! - [`codex`] has the types of the Codex app-server protocol that codex-mcp
//!   uses. They accept unknown fields, methods and enum values: a newer Codex
//!   must never break an older codex-mcp.
//!
//! ```
//! use codex_protocol::lines::{Frame, LineDecoder};
//! use codex_protocol::rpc::Message;
//!
//! let mut decoder = LineDecoder::new(1024);
//! let input = b"{\"method\":\"initialized\"}\n";
//! decoder.space()[..input.len()].copy_from_slice(input);
//! decoder.filled(input.len());
//! let Some(Frame::Line(line)) = decoder.next_frame() else {
//!     panic!("no line");
//! };
//! let message = Message::read(line).unwrap();
//! assert!(matches!(message, Message::Notification { method, .. } if method == "initialized"));
//! ```
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
