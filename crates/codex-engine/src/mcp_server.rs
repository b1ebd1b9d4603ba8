//! A running `codex mcp-server`.

use std::io;
use std::path::{Path, PathBuf};
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
use super::confinement::{Conversation, NO_GIT, RequestedSettings, ThreadContext};
use super::release::{has_command, release_of};
use super::stderr_log::StderrLog;

/// How long the server may take to exit once its input is closed. During a turn it never exits by
/// itself (0.153.4).
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// An installed Codex whose MCP server is to be started.
#[derive(Debug, Clone)]
pub struct InstalledCodex {
    /// The program.
    pub binary: CodexBinary,
    /// Its home, CODEX_HOME.
    pub home: PathBuf,
    /// Its release, if it is known.
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
    /// Determines the release, if it is not known, and checks that this Codex has an MCP
    /// server.
    ///
    /// # Errors
    ///
    /// [`NoMcpServer`].
    pub async fn with_release(self) -> Result<Self, NoMcpServer> {
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
    stderr_log: StderrLog,
}

/// Its stdin and stdout.
pub struct Pipes {
    /// The server's input; closing it signals its end.
    pub stdin: ChildStdin,
    /// The server's output, one message per line.
    pub stdout: ChildStdout,
}

impl McpServer {
    /// Starts a server. Its stderr goes to our log.
    ///
    /// # Errors
    ///
    /// If the process cannot be started. See [`spawn`].
    pub fn start(codex: &InstalledCodex) -> io::Result<(Self, Pipes)> {
        warn_of_replaceable(&codex.binary.native, None);
        let mut args = vec!["mcp-server".to_owned()];
        args.extend(overrides(&codex.home, codex.release));
        let mut program = Program::new(&codex.binary.native, args);
        program.env = codex.binary.env();
        program.env.push((NO_GIT.0.into(), NO_GIT.1.into()));
        let (process, streams) = spawn(&program)?;
        let Streams {
            stdin,
            stdout,
            stderr,
        } = streams;
        let stderr_log = StderrLog::listen(stderr);
        let server = Self {
            process,
            stderr_log,
        };
        Ok((server, Pipes { stdin, stdout }))
    }

    /// Waits for its exit, and ends it if that takes too long. Returns a description of
    /// the exit and the end of its stderr.
    pub async fn end(mut self) -> String {
        let exit = match timeout(END_TIMEOUT, self.process.wait()).await {
            Ok(Ok(exit)) => exit,
            Ok(Err(error)) => {
                tracing::error!("cannot determine how Codex ended: {error}");
                Exit::Unknown
            }
            Err(_) => {
                self.process.terminate();
                if let Err(error) = self.process.wait().await {
                    tracing::error!("cannot determine how Codex ended: {error}");
                }
                return "said no more and was ended".to_owned();
            }
        };
        match exit {
            // After a normal exit its stderr states no reason.
            Exit::Code(0) => exit.to_string(),
            exit => format!("{exit}{}", self.stderr_log.stderr_tail().await),
        }
    }
}

/// Overrides for the whole server. They hide from commands the variable that keeps Codex's own git
/// away from repositories, and disable the user's servers that delegate work to Codex. Trust is
/// stated in each call that begins a thread, since the call names the directory
/// (`mcp_proxy::augment`).
fn overrides(home: &Path, release: Option<Release>) -> Vec<String> {
    let mut config = Map::new();
    let workplace = ThreadContext {
        conversation: Conversation::Resumed,
        config: &UserConfig::read(home).layers(None, None),
        release,
        trust: None,
    };
    workplace.confine(RequestedSettings {
        sandbox: &mut None,
        approval_policy: &mut None,
        config: &mut config,
    });
    workplace.without_delegation(&mut config);
    let values = config
        .iter()
        .filter_map(|(key, value)| Some(format!("--config={key}={}", toml_value::value(value)?)));
    values.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delegating_servers_are_disabled() {
        let home = tempfile::tempdir().unwrap();
        let user = "[mcp_servers.ours]\ncommand = \"codex-mcp\"\nargs = [\"serve\"]\n";
        std::fs::write(home.path().join("config.toml"), user).unwrap();
        let overrides = overrides(home.path(), Some(Release::new(0, 153, 4)));
        let off = "--config=mcp_servers.ours.enabled=false";
        assert!(overrides.iter().any(|one| one == off), "{overrides:?}");
    }
}
