//! Starts `codex-mcp serve` as a client does, and has it list its tools.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use client_setup::logic::clients::Client;
use client_setup::logic::entry::{Entry, START_TIMEOUT};
use client_setup::logic::plan::ServerProcess;
use codex_config::logic::codex_servers::OWN_NAME;
use rmcp::ServiceExt;
use supervise::search_path::PATH;
use supervise::short_lived::read_output;
use supervise::spawn::{Program, spawn};
use tokio::time::timeout;

use super::change::{is_on_path, program, protected_path};
use crate::installation::Installation;

/// How long the server may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// How much of the server's stderr is read to find the reason for a failure, in bytes.
const STDERR_LIMIT: u64 = 16 * 1024;

/// The number of tools, or why the server does not answer.
pub(super) type Handshake = Result<usize, String>;

/// How a client starts the server.
#[derive(PartialEq, Eq)]
pub(super) struct Launch {
    command: String,
    args: Vec<String>,
    process: ServerProcess,
    /// The variables that the client passes on; `None` for all.
    passed: Option<&'static [&'static str]>,
}

impl Launch {
    pub(super) fn of(client: Client, entry: &Entry, mut process: ServerProcess) -> Self {
        for (_, value) in &mut process.env {
            if let Some(name) = client.variable_in(value) {
                *value = std::env::var(name).unwrap_or_default();
            }
        }
        Self {
            command: entry.command.clone(),
            args: entry.args.clone(),
            process,
            passed: client.passed_variables(),
        }
    }

    /// The program to start. If the client does not pass on all variables, `env` removes the rest
    /// of our own variables. `env` sets none, because other users of the machine can read its
    /// arguments.
    fn program(&self) -> Result<Program, String> {
        let path = match self.command.contains('/') {
            true => PathBuf::from(&self.command),
            false => file_of(&self.command)?,
        };
        // Another path depends on what the client has open.
        let cwd = self.process.directory.clone();
        let cwd = cwd.filter(|directory| directory.is_absolute());
        let env = self.env();
        let Some(passed) = self.passed else {
            return Ok(Program {
                env,
                cwd,
                ..Program::new(&path, &self.args)
            });
        };
        let stays = |name: &OsStr| {
            passed.iter().any(|known| name == *known) || env.iter().any(|(set, _)| set == name)
        };
        let ours = std::env::vars_os().map(|(name, _)| name);
        // `env` refuses to remove a name with `=`, which the system allows.
        let removed = ours.filter(|name| !stays(name) && !name.as_encoded_bytes().contains(&b'='));
        let options = removed.flat_map(|name| [OsString::from("-u"), name]);
        let words: Vec<OsString> = options
            .chain([path.into_os_string()])
            .chain(self.args.iter().map(OsString::from))
            .collect();
        Ok(Program {
            env,
            cwd,
            ..Program::new(&file_of("env")?, words)
        })
    }

    /// The variables that are set on top of ours.
    fn env(&self) -> Vec<(OsString, OsString)> {
        // The server and npx look up programs on it.
        let path = protected_path().map(|value| (PATH.into(), value));
        let written = self.process.env.iter();
        let written = written.map(|(name, value)| (name.into(), value.into()));
        // A host would stay for ten minutes after the check.
        let no_host = ("CODEX_MCP_HOST".into(), "false".into());
        path.into_iter().chain(written).chain([no_host]).collect()
    }

    fn cannot_start(&self, error: &io::Error) -> String {
        match &self.process.directory {
            Some(directory) => format!("cannot start it in {}: {error}", directory.display()),
            None => format!("cannot start it: {error}"),
        }
    }
}

/// The file of a program that is named without a directory, as the entries of repositories name
/// codex-mcp. If PATH has codex-mcp only in directories that Codex's commands can write, the file
/// is this executable.
fn file_of(name: &str) -> Result<PathBuf, String> {
    if let Some(file) = program(name) {
        return Ok(file);
    }
    match is_on_path(name) {
        false => Err(format!("{name} is not on PATH")),
        true if name == OWN_NAME => {
            let own = Installation::of_this_process().program;
            own.ok_or_else(|| "cannot determine the path of this executable".to_owned())
        }
        true => Err(format!(
            "{name} is not run, because it is only in directories of PATH that Codex's commands can \
             write; install it elsewhere"
        )),
    }
}

