//! The entry of this program in a client's configuration, and the entries that it replaces.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// The name of the entry, unless the user chooses another one.
pub const NAME: &str = "codex";

/// How long a call of a tool may take: twice the default of `serve`, so that a client never gives up
/// before the server answers.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(600);

/// How long the server may take to start. It takes some 50 ms; a host that is ending, ten seconds.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The program that a client starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The program, as a path or a name on PATH.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables that it needs and that some clients do not pass on, with their values.
    pub env: Vec<(String, String)>,
}

/// A server in a client's configuration that hands work to Codex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
pub enum Kind {
    /// This program.
    #[strum(serialize = "codex-mcp")]
    Ours,
    /// `codex mcp-server`, which Codex 0.154 removed.
    #[strum(serialize = "codex mcp-server")]
    McpServer,
    /// The npm package codex-mcp.
    #[strum(serialize = "the npm package codex-mcp")]
    NpmPackage,
}

impl Kind {
    /// Recognises a server by its command line.
    #[must_use]
    pub fn of(command_line: &[String]) -> Option<Self> {
        let (program, args) = command_line.split_first()?;
        let program = Path::new(program).file_stem()?.to_str()?;
        let first = args.iter().find(|arg| !arg.starts_with('-'));
        let first = first.map(String::as_str);
        let has_package = args.iter().any(|arg| {
            let name = arg.rsplit_once('@').filter(|(name, _)| !name.is_empty());
            name.map_or(arg.as_str(), |(name, _)| name) == "@leo000001/codex-mcp"
        });
        match (program, first) {
            ("codex", _) if args.iter().any(|arg| arg == "mcp-server") => Some(Self::McpServer),
            ("npx" | "bunx" | "pnpm" | "yarn" | "npm", _) if has_package => Some(Self::NpmPackage),
            ("codex-mcp", None | Some("serve")) => Some(Self::Ours),
            _ => None,
        }
    }

    /// The arguments of `codex-mcp serve` that keep the tools as they are in this server.
    #[must_use]
    pub fn replacing_args(self) -> &'static [&'static str] {
        match self {
            Self::Ours | Self::McpServer => &[],
            Self::NpmPackage => &["--api", "sessions"],
        }
    }
}

/// The command line of a server in a client's configuration: `command` is a word with `args`, a
/// list, or (in older files of Zed) a table; Goose has `cmd`.
#[must_use]
pub fn command_line(server: &Value) -> Vec<String> {
    let words = |value: Option<&Value>| -> Vec<String> {
        let words = value.and_then(Value::as_array).into_iter().flatten();
        words
            .filter_map(|word| Some(word.as_str()?.to_owned()))
            .collect()
    };
    let args = words(server.get("args"));
    match server.get("command").or_else(|| server.get("cmd")) {
        Some(Value::String(program)) => [vec![program.clone()], args].concat(),
        Some(list @ Value::Array(_)) => words(Some(list)),
        Some(Value::Object(table)) => {
            let program = table.get("path").and_then(Value::as_str);
            let program = program.map(str::to_owned).into_iter().collect();
            [program, words(table.get("args"))].concat()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn servers_are_recognised_by_their_command_lines() {
        let cases = [
            (
                json!({ "command": "codex", "args": ["mcp-server"] }),
                Some(Kind::McpServer),
            ),
            (
                json!({ "command": "/usr/bin/codex", "args": ["-c", "model=x", "mcp-server"] }),
                Some(Kind::McpServer),
            ),
            (
                json!({ "command": ["codex", "mcp-server"] }),
                Some(Kind::McpServer),
            ),
            (
                json!({ "command": { "path": "codex", "args": ["mcp-server"] } }),
                Some(Kind::McpServer),
            ),
            (
                json!({ "cmd": "codex", "args": ["mcp-server"] }),
                Some(Kind::McpServer),
            ),
            (
                json!({ "command": "npx", "args": ["-y", "@leo000001/codex-mcp"] }),
                Some(Kind::NpmPackage),
            ),
            (
                json!({ "command": "npx", "args": ["-y", "@leo000001/codex-mcp@latest"] }),
                Some(Kind::NpmPackage),
            ),
            (
                json!({ "command": "npx", "args": ["-y", "codex-mcp-other"] }),
                None,
            ),
            (
                json!({ "command": "/opt/codex-mcp", "args": ["serve", "--api", "sessions"] }),
                Some(Kind::Ours),
            ),
            (json!({ "command": "codex-mcp" }), Some(Kind::Ours)),
            (
                json!({ "command": "codex-mcp", "args": ["eyes-mcp"] }),
                None,
            ),
            (json!({ "command": "codex", "args": ["exec"] }), None),
            (json!({ "url": "https://example.com" }), None),
            (json!(null), None),
        ];
        for (server, kind) in cases {
            assert_eq!(Kind::of(&command_line(&server)), kind, "{server}");
        }
    }
}
