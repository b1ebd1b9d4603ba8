//! Summarises the events of a turn.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use codex_protocol::codex::{StepStatus, ThreadId};
use common::text::bounded;
use serde::{Deserialize, Serialize};

use super::event::{EditKind, TokensUsed, WorkEvent, WorkItem};
use super::failed_step::FailedStep;
use super::retention::{
    COMMAND_LIMIT, COMMANDS_LIMIT, ERROR_LIMIT, FAILED_LIMIT, FILES_LIMIT, MESSAGE_LIMIT,
    OPEN_LIMIT, OUTPUT_LIMIT, PATH_LIMIT, WARNINGS_LIMIT,
};

/// The summary of a turn so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Digest {
    /// The ID of the thread.
    pub session: Option<ThreadId>,
    /// Codex's last message; the answer, once the turn is completed.
    pub message: Option<String>,
    /// The tokens used by the thread, over all its turns.
    pub usage: Option<TokensUsed>,
    /// The first commands that Codex ran, see [`COMMANDS_LIMIT`].
    pub commands: Vec<Command>,
    /// The files that Codex says it changed, by their absolute paths.
    pub files: BTreeMap<String, EditKind>,
    /// The numbers of executed steps.
    pub evidence: Evidence,
    /// The first steps that failed or were refused, see [`FAILED_LIMIT`].
    pub failed_steps: Vec<FailedStep>,
    /// How many further steps failed or were refused.
    pub more_failed_steps: u64,
    /// The failure of the last command that has ended, if it failed.
    pub last_command_failure: Option<FailedStep>,
    /// Codex's first warnings.
    pub warnings: Vec<String>,
    /// Codex's last error, unless a step followed: Codex may retry as long as it is
    /// allowed to.
    pub last_error: Option<String>,
    /// The running steps.
    open: BTreeSet<String>,
    /// The indexes of the running commands in `commands`.
    places: BTreeMap<String, usize>,
}

/// A command that Codex ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The command line.
    pub command: String,
    /// The beginning of its output to stdout and stderr.
    pub output: String,
    /// Its exit code; `None` if it never ended, or was not allowed.
    pub exit_code: Option<i32>,
    /// Its status.
    pub status: StepStatus,
}

/// How many steps Codex executed, by kind, regardless of its messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Commands that were begun.
    pub commands: u64,
    /// Steps that were not allowed: commands, changes or calls.
    pub declined: u64,
    /// Changes of files by Codex's own tool, each of one or more files.
    pub file_changes: u64,
    /// Calls of tools, of MCP servers and of ours.
    pub tool_calls: u64,
    /// Calls that failed, or that the server refused.
    #[serde(default)]
    pub failed_calls: u64,
    /// Searches of the web.
    pub searches: u64,
}

impl Evidence {
    /// How many steps were executed: all steps that were allowed, except failed calls of
    /// tools. A failed command was run; a refused call did nothing.
    #[must_use]
    pub fn executed(&self) -> u64 {
        let started = self.commands + self.file_changes + self.tool_calls + self.searches;
        started
            .saturating_sub(self.declined)
            .saturating_sub(self.failed_calls)
    }
}

impl AddAssign for Evidence {
    fn add_assign(&mut self, more: Self) {
        self.commands += more.commands;
        self.declined += more.declined;
        self.file_changes += more.file_changes;
        self.tool_calls += more.tool_calls;
        self.failed_calls += more.failed_calls;
        self.searches += more.searches;
    }
}

impl Digest {
    /// Adds the next event.
    pub fn take(&mut self, event: &WorkEvent) {
        match event {
            WorkEvent::Error { message } => self.last_error = Some(bounded(message, ERROR_LIMIT)),
            WorkEvent::ItemStarted { .. } | WorkEvent::ItemCompleted { .. } => {
                self.last_error = None;
            }
            _ => {}
        }
        match event {
            WorkEvent::ThreadStarted { thread_id } => self.session = Some(thread_id.clone()),
            WorkEvent::ItemStarted { item } => self.item_started(item),
            WorkEvent::ItemCompleted { item } => self.item_completed(item),
            WorkEvent::TurnCompleted { usage } => self.usage = Some(*usage),
            WorkEvent::TurnStarted
            | WorkEvent::ItemUpdated { .. }
            | WorkEvent::TurnFailed { .. }
            | WorkEvent::Error { .. }
            | WorkEvent::Other => {}
        }
    }

