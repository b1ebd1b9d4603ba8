//! The definitions of tools, with the schemas of their parameters and answers. The schemas are in
//! the context of every client's model, so they are short: the resource `config` describes the
//! parameters.

use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool};
use serde_json::{Map, Value, json};
use strum::VariantNames;

/// A tool whose schema is written as JSON.
pub fn tool(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    input: Value,
) -> Tool {
    Tool::new(name, description, object(input)).with_title(title)
}

/// An answer with an object, also as text for clients that read only text.
pub(crate) fn answer(object: Value) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(object.to_string())]);
    result.structured_content = Some(object);
    result
}

/// The members of an object; none for any other value.
pub fn object(value: Value) -> Arc<JsonObject> {
    match value {
        Value::Object(object) => Arc::new(object),
        _ => Arc::default(),
    }
}

/// A string that is one of the words of this type.
pub(super) fn one_of<T: VariantNames>() -> Value {
    json!({ "type": "string", "enum": T::VARIANTS })
}

/// A list of strings.
pub(super) fn texts() -> Value {
    json!({ "type": "array", "items": { "type": "string" } })
}

/// A schema with a description.
pub(super) fn about(mut schema: Value, words: &str) -> Value {
    if let Value::Object(schema) = &mut schema {
        schema.insert("description".to_owned(), words.into());
    }
    schema
}

/// A schema with a default value.
pub(super) fn or(mut schema: Value, default: impl Into<Value>) -> Value {
    if let Value::Object(schema) = &mut schema {
        schema.insert("default".to_owned(), default.into());
    }
    schema
}

/// A switch that is off by default. The schema does not state the default, to save room in the list
/// of tools.
pub(super) fn off() -> Value {
    json!({ "type": "boolean" })
}

/// The schema of a tool's parameters.
pub(super) fn input<const N: usize>(properties: Value, required: [&str; N]) -> Value {
    let mut input = json!({ "type": "object", "properties": properties });
    if let (Value::Object(input), 1..) = (&mut input, N) {
        input.insert("required".to_owned(), json!(required.as_slice()));
    }
    input
}

/// The schema of a tool's answer: members with their types. A member whose name ends with `?` is
/// not in every answer. Clients check errors against the schema too, so an answer may have `error`
/// alone, and no member is forbidden. These alternatives cost room in the client's context; tools
/// that need it more urgently avoid them by marking all members with `?`.
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
