//! The callers of a run, and how each of them names an option.

use serde::{Deserialize, Serialize};

/// The name that the page has as a client of the tools.
pub const PAGE_CLIENT: &str = "codex-mcp page";

/// The caller of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Caller {
    /// A person or a script at a shell, who writes options.
    Shell,
    /// An MCP client, which writes parameters.
    #[default]
    Client,
    /// A person at the page, who fills in a form.
    Page,
}

impl Caller {
    /// The caller behind the MCP client of this name.
    #[must_use]
    pub fn of_client(name: Option<&str>) -> Self {
        match name {
            Some(PAGE_CLIENT) => Self::Page,
            _ => Self::Client,
        }
    }

    /// The option for a sandbox in which Codex can change files.
    pub(crate) fn workspace_write(self) -> &'static str {
        match self {
            Self::Shell => "--sandbox workspace-write",
            Self::Client => "`sandbox: \"workspace-write\"`",
            Self::Page => "the sandbox \"may write in the directory\"",
        }
    }

    /// The option for a separate worktree.
    pub(crate) fn worktree(self) -> &'static str {
        match self {
            Self::Shell => "--worktree",
            Self::Client => "`worktree: true`",
            // The form has no such field.
            Self::Page => "`codex-mcp run --worktree`",
        }
    }

    /// The option for a notifier.
    pub(crate) fn notify(self) -> &'static str {
        match self {
            Self::Shell => "--notify",
            Self::Client => "notify:",
            Self::Page => "the notifier",
        }
    }
}
