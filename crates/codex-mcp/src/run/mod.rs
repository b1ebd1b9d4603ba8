//! Runs: turns until what was asked for is there, on the real repository.
//!
//! ```text
//!   order ──► drive ──► turn ──► engine ──► Codex
//!               │  ◄── look: git, gh, files, commands
//!               ├──► core::run::machine: which turn comes next
//!               └──► watcher, evidence, notify
//! ```
//!
//! What decides is in `codex_mcp_core::run`; here is what acts.

mod caller;
mod clock;
mod drive;
mod error;
mod evidence;
mod failing;
pub mod look;
pub mod notify;
pub mod order;
mod programs;
mod templates;
mod turn;
pub mod watcher;
pub(crate) mod words;
pub mod worktree;

pub use caller::Caller;
pub use drive::{ANSWER_LIMIT, Done, Rig, drive};
pub use error::{ReadOnlyCause, RunError};
pub use evidence::EvidenceFile;
pub use templates::{ChosenTemplates, templates_for};
