//! Processes that end with their owner, and threads for blocking work.
//!
//! Every process that codex-mcp starts (Codex, git, a command of the user) has to end when
//! codex-mcp ends, even after `kill -9`, and so do the processes that it started in turn. So
//! programs are not started directly:
//!
//! ```text
//!  codex-mcp ──spawn──► guard (this executable again) ──► program ──► its commands ──► …
//!      │                  │ subreaper of all below
//!      └── dies ─────────►│ SIGTERM to all, SIGKILL a second later, until none is left
//! ```
//!
//! - [`spawn`] starts the guard, which must be reachable as the verb `guard` of the executable;
//!   [`guard`] runs there. If a guard itself is killed, its owner finds the rest of its tree by a
//!   variable in the tree's environment.
//! - [`short_lived`] runs a short-lived program to its end and keeps its output.
//! - [`detached`] launches workers and hosts, the only processes that outlive us.
//! - [`adoptable`] starts programs that another process can take over if their owner is killed.
//! - [`search_path`] decides in which directories programs are looked up.
//! - [`descendants`] lists the processes below another one.
//! - [`io_thread`] runs blocking work in order on a separate thread.
//! - `platform` contains the differences between Linux and other systems.
//! - [`private_socket`], [`proof`] and `confinement` keep commands in Codex's sandbox away from the
//!   Unix sockets of our processes.
//! - [`starter`] ends this process with the one that started it.
//!
//! Everything is started from the main thread: on Linux the parent-death signal is sent when the
//! *thread* that spawned ends.
//!
//! ```no_run
//! use std::path::Path;
//! use std::time::Duration;
//!
//! use supervise::short_lived;
//! use supervise::spawn::Program;
//!
//! # async fn example() -> std::io::Result<()> {
//! let program = Program::new(Path::new("/usr/bin/git"), ["--version"]);
//! let output = short_lived::run(&program, Duration::from_secs(10)).await?;
//! assert!(output.succeeded());
//! # Ok(())
//! # }
//! ```
#![cfg_attr(
    test,
    expect(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")
)]

pub mod adoptable;
pub mod clock;
#[cfg(all(target_os = "linux", not(portable)))]
pub mod confinement;
pub mod descendants;
pub mod detached;
pub mod exit;
pub mod guard;
pub mod io_thread;
pub mod memory;
mod platform;
pub mod private_socket;
pub mod proof;
pub mod search_path;
pub mod short_lived;
pub mod spawn;
pub mod starter;
mod tree_mark;
