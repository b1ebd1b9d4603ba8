//! The MCP servers in overrides of Codex's configuration.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The table of MCP servers in Codex's configuration.
const TABLE: &str = "mcp_servers";

/// The key of the time limit of a tool call, in seconds, in a server's entry.
pub(super) const TOOL_TIMEOUT: &str = "tool_timeout_sec";

/// Whether Codex starts a server, in its entry.
pub(super) const ENABLED: &str = "enabled";

/// The name of this program and of its packages.
const OWN_NAME: &str = "codex-mcp";

/// The command of this program with which it hands work to Codex.
const SERVE: &str = "serve";

/// Whether an entry starts this program, by its path, its name or its package, as a server
/// that hands work to Codex.
pub(super) fn hands_work_to_codex(entry: &Map<String, Value>) -> bool {
    let args = entry.get("args").and_then(Value::as_array);
    let words = entry
        .get("command")
        .into_iter()
        .chain(args.into_iter().flatten());
    let words = words.filter_map(Value::as_str);
    // After `npx --package codex-mcp`, the name comes twice.
    let mut from_name = words.skip_while(|word| !is_own(word)).peekable();
    let mut args = from_name
        .peek()
        .is_some()
        .then(|| from_name.skip_while(|word| is_own(word)));
    args.as_mut().is_some_and(|args| {
        let args: Vec<&str> = args.collect();
        args.contains(&SERVE) || args.iter().all(|arg| arg.starts_with('-'))
    })
}

/// Whether a word of a command line names this program, or a package of it with or without
/// a version.
fn is_own(word: &str) -> bool {
    let name = word.rsplit(['/', '\\', '=']).next().unwrap_or(word);
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    name.strip_suffix(".exe").unwrap_or(name) == OWN_NAME
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

    fn hands_work(command: &str, args: &[&str]) -> bool {
        let entry = json!({ "command": command, "args": args });
        hands_work_to_codex(entry.as_object().unwrap())
    }

    #[test]
    fn own_server_is_recognised_by_path_name_and_package() {
        for (command, args) in [
            ("/opt/bin/codex-mcp", ["serve"].as_slice()),
            ("codex-mcp", &[]),
            ("C:\\bin\\codex-mcp.exe", &["serve"]),
            ("codex-mcp", &["--codex-bin", "/codex", "serve"]),
            ("npx", &["-y", "codex-mcp@1.2.3", "serve"]),
            ("npx", &["-y", "--package=codex-mcp", "codex-mcp"]),
            ("npx", &["-y", "@leo000001/codex-mcp"]),
        ] {
            assert!(hands_work(command, args), "{command} {args:?}");
        }
    }

    #[test]
    fn other_servers_are_not_taken_for_it() {
        for (command, args) in [
            ("codex-mcp", ["eyes-mcp"].as_slice()),
            (
                "npx",
                &["-y", "server-filesystem", "/home/me/codex-mcp/docs"],
            ),
            ("my-codex-mcp", &["serve"]),
            ("node", &["serve"]),
        ] {
            assert!(!hands_work(command, args), "{command} {args:?}");
        }
        let url = json!({ "url": "https://example.com/codex-mcp" });
        assert!(!hands_work_to_codex(url.as_object().unwrap()));
    }
}
