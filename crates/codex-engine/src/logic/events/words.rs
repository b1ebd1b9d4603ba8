//! Events of a session, each as one line for people.

use common::text::one_line;
use serde_json::{Map, Value};

use super::event::{Event, EventType};
use crate::logic::progress::without_shell;

/// The longest line, in bytes.
const LONGEST: usize = 500;

impl Event {
    /// The line for this event; `None` if people need not see it. Hidden characters are made
    /// visible, as the text comes from the model or the repository.
    #[must_use]
    pub fn words(&self) -> Option<String> {
        // The whole text of a chunk comes when its step has ended.
        let data = &self.data.fixed()?;
        let words = match self.data.kind() {
            EventType::Output => message(data)?,
            EventType::Progress => step(data)?,
            EventType::ApprovalRequest => question(data),
            EventType::ApprovalResult => answer(data),
            EventType::Result => ending(data),
            EventType::Error => format!("error: {}", error_in(data)),
        };
        Some(one_line(&words, LONGEST))
    }
}

fn text<'a>(data: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    data.get(key).and_then(Value::as_str)
}

fn has_method(data: &Map<String, Value>, method: &str) -> bool {
    text(data, "method") == Some(method)
}

fn message(data: &Map<String, Value>) -> Option<String> {
    let item = data
        .get("item")
        .filter(|_| has_method(data, "item/completed"))?;
    item.get("text").and_then(Value::as_str).map(str::to_owned)
}

fn step(data: &Map<String, Value>) -> Option<String> {
    if has_method(data, "codex-mcp/steered") {
        return text(data, "message").map(|words| format!("steered: {words}"));
    }
    let is_step = has_method(data, "item/started") || has_method(data, "item/completed");
    let is_thought = data
        .get("item")
        .is_some_and(|item| item["type"] == "reasoning");
    let title = text(data, "title").filter(|_| is_step && !is_thought)?;
    Some(title.to_owned())
}

fn question(data: &Map<String, Value>) -> String {
    let id = text(data, "requestId").unwrap_or_default();
    let kind = text(data, "kind").unwrap_or_default();
    match text(data, "command") {
        Some(command) => format!("asks ({id}): {kind}: {}", without_shell(command)),
        None => format!("asks ({id}): {kind}"),
    }
}

fn answer(data: &Map<String, Value>) -> String {
    let id = text(data, "requestId").unwrap_or_default();
    format!("answered ({id}): {}", closing(data))
}

/// How a question was closed: the decision, who made it, and why.
pub(super) fn closing(data: &Map<String, Value>) -> String {
    let decision = text(data, "decision").unwrap_or_default();
    let why = text(data, "message").or_else(|| text(data, "denyMessage"));
    let (by, why) = match (text(data, "decidedBy"), why) {
        // The message is the agent.
        (Some("mail"), Some(agent)) => (format!(" (mail: {agent})"), None),
        (Some(by), why) => (format!(" ({by})"), why),
        (None, why) => (String::new(), why),
    };
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    format!("{decision}{by}{why}")
}

fn ending(data: &Map<String, Value>) -> String {
    let status = text(data, "status").unwrap_or("ended");
    match error_in(data) {
        "" => status.to_owned(),
        why => format!("{status}: {why}"),
    }
}

fn error_in(data: &Map<String, Value>) -> &str {
    let error = data.get("error");
    let nested = error.and_then(|error| error.get("message")?.as_str());
    let plain = || error.and_then(Value::as_str);
    let message = || text(data, "message");
    nested.or_else(plain).or_else(message).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use codex_protocol::codex::DeltaSource;
    use serde_json::json;

    use super::super::event::EventData;
    use super::*;

    fn words(kind: EventType, data: Value) -> Option<String> {
        let Value::Object(data) = data else {
            panic!("an object");
        };
        words_of(EventData::new(kind, data))
    }

    fn words_of(data: EventData) -> Option<String> {
        let at = SystemTime::UNIX_EPOCH;
        Event { id: 0, at, data }.words()
    }

    #[test]
    fn event_has_a_line_if_people_need_it() {
        use EventType::{ApprovalRequest, ApprovalResult, Error, Output, Progress, Result};
        let method = |name: &str| format!("item/{name}");
        for (kind, data, line) in [
            (
                Output,
                json!({ "method": method("completed"), "item": { "text": "Done.\u{1b}[2J\nNow." } }),
                Some("Done.\\u{1b}[2J Now."),
            ),
            (
                Output,
                json!({ "method": method("started"), "title": "writing" }),
                None,
            ),
            (
                Progress,
                json!({ "method": method("started"), "title": "running ls" }),
                Some("running ls"),
            ),
            (
                Progress,
                json!({ "method": method("started"), "title": "thinking", "item": { "type": "reasoning" } }),
                None,
            ),
            (Progress, json!({ "method": "turn/started" }), None),
            (
                Progress,
                json!({ "method": "codex-mcp/steered", "message": "in\nGerman" }),
                Some("steered: in German"),
            ),
            (
                ApprovalRequest,
                json!({ "requestId": "r1", "kind": "command", "command": "/bin/bash -lc ls" }),
                Some("asks (r1): command: ls"),
            ),
            (
                ApprovalResult,
                json!({ "requestId": "r1", "decision": "decline", "denyMessage": "not yet" }),
                Some("answered (r1): decline: not yet"),
            ),
            (
                ApprovalResult,
                json!({ "requestId": "r1", "decision": "decline", "decidedBy": "page",
                    "denyMessage": "not yet" }),
                Some("answered (r1): decline (page): not yet"),
            ),
            (
                ApprovalResult,
                json!({ "requestId": "r1", "decision": "accept", "decidedBy": "mail",
                    "denyMessage": "lead@builders" }),
                Some("answered (r1): accept (mail: lead@builders)"),
            ),
            (Result, json!({ "status": "completed" }), Some("completed")),
            (
                Result,
                json!({ "status": "failed", "error": { "message": "no" } }),
                Some("failed: no"),
            ),
            (Error, json!({ "message": "gone" }), Some("error: gone")),
        ] {
            let shown = data.to_string();
            assert_eq!(words(kind, data).as_deref(), line, "{shown}");
        }
        let chunk = EventData::text(DeltaSource::AgentMessage, "t", "i", "Do");
        assert_eq!(words_of(chunk), None);
    }
}
