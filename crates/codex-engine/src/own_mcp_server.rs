//! MCP servers of ours that Codex is given beside the user's own where it can't be given
//! tools in another way: this program once more.

use std::path::{Path, PathBuf};
use std::{env, io};

use serde_json::{Map, Value, json};

/// Where Codex's configuration has them.
const TABLE: &str = "mcp_servers";

/// The argument that tells a server where a thread works.
const ROOT: &str = "--root";

/// Such a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    name: &'static str,
    program: String,
    args: Vec<String>,
    env: Vec<(&'static str, String)>,
    directory: Directory,
    approval: Approval,
}

/// Whether Codex asks before it calls a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Approval {
    Beforehand,
    /// As its own configuration says.
    AsConfigured,
}

/// What a server is told of the directory that a thread works in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Directory {
    Untold,
    /// `--root DIRECTORY`, where it is known. Codex 0.104.0 starts the servers of all
    /// threads in its own directory, and newer ones in the thread's.
    AsRoot,
}

/// Why there can't be a server.
#[derive(Debug, thiserror::Error)]
pub enum NoServer {
    /// Nobody tells where this program is.
    #[error("nobody tells where this program is: {0}")]
    Unknown(io::Error),
    /// Codex's configuration has texts only.
    #[error("the path of this program is not valid Unicode: {0:?}")]
    NotText(PathBuf),
}

impl Server {
    /// This program with these arguments, under a name of Codex's configuration. Codex
    /// gives it HOME, LANG, PATH and TERM, and asks nobody before it calls a tool of it.
    ///
    /// # Errors
    ///
    /// [`NoServer`].
    pub fn new(name: &'static str, args: Vec<String>) -> Result<Self, NoServer> {
        let program = env::current_exe().map_err(NoServer::Unknown)?;
        let program = program.into_os_string().into_string();
        Ok(Self {
            name,
            program: program.map_err(|program| NoServer::NotText(program.into()))?,
            args,
            env: Vec::new(),
            directory: Directory::Untold,
            approval: Approval::Beforehand,
        })
    }

    /// The same, with a variable more.
    #[must_use]
    pub fn with_variable(mut self, name: &'static str, value: String) -> Self {
        self.env.push((name, value));
        self
    }

    /// The same, with tools that are not approved beforehand.
    #[must_use]
    pub fn asking_first(self) -> Self {
        Self {
            approval: Approval::AsConfigured,
            ..self
        }
    }

    /// The same, which is told in which directory a thread works: by `--root DIRECTORY`, where
    /// that is known.
    #[must_use]
    pub fn told_the_directory(self) -> Self {
        Self {
            directory: Directory::AsRoot,
            ..self
        }
    }

    /// It as `config.toml` has it, for a thread that works in this directory.
    #[must_use]
    pub fn entry(&self, directory: Option<&Path>) -> Value {
        let mut args = self.args.clone();
        let root = directory.and_then(Path::to_str);
        if let (Directory::AsRoot, Some(root)) = (self.directory, root) {
            args.extend([ROOT, root].map(str::to_owned));
        }
        let env = self.env.iter();
        let env: Map<_, _> = env
            .map(|(name, value)| ((*name).to_owned(), Value::from(value.as_str())))
            .collect();
        let mut entry = json!({ "command": self.program, "args": args, "env": env });
        if let (Approval::Beforehand, Some(entry)) = (self.approval, entry.as_object_mut()) {
            entry.insert("default_tools_approval_mode".to_owned(), "approve".into());
        }
        entry
    }
}

/// Adds servers to overrides of `config.toml` for a thread that works in `directory`,
/// which is absolute. Where these speak of servers already, it is said there: Codex lays
/// its overrides one over the other, in an order of its own. A server of the caller's
/// that has the same name stays.
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
    fn a_server_is_added_beside_those_that_are_there() {
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
    fn the_callers_own_of_the_name_stays() {
        for given in [
            json!({ "mcp_servers.team": 1 }),
            json!({ "mcp_servers.team.command": "d" }),
            json!({ "mcp_servers": { "team": 1 } }),
        ] {
            assert_eq!(added(given.clone()), given);
        }
    }

    #[test]
    fn a_server_that_wants_it_is_told_the_directory_where_that_is_known() {
        let told = server()
            .told_the_directory()
            .with_variable("NAME", "v".to_owned());
        let entry = told.entry(Some(Path::new("/a b")));
        assert_eq!(entry["args"], json!(["x", "--root", "/a b"]));
        assert_eq!(entry["env"], json!({ "NAME": "v" }));
        assert_eq!(told.entry(None)["args"], json!(["x"]));
    }

    #[test]
    fn server_that_asks_first_is_not_approved_beforehand() {
        let entry = server().asking_first().entry(None);
        assert_eq!(entry, json!({ "command": "c", "args": ["x"], "env": {} }));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_directory_that_codex_can_not_be_told_is_not_told() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;

        let odd = Path::new(OsStr::from_bytes(b"/\xff"));
        assert_eq!(
            server().told_the_directory().entry(Some(odd))["args"],
            json!(["x"])
        );
    }
}
