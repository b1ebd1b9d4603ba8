use serde::Deserialize;

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
    CommandExecution {
        /// The command line.
        #[serde(default)]
        command: String,
    },
    /// Codex changes files.
    FileChange {
        /// Which ones.
        #[serde(default)]
        changes: Vec<FileChange>,
    },
    /// Codex calls a tool of an MCP server.
    McpToolCall {
        /// The server.
        #[serde(default)]
        server: String,
        /// The tool.
        #[serde(default)]
        tool: String,
    },
    /// Codex searches the web.
    WebSearch {
        /// For what.
        #[serde(default)]
        query: String,
    },
    /// Codex thinks.
    Reasoning,
    /// Anything else.
    #[serde(other)]
    Other,
}

/// A file that Codex changes.
#[derive(Debug, Clone, Deserialize)]
pub struct FileChange {
    /// Where it is.
    #[serde(default)]
    pub path: String,
}
