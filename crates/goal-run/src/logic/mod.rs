//! Decisions about runs without I/O.
//!
//! A run looks at the repository, not at what Codex says. The shell takes a
//! [`snapshot`] when it begins and after each turn, has it judged ([`findings`]) by
//! the [`criteria`], asks whether anything was added ([`artifacts`]), and is told by
//! the [`machine`] what comes next: a prompt, an interrupt, or the end.
//!
//! - [`criteria`]: what must hold, as a person or a program asks for it; with [`glob`],
//!   patterns for paths, and [`names`], what else can be named.
//! - [`snapshot`]: how things stand at one moment.
//! - [`findings`]: which criteria hold, and what is missing.
//! - [`artifacts`]: what was made, and whether a turn has added to it.
//! - [`machine`]: which turn comes next, and when it is over.
//! - [`promises`]: words by which Codex announces work instead of doing it.
//! - [`prompts`]: what Codex is told.
//! - [`review`]: the review of what was made.
//! - [`outcome`]: what a run answers, and in which line others are told.
//! - [`notifier`]: who is told; with [`irc`], how a channel is.

pub mod artifacts;
pub mod criteria;
pub mod findings;
pub mod glob;
pub mod irc;
pub mod machine;
pub mod names;
pub mod notifier;
pub mod outcome;
pub mod promises;
pub mod prompts;
pub mod review;
pub mod snapshot;
