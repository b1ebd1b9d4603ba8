//! The schema of a final message: a JSON Schema.
//!
//! Codex accepts any object as a schema and passes it to the model, which then fails. So the shapes
//! of keywords are checked here, for those keywords of the drafts 7 and 2020-12 that models heed;
//! unknown keywords pass. A full validator would add forty libraries for the same check.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::schema::sent_as;

/// A JSON Schema that is an object.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub(super) struct OutputSchema(pub(super) Map<String, Value>);

sent_as!(Map<String, Value>: OutputSchema);

impl TryFrom<Map<String, Value>> for OutputSchema {
    type Error = String;

    fn try_from(schema: Map<String, Value>) -> Result<Self, Self::Error> {
        let schema = Value::Object(schema);
        serde_path_to_error::deserialize::<_, Keywords>(&schema).map_err(|error| {
            let inner = error.inner();
            format!("is not a JSON Schema: {}: {inner}", error.path())
        })?;
        match schema {
            Value::Object(schema) => Ok(Self(schema)),
            _ => Err("is not a JSON Schema".to_owned()),
        }
    }
}

/// The keywords whose values have a shape of their own.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "reading it is the check")]
struct Keywords {
    #[serde(default, deserialize_with = "some")]
    r#type: Option<Types>,
    #[serde(default, deserialize_with = "some")]
    r#enum: Option<Vec<Value>>,
    #[serde(default, deserialize_with = "some")]
    required: Option<Vec<String>>,
    #[serde(default, deserialize_with = "some")]
    title: Option<String>,
    #[serde(default, deserialize_with = "some")]
    description: Option<String>,
    #[serde(default, deserialize_with = "some")]
    pattern: Option<String>,
    #[serde(default, deserialize_with = "some")]
    format: Option<String>,
    #[serde(rename = "$ref", default, deserialize_with = "some")]
    reference: Option<String>,
    #[serde(default, deserialize_with = "some")]
    minimum: Option<f64>,
    #[serde(default, deserialize_with = "some")]
    maximum: Option<f64>,
    #[serde(default, deserialize_with = "some")]
    multiple_of: Option<f64>,
    #[serde(default, deserialize_with = "some")]
    min_length: Option<u64>,
    #[serde(default, deserialize_with = "some")]
    max_length: Option<u64>,
    #[serde(default, deserialize_with = "some")]
    min_items: Option<u64>,
    #[serde(default, deserialize_with = "some")]
    max_items: Option<u64>,
    #[serde(default, deserialize_with = "some")]
    properties: Option<BTreeMap<String, Schema>>,
    #[serde(default, deserialize_with = "some")]
    pattern_properties: Option<BTreeMap<String, Schema>>,
    #[serde(default, deserialize_with = "some")]
    definitions: Option<BTreeMap<String, Schema>>,
    #[serde(rename = "$defs", default, deserialize_with = "some")]
    defs: Option<BTreeMap<String, Schema>>,
    #[serde(default, deserialize_with = "some")]
    additional_properties: Option<Box<Schema>>,
    #[serde(default, deserialize_with = "some")]
    items: Option<Box<Items>>,
    #[serde(default, deserialize_with = "some")]
    prefix_items: Option<Vec<Schema>>,
    #[serde(default, deserialize_with = "some")]
    any_of: Option<Vec<Schema>>,
    #[serde(default, deserialize_with = "some")]
    all_of: Option<Vec<Schema>>,
    #[serde(default, deserialize_with = "some")]
    one_of: Option<Vec<Schema>>,
    #[serde(default, deserialize_with = "some")]
    not: Option<Box<Schema>>,
}

/// Reads a keyword that is present: null is not a value.
fn some<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// A schema within another: one that accepts or refuses everything, or keywords.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a schema is an object or a boolean")]
#[expect(dead_code, reason = "reading it is the check")]
enum Schema {
    All(bool),
    Some(Box<Keywords>),
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "items are described by a schema, or a list of them"
)]
#[expect(dead_code, reason = "reading it is the check")]
enum Items {
    Alike(Schema),
    Each(Vec<Schema>),
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a type is one of null, boolean, object, array, number, integer and string, or a list of them"
)]
#[expect(dead_code, reason = "reading it is the check")]
enum Types {
    One(Type),
    Several(Vec<Type>),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Type {
    Null,
    Boolean,
    Object,
    Array,
    Number,
    Integer,
    String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> Result<OutputSchema, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn schemas_for_models_are_accepted() {
        for schema in [
            json!({}),
            json!({"type": "object", "properties": {"a": {"type": ["string", "null"]}},
                "required": ["a"], "additionalProperties": false}),
            json!({"anyOf": [{"$ref": "#/$defs/x"}, true], "$defs": {"x": {"enum": [1, "a"]}}}),
            json!({"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": 3}),
            json!({"x-unknown": 5, "const": null}),
        ] {
            assert!(read(schema.clone()).is_ok(), "{schema}");
        }
    }

    #[test]
    fn invalid_schema_is_refused_with_its_path() {
        for (schema, named) in [
            (json!({"type": 5}), "type: a type is one of"),
            (json!({"type": "text"}), "type: a type is one of"),
            (json!({"type": null}), "type: a type is one of"),
            (json!({"required": null}), "required: invalid type: null"),
            (json!({"properties": {"a": 1}}), "properties.a: a schema is"),
            (json!({"properties": ["a"]}), "properties: invalid type"),
            (json!({"required": "a"}), "required: invalid type"),
            (json!({"items": "a"}), "items: items are described"),
            (json!({"anyOf": {}}), "anyOf: invalid type"),
            (json!({"maxItems": -1}), "maxItems: invalid value"),
            (json!([]), "invalid type: sequence"),
        ] {
            let error = read(schema).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
