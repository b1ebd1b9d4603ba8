//! A running `codex mcp-server`.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use codex_config::layers::UserConfig;
use codex_protocol::codex::Release;
use common::toml_value;
use serde_json::Map;
use supervise::exit::Exit;
use supervise::search_path::warn_of_replaceable;
use supervise::spawn::{Process, Program, Streams, spawn};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::binary::CodexBinary;
use super::complaints::Complaints;
use super::confinement::{Conversation, NO_GIT, Wanted, Workplace};
use super::release::{has_command, release_of};

/// How long it may take to end once its input is closed. In the middle of a turn
/// it doesn't end at all (0.153.4).
const END_PATIENCE: Duration = Duration::from_secs(1);

/// A Codex that is to serve.
#[derive(Debug, Clone)]
pub struct InstalledCodex {
    /// The program.
    pub binary: CodexBinary,
    /// Its home, CODEX_HOME.
    pub home: PathBuf,
    /// Which release it is, if that is known.
    pub release: Option<Release>,
}

/// A Codex without an MCP server.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} has no mcp-server. Leave out `--backend mcp-server`: the default backend does the same \
     job with this Codex, with progress notifications instead of codex/event. For a client that \
     needs those, install the last Codex with one: `npm install -g @openai/codex@0.153.4`.",
    named(.release)
)]
pub struct NoMcpServer {
    /// Its release, if it is known.
    pub release: Option<Release>,
}

fn named(release: &Option<Release>) -> String {
    match release {
        Some(release) => format!("Codex {release}"),
        None => "this Codex".to_owned(),
    }
}

impl InstalledCodex {
    /// The same with its release. A Codex whose release was not known is asked for it
    /// and for its commands.
    ///
    /// # Errors
    ///
    /// [`NoMcpServer`].
    pub async fn identified(self) -> Result<Self, NoMcpServer> {
        if self.release.is_some() {
            return Ok(self);
        }
        let (release, has_server) = tokio::join!(
            release_of(&self.binary),
            has_command(&self.binary, "mcp-server")
        );
        match has_server {
            Some(false) => Err(NoMcpServer { release }),
            Some(true) | None => Ok(Self { release, ..self }),
        }
    }
}

/// A running `codex mcp-server`. Dropping it ends it and all that it started.
pub struct McpServer {
    process: Process,
    complaints: Complaints,
}

/// What it reads and what it says.
pub struct Pipes {
    /// Closing it tells it that there is nothing more to come.
    pub stdin: ChildStdin,
    /// One message a line.
    pub stdout: ChildStdout,
}

impl McpServer {
    /// Starts one. Its stderr goes to our log.
    ///
    /// # Errors
    ///
    /// When the system can't start processes. See [`spawn`].
    pub fn start(codex: &InstalledCodex) -> io::Result<(Self, Pipes)> {
        warn_of_replaceable(&codex.binary.native);
        let mut args = vec!["mcp-server".to_owned()];
        args.extend(overrides(codex));
        let mut program = Program::new(&codex.binary.native, args);
        program.env = codex.binary.env();
        program.env.push((NO_GIT.0.into(), NO_GIT.1.into()));
        let (process, streams) = spawn(&program)?;
        let Streams {
            stdin,
            stdout,
            stderr,
        } = streams;
        let complaints = Complaints::listen(stderr);
        let server = Self {
            process,
            complaints,
        };
        Ok((server, Pipes { stdin, stdout }))
    }

    /// Waits for its end, which is brought about if it doesn't come soon; how it
    /// ended, and what it said last.
    pub async fn end(mut self) -> String {
        let exit = match timeout(END_PATIENCE, self.process.wait()).await {
            Ok(Ok(exit)) => exit,
            Ok(Err(error)) => {
                tracing::error!("can't tell how Codex ended: {error}");
                Exit::Unknown
            }
            Err(_) => {
                self.process.terminate();
                if let Err(error) = self.process.wait().await {
                    tracing::error!("can't tell how Codex ended: {error}");
                }
                return "said no more and was ended".to_owned();
            }
        };
        match exit {
            // What it says then is no reason.
            Exit::Code(0) => exit.to_string(),
            exit => format!("{exit}{}", self.complaints.last_words().await),
        }
    }
}

/// What hides from commands what keeps Codex's own git away. Trust is told in each call that
/// begins a thread, which names the directory (`mcp::proxy::augment`).
fn overrides(codex: &InstalledCodex) -> Vec<String> {
    let mut config = Map::new();
    let workplace = Workplace {
        conversation: Conversation::Resumed,
        config: &UserConfig::read(&codex.home).layers(None, None),
        release: codex.release,
        trust: None,
    };
    workplace.confine(Wanted {
        sandbox: &mut None,
        approval_policy: &mut None,
        config: &mut config,
    });
    let values = config
        .iter()
        .filter_map(|(key, value)| Some(format!("--config={key}={}", toml_value::value(value)?)));
    values.collect()
}
