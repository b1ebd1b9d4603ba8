//! What passes, for whoever keeps a record of it.

use codex_protocol::rpc::RequestId;

/// Something that has passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A call of one of Codex's tools is about to go to the child.
    Forwarded {
        /// Its id.
        call: RequestId,
        /// The tool.
        tool: String,
        /// The thread that it names.
        thread: Option<String>,
        /// What it is to do.
        prompt: String,
    },
    /// The child has told which thread a call has begun.
    Began {
        /// The id of the call.
        call: RequestId,
        /// The thread.
        thread: String,
    },
    /// A call is over, or nobody waits for it any more.
    Over {
        /// Its id.
        call: RequestId,
        /// Its thread, if that is known.
        thread: Option<String>,
        /// How.
        how: How,
    },
    /// A thread is about to be asked for a summary.
    Asked {
        /// The thread.
        thread: String,
    },
    /// What came of asking a thread for a summary.
    Summary {
        /// The thread.
        thread: String,
        /// Its summary, if it gave one.
        text: Option<String>,
    },
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// The child answered it.
    Answered,
    /// The child answered that it could not be done, or can't answer.
    Failed,
    /// It took too long.
    TimedOut,
    /// It was cancelled, or came back early.
    Left,
}
