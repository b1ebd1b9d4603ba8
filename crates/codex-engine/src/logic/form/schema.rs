//! The fields in the JSON Schema of an MCP server's form.
//!
//! MCP allows objects of texts, numbers, booleans and choices, without nesting: `enum` with
//! `enumNames` (2025-06-18), `oneOf` and lists of choices (2025-11-25).

use common::text::one_line;
use serde_json::Value;

use super::{Field, FieldKind, FieldOption, LABEL, PRESET};

pub(super) fn fields(schema: &Value) -> Vec<Field> {
    let required = list(schema.get("required"));
    let is_required = |id: &str| required.iter().any(|name| name == id);
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.into_iter().flatten();
    let fields = properties.map(|(id, property)| field(id, property, is_required(id)));
    fields.collect()
}

fn field(id: &str, schema: &Value, required: bool) -> Field {
    let secret = text(schema, "format") == Some("password")
        || schema.get("writeOnly") == Some(&Value::Bool(true));
    let preset = schema.get("default").and_then(preset);
    let field = Field {
        label: label(id, schema),
        required,
        secret,
        preset: preset.filter(|preset| !secret && preset.len() <= PRESET),
        ..Field::named(id)
    };
    let of_kind = |kind| Field {
        kind,
        ..field.clone()
    };
    match text(schema, "type") {
        Some("boolean") => of_kind(FieldKind::Boolean),
        Some("integer") => of_kind(FieldKind::Integer),
        Some("number") => of_kind(FieldKind::Number),
        Some("array") => {
            let options = schema.get("items").map(options).unwrap_or_default();
            // If the options are left out, typed text still becomes a list.
            let open = of_kind(FieldKind::Choices);
            open.with_options(options, FieldKind::Choices, false)
        }
        _ => field.with_options(options(schema), FieldKind::Choice, false),
    }
}

fn label(id: &str, schema: &Value) -> String {
    let title = text(schema, "title").unwrap_or(id);
    let label = match text(schema, "description") {
        Some(description) => format!("{title}: {description}"),
        None => title.to_owned(),
    };
    one_line(&label, LABEL)
}

fn options(schema: &Value) -> Vec<FieldOption> {
    let titled = ["oneOf", "anyOf"];
    let titled = titled.into_iter().flat_map(|key| list(schema.get(key)));
    let titled = titled.filter_map(|one| {
        let value = text(one, "const")?;
        Some(FieldOption::new(value, text(one, "title").unwrap_or(value)))
    });
    let names = list(schema.get("enumNames"));
    let plain = list(schema.get("enum")).iter().enumerate();
    let plain = plain.filter_map(|(number, value)| {
        let value = value.as_str()?;
        let name = names.get(number).and_then(Value::as_str);
        Some(FieldOption::new(value, name.unwrap_or(value)))
    });
    titled.chain(plain).collect()
}

fn preset(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Array(values) => {
            let texts: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
            Some(texts.join(", "))
        }
        Value::Null | Value::Object(_) => None,
    }
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str().filter(|text| !text.is_empty())
}

fn list(value: Option<&Value>) -> &[Value] {
    value
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}
