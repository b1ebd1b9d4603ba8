//! TOML.

use std::ops::Range;

use serde_json::Value;
use toml_edit::{Array, Document, DocumentMut, InlineTable, Item, Table, TableLike};

use super::{EditError, Format, Member};

pub(super) fn read(text: &str) -> Result<Value, EditError> {
    let document = parse(text)?;
    Ok(of_table(document.as_table()))
}

pub(super) fn set(
    text: &str,
    key: &str,
    name: &str,
    members: &[Member],
) -> Result<String, EditError> {
    check_line_ends(text)?;
    let document = parse(text)?;
    if document.is_empty() {
        // Nothing but comments, below which the new table is put.
        let new = set_in(DocumentMut::new(), key, name, members)?;
        let end = match text.is_empty() || text.ends_with('\n') {
            true => "",
            false => "\n",
        };
        return Ok(format!("{text}{end}{new}"));
    }
    set_in(document, key, name, members)
}

fn set_in(
    mut document: DocumentMut,
    key: &str,
    name: &str,
    members: &[Member],
) -> Result<String, EditError> {
    let servers = table(document.as_table_mut(), key, true)?;
    let server = table(servers, name, false)?;
    for (member, value) in members {
        put(server, member, value)?;
    }
    Ok(document.to_string())
}

fn put(parent: &mut dyn TableLike, name: &str, value: &Value) -> Result<(), EditError> {
    match (parent.get_mut(name), value) {
        (Some(_), Value::Object(members)) => {
            let there = table(parent, name, false)?;
            members
                .iter()
                .try_for_each(|(name, value)| put(there, name, value))
        }
        // What stands around the value stays.
        (Some(Item::Value(there)), _) => {
            let decor = there.decor().clone();
            *there = of_json(value);
            *there.decor_mut() = decor;
            Ok(())
        }
        _ => {
            parent.insert(name, Item::Value(of_json(value)));
            Ok(())
        }
    }
}

pub(super) fn remove(text: &str, key: &str, name: &str) -> Result<String, EditError> {
    check_line_ends(text)?;
    let mut document = parse(text)?;
    table(document.as_table_mut(), key, true)?.remove(name);
    let mut rest = document.to_string();
    // For the parser, comments above a table belong to it; people mean the file by them, too.
    if let Some(above) = comments_above(text, key, name)
        && rest.get(..above.start) == text.get(..above.start)
    {
        rest.insert_str(above.start, text.get(above).unwrap_or_default());
    }
    Ok(rest)
}

/// The editor writes all lines with LF.
fn check_line_ends(text: &str) -> Result<(), EditError> {
    let returns = text.matches("\r\n").count();
    match returns == 0 || returns == text.matches('\n').count() {
        true => Ok(()),
        false => Err(EditError::LineEnds),
    }
}

/// Where the comments above the table of a server are.
fn comments_above(text: &str, key: &str, name: &str) -> Option<Range<usize>> {
    let document = Document::parse(text).ok()?;
    let server = document.get(key)?.get(name)?.as_table()?;
    let above = server.decor().prefix()?.span()?;
    text.get(above.clone())?.contains('#').then_some(above)
}

fn parse(text: &str) -> Result<DocumentMut, EditError> {
    text.parse()
        .map_err(|error: toml_edit::TomlError| EditError::Syntax {
            format: Format::Toml,
            message: error.message().to_owned(),
        })
}

/// The table of this name in a table, which is made if there is none: without a header of its
/// own if it `is_implicit`.
fn table<'a>(
    parent: &'a mut dyn TableLike,
    name: &str,
    is_implicit: bool,
) -> Result<&'a mut dyn TableLike, EditError> {
    let made = || {
        let mut table = Table::new();
        table.set_implicit(is_implicit);
        Item::Table(table)
    };
    let there = parent.entry(name).or_insert_with(made);
    let there = there.as_table_like_mut();
    there.ok_or_else(|| EditError::no_table(format!("`{name}`")))
}

fn of_json(value: &Value) -> toml_edit::Value {
    match value {
        // TOML has no null: nothing of ours is null.
        Value::Null => toml_edit::Value::from(""),
        Value::Bool(value) => toml_edit::Value::from(*value),
        Value::Number(value) => match (value.as_i64(), value.as_f64()) {
            (Some(whole), _) => toml_edit::Value::from(whole),
            (None, value) => toml_edit::Value::from(value.unwrap_or_default()),
        },
        Value::String(value) => toml_edit::Value::from(value.as_str()),
        Value::Array(values) => {
            let array: Array = values.iter().map(of_json).collect();
            toml_edit::Value::from(array)
        }
        Value::Object(members) => {
            let members = members.iter();
            let table: InlineTable = members
                .map(|(name, value)| (name, of_json(value)))
                .collect();
            toml_edit::Value::from(table)
        }
    }
}

fn of_table(table: &dyn TableLike) -> Value {
    let members = table.iter();
    Value::Object(
        members
            .map(|(name, item)| (name.to_owned(), of_item(item)))
            .collect(),
    )
}

fn of_item(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(value) => of_value(value),
        Item::Table(table) => of_table(table),
        Item::ArrayOfTables(tables) => tables.iter().map(|table| of_table(table)).collect(),
    }
}

fn of_value(value: &toml_edit::Value) -> Value {
    match value {
        toml_edit::Value::String(value) => value.value().as_str().into(),
        toml_edit::Value::Integer(value) => (*value.value()).into(),
        toml_edit::Value::Float(value) => (*value.value()).into(),
        toml_edit::Value::Boolean(value) => (*value.value()).into(),
        toml_edit::Value::Datetime(value) => value.value().to_string().into(),
        toml_edit::Value::Array(values) => values.iter().map(of_value).collect(),
        toml_edit::Value::InlineTable(table) => of_table(table),
    }
}
