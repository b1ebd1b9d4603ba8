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

/// Programs that run a package of npm, and the words with which some of them do.
const RUNNERS: [&str; 7] = ["npx", "bunx", "pnpx", "npm", "pnpm", "yarn", "bun"];
const RUN: [&str; 3] = ["exec", "dlx", "x"];

/// Whether an entry starts this program, by its path, its name or its package, as a server
/// that hands work to Codex.
pub(super) fn hands_work_to_codex(entry: &Map<String, Value>) -> bool {
    let command = entry.get("command").and_then(Value::as_str);
    let program = command.map_or("", program_name);
    let args = entry.get("args").and_then(Value::as_array);
    let args = args.into_iter().flatten().filter_map(Value::as_str);
    let args: Vec<&str> = match program {
        OWN_NAME => args.collect(),
        runner if RUNNERS.contains(&runner) => {
            let mut args = args.skip_while(|word| is_of_runner(word));
            if !args.next().is_some_and(is_own_package) {
                return false;
            }
            // After `npx --package codex-mcp`, the name comes once more.
            args.skip_while(|word| *word == OWN_NAME).collect()
        }
        _ => return false,
    };
    args.contains(&SERVE) || args.iter().all(|word| word.starts_with('-'))
}

/// The name of a program without its directory and ending.
fn program_name(command: &str) -> &str {
    let name = command.rsplit(['/', '\\']).next().unwrap_or(command);
    let name = name.strip_suffix(".exe").unwrap_or(name);
    name.strip_suffix(".cmd").unwrap_or(name)
}

/// Whether a word is for the program that runs a package, and names none.
fn is_of_runner(word: &str) -> bool {
    RUN.contains(&word) || (word.starts_with('-') && !word.starts_with("--package="))
}

/// Whether a word names a package of this program, in any scope, with or without a version.
fn is_own_package(word: &str) -> bool {
    let package = word.strip_prefix("--package=").unwrap_or(word);
    let name = match package
        .strip_prefix('@')
        .and_then(|rest| rest.split_once('/'))
    {
        Some((_, name)) => name,
        None => package,
    };
    name.split('@').next() == Some(OWN_NAME)
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
            ("npx", &["-y", "-p", "codex-mcp", "codex-mcp", "serve"]),
            ("/usr/bin/npx", &["-y", "@leo000001/codex-mcp@2"]),
            ("pnpm", &["dlx", "codex-mcp", "serve"]),
        ] {
            assert!(hands_work(command, args), "{command} {args:?}");
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
            assert!(!hands_work(command, args), "{command} {args:?}");
        }
        let url = json!({ "url": "https://example.com/codex-mcp" });
        assert!(!hands_work_to_codex(url.as_object().unwrap()));
    }
}
