//! The definitions of tools, with the schemas of their parameters and answers. The schemas are in
//! the context of every client's model, so they are short: the resource `config` describes the
//! parameters.
//!
//! The schema of a tool's parameters is that of the struct that they are parsed into. The
//! documentation of a field is what the model reads about the parameter.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool};
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
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

/// The schema of a string that is one of the words of `T`.
pub(super) struct OneOf<T>(PhantomData<T>);

impl<T: VariantNames> JsonSchema for OneOf<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "OneOf".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": T::VARIANTS })
    }
}

/// Gives a type the schema of the value that it is parsed from.
macro_rules! sent_as {
    ($sent:ty: $($own:ty),+) => { $(
        impl ::schemars::JsonSchema for $own {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                <$sent as ::schemars::JsonSchema>::schema_name()
            }

            fn json_schema(generator: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                <$sent as ::schemars::JsonSchema>::json_schema(generator)
            }
        }
    )+ };
}
pub(super) use sent_as;

/// The schema of a tool's parameters, which are parsed into a `T`.
pub(super) fn input<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let settings = settings.with_transform(RecursiveTransform(shorten));
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    let root = schema.ensure_object();
    root.remove("description");
    // Some clients refuse a tool without it.
    root.entry("properties").or_insert_with(|| json!({}));
    schema.to_value()
}

/// Removes the parts of a schema that take room in the list of tools without telling a model
/// anything: that an optional parameter may also be null, the sizes of numbers, and that further
/// parameters are refused.
fn shorten(schema: &mut Schema) {
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    for keyword in ["title", "format", "minimum", "additionalProperties"] {
        schema.remove(keyword);
    }
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
}

/// The schema of a tool's answer: members with their types. A member whose name ends with `?` is
/// not in every answer. Clients check errors against the schema too, so the schema also allows an
/// answer with `error` alone, and forbids no member. These alternatives take room in the client's
/// context; a tool can avoid them by marking all members with `?`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(VariantNames)]
    #[strum(serialize_all = "snake_case")]
    #[expect(dead_code, reason = "its words are read")]
    enum Colour {
        Red,
        DarkBlue,
    }

    /// Not shown.
    #[derive(JsonSchema)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    #[expect(dead_code, reason = "its schema is read")]
    struct Arguments {
        /// What to do.
        task: String,
        #[schemars(extend("default" = 3))]
        most_turns: Option<u64>,
        #[schemars(with = "Option<OneOf<Colour>>")]
        colour: Option<String>,
        names: Option<Vec<String>>,
        config: Option<Map<String, Value>>,
    }

    #[test]
    fn schema_is_that_of_the_struct_and_short() {
        let expected = json!({
            "type": "object",
            "properties": {
                "task": { "type": "string", "description": "What to do." },
                "mostTurns": { "type": "integer", "default": 3 },
                "colour": { "type": "string", "enum": ["red", "dark_blue"] },
                "names": { "type": "array", "items": { "type": "string" } },
                "config": { "type": "object" },
            },
            "required": ["task"],
        });
        assert_eq!(input::<Arguments>(), expected);
    }

    #[test]
    fn tool_without_parameters_has_properties() {
        #[derive(JsonSchema)]
        struct Nothing {}

        let expected = json!({ "type": "object", "properties": {} });
        assert_eq!(input::<Nothing>(), expected);
    }
}
