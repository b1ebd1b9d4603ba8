//! Decisions about runs without I/O.
//!
//! A run is judged by the repository, not by Codex's words. The shell takes a [`snapshot`]
//! when the run begins and after each turn, has it judged ([`findings`]) by the
//! [`criteria`], compares the [`artifacts`] with earlier ones, and asks the [`machine`] for
//! the next step: a prompt, an interrupt, or the end.
//!
//! - [`criteria`]: the conditions of a run, as a person or a program writes them; with
//!   [`glob`], patterns for paths, and [`names`] of branches, issues and commands.
//! - [`snapshot`]: the state of the repository at one moment.
//! - [`findings`]: which criteria hold, and what is missing.
//! - [`artifacts`]: the results of a run, and whether a turn has added any.
//! - [`machine`]: the next turn, and the end of the run.
//! - [`promises`]: words by which Codex announces work instead of doing it.
//! - [`prompts`]: the texts for Codex.
//! - [`review`]: the review of the changes.
//! - [`outcome`]: the answer of a run, and the line for notifiers.
//! - [`mail_answers`]: which reply to a notice decides which question.
//! - [`notifier`]: the receivers of notifications; with [`irc`], the protocol of a channel,
//!   [`web_address`], the servers of webhooks, and [`headline`], the title of a notification.

pub mod artifacts;
pub mod criteria;
pub mod findings;
pub mod glob;
pub mod headline;
pub mod irc;
pub mod machine;
pub mod mail_answers;
pub mod names;
pub mod notifier;
pub mod outcome;
pub mod promises;
pub mod prompts;
pub mod review;
pub mod snapshot;
pub mod web_address;