    fn item_started(&mut self, item: &WorkItem) {
        let Some(id) = counted(item) else { return };
        if self.open.len() >= OPEN_LIMIT || !self.open.insert(id.to_owned()) {
            return;
        }
        self.count(item);
        if let Some(command) = as_command(item)
            && self.commands.len() < COMMANDS_LIMIT
        {
            self.places.insert(id.to_owned(), self.commands.len());
            self.commands.push(command);
        }
    }

    fn item_completed(&mut self, item: &WorkItem) {
        match item {
            WorkItem::AgentMessage { text } => self.message = Some(bounded(text, MESSAGE_LIMIT)),
            WorkItem::Error { message } if self.warnings.len() < WARNINGS_LIMIT => {
                self.warnings.push(bounded(message, ERROR_LIMIT));
            }
            WorkItem::FileChange {
                changes,
                status: StepStatus::Completed,
                ..
            } => {
                for change in changes {
                    let path = bounded(&change.path, PATH_LIMIT);
                    if self.files.len() < FILES_LIMIT || self.files.contains_key(&path) {
                        self.files.insert(path, change.kind);
                    }
                }
            }
            _ => {}
        }
        let Some(id) = counted(item) else { return };
        if !self.open.remove(id) {
            self.count(item);
        }
        self.keep_command(id, item);
        self.keep_failure(item);
        match (status(item), item) {
            (Some(StepStatus::Declined), _) => self.evidence.declined += 1,
            (
                Some(StepStatus::Failed),
                WorkItem::McpToolCall { .. } | WorkItem::DynamicToolCall { .. },
            ) => {
                self.evidence.failed_calls += 1;
            }
            _ => {}
        }
    }

    fn keep_failure(&mut self, item: &WorkItem) {
        let failure = FailedStep::of(item);
        if matches!(item, WorkItem::CommandExecution { .. }) {
            self.last_command_failure = failure.clone();
        }
        if let Some(failure) = failure {
            self.add_failure(failure);
        }
    }

    /// Keeps a failure, within the limit.
    pub fn add_failure(&mut self, failure: FailedStep) {
        match self.failed_steps.len() < FAILED_LIMIT {
            true => self.failed_steps.push(failure),
            false => self.more_failed_steps += 1,
        }
    }

    fn keep_command(&mut self, id: &str, item: &WorkItem) {
        let Some(command) = as_command(item) else {
            return;
        };
        let place = self.places.remove(id);
        let has_room = self.commands.len() < COMMANDS_LIMIT;
        match place.and_then(|place| self.commands.get_mut(place)) {
            Some(kept) => *kept = command,
            None if has_room => self.commands.push(command),
            None => {}
        }
    }

    fn count(&mut self, item: &WorkItem) {
        let counter = match item {
            WorkItem::CommandExecution { .. } => &mut self.evidence.commands,
            WorkItem::FileChange { .. } => &mut self.evidence.file_changes,
            WorkItem::McpToolCall { .. } | WorkItem::DynamicToolCall { .. } => {
                &mut self.evidence.tool_calls
            }
            WorkItem::WebSearch { .. } => &mut self.evidence.searches,
            _ => return,
        };
        *counter += 1;
    }
}

/// The ID of a step that is evidence of work.
fn counted(item: &WorkItem) -> Option<&str> {
    match item {
        WorkItem::CommandExecution { id, .. }
        | WorkItem::FileChange { id, .. }
        | WorkItem::McpToolCall { id, .. }
        | WorkItem::DynamicToolCall { id, .. }
        | WorkItem::WebSearch { id, .. } => Some(id),
        _ => None,
    }
}

fn status(item: &WorkItem) -> Option<StepStatus> {
    match item {
        WorkItem::CommandExecution { status, .. }
        | WorkItem::FileChange { status, .. }
        | WorkItem::McpToolCall { status, .. }
        | WorkItem::DynamicToolCall { status, .. } => Some(*status),
        _ => None,
    }
}

