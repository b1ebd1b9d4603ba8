//! One background process that serves several clients of a user: the host.
//!
//! A client of `codex-mcp serve` talks to a small process that passes its messages on to the
//! host. So clients share Codex's processes, and work goes on when a client ends.
//!
//! ```text
//!  MCP client ──stdio── relay ──┐
//!  MCP client ──stdio── relay ──┼── Unix socket ── host ── codex app-server
//!  codex-mcp host status ───────┘
//! ```
//!
//! A host is started on demand ([`connect`]) and leaves when it has served nobody for a while.
//! There is one for each state directory, build of the program, and [environment] and umask of
//! its clients: Codex's commands run in the environment of the host. A new version of the program
//! therefore starts a new host, and the old one ends when its last client has gone.
//!
//! [`endpoint`] finds the socket, [`handshake`] has the first lines, [`listener`] is the host's
//! side and [`relay`] the client's; [`leftovers`] removes the files of old hosts. When a
//! host ends or is killed, its unanswered calls fail: the relay answers them with an error, and
//! starts another host for the next message ([`conversation`]).
//!
//! A command in Codex's sandbox runs as the same user, and the host would do for it what the
//! sandbox keeps it from doing. So a client first proves that it can write where the socket is,
//! and both sides check that the other one is confined as they are (`supervise::confinement`).
//!
//! [environment]: logic::environment
//! [`handshake`]: logic::handshake
//! [`conversation`]: logic::conversation
//!
//! ```
//! use host_process::logic::environment::key;
//!
//! let of = |path: &str| key(b"1.0", "0022", [("PATH".into(), path.into())]);
//! assert_ne!(of("/bin"), of("/venv/bin:/bin"));
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

pub mod connect;
pub mod endpoint;
pub mod leftovers;
mod line;
pub mod listener;
pub mod logic;
pub mod relay;
