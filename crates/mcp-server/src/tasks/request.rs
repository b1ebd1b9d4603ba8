//! Requests between servers and hosts about the tasks of sessions.

use futures::future::BoxFuture;
use rmcp::ErrorData;
use rmcp::model::{DetailedTask, InputResponses};
use serde::{Deserialize, Serialize};

/// A client's request about a task, for the host of the task.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskRequest {
    /// The ID of the task.
    pub task: String,
    /// What to do.
    pub act: TaskAct,
}

/// An act on a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TaskAct {
    /// Return its state.
    Get,
    /// Answer its questions.
    Answer {
        /// The answers, by the IDs of the questions.
        responses: InputResponses,
        /// The setting that keeps commands in the sandbox when this client answers.
        bound: Option<String>,
    },
    /// End it.
    Cancel,
}

/// The answer of a host about a task.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TaskAnswer {
    /// The state of the task.
    State(Box<DetailedTask>),
    /// The act is done.
    Done,
    /// The act failed.
    Failed(ErrorData),
}

/// The outcome of asking another host about a task.
#[derive(Debug)]
pub enum AskedHost {
    /// It has answered.
    Answered(TaskAnswer),
    /// The host does not listen: it is starting or ending, or was killed. The next host with the
    /// same key can still continue its turns.
    Absent,
    /// The host does not run, and has left no turns to continue.
    Gone,
}

/// Asks another host about a task, by the key of the host.
pub type OtherHosts =
    dyn Fn(String, TaskRequest) -> BoxFuture<'static, Result<AskedHost, String>> + Send + Sync;

impl TaskAnswer {
    /// The answer to a request that cannot be followed.
    #[must_use]
    pub fn failed(why: String) -> Self {
        Self::Failed(ErrorData::invalid_params(why, None))
    }
}

impl From<DetailedTask> for TaskAnswer {
    fn from(task: DetailedTask) -> Self {
        Self::State(Box::new(task))
    }
}
