//! A real `codex-mcp serve`, and the client that talks to it.

use std::io;
use std::time::Duration;

use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
    Implementation, ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::{ClientHandler, ErrorData, RoleClient};
use supervise::spawn::{Process, Streams, spawn};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::cast::Cast;
use super::stage::Stage;
use super::tail::last_words;
use super::wire::{Passed, Wire};

/// The demo's line to its server.
pub(super) type Line = Wire<ChildStdout, ChildStdin>;

/// A running `codex-mcp serve`.
pub(super) struct Server {
    process: Process,
    words: JoinHandle<String>,
}

impl Server {
    /// Starts one on the stage, with that Codex.
    ///
    /// # Errors
    ///
    /// When this executable can't be started again.
    pub(super) fn start(
        stage: &Stage,
        cast: &Cast,
    ) -> io::Result<(Self, Line, mpsc::Receiver<Passed>)> {
        let args = [
            "serve".as_ref(),
            "--codex-bin".as_ref(),
            cast.path().as_os_str(),
        ];
        let program = stage.program(&std::env::current_exe()?, args);
        let (process, streams) = spawn(&program)?;
        let Streams {
            stdin,
            stdout,
            stderr,
        } = streams;
        let words = tokio::spawn(last_words(stderr));
        let (wire, passed) = Wire::new(stdout, stdin);
        Ok((Self { process, words }, wire, passed))
    }

    /// Waits until the server is gone, and returns the last that it logged. It
    /// ends by itself once the line has been dropped, but only so much time is
    /// left to it.
    pub(super) async fn end(mut self, patience: Duration) -> String {
        if let Err(error) = self.process.end_after(patience).await {
            return error.to_string();
        }
        self.words.await.unwrap_or_default()
    }
}

/// An MCP client with a user who says yes.
pub(super) struct Client;

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            ClientCapabilities::builder().enable_elicitation().build(),
            Implementation::new("codex-mcp-demo", env!("CARGO_PKG_VERSION")),
        )
        // The newest version that begins with `initialize`.
        .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn create_elicitation(
        &self,
        _question: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(ElicitResult::new(ElicitationAction::Accept))
    }
}
