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

/// What clients are to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedEntry {
    /// The program, as a path or a name on PATH, and what comes before its arguments: with npx, the
    /// package.
    pub command: Vec<String>,
    /// Its arguments. `None`: those of the entry that is there, or those that keep the tools of the
    /// server that is replaced.
    pub args: Option<Vec<String>>,
    /// As in [`Entry`].
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
    /// The npm package @leo000001/codex-mcp, which has a program of the same name as ours.
    #[strum(serialize = "the npm package @leo000001/codex-mcp")]
    NpmPackage,
}

impl Kind {
    /// Recognises a server by its command line.
    #[must_use]
    pub fn of(command_line: &[String]) -> Option<Self> {
        let (program, args) = command_line.split_first()?;
        let program = Path::new(program).file_stem()?.to_str()?;
        let has = |word: &str| args.iter().any(|arg| arg == word);
        let has_package = |name: &str| args.iter().any(|arg| package(arg) == name);
        let is_in_package = |name: &str| {
            let directory = format!("/{name}/");
            command_line.iter().any(|word| word.contains(&directory))
        };
        let runs_packages =
            ["npx", "bunx", "pnpm", "pnpx", "yarn", "npm", "bun"].contains(&program);
        let first = args.iter().find(|arg| !arg.starts_with('-'));
        match first.map(String::as_str) {
            _ if runs_packages && has_package(NPM_PACKAGE) => Some(Self::NpmPackage),
            _ if is_in_package(NPM_PACKAGE) => Some(Self::NpmPackage),
            _ if runs_packages && has_package("@openai/codex") && has("mcp-server") => {
                Some(Self::McpServer)
            }
            _ if program == "codex" && has("mcp-server") => Some(Self::McpServer),
            // The name of the command before it was `mcp-server`.
            Some("mcp") if program == "codex" && args.len() == 1 => Some(Self::McpServer),
            _ if runs_packages && has_package(OWN_NAME) => Some(Self::Ours),
            None if program == OWN_NAME => Some(Self::Ours),
            _ if program == OWN_NAME && has("serve") => Some(Self::Ours),
            _ => None,
        }
    }
}

/// The name of this program, and of its package for npm.
const OWN_NAME: &str = "codex-mcp";

/// The package whose sessions `serve --api sessions` offers.
const NPM_PACKAGE: &str = "@leo000001/codex-mcp";

/// The name of the package that an argument of npx names, without its version.
fn package(arg: &str) -> &str {
    let arg = arg.strip_prefix("--package=").unwrap_or(arg);
    let name = arg.rsplit_once('@').filter(|(name, _)| !name.is_empty());
    name.map_or(arg, |(name, _)| name)
}

/// The arguments of this program in a command line that starts it.
#[must_use]
pub fn own_args(command_line: &[String]) -> Vec<String> {
    let is_own = |word: &String| {
        package(word) == OWN_NAME || Path::new(word).file_stem() == Some(OWN_NAME.as_ref())
    };
    let own = command_line.iter().position(is_own);
    let args = own.and_then(|own| command_line.get(own + 1..));
    // Alone on a pipe, it serves.
    match args.unwrap_or_default() {
        [] => vec!["serve".to_owned()],
        args => args.to_vec(),
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
                json!({ "command": "codex-mcp", "args": ["--codex-bin", "/codex", "serve"] }),
                Some(Kind::Ours),
            ),
            (
                json!({ "command": "npx", "args": ["-y", "codex-mcp@0.1.0", "serve"] }),
                Some(Kind::Ours),
            ),
            (
                json!({ "command": "npx", "args": ["-y", "@openai/codex@0.150", "mcp-server"] }),
                Some(Kind::McpServer),
            ),
            (
                json!({ "command": "codex", "args": ["mcp"] }),
                Some(Kind::McpServer),
            ),
            (json!({ "command": "codex", "args": ["mcp", "list"] }), None),
            (
                json!({ "command": "npx", "args": ["--package=@leo000001/codex-mcp", "codex-mcp"] }),
                Some(Kind::NpmPackage),
            ),
            (
                json!({ "command": "node", "args": ["/x/node_modules/@leo000001/codex-mcp/dist/index.js"] }),
                Some(Kind::NpmPackage),
            ),
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
