//! What is told of a run while it goes on.

use std::path::Path;

use codex_engine::Grants;
use codex_engine::logic::action::{DecidedBy, Decision};
use codex_engine::logic::progress::CurrentStep;
use codex_protocol::codex::{Ask, SandboxMode, ThreadId};
use tokio::time::Instant;

use super::caller::Caller;
use crate::logic::findings::Verdict;
use crate::logic::machine::Prompt;
use crate::logic::outcome::TurnRecord;

/// Something that has happened in a run.
#[derive(Debug, Clone, Copy)]
pub enum News<'a> {
    /// It is about to begin.
    Begins {
        /// Where it works: the top directory of the repository.
        top: &'a Path,
        /// How things stand before it.
        verdict: &'a Verdict,
    },
    /// There is a conversation with Codex.
    Thread {
        /// Which.
        thread: &'a ThreadId,
        /// How far its commands may reach, if it tells.
        sandbox: Option<SandboxMode>,
        /// What it is allowed for the criteria, in `workspace-write`.
        grants: &'a Grants,
    },
    /// Something that the user has to know.
    Warning(&'a str),
    /// A turn begins.
    Turn(&'a Prompt),
    /// Codex is at another step. Its number is a new one unless a step has ended and an
    /// earlier one continues.
    Step(&'a CurrentStep),
    /// How many tokens the run has used until now.
    Tokens(u64),
    /// The turn is interrupted.
    Interrupted,
    /// The turn has ended, and the repository is looked at.
    Looking,
    /// All else holds, and another thread reviews the changes.
    Reviewing,
    /// A turn has ended, and this has come of it.
    TurnEnded(&'a TurnRecord),
}

/// Whether Codex may write in the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// It may, in the sandbox `workspace-write`.
    Given,
    /// It may not, or nobody is there to say so.
    Refused,
}

/// Who watches a run, and answers what Codex asks in it.
pub trait Watcher {
    /// Who has asked for the run, for the words that they are told.
    fn caller(&self) -> Caller {
        Caller::default()
    }

    /// Hears what has happened. Called often, so it must not take long.
    fn hears(&self, news: News<'_>);

    /// Whether a run that needs to write goes on with the sandbox `workspace-write`, where
    /// the sandbox is read-only and nobody has said that it is to be.
    fn lets_write(&self) -> impl Future<Output = Leave>;

    /// Answers a question of Codex's, at the latest at `until`. Dropped when the question
    /// is closed in another way.
    fn decides(&self, ask: &Ask, until: Instant) -> impl Future<Output = (DecidedBy, Decision)>;
}
