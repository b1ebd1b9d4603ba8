//! Starts `codex-mcp serve` as a client does, and has it list its tools.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use client_setup::logic::clients::Client;
use client_setup::logic::entry::{Entry, START_TIMEOUT};
use client_setup::logic::plan::Surroundings;
use rmcp::ServiceExt;
use supervise::short_lived::read_output;
use supervise::spawn::{Program, spawn};
use tokio::time::timeout;

use super::change::program;

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
    surroundings: Surroundings,
    /// Whether the client passes on its environment.
    inherits: bool,
}

/// What a client passes on that has an environment of its own for servers. Source: Codex 0.169.
const PASSED_ON: [&str; 4] = ["HOME", "LANG", "PATH", "TERM"];

impl Launch {
    pub(super) fn of(client: Client, entry: &Entry, surroundings: Surroundings) -> Self {
        Self {
            command: entry.command.clone(),
            args: entry.args.clone(),
            surroundings,
            inherits: client.passes_environment(),
        }
    }

    /// The program, which `env` starts with an environment of its own if that is wanted. A host
    /// would stay for ten minutes.
    fn program(&self) -> Result<Program, String> {
        let path = match self.command.contains('/') {
            true => PathBuf::from(&self.command),
            false => {
                program(&self.command).ok_or_else(|| format!("{} is not on PATH", self.command))?
            }
        };
        // Another path depends on what the client has open.
        let cwd = self.surroundings.directory.clone();
        let cwd = cwd.filter(|directory| directory.is_absolute());
        let env = self.surroundings.env.iter();
        let env = env.map(|(name, value)| (OsString::from(name), expanded(value)));
        if self.inherits {
            let no_host = ("CODEX_MCP_HOST".into(), "false".into());
            return Ok(Program {
                env: env.chain([no_host]).collect(),
                cwd,
                ..Program::new(&path, &self.args)
            });
        }
        let passed = PASSED_ON.iter().filter_map(|name| {
            let value = std::env::var_os(name)?;
            Some([OsString::from(*name), value].join("=".as_ref()))
        });
        let written = env.map(|(name, value)| [name, value].join("=".as_ref()));
        let mut words: Vec<OsString> = vec!["-i".into(), "CODEX_MCP_HOST=false".into()];
        words.extend(passed.chain(written));
        words.push(path.into());
        words.extend(self.args.iter().map(OsString::from));
        let env = program("env").ok_or_else(|| "env is not on PATH".to_owned())?;
        Ok(Program {
            cwd,
            ..Program::new(&env, words)
        })
    }

    fn cannot_start(&self, error: &io::Error) -> String {
        match &self.surroundings.directory {
            Some(directory) => format!("cannot start it in {}: {error}", directory.display()),
            None => format!("cannot start it: {error}"),
        }
    }
}

/// A value in which a client puts a variable of its own, as in `${HOME}`.
fn expanded(value: &str) -> OsString {
    let name = value
        .strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'));
    match name {
        Some(name) => std::env::var_os(name).unwrap_or_default(),
        None => value.into(),
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

/// An error with the last line of the server's stderr, which usually has the reason.
fn with_reason(error: String, stderr: &str) -> String {
    let last = stderr.lines().map(str::trim).rfind(|line| !line.is_empty());
    match last {
        Some(reason) => format!("{error}; it said: {reason}"),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(command: &str, args: &[&str], directory: Option<&str>) -> Launch {
        Launch {
            command: command.to_owned(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            surroundings: Surroundings {
                directory: directory.map(PathBuf::from),
                ..Surroundings::default()
            },
            inherits: true,
        }
    }

    #[test]
    fn server_is_started_where_the_entry_says() {
        let directory = |given| launch("/bin/true", &[], given).program().unwrap().cwd;
        assert_eq!(directory(Some("/srv")), Some(PathBuf::from("/srv")));
        assert_eq!(directory(Some("${workspaceFolder}")), None);
        assert_eq!(directory(None), None);
        let other = Launch {
            inherits: false,
            ..launch("/bin/true", &[], Some("/srv"))
        };
        assert_eq!(other.program().unwrap().cwd, Some(PathBuf::from("/srv")));
    }

    #[test]
    fn variables_of_the_client_are_put_in() {
        let home = std::env::var_os("HOME").unwrap();
        assert_eq!(expanded("${HOME}"), home);
        assert_eq!(expanded("${NO_SUCH_VARIABLE}"), "");
        for plain in ["/home/you", "${HOME", "a ${HOME}"] {
            assert_eq!(expanded(plain), plain);
        }
    }

    #[test]
    fn reason_is_the_last_line_of_stderr() {
        let reason = with_reason("closed".to_owned(), "warning: x\nerror: no team\n\n");
        assert_eq!(reason, "closed; it said: error: no team");
        assert_eq!(with_reason("closed".to_owned(), "\n"), "closed");
    }
}
