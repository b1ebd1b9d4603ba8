//! Steps of a turn that failed or were refused.

use codex_protocol::codex::StepStatus;
use common::text::bounded;
use serde::{Deserialize, Serialize};

use super::event::WorkItem;
use super::refusal::is_by_the_sandbox;
use super::retention::COMMAND_LIMIT;
use crate::logic::describe::line;

/// The tool that changes files.
pub(super) const PATCH: &str = "apply_patch";

/// A step that failed or was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedStep {
    /// The kind of step.
    pub kind: StepKind,
    /// The command line, the paths of the files, `SERVER.TOOL`, or the name of a tool of ours.
    pub what: String,
    /// How it failed.
    pub outcome: StepFailure,
    /// The exit code of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The line of its output that reports the error, or why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The kind of step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// A command.
    Command,
    /// A change of files by Codex's own tool.
    FileChange,
    /// A call of a tool, of an MCP server or of ours.
    ToolCall,
}

/// How a step failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepFailure {
    /// It failed by itself.
    Failed,
    /// Its output shows that the sandbox probably stopped it.
    Blocked,
    /// The sandbox or the approval policy did not let it begin.
    Refused,
}

impl FailedStep {
    /// The failure of a step that has ended; `None` if it succeeded or is no step.
    #[must_use]
    pub fn of(item: &WorkItem) -> Option<Self> {
        match item {
            WorkItem::CommandExecution {
                command,
                aggregated_output,
                exit_code,
                status,
                ..
            } => {
                let has_failed = exit_code.is_some_and(|code| code != 0);
                let outcome = match status {
                    StepStatus::Declined => StepFailure::Refused,
                    StepStatus::Failed => by_output(aggregated_output),
                    _ if has_failed => by_output(aggregated_output),
                    _ => return None,
                };
                Some(Self {
                    kind: StepKind::Command,
                    what: bounded(command, COMMAND_LIMIT),
                    outcome,
                    exit_code: *exit_code,
                    reason: error_line(aggregated_output),
                })
            }
            WorkItem::FileChange {
                changes,
                status,
                reason,
                ..
            } => {
                let paths: Vec<&str> = changes.iter().map(|change| &*change.path).collect();
                let what = match paths.as_slice() {
                    [] => PATCH.to_owned(),
                    paths => paths.join(", "),
                };
                Some(Self {
                    reason: last_line(reason),
                    ..Self::by_status(StepKind::FileChange, &what, *status)?
                })
            }
            WorkItem::McpToolCall {
                server,
                tool,
                status,
                ..
            } => Self::by_status(StepKind::ToolCall, &format!("{server}.{tool}"), *status),
            WorkItem::DynamicToolCall {
                tool,
                status,
                error,
                ..
            } => Some(Self {
                reason: last_line(error),
                ..Self::by_status(StepKind::ToolCall, tool, *status)?
            }),
            _ => None,
        }
    }

    fn by_status(kind: StepKind, what: &str, status: StepStatus) -> Option<Self> {
        let outcome = match status {
            StepStatus::Failed => StepFailure::Failed,
            StepStatus::Declined => StepFailure::Refused,
            StepStatus::Completed | StepStatus::InProgress => return None,
        };
        Some(Self {
            kind,
            what: bounded(what, COMMAND_LIMIT),
            outcome,
            exit_code: None,
            reason: None,
        })
    }
}

fn by_output(output: &str) -> StepFailure {
    match is_by_the_sandbox(output) {
        true => StepFailure::Blocked,
        false => StepFailure::Failed,
    }
}

/// The line of a command's output that reports the error: the first that git and other programs
/// mark as one, as advice may follow it, or else the last.
fn error_line(output: &str) -> Option<String> {
    let is_error = |text: &&str| text.starts_with("fatal:") || text.starts_with("error:");
    let marked = output.lines().find(is_error);
    marked.map(line).or_else(|| last_line(output))
}

/// The last line of an output: programs report the error last.
fn last_line(output: &str) -> Option<String> {
    let last = output.lines().rev().find(|text| !text.trim().is_empty());
    last.map(line)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(item: Value) -> Option<FailedStep> {
        FailedStep::of(&serde_json::from_value(item).unwrap())
    }

    fn command(exit_code: Option<i32>, status: &str, output: &str) -> Value {
        json!({ "type": "command_execution", "id": "1", "command": "make",
            "exit_code": exit_code, "status": status, "aggregated_output": output })
    }

    #[test]
    fn command_is_failed_blocked_or_refused() {
        assert_eq!(of(command(Some(0), "completed", "Permission denied")), None);
        assert_eq!(of(command(None, "in_progress", "")), None);
        let failed = of(command(Some(2), "failed", "warning\nno rule\n\n")).unwrap();
        assert_eq!(failed.outcome, StepFailure::Failed);
        assert_eq!(failed.reason.as_deref(), Some("no rule"));
        assert_eq!(
            serde_json::to_value(&failed).unwrap(),
            json!({ "kind": "command", "what": "make", "outcome": "failed", "exit_code": 2,
                "reason": "no rule" })
        );
        let blocked = of(command(Some(1), "failed", "x: Read-only file system\n")).unwrap();
        assert_eq!(blocked.outcome, StepFailure::Blocked);
        let refused = of(command(None, "declined", "")).unwrap();
        assert_eq!(refused.outcome, StepFailure::Refused);
        assert_eq!(refused.reason, None);
    }

    #[test]
    fn marked_error_is_the_reason_rather_than_the_advice_after_it() {
        let reason = |output: &str| of(command(Some(128), "failed", output)).unwrap().reason;
        let no_remote = "Checking.\nfatal: 'origin' does not appear to be a git repository\n\
                         fatal: Could not read from remote repository.\n\n\
                         Please make sure you have the correct access rights\n\
                         and the repository exists.\n";
        assert_eq!(
            reason(no_remote).as_deref(),
            Some("fatal: 'origin' does not appear to be a git repository")
        );
        let rejected = "error: failed to push some refs\nhint: Updates were rejected\n";
        assert_eq!(
            reason(rejected).as_deref(),
            Some("error: failed to push some refs")
        );
        assert_eq!(
            reason("no error: fine\n3 failed\n").as_deref(),
            Some("3 failed")
        );
    }

    #[test]
    fn changes_and_calls_fail_by_their_status() {
        let change = |status: &str| {
            json!({ "type": "file_change", "id": "1", "status": status,
                "changes": [{ "path": "/a" }, { "path": "/b" }] })
        };
        assert_eq!(of(change("completed")), None);
        let declined = of(change("declined")).unwrap();
        assert_eq!(
            (declined.kind, &*declined.what),
            (StepKind::FileChange, "/a, /b")
        );
        assert_eq!(declined.outcome, StepFailure::Refused);
        let call = json!({ "type": "mcp_tool_call", "id": "1", "server": "s", "tool": "t",
            "status": "failed" });
        assert_eq!(of(call).unwrap().what, "s.t");
    }
}
