//! YAML.

use std::str::FromStr;

use saphyr_parser::{Event, Parser};
use serde_json::Value;
use yaml_edit::{Document, Mapping, ScalarType, YamlFile, YamlValue};

use super::{EditError, Format, Member};

pub(super) fn read(text: &str) -> Result<Value, EditError> {
    match only_document(&parse(text)?)? {
        Some(document) => {
            let value = YamlValue::from_document(&document).map_err(|error| syntax(&error))?;
            Ok(of_value(&value))
        }
        None => Ok(Value::Null),
    }
}

pub(super) fn set(
    text: &str,
    key: &str,
    name: &str,
    members: &[Member],
) -> Result<String, EditError> {
    let file = parse(text)?;
    let Some(document) = only_document(&file)? else {
        // Nothing but comments: the new table is put behind them.
        let end = match text.is_empty() || text.ends_with('\n') {
            true => "",
            false => "\n",
        };
        return Ok(format!("{text}{end}{}", nested(&[key, name], members)));
    };
    let top = document.as_mapping();
    let top = top.ok_or_else(|| EditError::no_table("its content"))?;
    let Some(servers) = top.get_mapping(key) else {
        top.set(key, mapping(&nested(&[name], members))?);
        return Ok(file.to_string());
    };
    let Some(server) = servers.get_mapping(name) else {
        servers.set(name, mapping(&nested(&[], members))?);
        return Ok(file.to_string());
    };
    for (member, value) in members {
        let written = mapping(&nested(&[], &[(member.clone(), value.clone())]))?;
        if let Some(value) = written.get(member.as_str()) {
            server.set(member.as_str(), value);
        }
    }
    Ok(file.to_string())
}

pub(super) fn remove(text: &str, key: &str, name: &str) -> Result<String, EditError> {
    let file = parse(text)?;
    let document = only_document(&file)?;
    let top = document.and_then(|document| document.as_mapping());
    let top = top.ok_or_else(|| EditError::no_table("its content"))?;
    let servers = top.get_mapping(key);
    let servers = servers.ok_or_else(|| EditError::no_table(format!("`{key}`")))?;
    match servers.len() {
        // Without the last entry, the key would have no value.
        1 => drop(top.remove(key)),
        _ => drop(servers.remove(name)),
    }
    Ok(file.to_string())
}

fn parse(text: &str) -> Result<YamlFile, EditError> {
    check(text)?;
    YamlFile::from_str(text).map_err(|error| syntax(&error))
}

/// The editor takes texts that are not YAML, and does not see what an alias or a tag means.
fn check(text: &str) -> Result<(), EditError> {
    for event in Parser::new_from_str(text) {
        let (event, _) = event.map_err(|error| syntax(&error))?;
        let (anchor, tag) = match event {
            Event::Alias(_) => return Err(EditError::Unsafe),
            Event::Scalar(_, _, anchor, tag)
            | Event::SequenceStart(anchor, tag)
            | Event::MappingStart(anchor, tag) => (anchor, tag),
            _ => continue,
        };
        if anchor != 0 || tag.is_some() {
            return Err(EditError::Unsafe);
        }
    }
    Ok(())
}

/// The document of a file; none in a file with nothing but comments.
fn only_document(file: &YamlFile) -> Result<Option<Document>, EditError> {
    let mut documents = file.documents();
    match (documents.next(), documents.next()) {
        (_, Some(_)) => Err(syntax(&"it has several documents")),
        (document, None) => Ok(document.filter(|document| {
            document.as_mapping().is_some()
                || document.as_sequence().is_some()
                || document.as_scalar().is_some()
        })),
    }
}

fn syntax(error: &impl ToString) -> EditError {
    EditError::Syntax {
        format: Format::Yaml,
        message: error.to_string(),
    }
}

/// A table as text, below these keys. JSON is YAML, so each value is written as JSON.
fn nested(keys: &[&str], members: &[Member]) -> String {
    let mut text = String::new();
    for (depth, key) in keys.iter().enumerate() {
        text += &format!("{}{key}:\n", "  ".repeat(depth));
    }
    let indent = "  ".repeat(keys.len());
    for (member, value) in members {
        text += &format!("{indent}{member}: {value}\n");
    }
    text
}

fn mapping(text: &str) -> Result<Mapping, EditError> {
    let document = only_document(&parse(text)?)?;
    let mapping = document.and_then(|document| document.as_mapping());
    mapping.ok_or_else(|| EditError::no_table("the new entry"))
}

fn of_value(value: &YamlValue) -> Value {
    if let Some(members) = value.as_mapping() {
        let members = members.iter();
        let members = members.map(|(name, value)| (name.clone(), of_value(value)));
        return Value::Object(members.collect());
    }
    if let Some(values) = value.as_sequence() {
        return values.iter().map(of_value).collect();
    }
    if value
        .as_scalar()
        .is_some_and(|scalar| scalar.scalar_type() == ScalarType::Null)
    {
        return Value::Null;
    }
    let scalar = value.to_bool().map(Value::from);
    let scalar = scalar.or_else(|| value.to_i64().map(Value::from));
    let scalar = scalar.or_else(|| value.to_f64().map(Value::from));
    scalar.unwrap_or_else(|| value.as_str().map_or(Value::Null, Value::from))
}
