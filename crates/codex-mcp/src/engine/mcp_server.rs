//! A running `codex mcp-server`.

use std::io;
use std::time::Duration;

use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::binary::CodexBinary;
use super::complaints::Complaints;
use super::exit::Exit;
use super::spawn::{Process, Program, Streams, spawn};

/// How long it may take to end once its input is closed. In the middle of a turn
/// it doesn't end at all (0.153.4).
const END_PATIENCE: Duration = Duration::from_secs(1);

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
    pub fn start(codex: &CodexBinary) -> io::Result<(Self, Pipes)> {
        let mut program = Program::new(&codex.native, ["mcp-server"]);
        program.env = codex.env();
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