fn as_command(item: &WorkItem) -> Option<Command> {
    let WorkItem::CommandExecution {
        command,
        aggregated_output,
        exit_code,
        status,
        ..
    } = item
    else {
        return None;
    };
    Some(Command {
        command: bounded(command, COMMAND_LIMIT),
        output: bounded(aggregated_output, OUTPUT_LIMIT),
        exit_code: *exit_code,
        status: *status,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn digest(events: impl IntoIterator<Item = Value>) -> Digest {
        let mut digest = Digest::default();
        for event in events {
            digest.take(&serde_json::from_value(event).unwrap());
        }
        digest
    }

    fn command(state: &str, id: &str, output: &str, exit_code: Option<i32>) -> Value {
        json!({"type": format!("item.{state}"), "item": {
            "id": id, "type": "command_execution", "command": "make",
            "aggregated_output": output, "exit_code": exit_code, "status": state,
        }})
    }

    fn says(text: &str) -> Value {
        json!({"type": "item.completed", "item": {"type": "agent_message", "text": text}})
    }

    #[test]
    fn last_message_is_the_answer() {
        let digest = digest([
            json!({"type": "thread.started", "thread_id": "t"}),
            json!({"type": "turn.started"}),
            says("I will."),
            says("Done."),
            json!({"type": "turn.completed", "usage": {"input_tokens": 7}}),
        ]);
        assert_eq!(digest.message.as_deref(), Some("Done."));
        assert_eq!(digest.usage.unwrap().input_tokens, 7);
        assert_eq!(digest.session.unwrap().as_str(), "t");
        assert_eq!(digest.evidence, Evidence::default());
    }

    #[test]
    fn command_is_counted_once_and_kept_with_its_result() {
        let digest = digest([
            command("started", "1", "", None),
            command("started", "2", "", None),
            command("completed", "2", "two", Some(2)),
            command("completed", "3", "three", Some(3)),
        ]);
        assert_eq!(digest.evidence.commands, 3);
        let codes: Vec<Option<i32>> = digest.commands.iter().map(|kept| kept.exit_code).collect();
        assert_eq!(codes, [None, Some(2), Some(3)]);
        assert_eq!(digest.commands[1].output, "two");
    }

    #[test]
    fn failed_commands_are_kept_and_the_last_one_counts() {
        let failing = |id: &str| command("completed", id, "no rule", Some(2));
        let mut taken = digest([failing("1"), command("completed", "2", "", Some(0))]);
        assert_eq!(taken.failed_steps.len(), 1);
        assert_eq!(taken.last_command_failure, None);
        for number in 0..=FAILED_LIMIT {
            let event = serde_json::from_value(failing(&number.to_string())).unwrap();
            taken.take(&event);
        }
        assert_eq!(taken.failed_steps.len(), FAILED_LIMIT);
        assert_eq!(taken.more_failed_steps, 2);
        assert_eq!(taken.last_command_failure.unwrap().exit_code, Some(2));
    }

    #[test]
    fn only_completed_changes_list_their_files() {
        let change = |path: &str, status: &str| {
            json!({"type": "item.completed", "item": {"id": path, "type": "file_change",
                "changes": [{"path": path, "kind": "add"}], "status": status}})
        };
        let digest = digest([
            change("/a", "completed"),
            change("/b", "failed"),
            change("/c", "declined"),
        ]);
        assert_eq!(digest.files.keys().collect::<Vec<_>>(), ["/a"]);
        assert_eq!(digest.evidence.file_changes, 3);
        assert_eq!(digest.evidence.declined, 1);
    }

    #[test]
    fn failed_call_does_not_count_as_executed() {
        let call = |id: &str, status: &str| {
            json!({"type": "item.completed", "item": {"id": id, "type": "mcp_tool_call",
                "server": "s", "tool": "t", "status": status}})
        };
        let failed = digest([call("1", "failed"), command("completed", "2", "", Some(1))]);
        assert_eq!(failed.evidence.executed(), 1);
        let done = digest([call("1", "failed"), call("2", "completed")]).evidence;
        assert_eq!((done.tool_calls, done.failed_calls), (2, 1));
        assert_eq!(done.executed(), 1);
    }

    #[test]
    fn digest_is_bounded() {
        let long = "ß".repeat(MESSAGE_LIMIT);
        let started = (0..2000).map(|number| command("started", &number.to_string(), "", None));
        let completed =
            (0..2000).map(|number| command("completed", "x", &number.to_string(), Some(0)));
        let warned = (0..2000).map(|_| {
            json!({"type": "item.completed", "item": {"type": "error", "message": long[..20000]}})
        });
        let changed = (0..2000).map(|number| {
            json!({"type": "item.completed", "item": {"type": "file_change", "status": "completed",
                "changes": [{"path": number.to_string()}]}})
        });
        let digest = digest(
            started
                .chain(completed)
                .chain(warned)
                .chain(changed)
                .chain([says(&long), command("completed", "y", &long, None)]),
        );
        assert_eq!(digest.commands.len(), COMMANDS_LIMIT);
        assert_eq!(digest.warnings.len(), WARNINGS_LIMIT);
        assert_eq!(digest.files.len(), FILES_LIMIT);
        assert!(digest.open.len() <= OPEN_LIMIT);
        assert!(digest.failed_steps.len() <= FAILED_LIMIT);
        let message = digest.message.unwrap();
        assert!(message.len() < MESSAGE_LIMIT + 100);
        assert!(message.ends_with("cut here]"));
    }
}
