//! Overrides of Codex's configuration for one thread: dotted keys, or tables.
//!
//! Codex merges them in random order, and a table replaces all values that were merged into it
//! before. So a table must contain every value that belongs to it: none may be a separate key.

use codex_config::profile::overlay;
use serde_json::{Map, Value};

/// Sets the value at a path of names.
///
/// If the overrides have a table that contains the path, the value goes into that table, together
/// with all separate keys that belong to the table.
pub fn set(overrides: &mut Map<String, Value>, path: &[&str], value: Value) {
    let splits = (1..path.len()).map(|length| path.split_at(length));
    let tables = splits.map(|(outer, inner)| (outer.join("."), inner));
    let mut tables = tables.filter(|(key, _)| overrides.get(key).is_some_and(Value::is_object));
    let Some((key, inner)) = tables.next() else {
        overrides.insert(path.join("."), value);
        return;
    };
    complete(overrides, &key);
    if let Some(Value::Object(table)) = overrides.get_mut(&key) {
        insert(table, inner, value);
    }
}

/// Moves all separate keys that belong to a table into that table. A dotted key takes precedence
/// over the same key in the table.
pub(crate) fn complete_tables(overrides: &mut Map<String, Value>) {
    let tables = overrides.iter().filter(|(_, value)| value.is_object());
    let tables: Vec<String> = tables.map(|(key, _)| key.clone()).collect();
    for table in tables {
        // A table within another one has been moved into it by now.
        if overrides.contains_key(&table) {
            complete(overrides, &table);
        }
    }
}

fn complete(overrides: &mut Map<String, Value>, key: &str) {
    let parts = take_parts(overrides, key);
    if let Some(Value::Object(table)) = overrides.get_mut(key) {
        for (part, value) in parts {
            let path: Vec<&str> = part.split('.').collect();
            insert(table, &path, value);
        }
    }
}

/// Removes the separate keys that belong to a table. The returned keys are relative to the table.
fn take_parts(overrides: &mut Map<String, Value>, table: &str) -> Vec<(String, Value)> {
    let prefix = format!("{table}.");
    let keys = overrides.keys().filter(|key| key.starts_with(&prefix));
    let keys: Vec<String> = keys.cloned().collect();
    let parts = keys.into_iter().filter_map(|key| {
        let value = overrides.remove(&key)?;
        Some((key.strip_prefix(&prefix)?.to_owned(), value))
    });
    parts.collect()
}

/// Inserts a value at a path of tables, creating missing ones. If both the old and the new value
/// are tables, the new one is merged over the old one.
fn insert(table: &mut Map<String, Value>, path: &[&str], value: Value) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    let entry = table.entry(*first).or_insert_with(|| Map::new().into());
    if !rest.is_empty() && !entry.is_object() {
        *entry = Map::new().into();
    }
    match (entry, value) {
        (Value::Object(inner), value) if !rest.is_empty() => insert(inner, rest, value),
        (Value::Object(known), Value::Object(more)) => overlay(known, more),
        (entry, value) => *entry = value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with_set(overrides: Value) -> Value {
        let mut overrides = overrides.as_object().unwrap().clone();
        set(&mut overrides, &["a", "b", "c"], 1.into());
        overrides.into()
    }

    #[test]
    fn value_goes_into_the_table_that_holds_it() {
        for (overrides, expected) in [
            (json!({ "x": 0 }), json!({ "x": 0, "a.b.c": 1 })),
            (json!({ "a.b.d": 0 }), json!({ "a.b.d": 0, "a.b.c": 1 })),
            (
                json!({ "a.b": { "d": 0 } }),
                json!({ "a.b": { "d": 0, "c": 1 } }),
            ),
            (
                json!({ "a": { "d": 0 } }),
                json!({ "a": { "d": 0, "b": { "c": 1 } } }),
            ),
            (
                json!({ "a": { "b": 0 } }),
                json!({ "a": { "b": { "c": 1 } } }),
            ),
            (
                json!({ "ab": {}, "a": {} }),
                json!({ "ab": {}, "a": { "b": { "c": 1 } } }),
            ),
        ] {
            assert_eq!(with_set(overrides), expected);
        }
    }

    #[test]
    fn parts_of_all_tables_are_put_into_them() {
        let overrides = json!({
            "a": { "b": { "c": 0 } },
            "a.b": { "d": 0 },
            "a.b.c": 1,
            "ab.c": 0,
            "x.y": { "z": 0 },
            "x.y.z": 1,
        });
        let mut overrides = overrides.as_object().unwrap().clone();
        complete_tables(&mut overrides);
        let expected = json!({
            "a": { "b": { "c": 1, "d": 0 } },
            "ab.c": 0,
            "x.y": { "z": 1 },
        });
        assert_eq!(Value::from(overrides), expected);
    }

    #[test]
    fn dotted_keys_are_merged_into_the_table() {
        let overrides = json!({
            "a": { "b": { "d": 0 }, "x": { "y": 0 } },
            "a.b": { "e": 0 },
            "a.b.f": 0,
            "a.x.z": 0,
        });
        let inner = json!({ "c": 1, "d": 0, "e": 0, "f": 0 });
        let expected = json!({ "a": { "b": inner, "x": { "y": 0, "z": 0 } } });
        assert_eq!(with_set(overrides), expected);
    }
}
