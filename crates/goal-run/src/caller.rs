//! The callers of a run, and how each of them names an option.

use serde::{Deserialize, Serialize};

/// The caller of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Caller {
    /// A person or a script at a shell, who writes options.
    Shell,
    /// An MCP client, which writes parameters.
    #[default]
    Client,
}

impl Caller {
    /// The option for a sandbox in which Codex can change files.
    pub(crate) fn workspace_write(self) -> &'static str {
        match self {
            Self::Shell => "--sandbox workspace-write",
            Self::Client => "`sandbox: \"workspace-write\"`",
        }
    }

    /// The option for a separate worktree.
    pub(crate) fn worktree(self) -> &'static str {
        match self {
            Self::Shell => "--worktree",
            Self::Client => "`worktree: true`",
        }
    }

    /// The option for a notifier.
    pub(crate) fn notify(self) -> &'static str {
        match self {
            Self::Shell => "--notify",
            Self::Client => "notify:",
        }
    }
}
