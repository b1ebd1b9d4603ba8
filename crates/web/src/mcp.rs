//! MCP over HTTP: each HTTP session, or each request of MCP 2026-07-28, is a client of the host.
//!
//! rmcp does what belongs to HTTP. What a client asks is passed on to the host as it is, and so is
//! what the host tells and asks meanwhile.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams,
    CompleteRequestParams, CompleteResult, CreateTaskResult, DiscoverResult,
    GetPromptRequestParams, GetPromptResponse, GetPromptResult, GetTaskParams, GetTaskResult,
    InitializeRequestParams, InitializeResult, InputRequiredResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerConfig,
    ServerNotification, ServerRequest, SubscribeRequestParams, SubscriptionFilter,
    UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, Peer, RequestContext, ServiceError, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::link::{CallError, Connect, HostLink, Incoming, taken};

/// The notification by which a host confirms a subscription. rmcp confirms it here.
const CONFIRMED: &str = "notifications/subscriptions/acknowledged";

/// A client of the host for one HTTP session or request.
pub(crate) struct Forwarder {
    connect: Arc<Connect>,
    about: ServerConfig,
    link: OnceCell<HostLink>,
}

/// What the server of a host says about itself, to a client that can do nothing special.
pub(crate) async fn about(connect: &Connect) -> Result<ServerConfig, String> {
    let link = HostLink::open(connect).await?;
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "codex-mcp web", "version": env!("CARGO_PKG_VERSION") },
    });
    let result = link.call("initialize", params).await;
    let result = result.map_err(|CallError(error)| error.to_string())?;
    serde_json::from_value(result).map_err(|error| error.to_string())
}

impl Forwarder {
    pub(crate) fn new(connect: Arc<Connect>, about: ServerConfig) -> Self {
        Self {
            connect,
            about,
            link: OnceCell::new(),
        }
    }

    async fn link(&self) -> Result<&HostLink, ErrorData> {
        let opened = self.link.get_or_try_init(|| HostLink::open(&*self.connect));
        opened
            .await
            .map_err(|error| ErrorData::internal_error(error, None))
    }

