//! For tests and benches only: an engine whose app-server is the peer of two streams, not
//! a process.

use std::sync::Arc;

use supervise::exit::Exit;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::app_server::AppServer;
use super::connection::{Connection, Listener};
use super::engine::{Engine, Options};

/// An engine that uses the peer behind `reader` and `writer` as its app-server. The
/// connection is initialised on return.
///
/// # Errors
///
/// The error in the peer's response to `initialize`.
pub async fn engine_over<R, W>(options: Options, reader: R, writer: W) -> Result<Engine, String>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let line_limit = options.launch.line_limit;
    let engine = Engine::new(options);
    let listener: Arc<dyn Listener> = engine.codex.hub.clone();
    let (connection, run) = Connection::open(reader, writer, line_limit, listener);
    let (ending, ended) = watch::channel(None);
    let generation = engine.codex.backend.next_generation(ended.clone());
    tokio::spawn(async move {
        run.await;
        ending.send_replace(Some(Exit::Code(0)));
    });
    let server = AppServer::introduce(connection, ended)
        .await
        .map_err(|error| error.to_string())?;
    engine.codex.backend.adopt(server, generation).await;
    Ok(engine)
}
