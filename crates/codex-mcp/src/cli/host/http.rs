//! The HTTP endpoint that a host also serves if `http` is set.
//!
//! The endpoint is `codex-mcp web` in a separate process. If there are several hosts, the first one
//! has the endpoint; when that host ends, another host starts it again.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use common::text::one_line;
use supervise::exit::Exit;
use supervise::spawn::{Lookup, Program, own_executable, own_secrets, spawn};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::sleep;

use crate::cli::web;

/// The interval between two checks whether the endpoint runs.
const LOOK_AFTER: Duration = Duration::from_secs(5);

/// The longest log line of the endpoint, in bytes.
const LOGGED: usize = 1000;

/// Keeps the endpoint running. The endpoint ends when this future is dropped.
pub(super) async fn keep(address: SocketAddr, state: &Path) -> Infallible {
    loop {
        match web::is_running(state) {
            Ok(true) => {}
            Ok(false) => match serve(address).await {
                Ok(exit) => tracing::warn!("the HTTP endpoint {exit}"),
                Err(error) => tracing::warn!("the HTTP endpoint cannot be started: {error}"),
            },
            Err(error) => tracing::warn!("cannot look for the HTTP endpoint: {error}"),
        }
        sleep(LOOK_AFTER).await;
    }
}

/// Runs the endpoint until it ends. Its error messages go into our log.
async fn serve(address: SocketAddr) -> io::Result<Exit> {
    let address = address.to_string();
    let program = Program {
        // A client finds the host by its environment, so the endpoint needs the environment of the
        // host.
        env: own_secrets(),
        lookup: Lookup::AsTheUser,
        ..Program::new(
            &own_executable()?,
            ["web", "--no-link", "--listen", &address],
        )
    };
    let (mut process, streams) = spawn(&program)?;
    let mut lines = BufReader::new(streams.stderr).lines();
    while let Some(line) = lines.next_line().await? {
        tracing::warn!("the HTTP endpoint says: {}", one_line(&line, LOGGED));
    }
    process.wait().await
}
