//! The current step of a job, derived from its events.

use super::event::{WorkEvent, WorkItem};
use crate::logic::describe::line;
use crate::logic::progress::{Activity, THINKING, without_shell};

/// Applies an event that arrived at this time.
pub fn take<T: Copy>(activity: &mut Activity<T>, event: &WorkEvent, at: T) {
    match event {
        WorkEvent::ThreadStarted { .. } => activity.turn_begins(at),
        WorkEvent::TurnStarted => activity.resume(at),
        WorkEvent::ItemStarted { item } => {
            if let Some((id, words)) = step(item) {
                activity.begin(id, words, at);
            }
        }
        WorkEvent::ItemCompleted { item } => {
            if let Some((id, _)) = step(item) {
                activity.end(id, at);
            }
        }
        WorkEvent::Error { message } => activity.report(line(message), at),
        WorkEvent::ItemUpdated { .. }
        | WorkEvent::TurnCompleted { .. }
        | WorkEvent::TurnFailed { .. }
        | WorkEvent::Other => {}
    }
}

/// The ID of a step, and its description.
fn step(item: &WorkItem) -> Option<(&str, String)> {
    let (id, words) = match item {
        WorkItem::CommandExecution { id, command, .. } => {
            (id.as_str(), format!("running {}", without_shell(command)))
        }
        WorkItem::FileChange { id, changes, .. } => {
            let paths: Vec<&str> = changes.iter().map(|change| &*change.path).collect();
            (id.as_str(), format!("editing {}", paths.join(", ")))
        }
        WorkItem::McpToolCall {
            id, server, tool, ..
        } => (id.as_str(), format!("calling {server}.{tool}")),
        WorkItem::DynamicToolCall { id, tool, .. } => (id.as_str(), format!("calling {tool}")),
        WorkItem::WebSearch { id, query } => {
            (id.as_str(), format!("searching the web for {query}"))
        }
        // Messages and reasoning are reported only when they are complete.
        WorkItem::AgentMessage { .. } | WorkItem::Reasoning { .. } => ("", THINKING.to_owned()),
        WorkItem::TodoList { .. } | WorkItem::Error { .. } | WorkItem::Other => return None,
    };
    Some((id, line(&words)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(value: Value) -> WorkEvent {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn current_step_is_the_newest_that_has_not_ended() {
        let mut activity = Activity::new(0);
        let command = |id: &str, command: &str| json!({ "type": "command_execution", "id": id, "command": command });
        let events = [
            (json!({ "type": "turn.started" }), "thinking"),
            (
                json!({ "type": "item.started", "item": command("1", "bash -lc 'make \u{1b}x'") }),
                "running make \\u{1b}x",
            ),
            (
                json!({ "type": "item.started", "item": command("2", "ls") }),
                "running ls",
            ),
            (
                json!({ "type": "item.completed", "item": command("2", "ls") }),
                "running make \\u{1b}x",
            ),
            (
                json!({ "type": "item.completed", "item": command("1", "") }),
                "thinking",
            ),
            (
                json!({ "type": "error", "message": "Reconnecting... 2/5" }),
                "Reconnecting... 2/5",
            ),
        ];
        for (at, (value, words)) in (1..).zip(events) {
            take(&mut activity, &event(value), at);
            assert_eq!(activity.words(), words);
        }
        assert_eq!((activity.number(), activity.since()), (3, 6));
    }
}
