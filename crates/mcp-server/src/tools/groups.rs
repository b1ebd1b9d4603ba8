//! Groups of tools (`--tools`): fewer tools take less of a client's context.

use super::Name;
use super::jobs::JobTool;

/// A group of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Group {
    /// codex, codex-reply (or codex_reply), codex_session and codex_check.
    Sessions,
    /// call_codex, call_status, call_jobs, call_cancel and call_respond.
    Jobs,
    /// codex_run, call_status and call_cancel for what it begins, and codex_review.
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
    /// These; all of them if there is none.
    #[must_use]
    pub fn of(chosen: Vec<Group>) -> Self {
        use Group::{Jobs, Runs, Sessions, Team};
        match chosen.is_empty() {
            true => Self(vec![Sessions, Jobs, Runs, Team]),
            false => Self(chosen),
        }
    }

    /// Whether this one is among them.
    #[must_use]
    pub fn has(&self, group: Group) -> bool {
        self.0.contains(&group)
    }

    /// Whether a tool is in one of them.
    pub fn have(&self, tool: Name) -> bool {
        let of_tool: &[Group] = match tool {
            Name::Status => return true,
            Name::Codex
            | Name::CodexReply
            | Name::StartSession
            | Name::ReplyToSession
            | Name::Session
            | Name::Check => &[Group::Sessions],
            Name::Job(JobTool::Codex | JobTool::Jobs | JobTool::Respond) => &[Group::Jobs],
            Name::Job(JobTool::Status | JobTool::Cancel) => &[Group::Jobs, Group::Runs],
            Name::Review | Name::Job(JobTool::Run) => &[Group::Runs],
            Name::Team(_) => &[Group::Team],
        };
        of_tool.iter().any(|group| self.has(*group))
    }
}
