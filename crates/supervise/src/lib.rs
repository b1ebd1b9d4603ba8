//! Processes that end with their owner, and threads for work that blocks.
//!
//! Whatever codex-mcp starts (Codex, git, a command of the user's) has to end when codex-mcp
//! ends, also after `kill -9`, with everything that it has started itself. So no program is
//! started directly:
//!
//! ```text
//!  codex-mcp ──spawn──► guard (this executable again) ──► program ──► its commands ──► …
//!      │                  │ subreaper of all below
//!      └── dies ─────────►│ SIGTERM to all, SIGKILL a second later, until none is left
//! ```
//!
//! [`spawn`] starts the guard, which must be reachable as the verb `guard` of the executable;
//! [`guard`] is what runs there. [`converse`] runs a short-lived program to its end and keeps
//! its output; [`search_path`] decides in which directories programs are looked up;
//! [`descendants`] lists the processes below one; [`io_thread`] runs blocking work in order on
//! a thread of its own.
//!
//! Everything is started from the main thread: on Linux a parent-death signal comes when the
//! *thread* that spawned ends.
#![cfg_attr(
    test,
    expect(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")
)]

pub mod ceilings;
pub mod clock;
pub mod converse;
pub mod descendants;
pub mod exit;
pub mod guard;
pub mod io_thread;
pub mod search_path;
pub mod spawn;
