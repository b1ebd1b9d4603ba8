//! Events of a job, each as one line for people.

use codex_engine::logic::progress::without_shell;
use codex_engine::logic::work::event::{EditKind, EditedFile, Todo, WorkEvent, WorkItem};
use codex_protocol::codex::StepStatus;
use common::text::one_line;
use serde_json::Value;

use crate::store::StoredEvent;

/// The longest line, in bytes.
const LONGEST: usize = 500;

/// The line for an event; `None` if people need not see it.
#[must_use]
pub fn line(event: &StoredEvent) -> Option<String> {
    let words = match serde_json::from_str::<WorkEvent>(&event.data) {
        Ok(known) => known_event(known)?,
        // An event of our own.
        Err(_) => match event.kind.as_str() {
            "codex-mcp/attempt" => "[its worker or Codex was lost, and it is run again]".to_owned(),
            "codex-mcp/cut" => "[there was more than is kept]".to_owned(),
            "codex-mcp/unreadable" => "[an event that cannot be read]".to_owned(),
            "codex-mcp/dropped" => format!("[{} events are missing here]", dropped(&event.data)),
            kind => run_event(&event.data).unwrap_or_else(|| format!("[{kind}]")),
        },
    };
    Some(one_line(&words, LONGEST))
}

/// Events of a run are stored with their text.
fn run_event(data: &str) -> Option<String> {
    let value: Value = serde_json::from_str(data).ok()?;
    let words = value.get("words")?.as_str()?;
    Some(words.to_owned())
}

fn dropped(data: &str) -> u64 {
    let value: Value = serde_json::from_str(data).unwrap_or_default();
    value
        .get("dropped")
        .and_then(Value::as_u64)
        .unwrap_or_default()
}

fn known_event(event: WorkEvent) -> Option<String> {
    Some(match event {
        WorkEvent::ThreadStarted { thread_id } => format!("thread {thread_id}"),
        WorkEvent::ItemStarted { item } => started(item)?,
        WorkEvent::ItemUpdated {
            item: WorkItem::TodoList { items },
        } => plan(&items),
        WorkEvent::ItemCompleted { item } => completed(item)?,
        WorkEvent::TurnCompleted { usage } => format!(
            "done; {} tokens read, {} written",
            usage.input_tokens, usage.output_tokens
        ),
        WorkEvent::TurnFailed { error } => format!("failed: {}", error.message),
        WorkEvent::Error { message } => format!("error: {message}"),
        WorkEvent::TurnStarted | WorkEvent::ItemUpdated { .. } | WorkEvent::Other => return None,
    })
}

fn started(item: WorkItem) -> Option<String> {
    Some(match item {
        WorkItem::CommandExecution { command, .. } => format!("$ {}", without_shell(&command)),
        WorkItem::McpToolCall { server, tool, .. } => format!("calls {server}.{tool}"),
        WorkItem::DynamicToolCall { tool, .. } => format!("calls {tool}"),
        WorkItem::TodoList { items } => plan(&items),
        _ => return None,
    })
}

fn completed(item: WorkItem) -> Option<String> {
    Some(match item {
        WorkItem::AgentMessage { text } => text,
        WorkItem::CommandExecution {
            command,
            exit_code,
            status,
            ..
        } => match (status, exit_code) {
            (StepStatus::Declined, _) => format!("not allowed: {}", without_shell(&command)),
            (_, Some(code)) => format!("exit code {code}: {}", without_shell(&command)),
            (_, None) => format!("never ended: {}", without_shell(&command)),
        },
        WorkItem::FileChange {
            changes, status, ..
        } => match status {
            StepStatus::Declined => format!("not allowed: {}", changed(&changes)),
            StepStatus::Failed => format!("not possible: {}", changed(&changes)),
            _ => changed(&changes),
        },
        WorkItem::McpToolCall {
            server,
            tool,
            status,
            ..
        } => match status {
            StepStatus::Declined => format!("not allowed: {server}.{tool}"),
            StepStatus::Failed => format!("{server}.{tool} has failed"),
            _ => format!("{server}.{tool} has answered"),
        },
        WorkItem::DynamicToolCall {
            tool,
            status,
            error,
            ..
        } => match status {
            StepStatus::Failed => format!("{tool} has failed: {error}"),
            _ => format!("{tool} has answered"),
        },
        WorkItem::WebSearch { query, .. } => format!("searched the web for {query}"),
        WorkItem::Reasoning { text } if !text.trim().is_empty() => format!("thinks: {text}"),
        WorkItem::Error { message } => format!("warning: {message}"),
        WorkItem::TodoList { .. } | WorkItem::Reasoning { .. } | WorkItem::Other => return None,
    })
}

