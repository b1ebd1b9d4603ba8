//! What goes into the router and comes out of it.

use std::time::Duration;

use codex_protocol::rpc::RequestId;
use serde_json::Value;
use serde_json::value::RawValue;

use super::calls::Call;

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A call of one of Codex's tools.
    pub call: Duration,
    /// A question of Codex's, until it is declined.
    pub approval: Duration,
    /// Any other request to the child.
    pub request: Duration,
}

/// What a router knows from the start.
#[derive(Debug)]
pub struct Setup {
    /// How long things may take.
    pub limits: Limits,
    /// The child's version, if it is known before the child tells it.
    pub version: Option<String>,
    /// `serverInfo` in the answer to `initialize`.
    pub server_info: Value,
    /// The child's tools as they are known, each as JSON.
    pub known_tools: Vec<Box<RawValue>>,
    /// Our own tools, each as JSON, by name.
    pub own_tools: Vec<(String, Box<RawValue>)>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send these bytes, a message without its line end, to the client.
    ToClient(Vec<u8>),
    /// Send these bytes to the child.
    ToChild(Vec<u8>),
    /// Answer a request of the client's.
    Answer {
        /// Its id.
        id: RequestId,
        /// How.
        answer: Answer,
    },
    /// Run a tool of our own, and answer with what comes of it.
    Own {
        /// The id of the request.
        id: RequestId,
        /// The tool.
        name: String,
        /// What it is given.
        arguments: Value,
    },
}

/// An answer of our own to a request that was for the child.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A result that is complete as it is.
    Result(Value),
    /// A call of a tool came to nothing.
    Failed {
        /// What is known of it.
        call: Call,
        /// Why.
        why: Failure,
    },
    /// A call of a tool comes back early: the child asked what nobody can answer.
    /// It was declined.
    Declined {
        /// What is known of the call.
        call: Call,
        /// The child's question, as it asked it.
        question: Value,
    },
    /// Another request came to nothing.
    Error {
        /// What was asked for.
        method: String,
        /// Why.
        why: Failure,
    },
    /// The child doesn't know the method, and doesn't say so.
    UnknownMethod {
        /// What was asked for.
        method: String,
    },
    /// The id can't be used: that of another request, or one of ours.
    IdInUse,
    /// The id can't be used: the child still knows it as that of a call which nobody
    /// waits for.
    IdSpent,
    /// There are too many open requests.
    TooMany,
}

/// Why a request came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It took too long.
    TimedOut,
    /// The child has not even begun to answer.
    NotStarted,
    /// Its turn was ended before it was done.
    Interrupted,
    /// A turn of its thread goes on that nobody waits for.
    Busy,
    /// The child would answer with what came of an earlier prompt.
    OutOfStep,
    /// The child went away; how.
    Gone(String),
    /// The child does not read what it is sent.
    NotReading,
    /// The child's answer can't be read; why.
    Unreadable(String),
    /// The child's answer is too long; in words.
    TooLong(String),
    /// The program ends.
    ShuttingDown,
}

/// How the child stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Child {
    /// It has not answered yet.
    Starting,
    /// It serves.
    Ready {
        /// Its version.
        version: Option<String>,
    },
    /// It has gone; how.
    Gone(String),
}

/// What has passed, for those who ask.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages of the client.
    pub from_client: u64,
    /// Messages of the child.
    pub from_child: u64,
    /// Calls of Codex's tools.
    pub calls: u64,
    /// Those that have no answer yet.
    pub in_flight: usize,
    /// Threads with a turn that is under way.
    pub active_threads: usize,
    /// Questions of the child's that have no answer yet.
    pub questions: usize,
}

/// Whether there is room for more that waits for the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// There is.
    Some,
    /// It reads too little, or nothing.
    None,
}
