//! Files and directories that somebody else can change, opened safely.
//!
//! codex-mcp reads files of a stranger's repository, and works in directories that a model can
//! change at the same time. All files are opened through this crate; `clippy.toml` forbids the
//! other ways:
//!
//! ```text
//!  files of others ────────► untrusted_file ─► a text up to the limit, or an error
//!  directories of others ──► directory ──────► noted, and compared before they are used
//!  our own state ◄─────────► state_file ─────► written whole, under a lock
//! ```
//!
//! | module | for |
//! | --- | --- |
//! | [`untrusted_file`] | files of others: never waits for a pipe, follows links only where that is safe, reads up to a limit |
//! | [`off_runtime`] | the same in asynchronous code: a thread of its own, with a deadline |
//! | [`directory`] | directories that are noted now and used later: detects one that was replaced by a link, removes empty ones of our own |
//! | [`state_file`], [`state_directory`], [`directory_lock`] | files of our own: written whole, locked between processes |
//! | [`home_directory`] | the home directory, which never lies where a client has started us |
//! | [`own_log`] | the log of a background process, bounded while it runs |
//! | [`scratch`] | directories for a while, out of reach of Codex's sandbox |
//!
//! ```
//! use safe_files::untrusted_file::{self, Links};
//!
//! let endless = untrusted_file::read_text("/dev/zero".as_ref(), 4096, Links::Refused);
//! assert!(endless.is_err(), "a device is refused");
//! ```
#![cfg_attr(
    test,
    expect(
        clippy::unwrap_used,
        clippy::panic,
        clippy::disallowed_methods,
        reason = "a failed test panics, and a test opens the files that it wrote"
    )
)]

pub mod directory;
pub mod directory_lock;
pub mod home_directory;
pub mod off_runtime;
pub mod own_log;
pub mod scratch;
pub mod state_directory;
pub mod state_file;
pub mod untrusted_file;
