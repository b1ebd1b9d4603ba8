//! A separate MCP server for the mail of a team member. Codex's threads are given this server, so
//! that they can write to the team in the middle of a turn.

use agent_team::MailClient;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, ServerInitializeError};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::stdio_server::serve_until_closed;
use super::transport::LineTransport;
use crate::deliveries::{Deliveries, ToolOutcome};
use crate::tools::team::MailTool;

/// Serves the mail tools to one client.
struct TeamTools {
    mail_client: MailClient,
    deliveries: Deliveries,
}

/// Serves the mail of `mail_client` until the client has gone, or `closing` is cancelled.
///
/// # Errors
///
/// When the client does not begin as an MCP client does.
pub async fn serve_team_tools<R, W>(
    mail_client: MailClient,
    (reader, writer): (R, W),
    line_limit: usize,
    closing: CancellationToken,
) -> Result<(), Box<ServerInitializeError>>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let deliveries = Deliveries::default();
    let transport = LineTransport::new(reader, writer, line_limit, closing.clone())
        .with_deliveries(deliveries.clone());
    let tools = TeamTools {
        mail_client: mail_client.clone(),
        deliveries,
    };
    serve_until_closed(tools, transport, &closing).await?;
    mail_client.settle().await;
    Ok(())
}

impl ServerHandler for TeamTools {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let about = Implementation::new("codex-mcp team-tools", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities)
            .with_server_info(about)
            .with_instructions("Mail between the agents of a team.")
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = MailTool::ALL.map(MailTool::annotated);
        Ok(ListToolsResult::with_all_items(tools.to_vec()))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mail = MailTool::named(&call.name).ok_or_else(|| {
            let known = MailTool::ALL.map(MailTool::as_str).join(", ");
            let message = format!("there is no tool {:?}; there are {known}", call.name);
            ErrorData::invalid_params(message, None)
        })?;
        let arguments = call.arguments.unwrap_or_default();
        match mail.call(&self.mail_client, arguments).await {
            Ok(ToolOutcome { result, then }) => {
                if let Some(then) = then {
                    self.deliveries.register(context.id, then);
                }
                Ok(result.into())
            }
            Err(error) => Ok(error.into_plain_result().into()),
        }
    }
}
