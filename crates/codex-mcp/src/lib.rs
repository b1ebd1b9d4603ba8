//! The program `codex-mcp`, as a library for its own tests and benches.
//!
//! - [`cli`]: one module for each verb of the command line.
//! - [`mcp`]: what MCP clients see.
//! - [`engine`]: Codex's processes and our sessions in them.
//! - [`eyes`]: pictures that Codex asks for.
//! - [`config`]: where settings come from.
//! - [`codex_config`]: Codex's own configuration.
//! - [`directory`]: whether a directory was replaced by a link.
//! - `duration`: durations as people write them.
//! - [`demo`]: the program at work, for somebody who has just met it.
//! - [`jobs`]: prompts that outlive who handed them over.
//! - `git`: the git program, asked safely.
//! - `nearest`: what a mistyped name was meant to be.
//! - [`output`]: standard output and standard error, for texts of others too.
//! - [`picture`]: pictures that Codex is to look at.
//! - `review`: reviews of code, by a thread of its own.
//! - [`run`]: turns until what was asked for is there.
//! - `scratch`: directories for files that Codex is given for a while.
//! - [`team`]: the server as a member of a team.
//! - `thread_ids`: threads by ID prefix.
//! - [`bounds`]: what a client may ask for at most.
//! - [`trust`]: whether the user trusts a directory.
//! - `writable_roots`: further writable directories in overrides.
//! - [`doctor`]: whether work can be done here, and if not, why.
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

pub mod bounds;
pub mod cli;
pub mod config;
pub mod demo;
pub mod doctor;
pub mod jobs;
pub mod mcp;
mod thread_ids;
