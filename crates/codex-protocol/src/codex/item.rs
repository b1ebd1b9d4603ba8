//! The steps of a turn.

use serde::{Deserialize, Serialize};

/// A step of a turn, with the fields that codex-mcp uses.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Item {
    /// A message of Codex.
    AgentMessage {
        /// Its ID.
        id: String,
        /// The whole text, when completed.
        #[serde(default)]
        text: String,
    },
    /// Codex runs a command.
    #[serde(rename_all = "camelCase")]
    CommandExecution {
        /// Its ID.
        #[serde(default)]
        id: String,
        /// The command line.
        #[serde(default)]
        command: String,
        /// Its status.
        #[serde(default)]
        status: StepStatus,
        /// Its exit code, once it has one.
        #[serde(default)]
        exit_code: Option<i32>,
        /// Its output to stdout and stderr, when it has ended.
        #[serde(default)]
        aggregated_output: Option<String>,
    },
    /// Codex changes files.
    FileChange {
        /// Its ID.
        #[serde(default)]
        id: String,
        /// The changes.
        #[serde(default)]
        changes: Vec<FileChange>,
        /// Its status.
        #[serde(default)]
        status: StepStatus,
    },
    /// Codex calls a tool of an MCP server.
    McpToolCall {
        /// Its ID.
        #[serde(default)]
        id: String,
        /// The server.
        #[serde(default)]
        server: String,
        /// The tool.
        #[serde(default)]
        tool: String,
        /// Its status.
        #[serde(default)]
        status: StepStatus,
        /// The error of a failed call.
        #[serde(default)]
        error: Option<StepError>,
    },
    /// Codex calls a tool of the client's.
    #[serde(rename_all = "camelCase")]
    DynamicToolCall {
        /// Its ID.
        #[serde(default)]
        id: String,
        /// The tool.
        #[serde(default)]
        tool: String,
        /// Its status.
        #[serde(default)]
        status: StepStatus,
        /// The client's answer.
        #[serde(default)]
        content_items: Option<Vec<ToolText>>,
    },
    /// Codex searches the web.
    WebSearch {
        /// Its ID.
        #[serde(default)]
        id: String,
        /// The query.
        #[serde(default)]
        query: String,
    },
    /// Codex works with other agents, which it may have started.
    CollabAgentToolCall {
        /// Their threads.
        #[serde(default, rename = "receiverThreadIds")]
        children: Vec<String>,
    },
    /// Codex summarises the thread to make room in the context window.
    ContextCompaction,
    /// Codex's reasoning.
    Reasoning,
    /// A message of the user.
    UserMessage,
    /// Anything else.
    #[serde(other)]
    Other,
}

/// How far a step has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StepStatus {
    /// It completed.
    Completed,
    /// It failed.
    Failed,
    /// It was not allowed to run.
    Declined,
    /// It is running, or has a status of a newer Codex.
    #[default]
    #[serde(other)]
    InProgress,
}

/// Why a step failed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StepError {
    /// The message.
    #[serde(default)]
    pub message: String,
}

/// A part of the answer to a call, with its text if it has one.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ToolText {
    /// The text.
    #[serde(default)]
    pub text: Option<String>,
}

/// A file that Codex changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// Its path.
    #[serde(default)]
    pub path: String,
    /// The kind of change.
    #[serde(default)]
    pub kind: FileChangeKind,
    /// The new contents of a file that is added, the old ones of a file that is
    /// deleted, a unified diff for any other.
    #[serde(default)]
    pub diff: String,
}

/// The kind of change of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum FileChangeKind {
    /// The file is added.
    Add,
    /// The file is deleted.
    Delete,
    /// The file is changed or moved.
    Update {
        /// Its new path, if it is moved.
        #[serde(default)]
        move_path: Option<String>,
    },
    /// A value of a newer Codex.
    #[default]
    #[serde(other)]
    Unknown,
}