fn changed(changes: &[EditedFile]) -> String {
    let word = |kind| match kind {
        EditKind::Add => "added",
        EditKind::Delete => "deleted",
        EditKind::Update => "edited",
    };
    let each = |change: &EditedFile| format!("{} {}", word(change.kind), change.path);
    let all: Vec<String> = changes.iter().map(each).collect();
    match all.is_empty() {
        true => "edited files".to_owned(),
        false => all.join(", "),
    }
}

fn plan(items: &[Todo]) -> String {
    let done = items.iter().filter(|item| item.completed).count();
    let next = items.iter().find(|item| !item.completed);
    match next {
        Some(next) => format!("plan: {done} of {} done, next {}", items.len(), next.text),
        None => format!("plan: all {} done", items.len()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use serde_json::json;

    use super::*;

    fn told(kind: &str, data: &Value) -> Option<String> {
        line(&StoredEvent {
            sequence: 1,
            at: UNIX_EPOCH,
            kind: kind.to_owned(),
            data: data.to_string(),
        })
    }

    fn item(state: &str, item: &Value) -> Option<String> {
        told(
            "item",
            &json!({"type": format!("item.{state}"), "item": item}),
        )
    }

    #[test]
    fn event_is_one_line() {
        let command = |code: Option<i32>, status: &str| {
            json!({"type": "command_execution", "id": "1", "command": "/bin/bash -lc 'make  test'",
                "exit_code": code, "status": status})
        };
        let plan = json!({"type": "todo_list", "items": [
            {"text": "a", "completed": true}, {"text": "b", "completed": false}]});
        let change = |status: &str| {
            json!({"type": "file_change", "status": status, "changes": [
                {"path": "/w/a", "kind": "add"}, {"path": "/w/b", "kind": "update"}]})
        };
        let call = |status: &str| json!({"type": "mcp_tool_call", "server": "s", "tool": "t", "status": status});
        for (state, given, expected) in [
            ("started", command(None, "in_progress"), "$ make test"),
            (
                "completed",
                command(Some(3), "failed"),
                "exit code 3: make test",
            ),
            (
                "completed",
                command(None, "declined"),
                "not allowed: make test",
            ),
            (
                "completed",
                command(None, "in_progress"),
                "never ended: make test",
            ),
            ("completed", change("completed"), "added /w/a, edited /w/b"),
            (
                "completed",
                change("failed"),
                "not possible: added /w/a, edited /w/b",
            ),
            ("updated", plan, "plan: 1 of 2 done, next b"),
            ("started", call("in_progress"), "calls s.t"),
            ("completed", call("completed"), "s.t has answered"),
            (
                "completed",
                json!({"type": "web_search", "query": "q"}),
                "searched the web for q",
            ),
            (
                "completed",
                json!({"type": "reasoning", "text": "**Hm**\n\nso"}),
                "thinks: **Hm** so",
            ),
            (
                "completed",
                json!({"type": "error", "message": "old"}),
                "warning: old",
            ),
            (
                "completed",
                json!({"type": "agent_message", "text": "a\n\u{1b}[2J\u{9b}b"}),
                "a \\u{1b}[2J\\u{9b}b",
            ),
        ] {
            assert_eq!(item(state, &given).as_deref(), Some(expected), "{given}");
        }
        assert_eq!(item("completed", &json!({"type": "dream"})), None);
        assert_eq!(item("completed", &json!({"type": "reasoning"})), None);
        assert_eq!(told("turn.started", &json!({"type": "turn.started"})), None);
        let long = item(
            "completed",
            &json!({"type": "agent_message", "text": "ß ".repeat(9999)}),
        );
        assert!(long.unwrap().len() <= LONGEST);
    }

    #[test]
    fn own_events_have_lines_too() {
        let dropped = told("codex-mcp/dropped", &json!({"dropped": 7}));
        assert_eq!(dropped.as_deref(), Some("[7 events are missing here]"));
        let again = told("codex-mcp/attempt", &json!({"attempt": 2}));
        assert_eq!(
            again.as_deref(),
            Some("[its worker or Codex was lost, and it is run again]")
        );
        let step = told("codex-mcp/step", &json!({"words": "make\ntest"}));
        assert_eq!(step.as_deref(), Some("make test"));
        let thread = told("x", &json!({"type": "thread.started", "thread_id": "0"}));
        assert_eq!(thread.as_deref(), Some("thread 0"));
        let unreadable = told("codex-mcp/unreadable", &json!({"unreadable": "data"}));
        assert_eq!(
            unreadable.as_deref(),
            Some("[an event that cannot be read]")
        );
        let cut = told("codex-mcp/cut", &json!({"most_events": 1}));
        assert_eq!(cut.as_deref(), Some("[there was more than is kept]"));
        assert_eq!(
            told("odd\u{1b}", &json!(7)).as_deref(),
            Some("[odd\\u{1b}]")
        );
    }
}
