//! A real `codex-mcp serve`, and the client that talks to it.

use std::io;
use std::time::Duration;

use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
    Implementation, ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::{ClientHandler, ErrorData, RoleClient};
use supervise::spawn::{Process, spawn};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::demo_codex::DemoCodex;
use super::tail::last_words;
use super::wire::{TappedMessage, Wire};
use super::workspace::Workspace;

/// The demo's connection to its server.
pub(super) type Line = Wire<ChildStdout, ChildStdin>;

/// A running `codex-mcp serve`.
pub(super) struct Server {
    process: Process,
    words: JoinHandle<String>,
}

impl Server {
    /// Starts a server in the workspace, with that Codex.
    ///
    /// # Errors
    ///
    /// When this executable can't be started again.
    pub(super) fn start(
        workspace: &Workspace,
        demo_codex: &DemoCodex,
    ) -> io::Result<(Self, Line, mpsc::Receiver<TappedMessage>)> {
        let args = [
            "serve".as_ref(),
            // Nothing of the demo outlives it.
            "--no-host".as_ref(),
            "--codex-bin".as_ref(),
            demo_codex.path().as_os_str(),
        ];
        let program = workspace.program(&std::env::current_exe()?, args);
        let (process, streams) = spawn(&program)?;
        let words = tokio::spawn(last_words(streams.stderr));
        let (wire, passed) = Wire::new(streams.stdout, streams.stdin);
        Ok((Self { process, words }, wire, passed))
    }

    /// Waits until the server has ended, and returns the last lines that it logged. The server
    /// ends by itself once the connection has been dropped; after `limit` it is killed.
    pub(super) async fn end(mut self, limit: Duration) -> String {
        if let Err(error) = self.process.end_after(limit).await {
            return error.to_string();
        }
        self.words.await.unwrap_or_default()
    }
}

/// An MCP client whose user accepts everything.
pub(super) struct Client;

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            ClientCapabilities::builder().enable_elicitation().build(),
            Implementation::new("codex-mcp-demo", env!("CARGO_PKG_VERSION")),
        )
        // The newest version with a handshake.
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
