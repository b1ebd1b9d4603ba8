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
//! - [`HostLink`] is a connection to a host as an MCP client has one.

mod board;
mod hosts;
mod jobs;
mod link;
pub mod logic;
mod tools;
mod work;

pub use board::{Connections, NewSession, Prompted, WorkBoard};
pub use hosts::{ActError, Hosts, LiveSession};
pub use jobs::{JobBoard, ShownJob};
pub use link::{Call, CallError, Connect, HostLink, Incoming, taken};
pub use work::{AllWork, Group, Kind, Work};
