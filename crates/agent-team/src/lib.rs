//! Identity, mail, threads and audit of agents that work together.
//!
//! A server, a run or a job can be a member of a team. The files are those of Claude Code and
//! of the program `atm`, so that members of all three write to each other:
//!
//! ```text
//!  ~/.claude/teams/TEAM/        config.json (roster), inboxes/AGENT.json    [`mail`]
//!  ~/.config/atm/codex-sessions/NAME/
//!      identity.lock            the process that holds the identity         [`Claim`]
//!      registry.NAME.json       the threads that it has begun               [`registry`]
//!      audit.jsonl              each request, before it is carried out      [`audit`]
//!      THREAD/summary.md        the summary of a thread                     [`summary`]
//! ```
//!
//! The modules read and write files and wait for locks that other programs hold, so they run on
//! threads of their own ([`supervise::io_thread`]). [`logic`] computes the new contents of the
//! files, without I/O.
//!
//! ```
//! use agent_team::logic::Address;
//!
//! let address: Address = "lead@core".parse().unwrap();
//! assert_eq!(address.agent.to_string(), "lead");
//! assert_eq!(address.to_string(), "lead@core");
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

pub mod audit;
mod claim;
mod context;
mod identities;
pub mod logic;
pub mod mail;
mod mail_client;
pub mod mail_watch;
mod records;
pub mod registry;
mod services;
pub mod shutdown_summary;
mod stale_members;
mod stored_settings;
pub mod summary;

pub use claim::{Claim, ClaimError};
pub use context::{Context, Member};
pub use mail_client::{BroadcastResults, MailClient, MailClientError, MailDecision, SentMessage};
pub use records::{PreviousThread, RecordError, Records};
pub use services::TeamServices;
pub use shutdown_summary::ShutdownSummary;
pub use stale_members::ForeignMembers;
