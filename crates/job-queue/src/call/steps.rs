//! The steps of a turn that were reported before. When a turn is continued, Codex repeats its steps.

use std::collections::HashSet;

use serde::Deserialize;

/// The reported steps of a turn.
#[derive(Debug, Default)]
pub(crate) struct KnownSteps(HashSet<String>);

impl KnownSteps {
    /// Adds the step of an event. Returns whether the event is about none, or about a new one.
    pub(crate) fn add(&mut self, event: &str) -> bool {
        step(event).is_none_or(|step| self.0.insert(step))
    }

    /// Whether the event is about one of these steps.
    pub(crate) fn contain(&self, event: &str) -> bool {
        !self.0.is_empty() && step(event).is_some_and(|step| self.0.contains(&step))
    }
}

/// The kind of an event and the ID of its step; the kind alone for the beginning and the end of a turn.
/// `None` for events that a turn may have several times.
fn step(event: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Event {
        r#type: String,
        item: Option<Item>,
    }
    #[derive(Deserialize)]
    struct Item {
        id: Option<String>,
    }
    let Event { r#type: kind, item } = serde_json::from_str(event).ok()?;
    match item {
        Some(item) => item.id.map(|id| format!("{kind} {id}")),
        None if kind.starts_with("turn.") || kind.starts_with("thread.") => Some(kind),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_known_by_their_kind_and_id() {
        let mut known = KnownSteps::default();
        let begun = r#"{"type":"item.started","item":{"id":"1","type":"command_execution"}}"#;
        let ended = r#"{"type":"item.completed","item":{"id":"1","type":"command_execution"}}"#;
        assert!(!known.contain(begun));
        assert!(known.add(begun) && !known.add(begun));
        assert!(known.contain(begun) && !known.contain(ended));
        assert!(known.add(r#"{"type":"turn.started"}"#));
        assert!(!known.add(r#"{"type":"turn.started"}"#));
    }

    #[test]
    fn warnings_and_errors_may_be_repeated() {
        let mut known = KnownSteps::default();
        for event in [
            r#"{"type":"error","message":"no network"}"#,
            r#"{"type":"item.completed","item":{"type":"error","message":"slow"}}"#,
            "not JSON",
        ] {
            assert!(known.add(event) && known.add(event), "{event}");
            assert!(!known.contain(event), "{event}");
        }
    }
}
