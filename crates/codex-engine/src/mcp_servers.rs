//! The MCP servers in overrides of Codex's configuration.

use std::collections::BTreeMap;

use codex_config::logic::codex_servers::{Kind, command_line};
use serde_json::{Map, Value};

/// The table of MCP servers in Codex's configuration.
const TABLE: &str = "mcp_servers";

/// The key of the time limit of a tool call, in seconds, in a server's entry.
pub(super) const TOOL_TIMEOUT: &str = "tool_timeout_sec";

/// Whether Codex starts a server, in its entry.
pub(super) const ENABLED: &str = "enabled";

/// Whether an entry starts a server that hands work to Codex: this program, the npm package of the
/// same name, or `codex mcp-server`.
pub(super) fn hands_on_work(entry: Map<String, Value>) -> bool {
    let line = command_line(&Value::Object(entry));
    // A file is not looked for: the name tells enough.
    Kind::of(&line, &|_| None).is_some()
}

/// Whether the overrides ask for no servers at all, by an empty table. An entry that is added to it
/// would bring back all servers of the configuration.
pub(super) fn asks_for_none(overrides: &Map<String, Value>) -> bool {
    let table = overrides.get(TABLE).and_then(Value::as_object);
    table.is_some_and(Map::is_empty)
}

/// Merges the entries of servers in overrides over the known ones.
pub(super) fn in_overrides(
    overrides: &Map<String, Value>,
    servers: &mut BTreeMap<String, Map<String, Value>>,
) {
    let mut lay = |name: &str, entry: Map<String, Value>| {
        servers.entry(name.to_owned()).or_default().extend(entry);
    };
    let entry = |value: &Value| value.as_object().cloned().unwrap_or_default();
    for (key, value) in overrides {
        let below = key
            .strip_prefix(TABLE)
            .and_then(|key| key.strip_prefix('.'));
        match (below, below.and_then(|below| below.split_once('.')), value) {
            (_, Some((name, field)), value) => {
                lay(name, Map::from_iter([(field.to_owned(), value.clone())]));
            }
            (Some(name), None, value) => lay(name, entry(value)),
            (None, _, Value::Object(table)) if key == TABLE => {
                table
                    .iter()
                    .for_each(|(name, value)| lay(name, entry(value)));
            }
            _ => {}
        }
    }
}

/// Sets a field of a server, in its entry among the overrides if there is one. A name
/// that is no bare TOML key is ignored, as Codex does not accept it.
///
/// If the overrides have the whole table, all servers of the overrides are put into it: Codex merges
/// overrides in an order of its own, and a table replaces what stands beside it.
pub(super) fn set(overrides: &mut Map<String, Value>, name: &str, field: &str, value: Value) {
    let is_bare = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    if name.is_empty() || !name.chars().all(is_bare) {
        return;
    }
    if overrides.get(TABLE).is_some_and(Value::is_object) {
        put_into_table(overrides);
        insert(overrides, &[TABLE, name, field], value);
        return;
    }
    let key = format!("{TABLE}.{name}");
    match overrides.get_mut(&key).and_then(Value::as_object_mut) {
        Some(entry) => entry.insert(field.to_owned(), value),
        None => overrides.insert(format!("{key}.{field}"), value),
    };
}

/// Puts the overrides of servers with dotted keys into the table.
fn put_into_table(overrides: &mut Map<String, Value>) {
    let is_of_server = |key: &String| {
        key.strip_prefix(TABLE)
            .is_some_and(|rest| rest.starts_with('.'))
    };
    let dotted: Vec<String> = overrides
        .keys()
        .filter(|key| is_of_server(key))
        .cloned()
        .collect();
    for key in dotted {
        if let Some(value) = overrides.remove(&key) {
            let path: Vec<&str> = key.split('.').collect();
            insert(overrides, &path, value);
        }
    }
}

/// Inserts a value at a path of tables, which are made where there is none. A table is laid over
/// one that is there.
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
        (Value::Object(known), Value::Object(more)) => known.extend(more),
        (entry, value) => *entry = value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn with_set(overrides: Value) -> Value {
        let mut overrides = object(overrides);
        set(&mut overrides, "ours", ENABLED, false.into());
        overrides.into()
    }

    #[test]
    fn field_goes_where_the_server_is() {
        assert_eq!(
            with_set(json!({ "model": "m" })),
            json!({ "model": "m", "mcp_servers.ours.enabled": false })
        );
        assert_eq!(
            with_set(json!({ "mcp_servers.ours": { "command": "c" } })),
            json!({ "mcp_servers.ours": { "command": "c", "enabled": false } })
        );
    }

    #[test]
    fn nothing_stays_beside_the_whole_table() {
        let overrides = json!({
            "mcp_servers.docs.env.KEY": "value",
            "mcp_servers": { "docs": { "command": "docs", "env": { "A": "b" } } },
            "mcp_servers.ours": { "command": "c" },
        });
        let expected = json!({ "mcp_servers": {
            "docs": { "command": "docs", "env": { "A": "b", "KEY": "value" } },
            "ours": { "command": "c", "enabled": false },
        } });
        assert_eq!(with_set(overrides), expected);
    }
}
