//! The notes that the router leaves for the recorder.

use codex_protocol::rpc::RequestId;

/// Something that happened to a call or a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A call of one of Codex's tools is about to go to the child.
    CallForwarded {
        /// Its id.
        call: RequestId,
        /// The tool.
        tool: String,
        /// The thread that it names.
        thread: Option<String>,
        /// The prompt.
        prompt: String,
    },
    /// The thread that a call has begun has become known.
    ThreadStarted {
        /// The id of the call.
        call: RequestId,
        /// The thread.
        thread: String,
    },
    /// A call is over, or the client no longer waits for it.
    CallEnded {
        /// Its id.
        call: RequestId,
        /// Its thread, if that is known.
        thread: Option<String>,
        /// The outcome.
        outcome: CallOutcome,
    },
    /// The client has cancelled a call of one of our own tools.
    OwnCallCancelled,
    /// A thread is about to be asked for a summary.
    SummaryRequested {
        /// The thread.
        thread: String,
    },
    /// A request for a summary has ended.
    SummaryReceived {
        /// The thread.
        thread: String,
        /// Its summary, if it gave one.
        text: Option<String>,
    },
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    /// The child answered it.
    Answered,
    /// The child answered with an error, or can't answer.
    Failed,
    /// The call timed out.
    TimedOut,
    /// The call was cancelled, or returned early.
    Abandoned,
}
