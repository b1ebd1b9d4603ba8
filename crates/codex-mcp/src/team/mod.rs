//! The server as a member of a team.
//!
//! All that is kept of an identity lies in its folder,
//! `~/.config/atm/codex-sessions/NAME`: see [`Claim`], [`registry`], [`audit`] and
//! [`summary`]. [`mail`] is in the folders of the teams. All of it reads and writes
//! files, and waits for locks; so it wants a thread of its own.

pub mod audit;
mod claim;
mod context;
mod dead;
mod desk;
pub mod farewell;
mod identities;
pub mod mail;
pub mod mail_news;
mod office;
#[cfg(test)]
pub(crate) mod processes;
mod records;
pub mod registry;
pub mod summary;

pub use claim::{Claim, ClaimError};
pub use context::{Context, Member};
pub(crate) use dead::is_somebody_elses;
pub use desk::{Broadcast, Desk, DeskError, Sent};
pub use office::{Farewell, Office};
pub use records::{Recollection, RecordError, Records};
