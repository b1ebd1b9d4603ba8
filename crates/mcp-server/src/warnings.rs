//! Warnings for the caller: settings that were left out, and servers that were not started.
//!
//! The first result that can carry a warning does so; `codex_status` always lists all.

use std::sync::{Arc, Mutex};

use common::sync::lock;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value};

/// The most warnings that are kept; later ones are dropped.
const MAX_WARNINGS: usize = 50;

/// The key of the warnings in a result.
const KEY: &str = "warnings";

/// Warnings of a server. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Warnings(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    all: Vec<String>,
    /// The number of warnings that a result has carried.
    carried: usize,
}

impl Warnings {
    /// Adds a warning, unless it is there already.
    pub fn push(&self, warning: impl Into<String>) {
        let warning = warning.into();
        let mut state = lock(&self.0);
        if state.all.len() < MAX_WARNINGS && !state.all.contains(&warning) {
            state.all.push(warning);
        }
    }

    /// All warnings, the oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        lock(&self.0).all.clone()
    }

    /// Takes the warnings that no result has carried yet.
    fn take_new(&self) -> Vec<String> {
        let mut state = lock(&self.0);
        let new = state.all.iter().skip(state.carried).cloned().collect();
        state.carried = state.all.len();
        new
    }

    /// Adds the new warnings to a result, and the warning of `once` to the first result that can
    /// carry one. They are added to the object of the result, and to the text that repeats the
    /// object. Errors, and results without an object, carry no warnings.
    pub fn attach(&self, result: &mut CallToolResult, once: impl FnOnce() -> Option<String>) {
        let Some(Value::Object(object)) = &mut result.structured_content else {
            return;
        };
        if result.is_error == Some(true) {
            return;
        }
        let mut new = self.take_new();
        new.extend(once());
        if new.is_empty() {
            return;
        }
        add(object, &new);
        let texts = result.content.iter_mut().rev();
        for block in texts {
            let Some(text) = block.as_text() else {
                continue;
            };
            if let Ok(mut object) = serde_json::from_str::<Map<String, Value>>(&text.text) {
                add(&mut object, &new);
                *block = ContentBlock::text(Value::Object(object).to_string());
                return;
            }
        }
    }
}

fn add(object: &mut Map<String, Value>, new: &[String]) {
    let warnings = object
        .entry(KEY)
        .or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(warnings) = warnings {
        warnings.extend(new.iter().cloned().map(Value::from));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(object: Value) -> CallToolResult {
        let texts = ["words".to_owned(), object.to_string()];
        let mut result = CallToolResult::success(texts.map(ContentBlock::text).to_vec());
        result.structured_content = Some(object);
        result
    }

    #[test]
    fn first_result_carries_each_warning_once() {
        let warnings = Warnings::default();
        warnings.push("one");
        warnings.push("one");
        let mut first = result(json!({ "a": 1, "warnings": ["own"] }));
        warnings.attach(&mut first, || None);
        let expected = json!({ "a": 1, "warnings": ["own", "one"] });
        assert_eq!(first.structured_content, Some(expected.clone()));
        let text = first.content.last().unwrap().as_text().unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text.text).unwrap(), expected);
        warnings.push("other");
        let mut second = result(json!({}));
        warnings.attach(&mut second, || None);
        assert_eq!(
            second.structured_content,
            Some(json!({ "warnings": ["other"] }))
        );
        let mut third = result(json!({}));
        warnings.attach(&mut third, || None);
        assert_eq!(third.structured_content, Some(json!({})));
        assert_eq!(warnings.all(), ["one", "other"]);
    }

    #[test]
    fn warning_for_one_result_waits_for_one_that_can_carry_it() {
        let warnings = Warnings::default();
        let mut error = result(json!({}));
        error.is_error = Some(true);
        warnings.attach(&mut error, || unreachable!());
        let mut next = result(json!({}));
        warnings.attach(&mut next, || Some("once".to_owned()));
        let expected = json!({ "warnings": ["once"] });
        assert_eq!(next.structured_content, Some(expected));
        assert_eq!(warnings.all(), [""; 0]);
    }

    #[test]
    fn error_leaves_warnings_for_the_next_result() {
        let warnings = Warnings::default();
        warnings.push("one");
        let mut error = result(json!({}));
        error.is_error = Some(true);
        warnings.attach(&mut error, || None);
        let mut next = result(json!({}));
        warnings.attach(&mut next, || None);
        assert_eq!(
            next.structured_content,
            Some(json!({ "warnings": ["one"] }))
        );
    }
}
