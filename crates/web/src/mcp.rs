//! MCP at `/mcp`: the service of rmcp, with a client of the host behind each session or request.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tower_service::Service as _;

use crate::app::App;
use crate::auth::Caller;
use crate::forwarder::{Forwarder, about};
use crate::refusal::Refusal;

/// The longest message of a client, in bytes (4 MiB).
pub(crate) const LONGEST_MESSAGE: usize = 4 << 20;

/// How long a session of MCP may be silent: as long as a question may be open.
const SESSION_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// A message of an MCP client. Its token must be one that may decide: a tool may do anything.
pub(crate) async fn respond(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    if let Err(refusal) = caller.must_decide() {
        return refusal.into_response();
    }
    let service = app.mcp.get_or_try_init(|| service(&app)).await;
    match service {
        // It answers each failure itself.
        Ok(service) => match service.clone().call(request).await {
            Ok(response) => response.into_response(),
            Err(never) => match never {},
        },
        Err(why) => Refusal::Failed(why).into_response(),
    }
}

async fn service(
    app: &App,
) -> Result<StreamableHttpService<Forwarder, LocalSessionManager>, String> {
    let connect = Arc::clone(&app.board.connections.classic);
    let about = about(&*connect).await?;
    let new = move || Ok(Forwarder::new(Arc::clone(&connect), about.clone()));
    // Host and Origin were checked before, also for names that only we know.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_max_request_body_bytes(LONGEST_MESSAGE)
        .with_cancellation_token(app.closing.child_token());
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(SESSION_LIFE);
    Ok(StreamableHttpService::new(new, Arc::new(sessions), config))
}
