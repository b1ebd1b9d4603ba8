//! Turns of Codex until what was asked for is there, on the real repository.
//!
//! A run never believes Codex's words. It takes a snapshot of the repository when it begins
//! and after each turn, judges it by the criteria, and asks the machine what comes next:
//!
//! ```text
//!   order ──► drive ──► turn ──► codex_engine ──► Codex
//!               │  ◄── look: git, gh, files, commands      after each turn
//!               ├──► logic::machine                        which turn comes next
//!               └──► watcher, evidence, notify             progress, records, who is told
//! ```
//!
//! [`logic`] decides, the rest acts. [`worktree`] gives a run a working tree of its own,
//! [`reviewer`] has a thread of its own review what was made.
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

mod caller;
mod clock;
mod drive;
mod error;
mod evidence;
mod failing;
pub mod logic;
pub mod look;
pub mod notify;
pub mod order;
mod programs;
pub mod reviewer;
mod templates;
mod turn;
pub mod watcher;
pub mod words;
pub mod worktree;

pub use caller::Caller;
pub use drive::{Done, RunContext, drive};
pub use error::{ReadOnlyCause, RunError};
pub use evidence::EvidenceFile;
pub use templates::{ChosenTemplates, templates_for};
pub use turn::ANSWER_LIMIT;
