//! Permissions in words: those in a question about a command (`additionalPermissions`), and those
//! that Codex requests on their own.
//!
//! The shape is `AdditionalPermissionProfile` of 0.153.4 and 0.169.0. Unknown members are shown as
//! JSON, so that nobody grants a permission unseen.

use serde_json::{Map, Value};

/// The permissions of a profile.
pub(super) fn in_words(profile: &Value) -> Vec<String> {
    let mut words = Vec::new();
    match profile {
        Value::Object(members) => {
            for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
                match (name.as_str(), value) {
                    ("network", Value::Object(network)) => add_network(network, &mut words),
                    ("fileSystem", Value::Object(files)) => add_files(files, &mut words),
                    _ => words.push(format!("{name} {value}")),
                }
            }
        }
        Value::Null => {}
        other => words.push(other.to_string()),
    }
    if words.is_empty() {
        words.push("none".to_owned());
    }
    words
}

fn add_network(network: &Map<String, Value>, words: &mut Vec<String>) {
    for (name, value) in network.iter().filter(|(_, value)| !value.is_null()) {
        match (name.as_str(), value) {
            ("enabled", Value::Bool(true)) => words.push("use the network".to_owned()),
            ("enabled", Value::Bool(false)) => words.push("no network".to_owned()),
            _ => words.push(format!("network {name} {value}")),
        }
    }
}

fn add_files(files: &Map<String, Value>, words: &mut Vec<String>) {
    // Write permissions come first, as the end of a long line is cut.
    let rank = |name: &str| match name {
        "write" => 0,
        "entries" => 1,
        _ => 2,
    };
    let mut members: Vec<(&String, &Value)> =
        files.iter().filter(|(_, value)| !value.is_null()).collect();
    members.sort_by_key(|(name, _)| rank(name));
    for (name, value) in members {
        match (name.as_str(), value) {
            ("read" | "write", Value::Array(paths)) => {
                words.extend(paths.iter().map(|path| format!("{name} {}", plain(path))));
            }
            ("entries", Value::Array(entries)) => {
                let mut entries: Vec<(bool, String)> = entries.iter().map(entry).collect();
                entries.sort_by_key(|(writes, _)| !writes);
                words.extend(entries.into_iter().map(|(_, words)| words));
            }
            _ => words.push(format!("{name} {value}")),
        }
    }
}

/// Whether an entry permits writing, and the entry in words.
fn entry(entry: &Value) -> (bool, String) {
    let access = entry.get("access").and_then(Value::as_str);
    let path = entry.get("path").map(place);
    match (access, path) {
        (Some(access), Some(path)) => (access == "write", format!("{access} {path}")),
        _ => (true, entry.to_string()),
    }
}

/// `FileSystemPath`.
fn place(path: &Value) -> String {
    let kind = path.get("type").and_then(Value::as_str);
    match (kind, path.get("path"), path.get("pattern")) {
        (Some("path"), Some(path), _) => plain(path),
        (Some("glob_pattern"), _, Some(pattern)) => format!("all that match {}", plain(pattern)),
        _ => path.get("value").unwrap_or(path).to_string(),
    }
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
