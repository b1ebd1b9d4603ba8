//! The steps of a turn.

use serde::{Deserialize, Serialize};

/// A step of a turn, as far as codex-mcp tells it on.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Item {
    /// Codex says something.
    AgentMessage {
        /// Its name.
        id: String,
        /// The whole text, when completed.
        #[serde(default)]
        text: String,
    },
    /// Codex runs a command.
    #[serde(rename_all = "camelCase")]
    CommandExecution {
        /// Its name.
        #[serde(default)]
        id: String,
        /// The command line.
        #[serde(default)]
        command: String,
        /// How far it has come.
        #[serde(default)]
        status: StepStatus,
        /// Its exit code, once it has one.
        #[serde(default)]
        exit_code: Option<i32>,
        /// What it wrote to stdout and stderr, when it has ended.
        #[serde(default)]
        aggregated_output: Option<String>,
    },
    /// Codex changes files.
    FileChange {
        /// Its name.
        #[serde(default)]
        id: String,
        /// Which ones.
        #[serde(default)]
        changes: Vec<FileChange>,
        /// How far it has come.
        #[serde(default)]
        status: StepStatus,
    },
    /// Codex calls a tool of an MCP server.
    McpToolCall {
        /// Its name.
        #[serde(default)]
        id: String,
        /// The server.
        #[serde(default)]
        server: String,
        /// The tool.
        #[serde(default)]
        tool: String,
        /// How far it has come.
        #[serde(default)]
        status: StepStatus,
        /// What went wrong.
        #[serde(default)]
        error: Option<StepError>,
    },
    /// Codex calls a tool of the client's.
    #[serde(rename_all = "camelCase")]
    DynamicToolCall {
        /// Its name.
        #[serde(default)]
        id: String,
        /// The tool.
        #[serde(default)]
        tool: String,
        /// How far it has come.
        #[serde(default)]
        status: StepStatus,
        /// What the client has answered.
        #[serde(default)]
        content_items: Option<Vec<ToolText>>,
    },
    /// Codex searches the web.
    WebSearch {
        /// Its name.
        #[serde(default)]
        id: String,
        /// For what.
        #[serde(default)]
        query: String,
    },
    /// Codex has to do with other agents, which it may have begun itself.
    CollabAgentToolCall {
        /// Their threads.
        #[serde(default, rename = "receiverThreadIds")]
        children: Vec<String>,
    },
    /// Codex thinks.
    Reasoning,
    /// What the user has said.
    UserMessage,
    /// Anything else.
    #[serde(other)]
    Other,
}

/// How far a step has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StepStatus {
    /// It is done.
    Completed,
    /// It went wrong.
    Failed,
    /// It was not allowed.
    Declined,
    /// It is under way, or a value of a newer Codex.
    #[default]
    #[serde(other)]
    InProgress,
}

/// Why a step went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StepError {
    /// In words.
    #[serde(default)]
    pub message: String,
}

/// A part of the answer to a call: its words, if it has some.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ToolText {
    /// The words.
    #[serde(default)]
    pub text: Option<String>,
}

/// A file that Codex changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// Where it is.
    #[serde(default)]
    pub path: String,
    /// What becomes of it.
    #[serde(default)]
    pub kind: FileChangeKind,
    /// The new contents of a file that is added, the old ones of a file that is
    /// deleted, a unified diff for any other.
    #[serde(default)]
    pub diff: String,
}

/// What becomes of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum FileChangeKind {
    /// It is new.
    Add,
    /// It goes.
    Delete,
    /// It changes.
    Update {
        /// Its new name, if it gets one.
        #[serde(default)]
        move_path: Option<String>,
    },
    /// A value of a newer Codex.
    #[default]
    #[serde(other)]
    Unknown,
}
