//! For tests and benches alone: an engine whose app-server is no process but
//! whatever is at the other end of two streams.

use std::sync::Arc;

use supervise::exit::Exit;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::app_server::AppServer;
use super::connection::{Connection, Listener};
use super::{Engine, Options};

/// An engine that has introduced itself to the peer behind `reader` and
/// `writer` and works with it as with an app-server.
///
/// # Errors
///
/// What was wrong with the peer's answer to `initialize`.
pub async fn engine_over<R, W>(options: Options, reader: R, writer: W) -> Result<Engine, String>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let line_limit = options.launch.line_limit;
    let engine = Engine::new(options);
    let listener: Arc<dyn Listener> = engine.hub.clone();
    let (connection, run) = Connection::open(reader, writer, line_limit, listener);
    let (ending, ended) = watch::channel(None);
    tokio::spawn(async move {
        run.await;
        ending.send_replace(Some(Exit::Code(0)));
    });
    let server = AppServer::introduce(connection, ended)
        .await
        .map_err(|error| error.to_string())?;
    engine.backend.adopt(server).await;
    Ok(engine)
}
