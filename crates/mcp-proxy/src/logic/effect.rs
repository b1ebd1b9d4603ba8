//! The input and the output of the router.

use std::time::Duration;

use codex_protocol::rpc::RequestId;
use serde_json::Value;
use serde_json::value::RawValue;

use super::calls::CallInfo;

/// The time-outs of the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouterTimeouts {
    /// A call of one of Codex's tools.
    pub call: Duration,
    /// The time that the client has to answer a question of Codex's before the question is
    /// declined.
    pub approval: Duration,
    /// Any other request to the child.
    pub request: Duration,
}

/// The configuration of a router.
#[derive(Debug)]
pub struct RouterConfig {
    /// The time-outs of the router.
    pub timeouts: RouterTimeouts,
    /// The version of the installed Codex, if it is known.
    pub version: Option<String>,
    /// `serverInfo` in the answer to `initialize`.
    pub server_info: Value,
    /// The tools that the child is assumed to have, each as JSON.
    pub known_tools: Vec<Box<RawValue>>,
    /// Our own tools, each as JSON, by name.
    pub own_tools: Vec<(String, Box<RawValue>)>,
}

/// An effect to perform.
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
        /// The answer.
        answer: Answer,
    },
    /// Run a tool of our own, and answer with its result.
    CallOwnTool {
        /// The id of the request.
        id: RequestId,
        /// The tool.
        name: String,
        /// The arguments.
        arguments: Value,
    },
}

/// The router's own answer to a request that was meant for the child.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A complete result.
    Result(Value),
    /// The call of a tool failed.
    Failed {
        /// Its thread and text.
        call: CallInfo,
        /// The reason.
        why: Failure,
    },
    /// The call of a tool returns early: the child asked a question that the client cannot answer,
    /// and the question was declined.
    Declined {
        /// The thread and text of the call.
        call: CallInfo,
        /// The parameters of the child's question.
        question: Value,
    },
    /// Another request failed.
    Error {
        /// The method of the request.
        method: String,
        /// The reason.
        why: Failure,
    },
    /// The child does not know the method, and does not answer it.
    UnknownMethod {
        /// The method of the request.
        method: String,
    },
    /// The ID is that of another open request, or one of our own.
    IdInUse,
    /// The ID is that of a call that no client waits for, but that the child still listens for or
    /// one of our tools still works on.
    IdSpent,
    /// There are too many open requests.
    TooMany,
}

/// The reason for which a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The request timed out.
    TimedOut,
    /// The child has not started in time.
    NotStarted,
    /// Its turn was interrupted.
    Interrupted,
    /// Another turn of its thread is running.
    Busy,
    /// The thread is out of step: the child would answer with the result of an earlier prompt.
    OutOfStep,
    /// The child is gone, for this reason.
    Gone(String),
    /// The child does not read its messages.
    NotReading,
    /// The child's answer can't be read, for this reason.
    Unreadable(String),
    /// The child's answer is too long, as this text says.
    TooLong(String),
    /// The program ends.
    ShuttingDown,
}

/// The state of the child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Child {
    /// The child has not answered yet.
    Starting,
    /// The child serves.
    Ready {
        /// Its version.
        version: Option<String>,
    },
    /// The child is gone, for this reason.
    Gone(String),
}

/// The counts of messages and calls that `codex_status` shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages of the client.
    pub from_client: u64,
    /// Messages of the child.
    pub from_child: u64,
    /// Calls of Codex's tools.
    pub calls: u64,
    /// Calls that have no answer yet.
    pub in_flight: usize,
    /// Threads with a turn that is under way.
    pub active_threads: usize,
    /// Questions of the child's that have no answer yet.
    pub questions: usize,
}

/// Whether the queue of messages for the child has room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildQueue {
    /// The queue has room.
    Open,
    /// The queue is full: the child reads too little, or nothing.
    Full,
}
