//! `codex-mcp serve` under failures: real processes, and a Codex that misbehaves on demand.
//!
//! Each test ends in [`serve::Serve::finish`] or a variant of it, which checks the rules of the
//! program: exactly one response for each request, nothing but the protocol on stdout, no panic,
//! no process left.

mod approvals;
mod call_questions;
mod calls;
mod cancellation;
mod deaths;
mod eras;
mod failures;
mod identity;
mod input;
mod input_required;
mod launches;
mod lifecycle;
mod noise;
mod output;
mod phase;
mod processes;
mod prompts;
mod proxy;
mod resources;
mod serve;
mod sessions;
mod stdio_mode;
