//! All work of the user, for those who show it and act on it: the page and the terminal view.
//!
//! ```text
//!  hosts ──sessions, as they change──┐
//!  store ──jobs and runs─────────────┼─► WorkBoard ─► lists, conversations, questions
//!  tools ◄──start, reply, fork───────┘       ▲
//!                                            └── answers, messages, interrupts
//! ```
//!
//! - [`Hosts`] watches all hosts; [`JobBoard`] reads the configured store.
//! - [`logic::conversation`] puts a conversation together from the events of a session.
//! - [`MailBoard`] shows the mail of the team.
//! - [`Program`] is the interface to what needs the program's configuration.
//! - [`HostLink`] is a connection to a host as an MCP client has one.
//!
//! ```
//! use work_board::logic::step::command_words;
//!
//! assert_eq!(command_words("completed", Some(1)), "exit code 1");
//! // Codex gives a killed command the exit code -1.
//! assert_eq!(command_words("failed", Some(-1)), "failed");
//! ```

#![cfg_attr(
    test,
    expect(
        clippy::unwrap_used,
        clippy::disallowed_methods,
        reason = "a failed test panics, and a test writes the files that are read"
    )
)]

mod board;
mod hosts;
mod jobs;
mod latest;
mod link;
pub mod logic;
mod mail;
mod program;
mod tools;
mod work;

pub use board::{Connections, NewRun, NewSession, Prompted, SessionFollower, WorkBoard};
pub use job_queue::question::{NamedQuestion, StoredQuestion, WholeChange, WholePart};

pub use hosts::{ActError, Hosts, LiveSession};
pub use jobs::{JobBoard, JobRevision, LogLine, ShownJob};
pub use link::{
    Call, CallError, Connect, ConnectOptions, HostLink, Incoming, Remains, StartAwaited, taken,
};
pub use logic::decision_label::decision_label;
pub use mail::{MailBoard, MailBoardError, MemberMail, TeamMail};
pub use program::{Program, Resubmitted, RetryError, ThreadRecord};
pub use work::{AllWork, Group, Kind, Work};
