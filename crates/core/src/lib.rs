//! The state machines of codex-mcp, without any I/O.
//!
//! A machine takes what happened, and where it matters when, and returns what
//! is to be done about it; a shell elsewhere does it. Nothing in here reads a
//! clock, a file or an environment variable, or waits.
//!
//! - [`session`]: our live handle on a Codex thread, from prompt to outcome.
//! - [`action`]: what Codex asks, how it may be answered, and the answer as
//!   Codex wants it.
//! - [`approval_text`]: what Codex asks, as the person reads it who answers.
//! - [`job`]: a prompt that outlives who handed it over.
//! - [`events`]: what a session tells those who look in from time to time.
//! - [`work`]: what a turn did, and whether it failed.
//! - [`eyes`]: what decides of pictures that Codex asks for.
//! - [`progress`]: the step that Codex is at, in words.
//! - [`proxy`]: the router between an MCP client and a `codex mcp-server`.
//! - [`review`]: the text of a review, read.
//! - [`run`]: turns until what was asked for is there.
//! - [`team`]: who is who among agents that write each other, and what they write.
//! - [`text`]: text within bounds, and text of others made visible.
//! - [`toml`]: values as Codex's command line takes them.
#![cfg_attr(
    test,
    expect(
        clippy::unwrap_used,
        clippy::panic,
        clippy::indexing_slicing,
        reason = "a failed test panics"
    )
)]

pub mod job;
pub mod proxy;
