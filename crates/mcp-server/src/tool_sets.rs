//! The sets of served tools (`--api`, `--tools`). Fewer tools take less of a client's context.

/// The set of tools that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Api {
    /// `codex` and `codex-reply`, as `codex mcp-server` had them: a call waits
    /// for Codex's final message.
    Classic,
    /// `codex` and `codex_reply`, as the npm package @leo000001/codex-mcp has them: a call returns
    /// at once, and the work is polled.
    Sessions,
}

/// A group of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Group {
    /// codex, codex-reply (or codex_reply), codex_session and codex_check.
    Sessions,
    /// call_codex, call_status, call_jobs, call_cancel and call_respond.
    Jobs,
    /// codex_run, call_status and call_cancel for its runs, and codex_review.
    Runs,
    /// codex_threads, and the mail of the team.
    Team,
}

/// The groups that are served; `codex_status` is in each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups(Vec<Group>);

impl Default for Groups {
    fn default() -> Self {
        Self::of(Vec::new())
    }
}

impl Groups {
    /// The chosen groups, or all groups if none is chosen.
    #[must_use]
    pub fn of(chosen: Vec<Group>) -> Self {
        use Group::{Jobs, Runs, Sessions, Team};
        match chosen.is_empty() {
            true => Self(vec![Sessions, Jobs, Runs, Team]),
            false => Self(chosen),
        }
    }

    /// Whether a group is served.
    #[must_use]
    pub fn has(&self, group: Group) -> bool {
        self.0.contains(&group)
    }
}
