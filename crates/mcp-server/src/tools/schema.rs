//! Schemas of what tools take and answer. They are in the context of every client's
//! model, so they are short: what a parameter does stands in the resource `config`.

use std::sync::Arc;

use rmcp::model::JsonObject;
use serde_json::{Map, Value, json};

use super::definition::object;

/// A text that is one of these.
pub(super) fn one_of(values: &[&str]) -> Value {
    json!({ "type": "string", "enum": values })
}

/// What commands may touch.
pub(super) fn sandbox() -> Value {
    one_of(&["read-only", "workspace-write", "danger-full-access"])
}

/// When Codex asks. `on-failure` is one of old, and stands for `on-request`.
pub(super) fn approval_policy() -> Value {
    one_of(&["untrusted", "on-failure", "on-request", "never"])
}

/// How hard the model thinks.
pub(super) fn effort() -> Value {
    one_of(&["none", "minimal", "low", "medium", "high", "xhigh"])
}

/// Texts.
pub(super) fn texts() -> Value {
    json!({ "type": "array", "items": { "type": "string" } })
}

/// A schema with a few words about it.
pub(super) fn about(mut schema: Value, words: &str) -> Value {
    if let Value::Object(schema) = &mut schema {
        schema.insert("description".to_owned(), words.into());
    }
    schema
}

/// A schema with what holds where nothing is given.
pub(super) fn or(mut schema: Value, default: impl Into<Value>) -> Value {
    if let Value::Object(schema) = &mut schema {
        schema.insert("default".to_owned(), default.into());
    }
    schema
}

/// A switch that is off where nothing is given; that it is costs no room in the list of tools.
pub(super) fn off() -> Value {
    json!({ "type": "boolean" })
}

/// What a tool takes: these parameters.
pub(super) fn input<const N: usize>(properties: Value, required: [&str; N]) -> Value {
    let mut input = json!({ "type": "object", "properties": properties });
    if let (Value::Object(input), 1..) = (&mut input, N) {
        input.insert("required".to_owned(), json!(required.as_slice()));
    }
    input
}

/// What a tool answers: members with their types. One whose name ends with `?` is not in
/// every answer. Clients check errors against the schema too, so an error has only that
/// (and its `isError`), and no member is forbidden. The alternatives cost room in the
/// client's context; tools that need it more urgently leave them out by such names.
pub(super) fn output(members: Value) -> Arc<JsonObject> {
    let members = match members {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    let mut properties = Map::new();
    let mut always = Vec::new();
    for (name, of_type) in members {
        match name.strip_suffix('?') {
            Some(optional) => properties.insert(optional.to_owned(), json!({ "type": of_type })),
            None => {
                always.push(name.clone());
                properties.insert(name, json!({ "type": of_type }))
            }
        };
    }
    let mut output = json!({ "type": "object", "properties": properties });
    if let (Value::Object(output), false) = (&mut output, always.is_empty()) {
        let alternatives = json!([{ "required": always }, { "required": ["error"] }]);
        output.insert("anyOf".to_owned(), alternatives);
    }
    object(output)
}
