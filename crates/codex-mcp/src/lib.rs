//! The program `codex-mcp`: the command line above the crates that do the work.
//!
//! ```text
//!  cli/serve ─► mcp_server ─┐              cli/run ─► goal_run        cli/eyes ─► image_request
//!         └───► mcp_proxy   ├─► codex_engine ─► Codex                 cli/team_tools ─► agent_team
//!  cli/jobs ─► job_queue ───┘              settings: the configuration of all verbs
//! ```
//!
//! - [`cli`]: one module for each verb.
//! - [`doctor`]: checks whether Codex can work here.
//! - [`demo`]: the program at work on a scripted model.
//! - `environment`: the variables that name the user's directories.
//! - `installation`: how this copy was installed, and from which commit it was built.
//! - `writable_state`: whether Codex could write the state directory, for `doctor` and the demo.
//!
//! It is a library for its own tests and benches, which run the verbs as processes.
//!
//! ```sh
//! codex-mcp serve                                    # for an MCP client
//! codex-mcp run --until commits=1 "Fix the test"     # turns until the criterion holds
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

pub mod cli;
pub mod demo;
pub mod doctor;
mod environment;
mod installation;
mod writable_state;
