//! The observer of an engine, which records prompts and their outcomes.

use std::path::Path;

use codex_protocol::codex::{Persistence, ThreadId};
use futures::FutureExt;
use futures::future::{self, BoxFuture};

use super::command::{Settings, StartThread, TurnRef};
use crate::logic::session::{ClosedQuestion, TurnOutcome};

/// A prompt that is about to be sent to a thread.
#[derive(Debug, Clone, Copy)]
pub struct PromptRecord<'a> {
    /// The turn that it begins or adds to.
    pub turn: &'a TurnRef,
    /// The thread.
    pub thread: &'a ThreadId,
    /// The kind of input.
    pub kind: InputKind,
    /// The thread's working directory.
    pub cwd: Option<&'a Path>,
    /// Whether Codex writes the thread to a rollout.
    pub persistence: Persistence,
    /// The prompt's text.
    pub text: &'a str,
    /// The user's task in it, if the prompt is built around one.
    pub task: Option<&'a str>,
}

/// The kind of input to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputKind {
    /// The first prompt of a thread.
    First,
    /// A later prompt.
    Reply,
    /// An addition to the running turn.
    Steer,
    /// Our own question for a summary at shutdown.
    ShutdownSummary,
}

/// An action on a thread other than a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act<'a> {
    /// It was forked; the new thread's ID.
    Forked(&'a ThreadId),
    /// Its turn is being interrupted.
    Interrupted,
    /// Its session was cancelled; the reason.
    Cancelled(&'a str),
}

/// Receives the engine's actions. Its methods must not block for long: the engine waits for them.
pub trait EngineObserver: Send + Sync {
    /// A thread was opened by this request, and can be prompted from now on.
    fn opened(&self, thread: &ThreadId, start: &StartThread) {
        let _ = (thread, start);
    }

    /// A prompt is about to be sent to Codex.
    fn prompting(&self, given: PromptRecord<'_>) {
        let _ = given;
    }

    /// The session of a thread, which an earlier host had, is that of this client again.
    fn taken_back(&self, thread: &ThreadId) {
        let _ = thread;
    }

    /// A turn that an earlier host has begun continues in this one, which reports its end.
    fn continued(&self, turn: &TurnRef, thread: &ThreadId) {
        let _ = (turn, thread);
    }

    /// An action on a thread took place.
    fn acted(&self, thread: &ThreadId, act: Act<'_>) {
        let _ = (thread, act);
    }

    /// Questions of Codex's about a thread are closed.
    fn closed(&self, thread: &ThreadId, questions: &[ClosedQuestion]) {
        let _ = (thread, questions);
    }

    /// A turn has ended.
    fn ended(&self, turn: &TurnRef, thread: &ThreadId, outcome: &TurnOutcome) {
        let _ = (turn, thread, outcome);
    }

    /// A turn is over without an outcome: Codex has refused its prompt, or the prompt was withdrawn.
    fn refused(&self, turn: &TurnRef, thread: &ThreadId) {
        let _ = (turn, thread);
    }

    /// A thread was not used, and will not be resumed.
    fn discarded(&self, thread: &ThreadId) {
        let _ = thread;
    }

    /// The recorded settings of a thread that the engine does not know because it was last used
    /// before the program started.
    fn recall(&self, thread: &ThreadId) -> Option<Settings> {
        let _ = thread;
        None
    }

    /// Waits until everything that was received is written.
    fn flush(&self) -> BoxFuture<'_, ()> {
        future::ready(()).boxed()
    }
}

/// The observer that records nothing.
#[derive(Debug, Clone, Copy)]
pub struct NoObserver;

impl EngineObserver for NoObserver {}
