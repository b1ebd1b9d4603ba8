//! Starts `codex-mcp serve` as a client does, and has it list its tools.

use std::path::PathBuf;
use std::time::Duration;

use client_setup::logic::entry::{Entry, START_TIMEOUT};
use rmcp::ServiceExt;
use supervise::spawn::{Program, spawn};
use tokio::time::timeout;

use super::change::program;

/// How long the server may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The number of tools, or why the server does not answer.
pub(super) type Handshake = Result<usize, String>;

/// Starts the server of an entry, and ends it again.
pub(super) async fn hold(entry: &Entry) -> Handshake {
    let path = match entry.command.contains('/') {
        true => PathBuf::from(&entry.command),
        false => {
            program(&entry.command).ok_or_else(|| format!("{} is not on PATH", entry.command))?
        }
    };
    let server = Program {
        // A host that is started here would stay for ten minutes.
        env: vec![("CODEX_MCP_HOST".into(), "false".into())],
        ..Program::new(&path, &entry.args)
    };
    let (mut process, streams) = spawn(&server).map_err(|error| error.to_string())?;
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
    // Whatever is left of it ends when the process is dropped.
    let _ = timeout(END_TIMEOUT, process.wait()).await;
    listed
}
