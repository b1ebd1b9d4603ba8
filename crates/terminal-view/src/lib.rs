//! All work of the user in a terminal: what needs a person, what runs, and what has ended.
//!
//! ```text
//!  keys ──────────► logic::app ──effects──► acts ──► WorkBoard
//!  work, news ────►     │                                │
//!      ▲              view ──► ratatui ──► terminal      │
//!      └─────────────────── results ─────────────────────┘
//! ```
//!
//! - [`run`] takes the terminal, and gives it back as it was; [`reset_modes`] makes it usable where
//!   `run` is blocked by it.
//! - `shell` is the loop. It takes keys, news of the work and results in the order in which they
//!   come. `logic` decides without I/O what each changes, and what is to be done; `acts` does it
//!   meanwhile; `view` draws, at most every 40 ms and at least once a second.
//!
//! ```
//! assert_eq!(terminal_view::columns("漢字"), 4);
//! ```

#![cfg_attr(
    test,
    expect(
        clippy::unwrap_used,
        clippy::panic,
        clippy::indexing_slicing,
        reason = "a failed test panics"
    )
)]

mod acts;
mod logic;
mod shell;
mod terminal;
mod view;

pub use logic::rows::{columns, most_columns};
pub use shell::run;
pub use terminal::reset_modes;
