//! MCP servers of ours that Codex is given beside the user's own.

use serde_json::{Map, Value};

/// Where Codex's configuration has them.
const TABLE: &str = "mcp_servers";

/// Adds servers, by name, to overrides of `config.toml`. Where these speak of servers
/// already, it is said there: Codex lays its overrides one over the other, in an order
/// of its own. A server of the caller's that has the same name stays.
pub fn add(overrides: &mut Map<String, Value>, servers: &Map<String, Value>) {
    for (name, server) in servers {
        match overrides.get_mut(TABLE) {
            Some(Value::Object(table)) => {
                table.entry(name).or_insert_with(|| server.clone());
            }
            _ => {
                let key = format!("{TABLE}.{name}");
                overrides.entry(key).or_insert_with(|| server.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn added(overrides: Value) -> Value {
        let object = |value: Value| value.as_object().unwrap().clone();
        let mut overrides = object(overrides);
        add(
            &mut overrides,
            &object(json!({ "team": { "command": "c" } })),
        );
        Value::Object(overrides)
    }

    #[test]
    fn a_server_is_added_beside_those_that_are_there() {
        assert_eq!(
            added(json!({ "model": "m" })),
            json!({ "model": "m", "mcp_servers.team": { "command": "c" } })
        );
        assert_eq!(
            added(json!({ "mcp_servers": { "mine": { "command": "d" } } })),
            json!({ "mcp_servers": { "mine": { "command": "d" }, "team": { "command": "c" } } })
        );
    }

    #[test]
    fn the_callers_own_of_the_name_stays() {
        for given in [
            json!({ "mcp_servers.team": 1 }),
            json!({ "mcp_servers": { "team": 1 } }),
        ] {
            assert_eq!(added(given.clone()), given);
        }
    }
}
