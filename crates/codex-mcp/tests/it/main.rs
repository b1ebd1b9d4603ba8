//! The program as its users meet it: real processes, real Codex.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a failed test panics, and a test starts the processes that it looks at"
)]

mod aliases;
mod attacks;
mod config;
mod demo;
mod doctor;
mod eyes_mcp;
mod hostile;
mod jobs;
mod jobs_cli;
mod look;
mod mail;
mod memory;
mod notify;
mod real;
mod runs;
mod stored;
mod terminal;
