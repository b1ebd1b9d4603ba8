//! Runs: turns of Codex in a repository until all criteria are met.
//!
//! A run never relies on Codex's statements. It takes a snapshot of the repository when it begins
//! and after each turn, judges the snapshot by the criteria, and asks a state machine for the next
//! step:
//!
//! ```text
//!   spec ───► drive ──► turn ──► codex_engine ──► Codex
//!               │  ◄── look: git, gh, files, commands      after each turn
//!               ├──► logic::machine                        which turn comes next
//!               └──► watcher, evidence, notify             progress, records, notifiers
//! ```
//!
//! [`logic`] decides, and the other modules act. [`worktree`] gives a run a separate working tree.
//! [`reviewer`] has a separate thread review the changes.
//!
//! Criteria have the syntax of `codex-mcp run --until`:
//!
//! ```
//! use goal_run::logic::criteria::Criterion;
//!
//! let criterion: Criterion = "commits=2".parse().unwrap();
//! assert_eq!(criterion.to_string(), "commits=2");
//! assert!("commits=many".parse::<Criterion>().is_err());
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

mod active_run;
mod caller;
mod clock;
mod drive;
mod error;
mod evidence;
pub mod logic;
pub mod look;
pub mod notify;
mod programs;
mod record;
pub mod reviewer;
pub mod spec;
mod templates;
mod turn;
mod turn_failure;
pub mod watcher;
pub mod words;
pub mod worktree;

pub use caller::{Caller, PAGE_CLIENT};
pub use drive::{RunContext, RunResult, drive, resume};
pub use error::{NoWriteAccess, ReadOnlyCause, RunError};
pub use evidence::EvidenceFile;
pub use record::RunRecord;
pub use templates::{ChosenTemplates, templates_for};
pub use turn::ANSWER_LIMIT;
