//! MCP over HTTP: each HTTP session, or each request of MCP 2026-07-28, is a client of the host. The
//! requests of a credential share an identity.
//!
//! rmcp handles the HTTP side. The client's requests are passed on to the host;
//! [`host_client`](crate::host_client) passes the host's notifications and questions on to the client.

use std::sync::Arc;

use common::sync::lock;
use host_process::endpoint::HostRemains;
use mcp_server::code::Code;
use mcp_server::error::ToolError;
use mcp_server::{incoming, repeated_call, tools};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams,
    CompleteRequestParams, CompleteResult, CreateTaskResult, CustomRequest, CustomResult,
    DiscoverResult, ErrorCode, GetPromptRequestParams, GetPromptResponse, GetPromptResult,
    GetTaskParams, GetTaskResult, InitializeRequestParams, InitializeResult, InputRequiredResult,
    JsonObject, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, ServerConfig, SubscribeRequestParams, SubscriptionFilter,
    TASKS_EXTENSION_ID, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;
use work_board::{CallError, Connect, ConnectOptions, HostLink, Remains};

use crate::host_client::{
    HostClient, HostLinks, INITIALIZED, SHORT_LINK, SUBSCRIBE, error_data, notification,
};
use crate::logic::access::CredentialId;

/// The path of the ID of the call, in a question that ends it.
const CALL_IN_META: &str = "/params/_meta/codex_mcp_tool_call_id";

/// A client of the host for one HTTP session or request.
pub(crate) struct Forwarder {
    about: About,
    links: Arc<HostLinks>,
}

/// The description that a host's server gives of itself.
#[derive(Clone)]
pub(crate) struct About {
    config: ServerConfig,
    /// The addresses of its resources, as a client has listed them last: they follow the settings, which
    /// a host reads again for each client.
    resources: Arc<std::sync::Mutex<Vec<String>>>,
}

/// The description that a host's server gives to a client without any capabilities.
pub(crate) async fn about(connect: &Connect) -> Result<About, String> {
    let (link, _) = HostLink::open(connect, ConnectOptions::default()).await?;
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "codex-mcp web", "version": env!("CARGO_PKG_VERSION") },
    });
    let in_words = |CallError(error): CallError| error.to_string();
    let result = link.call("initialize", params).await.map_err(in_words)?;
    let config = serde_json::from_value(result);
    let mut config: ServerConfig = config.map_err(|error| error.to_string())?;
    link.send(notification(INITIALIZED)).await;
    let listed = link.call("resources/list", json!({})).await;
    let listed = listed.map_err(in_words)?;
    let resources = listed.get("resources").and_then(Value::as_array);
    let addresses = resources
        .into_iter()
        .flatten()
        .filter_map(|one| one.get("uri")?.as_str());
    // Whether the host offers tasks depends on the client. Without this extension, rmcp would
    // answer that there is no such method.
    let extensions = config.capabilities.extensions.get_or_insert_default();
    extensions.insert(TASKS_EXTENSION_ID.to_owned(), JsonObject::new());
    Ok(About {
        config,
        resources: Arc::new(addresses.map(str::to_owned).collect::<Vec<_>>().into()),
    })
}

impl Forwarder {
    pub(crate) fn new(
        connect: Arc<Connect>,
        remains: Arc<Remains>,
        about: About,
        caller: Option<CredentialId>,
    ) -> Self {
        Self {
            about,
            links: Arc::new(HostLinks::new(connect, remains, caller)),
        }
    }

