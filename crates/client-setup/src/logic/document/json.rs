//! JSON with comments.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use serde_json::Value;

use super::{EditError, Format, Member};

/// Clients differ in the extensions of the standard that they accept: those that all of them write
/// are accepted.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

pub(super) fn read(text: &str) -> Result<Value, EditError> {
    Ok(parse(text)?.to_serde_value().unwrap_or_default())
}

pub(super) fn set(
    text: &str,
    key: &str,
    name: &str,
    members: &[Member],
) -> Result<String, EditError> {
    let root = parse(text)?;
    let top = root.object_value_or_create();
    let top = top.ok_or_else(|| EditError::no_table("its content"))?;
    let servers = table(&top, key)?;
    let server = table(&servers, name)?;
    for (member, value) in members {
        put(&server, member, value)?;
    }
    Ok(root.to_string())
}

fn put(parent: &CstObject, name: &str, value: &Value) -> Result<(), EditError> {
    match (only(parent, name)?, value) {
        (Some(_), Value::Object(members)) => {
            let there = table(parent, name)?;
            members
                .iter()
                .try_for_each(|(name, value)| put(&there, name, value))
        }
        (Some(there), _) => {
            there.set_value(input(value));
            Ok(())
        }
        (None, _) => {
            parent.append(name, input(value));
            Ok(())
        }
    }
}

pub(super) fn remove(text: &str, key: &str, name: &str) -> Result<String, EditError> {
    let root = parse(text)?;
    let top = root.object_value();
    let top = top.ok_or_else(|| EditError::no_table("its content"))?;
    if let Some(removed) = only(&table(&top, key)?, name)? {
        removed.remove();
    }
    Ok(root.to_string())
}

fn parse(text: &str) -> Result<CstRootNode, EditError> {
    CstRootNode::parse(text, &OPTIONS).map_err(|error| EditError::Syntax {
        format: Format::Json,
        message: error.to_string(),
    })
}

/// The only member of this name.
fn only(
    table: &CstObject,
    name: &str,
) -> Result<Option<jsonc_parser::cst::CstObjectProp>, EditError> {
    let is_named = |member: &jsonc_parser::cst::CstObjectProp| {
        member.decoded_name().is_some_and(|found| found == name)
    };
    let mut found = table.properties().into_iter().filter(is_named);
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(EditError::Twice(name.to_owned())),
        (found, None) => Ok(found),
    }
}

/// The table of this name in a table, which is made if there is none or `null`.
fn table(parent: &CstObject, name: &str) -> Result<CstObject, EditError> {
    let there = match only(parent, name)? {
        Some(member) => {
            if member
                .value()
                .is_some_and(|value| value.as_null_keyword().is_some())
            {
                member.set_value(CstInputValue::Object(Vec::new()));
            }
            member.object_value()
        }
        None => parent.object_value_or_create(name),
    };
    there.ok_or_else(|| EditError::no_table(format!("`{name}`")))
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(value) => CstInputValue::Number(value.to_string()),
        Value::String(value) => CstInputValue::String(value.clone()),
        Value::Array(values) => CstInputValue::Array(values.iter().map(input).collect()),
        Value::Object(members) => {
            let members = members.iter();
            CstInputValue::Object(
                members
                    .map(|(name, value)| (name.clone(), input(value)))
                    .collect(),
            )
        }
    }
}
