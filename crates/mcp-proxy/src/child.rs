//! Starts the child, `codex mcp-server`, passes its messages on, and ends it.

use std::sync::Arc;

use codex_engine::{InstalledCodex, McpServer, Pipes};
use tokio::process::ChildStdin;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::intake::Side;
use crate::outbox::OutboxWriter;
use crate::proxy::{DRAIN_TIMEOUT, Proxy};

impl Proxy {
    /// Runs the child until it ends or `hang_up` is cancelled, and then tells the router why the
    /// child is gone.
    pub(super) async fn run_child(
        self: Arc<Self>,
        codex: InstalledCodex,
        for_child: OutboxWriter,
        hang_up: CancellationToken,
    ) {
        let how = match self.start_child(codex, &hang_up).await {
            Ok((server, Pipes { stdin, stdout })) => {
                tokio::spawn(feed(stdin, for_child, hang_up.clone()));
                let silent = CancellationToken::new();
                let silence_guard = silent.clone().drop_guard();
                let reader = Arc::clone(&self);
                tokio::spawn(async move {
                    reader.read(Side::Child, stdout).await;
                    drop(silence_guard);
                });
                tokio::select! {
                    () = silent.cancelled() => {}
                    () = hang_up.cancelled() => {}
                }
                let how = server.end().await;
                // The client gets the last messages of the child too.
                let _ = timeout(DRAIN_TIMEOUT, silent.cancelled()).await;
                how
            }
            Err(why) => why,
        };
        tracing::info!("codex mcp-server {how}");
        let effects = self.with_router(|router, _| router.child_gone(&how));
        self.perform(effects);
    }

    /// Starts the child, once the installed Codex is identified.
    ///
    /// # Errors
    ///
    /// The reason for which no child was started, in words.
    async fn start_child(
        &self,
        codex: InstalledCodex,
        hang_up: &CancellationToken,
    ) -> Result<(McpServer, Pipes), String> {
        let codex = tokio::select! {
            codex = codex.with_release() => codex,
            () = hang_up.cancelled() => return Err("was not started".to_owned()),
        };
        let codex = codex.map_err(|error| {
            tracing::error!("{error}");
            format!("cannot be started: {error}")
        })?;
        tracing::info!("starting {} mcp-server", codex.binary.native.display());
        McpServer::start(&codex).map_err(|error| format!("cannot be started: {error}"))
    }
}

/// Writes messages to the child. A write error needs no handling here: a child that no longer reads
/// also ends its output, which the reader of its output notices.
async fn feed(stdin: ChildStdin, for_child: OutboxWriter, hang_up: CancellationToken) {
    if let Err(error) = for_child.write(stdin, hang_up).await {
        tracing::debug!("writing to codex mcp-server failed: {error}");
    }
}
