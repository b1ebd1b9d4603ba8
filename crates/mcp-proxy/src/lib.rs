//! A proxy between an MCP client and a `codex mcp-server`, for Codex up to 0.153.
//!
//! ```text
//!   client ──► client reader ─┐           ┌─► queue ─► child writer ──► child
//!              clock ─────────┼─► router ─┤
//!   child ───► child reader ──┘           └─► queue ─► client writer ─► client
//! ```
//!
//! Messages pass unchanged. The router ([`logic`]) decides on each, without I/O; `intake` gives it
//! the messages, and `proxy` the time, and performs its decisions. The child's messages wait while
//! the client does not read. The client's never wait: its cancellations and its end have to be
//! noticed whatever the child does. A child that does not read gets no more work instead.
//!
//! `augment` is the one place that changes calls: it adds settings and tools of ours.
//!
//! ```
//! use mcp_proxy::logic::replace_part;
//!
//! // A part of the message is replaced; all other bytes are kept.
//! let message = r#"{"id": 7, "result":1e400}"#;
//! let replaced = replace_part(message.as_bytes(), &message[7..8], r#""a""#);
//! assert_eq!(replaced.as_deref(), Some(r#"{"id": "a", "result":1e400}"#.as_bytes()));
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

mod added_tools;
mod answers;
mod augment;
mod child;
mod directories;
mod intake;
mod known_tools;
pub mod logic;
mod members;
mod outbox;
mod proxy;
mod recorder;
mod serve;
mod wire;

pub use serve::{Options, serve};
