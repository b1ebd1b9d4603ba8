//! The callers of a run, and how each of them writes what it asks for.

/// The caller of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Caller {
    /// A person or a script at a shell, who writes options.
    Shell,
    /// An MCP client, which writes parameters.
    #[default]
    Client,
}

impl Caller {
    /// A sandbox in which Codex can change files.
    pub(crate) fn workspace_write(self) -> &'static str {
        match self {
            Self::Shell => "--sandbox workspace-write",
            Self::Client => "`sandbox: \"workspace-write\"`",
        }
    }

    /// A worktree of the run's own.
    pub(crate) fn worktree(self) -> &'static str {
        match self {
            Self::Shell => "--worktree",
            Self::Client => "`worktree: true`",
        }
    }

    /// Somebody to tell of the end.
    pub(crate) fn notify(self) -> &'static str {
        match self {
            Self::Shell => "--notify",
            Self::Client => "notify:",
        }
    }
}