/// Starts the server, and ends it again.
pub(super) async fn check(launch: &Launch) -> Handshake {
    let spawned = spawn(&launch.program()?);
    let (mut process, streams) = spawned.map_err(|error| launch.cannot_start(&error))?;
    let stderr = tokio::spawn(read_output(streams.stderr, STDERR_LIMIT));
    let listing = async {
        let client = ().serve((streams.stdout, streams.stdin)).await;
        let client = client.map_err(|error| error.to_string())?;
        let tools = client.list_tools(None).await;
        let tools = tools.map_err(|error| error.to_string())?.tools.len();
        // The end of its input ends the server; the result on our side does not matter.
        let _ = client.cancel().await;
        Ok(tools)
    };
    let listed = timeout(START_TIMEOUT, listing).await;
    let listed =
        listed.unwrap_or_else(|_| Err(format!("no answer within {} s", START_TIMEOUT.as_secs())));
    // What is left of it ends when the process is dropped.
    let _ = timeout(END_TIMEOUT, process.wait()).await;
    drop(process);
    match listed {
        Ok(tools) => Ok(tools),
        Err(error) => {
            let said = timeout(END_TIMEOUT, stderr).await;
            let said = said.ok().and_then(Result::ok).and_then(Result::ok);
            let said = said.map(|(said, _)| said);
            let said = said.unwrap_or_default();
            Err(with_reason(error, &String::from_utf8_lossy(&said)))
        }
    }
}

/// An error with the line of the server's stderr that usually has the reason: the last error, or the
/// last line.
fn with_reason(error: String, stderr: &str) -> String {
    let lines = stderr.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty());
    let last_error = lines.clone().rfind(|line| line.starts_with("error:"));
    match last_error.or_else(|| lines.next_back()) {
        Some(reason) => format!("{error}; it said: {reason}"),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(client: Client, env: &[(&str, &str)], directory: Option<&str>) -> Launch {
        let entry = Entry {
            command: "/bin/true".to_owned(),
            args: Vec::new(),
            env: Vec::new(),
        };
        let env = env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let process = ServerProcess {
            env: env.collect(),
            directory: directory.map(PathBuf::from),
        };
        Launch::of(client, &entry, process)
    }

    #[test]
    fn server_is_started_where_the_entry_says() {
        let directory = |client, given| launch(client, &[], given).program().unwrap().cwd;
        let srv = Some(PathBuf::from("/srv"));
        assert_eq!(directory(Client::Cursor, Some("/srv")), srv);
        assert_eq!(directory(Client::Codex, Some("/srv")), srv);
        assert_eq!(directory(Client::VsCode, Some("${workspaceFolder}")), None);
        assert_eq!(directory(Client::Cursor, None), None);
    }

    #[test]
    fn variables_are_set_and_removed_without_a_value_on_the_command_line() {
        let entry = [("SERVICE", "of the entry")];
        let codex = launch(Client::Codex, &entry, None).program().unwrap();
        let has = |args: &[OsString], word: &str| args.iter().any(|arg| arg == word);
        let is_set = |program: &Program, name: &str, value: &str| {
            program.env.contains(&(name.into(), value.into()))
        };
        assert!(is_set(&codex, "SERVICE", "of the entry"), "{codex:?}");
        assert!(is_set(&codex, "CODEX_MCP_HOST", "false"), "{codex:?}");
        let mut words = codex.args.iter().map(|arg| arg.to_string_lossy());
        let is_bare = |word: &str| !word.contains('=') && !word.contains("of the entry");
        assert!(words.all(|word| is_bare(&word)), "{codex:?}");
        // Cargo sets it for tests.
        assert!(has(&codex.args, "CARGO_MANIFEST_DIR"), "{codex:?}");
        for name in ["HOME", "PATH", "SERVICE", "CODEX_MCP_HOST"] {
            assert!(!has(&codex.args, name), "{name}");
        }
        let cursor = launch(Client::Cursor, &entry, None).program().unwrap();
        assert_eq!((cursor.args, cursor.env), (Vec::new(), codex.env));
    }

    #[test]
    fn variables_are_put_in_as_the_client_does() {
        let home = std::env::var("HOME").unwrap();
        for (client, value, expected) in [
            (Client::Copilot, "${HOME}", home.as_str()),
            (Client::ClaudeCode, "${NO_SUCH_VARIABLE}", ""),
            (Client::Cursor, "${env:HOME}", &home),
            (Client::Cursor, "${HOME}", "${HOME}"),
            (Client::Codex, "${HOME}", "${HOME}"),
            (Client::ClaudeCode, "a ${HOME}", "a ${HOME}"),
        ] {
            let launch = launch(client, &[("A", value)], None);
            assert_eq!(launch.process.env[0].1, expected, "{client} {value}");
        }
    }

    #[test]
    fn reason_is_the_last_error_or_the_last_line_of_stderr() {
        let reason = |stderr| with_reason("closed".to_owned(), stderr);
        let usage = "error: invalid value\n\nFor more information, try '--help'.\n";
        assert_eq!(reason(usage), "closed; it said: error: invalid value");
        assert_eq!(
            reason("warning: x\nno team\n\n"),
            "closed; it said: no team"
        );
        assert_eq!(reason("\n"), "closed");
    }
}
