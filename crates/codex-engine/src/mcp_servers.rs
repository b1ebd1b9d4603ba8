//! The MCP servers in overrides of Codex's configuration.

use std::collections::BTreeMap;

use codex_config::logic::codex_servers::{Kind, command_line};
use serde_json::{Map, Value};

use super::overrides;

/// The table of MCP servers in Codex's configuration.
const TABLE: &str = "mcp_servers";

/// The key of the time limit of a tool call, in seconds, in a server's entry.
pub(super) const TOOL_TIMEOUT: &str = "tool_timeout_sec";

/// The key in a server's entry that tells whether Codex starts the server.
pub(super) const ENABLED: &str = "enabled";

/// Whether the entry of a server starts a program that hands work to Codex: this one, the npm
/// package of the same name, or `codex mcp-server`.
pub(super) fn hands_on_work(entry: Map<String, Value>) -> bool {
    let line = command_line(&Value::Object(entry));
    // The file is not looked up: the name is enough to recognise it.
    Kind::of(&line, &|_| None).is_some()
}

/// Whether the table of servers in the overrides is empty, which makes newer releases start none.
/// An entry in it would make them start the configured servers again.
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

/// Sets a field of a server, in its entry among the overrides if there is one. Ignores a name that
/// cannot be a bare TOML key, as Codex does not accept it.
pub(super) fn set(overrides: &mut Map<String, Value>, name: &str, field: &str, value: Value) {
    let is_bare = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    if name.is_empty() || !name.chars().all(is_bare) {
        return;
    }
    overrides::set(overrides, &[TABLE, name, field], value);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn name_that_codex_does_not_accept_is_ignored() {
        let mut overrides = Map::new();
        for name in ["", "a b", "a.b", "a\"b"] {
            set(&mut overrides, name, ENABLED, false.into());
        }
        assert_eq!(overrides, Map::new());
        set(&mut overrides, "a-b", ENABLED, false.into());
        assert_eq!(
            Value::from(overrides),
            json!({ "mcp_servers.a-b.enabled": false })
        );
    }
}
