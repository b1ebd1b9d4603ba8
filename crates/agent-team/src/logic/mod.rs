//! The formats of a team's files, without I/O: names, rosters, inboxes, and registries of threads.

pub mod inbox;
mod json_edit;
mod name;
pub mod registry;
pub mod roster;
mod time;

pub use name::{Address, AgentName, BadName, RoleName, TeamName, ThreadName};
