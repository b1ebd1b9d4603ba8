//! Teams of agents: who is who, what they write each other, and what each has been
//! working on.

pub mod inbox;
mod layout;
mod name;
pub mod registry;
pub mod roster;
mod time;

pub use name::{Address, AgentName, BadName, RoleName, TeamName, ThreadName};
