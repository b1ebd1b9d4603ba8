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

/// Whether an entry starts this program, or the npm package of the same name, as a server that
/// hands work to Codex.
pub(super) fn is_own(entry: Map<String, Value>) -> bool {
    let line = command_line(&Value::Object(entry));
    // A file is not looked for: the name tells enough.
    let kind = Kind::of(&line, &|_| None);
    matches!(kind, Some(Kind::Ours | Kind::NpmPackage))
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
pub(super) fn set(overrides: &mut Map<String, Value>, name: &str, field: &str, value: Value) {
    let is_bare = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    if name.is_empty() || !name.chars().all(is_bare) {
        return;
    }
    let key = format!("{TABLE}.{name}");
    let is_nested =
        matches!(overrides.get(TABLE), Some(Value::Object(table)) if table.contains_key(name));
    let entry = match is_nested {
        true => overrides
            .get_mut(TABLE)
            .and_then(|table| table.get_mut(name)),
        false => overrides.get_mut(&key),
    };
    match entry.and_then(Value::as_object_mut) {
        Some(entry) => entry.insert(field.to_owned(), value),
        None => overrides.insert(format!("{key}.{field}"), value),
    };
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn is_own_command(command: &str, args: &[&str]) -> bool {
        let entry = json!({ "command": command, "args": args });
        is_own(entry.as_object().unwrap().clone())
    }

    #[test]
    fn own_server_is_recognised_by_path_name_and_package() {
        for (command, args) in [
            ("/opt/bin/codex-mcp", ["serve"].as_slice()),
            ("codex-mcp", &[]),
            ("codex-mcp", &["--codex-bin", "/codex", "serve"]),
            ("npx", &["-y", "codex-mcp@1.2.3", "serve"]),
            ("npx", &["-y", "--package=codex-mcp", "codex-mcp"]),
            ("npx", &["-y", "-p", "codex-mcp", "codex-mcp", "serve"]),
            ("npx", &["-y", "@leo000001/codex-mcp@2"]),
            ("pnpm", &["dlx", "codex-mcp", "serve"]),
        ] {
            assert!(is_own_command(command, args), "{command} {args:?}");
        }
    }

    #[test]
    fn other_servers_are_not_taken_for_it() {
        for (command, args) in [
            ("codex-mcp", ["eyes-mcp"].as_slice()),
            ("npx", &["-y", "server-filesystem", "codex-mcp"]),
            ("npx", &["-y", "codex-mcp", "eyes-mcp"]),
            ("uvx", &["server-git", "/home/me/codex-mcp"]),
            ("my-codex-mcp", &["serve"]),
            ("node", &["serve"]),
        ] {
            assert!(!is_own_command(command, args), "{command} {args:?}");
        }
        let url = json!({ "url": "https://example.com/codex-mcp" });
        assert!(!is_own(url.as_object().unwrap().clone()));
    }
}
