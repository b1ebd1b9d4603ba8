//! Starts `codex-mcp serve` as a client does, and has it list its tools.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use client_setup::logic::clients::Client;
use client_setup::logic::entry::{Entry, START_TIMEOUT};
use rmcp::ServiceExt;
use supervise::spawn::{Program, spawn};
use tokio::time::timeout;

use super::change::program;

/// How long the server may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The number of tools, or why the server does not answer.
pub(super) type Handshake = Result<usize, String>;

/// How a client starts the server.
#[derive(PartialEq, Eq)]
pub(super) struct Launch {
    entry: Entry,
    /// Whether the client passes on its environment.
    inherits: bool,
}

/// What a client passes on that has an environment of its own for servers. Source: Codex 0.169.
const PASSED_ON: [&str; 4] = ["HOME", "LANG", "PATH", "TERM"];

impl Launch {
    pub(super) fn of(client: Client, entry: Entry) -> Self {
        let inherits = client.passes_environment();
        Self { entry, inherits }
    }

    /// The program, which `env` starts with an environment of its own if that is wanted. A host
    /// would stay for ten minutes.
    fn program(&self) -> Result<Program, String> {
        let Entry { command, args, env } = &self.entry;
        let path = match command.contains('/') {
            true => PathBuf::from(command),
            false => program(command).ok_or_else(|| format!("{command} is not on PATH"))?,
        };
        if self.inherits {
            let own = env.iter().map(|(name, value)| (name.into(), value.into()));
            let no_host = ("CODEX_MCP_HOST".into(), "false".into());
            return Ok(Program {
                env: own.chain([no_host]).collect(),
                ..Program::new(&path, args)
            });
        }
        let passed = PASSED_ON.iter().filter_map(|name| {
            let value = std::env::var_os(name)?;
            Some([OsString::from(*name), value].join("=".as_ref()))
        });
        let written = env
            .iter()
            .map(|(name, value)| format!("{name}={value}").into());
        let mut words: Vec<OsString> = vec!["-i".into(), "CODEX_MCP_HOST=false".into()];
        words.extend(passed.chain(written));
        words.push(path.into());
        words.extend(args.iter().map(OsString::from));
        let env = program("env").ok_or_else(|| "env is not on PATH".to_owned())?;
        Ok(Program::new(&env, words))
    }
}

/// Starts the server, and ends it again.
pub(super) async fn check(launch: &Launch) -> Handshake {
    let (mut process, streams) = spawn(&launch.program()?).map_err(|error| error.to_string())?;
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
    listed
}
