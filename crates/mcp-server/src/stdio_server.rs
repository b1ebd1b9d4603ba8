//! Serves an MCP server on a pair of streams.

use rmcp::service::ServerInitializeError;
use rmcp::{ServerHandler, ServiceExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::transport::LineTransport;

/// Serves until the client has gone, or until `closing` is cancelled. The transport must share
/// `closing`.
///
/// # Errors
///
/// When the client does not begin as an MCP client does.
pub async fn serve_until_closed<S, R, W>(
    server: S,
    transport: LineTransport<R, W>,
    closing: &CancellationToken,
) -> Result<(), Box<ServerInitializeError>>
where
    S: ServerHandler,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    match server.serve(transport).await {
        Ok(service) => {
            if let Err(error) = service.waiting().await {
                tracing::error!("serving ended abruptly: {error}");
            }
            Ok(())
        }
        Err(_) if closing.is_cancelled() => Ok(()),
        Err(error) => Err(Box::new(error)),
    }
}
