//! Who keeps a record of what threads are given and of what comes of it.

use std::path::Path;

use codex_protocol::codex::{Keeping, ThreadId};

use super::command::{Settings, Start, TurnRef};
use crate::logic::session::{ClosedQuestion, Outcome};

/// Something that is given to a thread.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    /// The turn that it begins or adds to.
    pub turn: &'a TurnRef,
    /// The thread.
    pub thread: &'a ThreadId,
    /// In what way.
    pub kind: Kind,
    /// The directory that it works in.
    pub cwd: Option<&'a Path>,
    /// Whether Codex writes the thread down.
    pub keeping: Keeping,
    /// The words.
    pub text: &'a str,
}

/// How something is given to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// As the first prompt of a thread.
    First,
    /// As a later one.
    Reply,
    /// Into the turn that runs.
    Steer,
    /// As our own last question.
    Farewell,
}

/// Something that is done to a thread and is no prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act<'a> {
    /// A new thread was begun from where it stands; its name.
    Forked(&'a ThreadId),
    /// Its turn is to be interrupted.
    Interrupted,
    /// Its session is ended; why.
    Cancelled(&'a str),
}

/// Hears of what the engine does for others. Nothing in it may wait for long: the
/// engine waits for it.
pub trait EngineObserver: Send + Sync {
    /// A thread can be prompted from now on; how it was begun or taken up.
    fn opened(&self, thread: &ThreadId, start: &Start) {
        let _ = (thread, start);
    }

    /// Codex is about to be given something.
    fn giving(&self, given: Given<'_>) {
        let _ = given;
    }

    /// Something was done to a thread.
    fn acted(&self, thread: &ThreadId, act: Act<'_>) {
        let _ = (thread, act);
    }

    /// Questions of Codex's about a thread are closed.
    fn closed(&self, thread: &ThreadId, questions: &[ClosedQuestion]) {
        let _ = (thread, questions);
    }

    /// A turn is over.
    fn ended(&self, turn: &TurnRef, thread: &ThreadId, outcome: &Outcome) {
        let _ = (turn, thread, outcome);
    }

    /// A thread was begun for nothing: nobody will take it up.
    fn discarded(&self, thread: &ThreadId) {
        let _ = thread;
    }

    /// How a thread was set that the engine does not know, because it is from before
    /// the program started.
    fn recall(&self, thread: &ThreadId) -> Option<Settings> {
        let _ = thread;
        None
    }
}

/// Keeps no record.
#[derive(Debug, Clone, Copy)]
pub struct Nobody;

impl EngineObserver for Nobody {}