    /// Passes a request on, and passes on what the host says meanwhile, until there is a result.
    async fn forward<T: DeserializeOwned>(
        &self,
        method: &str,
        params: impl Serialize,
        context: &RequestContext<RoleServer>,
    ) -> Result<T, ErrorData> {
        let link = self.link().await?;
        let mut call = link.begin(method, Some(with_meta(params, context)?)).await;
        let mut asked = FuturesUnordered::new();
        let result = loop {
            let next = async { link.incoming.lock().await.recv().await };
            tokio::select! {
                biased;
                Some(told) = next => match told.id {
                    Some(id) => asked.push(ask(link, &context.peer, id, told.message)),
                    None => tell(&context.peer, told.message).await,
                },
                Some(()) = asked.next() => {}
                result = call.wait() => break result,
                () = context.ct.cancelled() => {
                    let params = json!({ "requestId": call.id });
                    let method = "notifications/cancelled";
                    let cancelled = json!({ "jsonrpc": "2.0", "method": method, "params": params });
                    link.send(cancelled).await;
                    break call.wait().await;
                }
            }
        };
        let result = result.map_err(error_data)?;
        serde_json::from_value(result)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    async fn notify(&self, method: &str) {
        if let Ok(link) = self.link().await {
            link.send(json!({ "jsonrpc": "2.0", "method": method }))
                .await;
        }
    }
}

/// The parameters of a request with its `_meta`, which rmcp keeps beside them.
fn with_meta(
    params: impl Serialize,
    context: &RequestContext<RoleServer>,
) -> Result<Value, ErrorData> {
    let internal = |error: serde_json::Error| ErrorData::internal_error(error.to_string(), None);
    let mut params = serde_json::to_value(params).map_err(internal)?;
    if params.is_null() {
        params = json!({});
    }
    let meta = serde_json::to_value(&context.meta).map_err(internal)?;
    if let (Some(params), false) = (params.as_object_mut(), meta == json!({})) {
        params.insert("_meta".to_owned(), meta);
    }
    Ok(params)
}

fn error_data(CallError(error): CallError) -> ErrorData {
    serde_json::from_value(error)
        .unwrap_or_else(|error| ErrorData::internal_error(error.to_string(), None))
}

/// Puts a question of the host to the client, and passes on the answer.
async fn ask(link: &HostLink, peer: &Peer<RoleServer>, id: Value, message: Value) {
    let answered = match serde_json::from_value::<ServerRequest>(request_of(message)) {
        Ok(request) => peer.send_request(request).await,
        Err(error) => Err(ServiceError::McpError(ErrorData::internal_error(
            error.to_string(),
            None,
        ))),
    };
    let answer = match answered {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(ServiceError::McpError(error)) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
        Err(error) => {
            let CallError(error) = CallError::internal(error);
            json!({ "jsonrpc": "2.0", "id": id, "error": error })
        }
    };
    link.send(answer).await;
}

async fn tell(peer: &Peer<RoleServer>, message: Value) {
    let Ok(notification) = serde_json::from_value::<ServerNotification>(request_of(message)) else {
        return;
    };
    if let Err(error) = peer.send_notification(notification).await {
        tracing::debug!("a client cannot be notified: {error}");
    }
}

/// The method and the parameters of a message.
fn request_of(mut message: Value) -> Value {
    let method = taken(&mut message, "method");
    match message.get_mut("params") {
        Some(params) => json!({ "method": method, "params": params.take() }),
        None => json!({ "method": method }),
    }
}

/// Reads a result that may be one of several, told apart by its `resultType`.
fn one_of<T>(
    result: Value,
    complete: impl FnOnce(Value) -> serde_json::Result<T>,
    input: impl FnOnce(InputRequiredResult) -> T,
) -> Result<T, ErrorData> {
    let read = match is_of_type(&result, "input_required") {
        true => serde_json::from_value(result).map(input),
        false => complete(result),
    };
    read.map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn is_of_type(result: &Value, kind: &str) -> bool {
    result["resultType"] == kind
}

fn is_confirmation(message: &Value) -> bool {
    message["method"] == CONFIRMED
}

impl ServerHandler for Forwarder {
    fn get_info(&self) -> ServerConfig {
        self.about.clone()
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        self.forward("initialize", request, &context).await
    }

    async fn on_initialized(&self, _: NotificationContext<RoleServer>) {
        self.notify("notifications/initialized").await;
    }

    async fn on_roots_list_changed(&self, _: NotificationContext<RoleServer>) {
        self.notify("notifications/roots/list_changed").await;
    }

    async fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        self.forward("server/discover", json!({}), &context).await
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.forward("tools/list", request, &context).await
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let result: Value = self.forward("tools/call", request, &context).await?;
        let complete = |result: Value| match is_of_type(&result, "task") {
            true => serde_json::from_value::<CreateTaskResult>(result).map(Into::into),
            false => serde_json::from_value::<CallToolResult>(result).map(Into::into),
        };
        one_of(result, complete, CallToolResponse::InputRequired)
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        self.forward("prompts/list", request, &context).await
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let result: Value = self.forward("prompts/get", request, &context).await?;
        let complete = |result| serde_json::from_value::<GetPromptResult>(result).map(Into::into);
        one_of(result, complete, GetPromptResponse::InputRequired)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.forward("resources/list", request, &context).await
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.forward("resources/templates/list", request, &context)
            .await
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let result: Value = self.forward("resources/read", request, &context).await?;
        let complete =
            |result| serde_json::from_value::<ReadResourceResult>(result).map(Into::into);
        one_of(result, complete, ReadResourceResponse::InputRequired)
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let _: Value = self
            .forward("resources/subscribe", request, &context)
            .await?;
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let _: Value = self
            .forward("resources/unsubscribe", request, &context)
            .await?;
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let link = self.link().await?;
        let params = json!({ "notifications": context.accepted() });
        let params = with_meta(params, context.request_context())?;
        let mut call = link.begin("subscriptions/listen", Some(params)).await;
        loop {
            let next = async { link.incoming.lock().await.recv().await };
            tokio::select! {
                told = next => match told {
                    Some(Incoming { id: None, message }) if !is_confirmation(&message) => {
                        let notification = serde_json::from_value(request_of(message));
                        let Ok(notification) = notification else { continue };
                        if context.sink().send(notification).await.is_err() {
                            return Ok(());
                        }
                    }
                    Some(_) => {}
                    None => return Ok(()),
                },
                result = call.wait() => return result.map(drop).map_err(error_data),
                () = context.cancelled() => return Ok(()),
            }
        }
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.forward("completion/complete", request, &context).await
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.forward("tasks/get", request, &context).await
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let _: Value = self.forward("tasks/update", request, &context).await?;
        Ok(())
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let _: Value = self.forward("tasks/cancel", request, &context).await?;
        Ok(())
    }
}
