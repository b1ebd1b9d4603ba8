//! Events of a run for its watcher.

use std::future::ready;
use std::path::Path;

use codex_engine::Grants;
use codex_engine::logic::action::{DecidedBy, Decision};
use codex_engine::logic::progress::CurrentStep;
use codex_protocol::codex::{Ask, SandboxMode, ThreadId};
use tokio::time::Instant;

use super::caller::Caller;
use super::record::RunRecord;
use crate::logic::findings::Verdict;
use crate::logic::machine::TurnPrompt;
use crate::logic::outcome::TurnRecord;

/// An event of a run.
#[derive(Debug, Clone, Copy)]
pub enum RunEvent<'a> {
    /// The run is about to begin.
    Begins {
        /// The top directory of the repository.
        top: &'a Path,
        /// The verdict at the start.
        verdict: &'a Verdict,
    },
    /// The conversation with Codex is open.
    Thread {
        /// Its thread.
        thread: &'a ThreadId,
        /// The sandbox of its commands, if Codex reports it.
        sandbox: Option<SandboxMode>,
        /// The permissions that Codex gets for the criteria, in `workspace-write`.
        grants: &'a Grants,
    },
    /// A warning for the user.
    Warning(&'a str),
    /// A turn begins.
    Turn(&'a TurnPrompt),
    /// Codex has reached another step. Its number is new, unless a step has ended and an earlier
    /// one continues.
    Step(&'a CurrentStep),
    /// How many tokens the run has used until now.
    Tokens(u64),
    /// The turn is interrupted.
    Interrupted,
    /// The turn has ended, and the repository is inspected.
    Looking,
    /// All other criteria hold, and another thread reviews the changes.
    Reviewing,
    /// A turn has ended and was judged.
    TurnEnded(&'a TurnRecord),
}

/// A person's consent to Codex writing in the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteConsent {
    /// Codex may write, in the sandbox `workspace-write`.
    Granted,
    /// Codex may not write, or nobody could be asked.
    Refused,
}

/// Watches a run, and answers Codex's questions.
pub trait Watcher {
    /// The caller of the run, for how messages name options.
    fn caller(&self) -> Caller {
        Caller::default()
    }

    /// Takes an event. Called often, so it must be quick.
    fn on_event(&self, event: RunEvent<'_>);

    /// Stores the record with which another process can continue the run, in place of the last one.
    /// Called before each prompt; `record` is `None` if the run cannot be continued.
    fn keep(&self, _record: impl FnOnce() -> Option<RunRecord>) -> impl Future<Output = ()> {
        ready(())
    }

    /// Asks whether a run that needs to write may use the sandbox `workspace-write`. Called where
    /// the sandbox is read-only without anybody having requested that.
    fn allows_writing(&self) -> impl Future<Output = WriteConsent>;

    /// Answers a question of Codex by `until`. The future is dropped when the question is
    /// closed in another way.
    fn decide(&self, ask: &Ask, until: Instant) -> impl Future<Output = (DecidedBy, Decision)>;
}
