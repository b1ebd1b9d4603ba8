//! Starts `codex-mcp serve` as a client does, and has it list its tools.

use std::ffi::OsString;
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

    /// The program, which `env` starts with an environment of its own if that is wanted. A host
    /// would stay for ten minutes.
    fn program(&self) -> Result<Program, String> {
        let path = match self.command.contains('/') {
            true => PathBuf::from(&self.command),
            false => file_of(&self.command)?,
        };
        // Another path depends on what the client has open.
        let cwd = self.process.directory.clone();
        let cwd = cwd.filter(|directory| directory.is_absolute());
        let env = self.process.env.iter();
        let env = env.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let Some(passed) = self.passed else {
            let no_host = ("CODEX_MCP_HOST".into(), "false".into());
            return Ok(Program {
                env: env.chain([no_host]).collect(),
                cwd,
                ..Program::new(&path, &self.args)
            });
        };
        let passed = passed.iter().filter_map(|name| {
            let value = match *name {
                // The server and npx look up programs on it.
                PATH => protected_path()?,
                name => std::env::var_os(name)?,
            };
            Some([OsString::from(*name), value].join("=".as_ref()))
        });
        let written = env.map(|(name, value)| [name, value].join("=".as_ref()));
        let mut words: Vec<OsString> = vec!["-i".into(), "CODEX_MCP_HOST=false".into()];
        words.extend(passed.chain(written));
        words.push(path.into());
        words.extend(self.args.iter().map(OsString::from));
        Ok(Program {
            cwd,
            ..Program::new(&file_of("env")?, words)
        })
    }

    fn cannot_start(&self, error: &io::Error) -> String {
        match &self.process.directory {
            Some(directory) => format!("cannot start it in {}: {error}", directory.display()),
            None => format!("cannot start it: {error}"),
        }
    }
}

/// The file of a program that is named without a directory, as entries of repositories name
/// codex-mcp. If PATH has codex-mcp only where Codex's commands can write, it is this executable.
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
