//! MCP servers of this program that are added to Codex's configuration, in addition to the user's
//! own. They provide our tools where Codex cannot be given them in another way.

use std::path::{Path, PathBuf};
use std::{env, io};

use serde_json::{Map, Value, json};

/// The table of MCP servers in Codex's configuration.
const TABLE: &str = "mcp_servers";

/// The argument that tells a server the working directory of a thread.
const ROOT: &str = "--root";

/// An MCP server of this program, for Codex's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    name: &'static str,
    program: String,
    args: Vec<String>,
    env: Vec<(&'static str, String)>,
    root_argument: RootArgument,
    approval: Approval,
}

/// Whether Codex asks before it calls a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Approval {
    Preapproved,
    /// According to Codex's configuration.
    AsConfigured,
}

/// Whether a server gets the working directory of a thread as an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RootArgument {
    Omitted,
    /// As `--root DIRECTORY`, if it is known. Codex 0.104.0 starts the servers of all
    /// threads in its own directory, newer releases in the thread's.
    Passed,
}

/// Why the path of this executable cannot be used in Codex's configuration.
#[derive(Debug, thiserror::Error)]
pub enum ExecutablePathError {
    /// The path cannot be determined.
    #[error("cannot determine the path of this executable: {0}")]
    Unknown(io::Error),
    /// The path is not valid Unicode, as Codex's configuration requires.
    #[error("the path of this program is not valid Unicode: {0:?}")]
    NotText(PathBuf),
}

impl Server {
    /// This program with these arguments, as a server of this name in Codex's
    /// configuration. Codex passes it HOME, LANG, PATH and TERM, and calls its tools
    /// without asking.
    ///
    /// # Errors
    ///
    /// [`ExecutablePathError`].
    pub fn new(name: &'static str, args: Vec<String>) -> Result<Self, ExecutablePathError> {
        let program = env::current_exe().map_err(ExecutablePathError::Unknown)?;
        let program = program.into_os_string().into_string();
        Ok(Self {
            name,
            program: program.map_err(|program| ExecutablePathError::NotText(program.into()))?,
            args,
            env: Vec::new(),
            root_argument: RootArgument::Omitted,
            approval: Approval::Preapproved,
        })
    }

    /// Adds a variable.
    #[must_use]
    pub fn with_variable(mut self, name: &'static str, value: String) -> Self {
        self.env.push((name, value));
        self
    }

    /// Leaves the approval of tool calls to Codex's configuration.
    #[must_use]
    pub fn without_preapproval(self) -> Self {
        Self {
            approval: Approval::AsConfigured,
            ..self
        }
    }

    /// Passes the working directory of the thread as `--root DIRECTORY`, if it is known.
    #[must_use]
    pub fn with_root_argument(self) -> Self {
        Self {
            root_argument: RootArgument::Passed,
            ..self
        }
    }

    /// The entry of the server in `config.toml`, for a thread that works in this
    /// directory.
    #[must_use]
    pub fn entry(&self, directory: Option<&Path>) -> Value {
        let mut args = self.args.clone();
        let root = directory.and_then(Path::to_str);
        if let (RootArgument::Passed, Some(root)) = (self.root_argument, root) {
            args.extend([ROOT, root].map(str::to_owned));
        }
        let env = self.env.iter();
        let env: Map<_, _> = env
            .map(|(name, value)| ((*name).to_owned(), Value::from(value.as_str())))
            .collect();
        let mut entry = json!({ "command": self.program, "args": args, "env": env });
        if let (Approval::Preapproved, Some(entry)) = (self.approval, entry.as_object_mut()) {
            entry.insert("default_tools_approval_mode".to_owned(), "approve".into());
        }
        entry
    }
}

/// Adds servers to overrides of `config.toml`, for a thread that works in the absolute path
/// `directory`. If the overrides contain a table of servers, the entries are added to that table,
/// since Codex merges overrides in an undefined order. A server of the caller with the same name
/// takes precedence.
pub fn add(overrides: &mut Map<String, Value>, servers: &[Server], directory: Option<&Path>) {
    for server in servers {
        let key = format!("{TABLE}.{}", server.name);
        let part = format!("{key}.");
        if overrides.keys().any(|said| said.starts_with(&part)) {
            continue;
        }
        let (table, name) = match overrides.get_mut(TABLE) {
            Some(Value::Object(table)) => (table, server.name.to_owned()),
            _ => (&mut *overrides, key),
        };
        table.entry(name).or_insert_with(|| server.entry(directory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        let server = Server::new("team", vec!["x".to_owned()]).unwrap();
        Server {
            program: "c".to_owned(),
            ..server
        }
    }

    fn added(overrides: Value) -> Value {
        let mut overrides = overrides.as_object().unwrap().clone();
        add(&mut overrides, &[server()], Some(Path::new("/f")));
        Value::Object(overrides)
    }

    fn entry() -> Value {
        json!({ "command": "c", "args": ["x"], "env": {},
            "default_tools_approval_mode": "approve" })
    }

    #[test]
    fn server_is_added_beside_existing_ones() {
        assert_eq!(
            added(json!({ "model": "m" })),
            json!({ "model": "m", "mcp_servers.team": entry() })
        );
        let mine = json!({ "command": "d" });
        assert_eq!(
            added(json!({ "mcp_servers": { "mine": mine } })),
            json!({ "mcp_servers": { "mine": mine, "team": entry() } })
        );
        assert_eq!(
            added(json!({ "mcp_servers.team2.command": "d" })),
            json!({ "mcp_servers.team2.command": "d", "mcp_servers.team": entry() })
        );
    }

    #[test]
    fn server_of_the_caller_with_the_same_name_stays() {
        for given in [
            json!({ "mcp_servers.team": 1 }),
            json!({ "mcp_servers.team.command": "d" }),
            json!({ "mcp_servers": { "team": 1 } }),
        ] {
            assert_eq!(added(given.clone()), given);
        }
    }

    #[test]
    fn root_argument_is_passed_where_the_directory_is_known() {
        let told = server()
            .with_root_argument()
            .with_variable("NAME", "v".to_owned());
        let entry = told.entry(Some(Path::new("/a b")));
        assert_eq!(entry["args"], json!(["x", "--root", "/a b"]));
        assert_eq!(entry["env"], json!({ "NAME": "v" }));
        assert_eq!(told.entry(None)["args"], json!(["x"]));
    }

    #[test]
    fn server_without_preapproval_has_no_approval_mode() {
        let entry = server().without_preapproval().entry(None);
        assert_eq!(entry, json!({ "command": "c", "args": ["x"], "env": {} }));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn root_argument_is_omitted_for_a_path_that_is_not_utf8() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;

        let odd = Path::new(OsStr::from_bytes(b"/\xff"));
        assert_eq!(
            server().with_root_argument().entry(Some(odd))["args"],
            json!(["x"])
        );
    }
}