    /// Passes a request on, and waits for the result.
    async fn forward<T: DeserializeOwned>(
        &self,
        method: &str,
        params: impl Serialize,
        context: &RequestContext<RoleServer>,
    ) -> Result<T, ErrorData> {
        let client = self.links.client(&context.peer).await?;
        let params = with_meta(params, context)?;
        let at_host = client.link.next_id();
        let answer = client.answer(at_host, method, params, context).await?;
        let result = answer.ok_or_else(|| error_data(CallError::lost()))?;
        serde_json::from_value(result)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    /// Calls a tool of the host. If the host is killed meanwhile, the call of a turn is repeated to the
    /// next one, which may continue the turn, unless two such hosts in a row have ended soon. The inner
    /// error says that no host can be reached, or that the answer is lost.
    async fn call(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Result<Value, ToolError>, ErrorData> {
        const METHOD: &str = "tools/call";
        let is_lasting = tools::jobs::LASTING.contains(&&*request.name);
        let is_repeatable = tools::REPEATED.contains(&&*request.name);
        let client = match self.client_for_call(context).await {
            Ok(client) => client,
            Err(error) => return Ok(Err(error)),
        };
        let params = with_meta(request, context)?;
        let repeated = is_repeatable.then(|| marked_as_repeated(params.clone()));
        let at_host = client.link.next_id();
        let mut answer = client.answer(at_host, METHOD, params, context).await?;
        let mut short_links = 0;
        while answer.is_none()
            && short_links < 2
            && (self.links.remains)() == HostRemains::AppServers
            && let Some(params) = &repeated
        {
            let client = match self.client_for_call(context).await {
                Ok(client) => client,
                Err(error) => return Ok(Err(error)),
            };
            let since = Instant::now();
            let params = params.clone();
            answer = client.answer(at_host, METHOD, params, context).await?;
            short_links = match since.elapsed() < SHORT_LINK {
                true => short_links + 1,
                false => 0,
            };
        }
        Ok(answer.ok_or_else(|| tools::lost_call(is_lasting)))
    }

    /// The connection for the call of a tool, whose errors are results.
    async fn client_for_call(
        &self,
        context: &RequestContext<RoleServer>,
    ) -> Result<Arc<HostClient>, ToolError> {
        let client = self.links.client(&context.peer).await;
        client.map_err(|error| ToolError::new(Code::HostLost, error.message))
    }

    async fn notify(&self, method: &str, context: &NotificationContext<RoleServer>) {
        match self.links.client(&context.peer).await {
            Ok(client) => client.link.send(notification(method)).await,
            Err(error) => tracing::warn!("a notification is lost: {error}"),
        }
    }
}

/// The parameters of a call that is repeated.
fn marked_as_repeated(mut params: Value) -> Value {
    if let Some(params) = params.as_object_mut() {
        let meta = params.entry("_meta").or_insert_with(|| json!({}));
        if let Some(meta) = meta.as_object_mut() {
            meta.insert(repeated_call::MARK.to_owned(), true.into());
        }
    }
    params
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

/// Parses a result that may have one of several types, which are distinguished by `resultType`.
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

/// The values of a member that is an object.
fn members_mut<'a>(value: &'a mut Value, member: &str) -> impl Iterator<Item = &'a mut Value> {
    let member = value.get_mut(member).and_then(Value::as_object_mut);
    member.into_iter().flat_map(|members| members.values_mut())
}

fn is_of_type(result: &Value, kind: &str) -> bool {
    result["resultType"] == kind
}

impl ServerHandler for Forwarder {
    fn get_info(&self) -> ServerConfig {
        self.about.config.clone()
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        // It is set once: a client introduces itself once.
        let _ = self.links.introduction.set(json!(request));
        self.forward("initialize", &request, &context).await
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.notify(INITIALIZED, &context).await;
    }

    async fn on_roots_list_changed(&self, context: NotificationContext<RoleServer>) {
        self.notify("notifications/roots/list_changed", &context)
            .await;
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
        let mut result = match self.call(request, &context).await? {
            Ok(result) => result,
            Err(lost) => return Ok(lost.into_result().into()),
        };
        for question in members_mut(&mut result, "inputRequests") {
            if let Some(call) = question.pointer_mut(CALL_IN_META) {
                *call = json!(context.id.to_string());
            }
        }
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
        let listed: ListResourcesResult = self.forward("resources/list", request, &context).await?;
        let addresses = listed.resources.iter().map(|one| one.uri.clone());
        *lock(&self.about.resources) = addresses.collect();
        Ok(listed)
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
        let uri = request.uri.clone();
        let _: Value = self.forward(SUBSCRIBE, request, &context).await?;
        let params = json!({ "uri": uri });
        lock(&self.links.subscriptions).add(uri, params);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        lock(&self.links.subscriptions).remove(&request.uri);
        let _: Value = self
            .forward("resources/unsubscribe", request, &context)
            .await?;
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::new();
        // The lists of tools, prompts and resources never change.
        accepted.resource_subscriptions = requested.resource_subscriptions.clone();
        if let Some(addresses) = &mut accepted.resource_subscriptions {
            let known = lock(&self.about.resources);
            addresses.retain(|address| known.contains(address));
        }
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let request = context.request_context();
        let client = self.links.client(&request.peer).await?;
        *lock(&client.sink) = Some(context.sink().clone());
        let params = json!({ "notifications": context.accepted() });
        let params = with_meta(params, request)?;
        let mut call = client.link.begin("subscriptions/listen", params).await;
        tokio::select! {
            result = call.wait() => result.map(drop).map_err(error_data),
            () = context.cancelled() => Ok(()),
        }
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.forward("completion/complete", request, &context).await
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method;
        Err(match incoming::is_standard(&method) {
            true => ErrorData::invalid_params(incoming::wrong_parameters(&method), None),
            false => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None),
        })
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
