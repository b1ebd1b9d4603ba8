//! Shared parts of the tests and benchmarks of `codex-mcp`. Nothing here is part of the program.
//!
//! ```text
//!  test ─► McpClient ─► codex-mcp ─┬─► a release of Codex ─► scripted model
//!                                  ├─► fake: a Codex that misbehaves
//!                                  └─► postgres, ngircd, atm: real peers
//!  all of them in a Home: the environment of one test
//! ```
//!
//! - [`codex`] finds the real Codex releases that the tests run against.
//! - [`Home`] is the isolated environment of one test: its home, Codex home, work directory and
//!   variables, removed when it is dropped.
//! - [`McpClient`] speaks raw MCP to a server and fails the test when the server
//!   says anything that nobody waited for.
//! - [`AppServer`] speaks directly to `codex app-server`, for comparisons.
//! - [`atm`] finds the real programs that the tests exchange mail with.
//! - [`claude_code`] finds the real Claude Code; [`messages_api`] is the model that it works on.
//! - [`postgres`] runs a private server of PostgreSQL; [`certificates`] makes its certificate,
//!   and [`pgbouncer`] stands before it.
//! - [`ngircd`] runs a private server of IRC.
//! - [`verdaccio`] runs a private registry of npm packages; [`node`] finds a newer Node.
//! - [`SmallDisk`] is a file system that a test can fill.
//! - [`Tmux`] is a terminal in which a test types and reads.
//! - [`process`] looks at process trees, so that a test can prove that nothing is
//!   left running.
//! - [`wait`] waits for events, with a deadline.
//! - [`write_program`] writes a script that stands in for a program.
//! - [`worker_process`] starts the test itself once more, to work in parallel or be killed.
//! - [`fake`] is a Codex that misbehaves on demand.
//! - [`docs`] compares the tables in docs/ with the code.
//!
//! ```
//! use serde_json::json;
//! use testkit::schema::check;
//!
//! let schema = json!({ "type": "object", "required": ["id"] });
//! assert!(check(&json!({ "id": 1 }), &schema).is_ok());
//! assert!(check(&json!({}), &schema).is_err());
//! ```
//!
//! Everything here panics when something is wrong: a missing release, a broken
//! peer and a wait that took too long are failures of the test, never a reason to
//! skip it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "test support: a panic is how a test fails, it starts processes of its own, and \
              the fake Codex writes to its stdout and stderr"
)]

pub mod app_server;
pub mod atm;
pub mod certificates;
pub mod chromium;
pub mod claude_code;
pub mod client;
pub mod codex;
pub mod conformance;
mod directory;
pub mod docs;
pub mod fake;
mod home;
pub mod http;
mod launch;
pub mod messages_api;
pub mod ngircd;
pub mod node;
pub mod pgbouncer;
pub mod postgres;
pub mod process;
mod program;
pub mod python;
pub mod schema;
mod small_disk;
mod target_dir;
mod tmux;
mod transcript;
pub mod typescript;
pub mod verdaccio;
pub mod wait;
pub mod worker_process;

pub use app_server::AppServer;
pub use client::McpClient;
pub use directory::copy_directory;
pub use home::{Home, MARKER, with_host};
pub use launch::{Launch, Signal};
pub use program::write_program;
pub use small_disk::{Ballast, SmallDisk};
pub use target_dir::target_dir;
pub use tmux::Tmux;
