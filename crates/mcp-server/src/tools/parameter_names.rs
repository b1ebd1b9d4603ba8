//! Names of parameters: other spellings, synonyms, and typing errors.
//!
//! The tools come from programs with conventions of their own. A parameter is accepted in any
//! spelling (`waitMs`, `wait_ms`, `wait-ms`) and under any word of its row in [`SYNONYMS`].

use common::nearest::{folded, nearest};
use common::text::one_line;
use rmcp::model::JsonObject;
use serde::de::value::Error;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};

use crate::code::Code;
use crate::error::ToolError;

/// Synonyms in the names of parameters, folded. If a tool has several of them, the first one is
/// meant.
const SYNONYMS: [&[&str]; 4] = [
    &["threadid", "sessionid", "conversationid", "resumesessionid"],
    &["cwd", "repo"],
    &["prompt", "task"],
    &["tag", "taskname"],
];

/// The longest part of an unknown name that an error repeats, in bytes.
const SHOWN: usize = 100;

/// The arguments of a tool, each by the name that `T` has for it. Names that `T` doesn't
/// know in any form stay as they are.
///
/// # Errors
///
/// When a parameter is given twice under different names, with different values.
pub(super) fn resolved<'de, T: Deserialize<'de>>(
    given: JsonObject,
) -> Result<JsonObject, ToolError> {
    let known = fields_of::<T>();
    let (mut resolved, others): (JsonObject, JsonObject) = given
        .into_iter()
        .partition(|(name, _)| known.contains(&name.as_str()));
    for (alias, value) in others {
        let Some(name) = resolve_alias(&alias, known) else {
            resolved.insert(alias, value);
            continue;
        };
        let present = resolved.get(name).filter(|present| !present.is_null());
        match present {
            Some(present) if *present != value && !value.is_null() => {
                let message = format!("`{alias}` is another name of `{name}`, and they differ");
                return Err(ToolError::new(Code::InvalidArgument, message));
            }
            Some(_) => {}
            None => {
                resolved.insert(name.to_owned(), value);
            }
        }
    }
    Ok(resolved)
}

/// The parameter that another name means.
fn resolve_alias(alias: &str, known: &[&'static str]) -> Option<&'static str> {
    let alias = folded(alias);
    let with_name = |folded_name: &str| {
        known
            .iter()
            .copied()
            .find(|name| folded(name) == folded_name)
    };
    let synonyms = || {
        let row = SYNONYMS.iter().find(|row| row.contains(&alias.as_str()));
        row?.iter().find_map(|word| with_name(word))
    };
    with_name(&alias).or_else(synonyms)
}

/// The error text for an unknown parameter.
pub(super) fn unknown(name: &str, within: Option<&str>, known: &[&str]) -> String {
    let shown = one_line(name, SHOWN);
    let within = within.map(|object| format!(" in `{object}`"));
    let within = within.unwrap_or_default();
    let advice = match nearest(name, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "this takes none".to_owned(),
        None => format!("there are {}", known.join(", ")),
    };
    format!("unknown parameter `{shown}`{within}; {advice}")
}

/// The names of the fields of a struct.
fn fields_of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    // The deserializer never returns a value.
    let _: Result<T, Error> = T::deserialize(Fields(&mut fields));
    fields
}

/// A deserializer that records the fields of the struct.
struct Fields<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(Error::custom("only structs have fields"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(Error::custom("only its fields are wanted"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        option unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier
        ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[expect(dead_code, reason = "its fields are read")]
    struct Arguments {
        thread_id: String,
        session_id: String,
        cwd: String,
        #[serde(rename = "wait-ms")]
        wait: u64,
    }

    fn read(given: Value) -> Result<Value, String> {
        let resolved = resolved::<Arguments>(given.as_object().unwrap().clone());
        resolved
            .map(Value::Object)
            .map_err(|error| error.message().to_owned())
    }

    #[test]
    fn spellings_and_synonyms_name_the_same_parameter() {
        for (given, expected) in [
            (json!({ "thread_id": 1 }), json!({ "threadId": 1 })),
            (json!({ "conversationId": 1 }), json!({ "threadId": 1 })),
            (json!({ "session-id": 1 }), json!({ "sessionId": 1 })),
            (
                json!({ "repo": 1, "waitMs": 2 }),
                json!({ "cwd": 1, "wait-ms": 2 }),
            ),
            (json!({ "cwd": 1, "repo": 1 }), json!({ "cwd": 1 })),
            (json!({ "cwd": null, "repo": 1 }), json!({ "cwd": 1 })),
            (json!({ "cwd": 1, "repo": null }), json!({ "cwd": 1 })),
            (json!({ "made_up": 1 }), json!({ "made_up": 1 })),
        ] {
            assert_eq!(read(given.clone()), Ok(expected), "{given}");
        }
    }

    #[test]
    fn conflicting_values_of_one_parameter_are_refused() {
        let error = read(json!({ "cwd": 1, "repo": 2 })).unwrap_err();
        assert_eq!(error, "`repo` is another name of `cwd`, and they differ");
    }

    #[test]
    fn unknown_parameter_error_suggests_the_nearest_name() {
        let known = ["prompt", "cwd"];
        for (name, within, expected) in [
            (
                "promt",
                None,
                "unknown parameter `promt`; did you mean `prompt`?",
            ),
            (
                "zzz",
                None,
                "unknown parameter `zzz`; there are prompt, cwd",
            ),
            (
                "promt",
                Some("advanced"),
                "unknown parameter `promt` in `advanced`; did you mean `prompt`?",
            ),
        ] {
            assert_eq!(unknown(name, within, &known), expected);
        }
        let none = unknown("x", None, &[]);
        assert_eq!(none, "unknown parameter `x`; this takes none");
    }
}
