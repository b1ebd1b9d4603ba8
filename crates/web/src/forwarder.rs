//! MCP over HTTP: each HTTP session, or each request of MCP 2026-07-28, is a client of the host. The
//! requests of a credential share an identity.
//!
//! rmcp handles the HTTP side. The client's requests are passed on to the host, and the host's
//! notifications and questions are passed on to the client.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use common::sync::lock;
use common::text::hex;
use futures::FutureExt;
use futures::future::BoxFuture;
use host_process::logic::subscriptions::Subscriptions;
use mcp_server::code::Code;
use mcp_server::error::ToolError;
use mcp_server::{incoming, repeated_call, tools};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams,
    CancelledNotificationParam, CompleteRequestParams, CompleteResult, CreateTaskResult,
    CustomRequest, CustomResult, DiscoverResult, ErrorCode, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, GetTaskParams, GetTaskResult, InitializeRequestParams,
    InitializeResult, InputRequiredResult, JsonObject, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, RequestId,
    ResourceUpdatedNotificationParam, ServerConfig, ServerNotification, ServerRequest,
    SubscribeRequestParams, SubscriptionFilter, TASKS_EXTENSION_ID, UnsubscribeRequestParams,
    UpdateTaskParams,
};
use rmcp::service::{
    NotificationContext, OriginatingRequestId, Peer, PeerRequestOptions, RequestContext,
    RequestHandle, ServiceError, SubscriptionContext, SubscriptionSink,
};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, sleep_until};

use work_board::{CallError, Connect, ConnectOptions, HostLink, Incoming, taken};

use crate::decisions;
use crate::logic::access::CredentialId;

/// The notification that ends the introduction of a client.
const INITIALIZED: &str = "notifications/initialized";

/// The notification with which a host confirms a subscription. Not passed on, as rmcp confirms it.
const CONFIRMED: &str = "notifications/subscriptions/acknowledged";

/// The notification that a request needs no answer any more.
const CANCELLED: &str = "notifications/cancelled";

/// The method of a request to be notified of the changes of a resource.
const SUBSCRIBE: &str = "resources/subscribe";

/// The member of a question with the ID of the call that asks it, and its path in a question that ends
/// the call.
const CALL: &str = "codex_mcp_tool_call_id";
const CALL_IN_META: &str = "/params/_meta/codex_mcp_tool_call_id";

/// The least time between the beginning of a connection to a host and the automatic connection to
/// the next one. A message of the client connects at once. A call that was repeated to two hosts in a row
/// that ended sooner is not repeated any more, as it may be what ends them.
const SHORT_LINK: Duration = Duration::from_secs(2);

/// A client of the host for one HTTP session or request.
pub(crate) struct Forwarder {
    about: About,
    links: Arc<HostLinks>,
}

/// The connections of a client to hosts, one after the other.
struct HostLinks {
    connect: Arc<Connect>,
    client: Mutex<Option<Arc<HostClient>>>,
    /// The ID of the client; without random numbers, each host gets another one.
    id: Option<String>,
    /// The credential of the client.
    caller: Option<CredentialId>,
    /// The client's introduction, to be repeated to the next host. Without a session, there is none.
    introduction: OnceLock<Value>,
    /// The client's subscriptions, with their parameters, to be repeated to the next host.
    subscriptions: std::sync::Mutex<Subscriptions<Value>>,
    /// The number of the next request, which is repeated under it to the next host.
    next_call: Arc<AtomicU64>,
}

/// A connection to a host, with the state for passing on the host's own messages.
struct HostClient {
    link: HostLink,
    calls: Calls,
    questions: Questions,
    sink: std::sync::Mutex<Option<SubscriptionSink>>,
}

/// The client's requests in progress, oldest first.
type Calls = std::sync::Mutex<Vec<OpenRequest>>;

/// The open questions of the host, each with its ID at the host and the one that the client knows.
type Questions = std::sync::Mutex<Vec<(Value, RequestId)>>;

/// A request of the client.
struct OpenRequest {
    /// Its ID on the connection to the host.
    at_host: u64,
    id: RequestId,
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
    pub(crate) fn new(connect: Arc<Connect>, about: About, caller: Option<CredentialId>) -> Self {
        Self {
            about,
            links: Arc::new(HostLinks {
                connect,
                client: Mutex::default(),
                id: random_id(),
                caller,
                introduction: OnceLock::new(),
                subscriptions: std::sync::Mutex::default(),
                next_call: Arc::default(),
            }),
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

    /// Calls a tool of the host. If the host ends meanwhile, the call of a turn is repeated to the next
    /// one, which may continue the turn, unless two such hosts in a row have ended soon. The inner
    /// error says that the answer is lost.
    async fn call(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Result<Value, ToolError>, ErrorData> {
        const METHOD: &str = "tools/call";
        let is_lasting = tools::jobs::LASTING.contains(&&*request.name);
        let is_repeatable = tools::REPEATED.contains(&&*request.name);
        let client = self.links.client(&context.peer).await?;
        let params = with_meta(request, context)?;
        let repeated = is_repeatable.then(|| marked_as_repeated(params.clone()));
        let at_host = client.link.next_id();
        let mut answer = client.answer(at_host, METHOD, params, context).await?;
        let mut short_links = 0;
        while answer.is_none()
            && short_links < 2
            && let Some(params) = &repeated
        {
            let client = match self.links.client(&context.peer).await {
                Ok(client) => client,
                Err(error) => return Ok(Err(ToolError::new(Code::HostLost, error.message))),
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

    async fn notify(&self, method: &str, context: &NotificationContext<RoleServer>) {
        match self.links.client(&context.peer).await {
            Ok(client) => client.link.send(notification(method)).await,
            Err(error) => tracing::warn!("a notification is lost: {error}"),
        }
    }
}

impl HostClient {
    /// Makes a request of the client, and waits for the result; `None` if the host has gone.
    async fn answer(
        &self,
        at_host: u64,
        method: &str,
        params: Value,
        context: &RequestContext<RoleServer>,
    ) -> Result<Option<Value>, ErrorData> {
        let _underway = Underway::begin(self, at_host, &context.id);
        let mut call = self.link.begin_as(at_host, method, params).await;
        tokio::select! {
            answer = call.answer() => answer.transpose().map_err(error_data),
            () = context.ct.cancelled() => {
                let mut cancelled = notification(CANCELLED);
                if let Some(members) = cancelled.as_object_mut() {
                    members.insert("params".to_owned(), json!({ "requestId": call.id }));
                }
                self.link.send(cancelled).await;
                // The host sends no answer, and the client awaits none.
                Err(ErrorData::internal_error("the request was cancelled", None))
            }
        }
    }
}

/// An ID that no other client has.
fn random_id() -> Option<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).ok()?;
    Some(hex(&random))
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

impl HostLinks {
    /// The connection to the host. If the host has gone, connects to another one, and repeats the
    /// introduction and the subscriptions.
    async fn client(
        self: &Arc<Self>,
        peer: &Peer<RoleServer>,
    ) -> Result<Arc<HostClient>, ErrorData> {
        let internal = |error| ErrorData::internal_error(error, None);
        let mut client = self.client.lock().await;
        if let Some(client) = client.as_ref().filter(|client| !client.link.has_ended()) {
            return Ok(Arc::clone(client));
        }
        let (link, told) = HostLink::open(&*self.connect, self.options())
            .await
            .map_err(internal)?;
        // The first host is told by the request that is under way.
        if client.is_some() {
            self.introduce(&link, peer).await.map_err(error_data)?;
        }
        let opened = Arc::new(HostClient {
            link,
            calls: Calls::default(),
            questions: Questions::default(),
            sink: std::sync::Mutex::default(),
        });
        let (host, links) = (Arc::downgrade(&opened), Arc::downgrade(self));
        let peer = peer.clone();
        tokio::spawn(async move {
            let since = Instant::now();
            pass_on(host, told, peer.clone()).await;
            reconnect(links, since, &peer).await;
        });
        *client = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// How the client connects: the requests of a client without a session share an identity.
    fn options(&self) -> ConnectOptions {
        let caller = self.caller.as_ref();
        let caller = caller.filter(|_| self.introduction.get().is_none());
        ConnectOptions {
            client: self.id.clone(),
            identity_key: caller.map(ToString::to_string),
            next_call: Arc::clone(&self.next_call),
            ..ConnectOptions::default()
        }
    }

    /// Like [`HostLinks::client`], but boxed, as an async function's future cannot contain itself.
    fn next_client<'a>(
        self: &'a Arc<Self>,
        peer: &'a Peer<RoleServer>,
    ) -> BoxFuture<'a, Result<Arc<HostClient>, ErrorData>> {
        self.client(peer).boxed()
    }

    /// Repeats to a host what the client has sent to an earlier one. Each resource may have changed
    /// while nobody watched it, so the client is notified of all of them.
    async fn introduce(&self, link: &HostLink, peer: &Peer<RoleServer>) -> Result<(), CallError> {
        let Some(introduction) = self.introduction.get() else {
            return Ok(());
        };
        link.call("initialize", introduction.clone()).await?;
        link.send(notification(INITIALIZED)).await;
        let subscribed: Vec<Value> = lock(&self.subscriptions).requests().cloned().collect();
        for params in subscribed {
            let uri = params.get("uri").and_then(Value::as_str);
            let uri = uri.unwrap_or_default().to_owned();
            match link.call(SUBSCRIBE, params).await {
                Ok(_) => {
                    let changed = ResourceUpdatedNotificationParam::new(uri);
                    if let Err(error) = peer.notify_resource_updated(changed).await {
                        tracing::debug!("a client cannot be notified: {error}");
                    }
                }
                Err(CallError(error)) => {
                    tracing::warn!("a subscription is lost with its host process: {error}");
                }
            }
        }
        Ok(())
    }
}

/// A request that is under way, until this is dropped.
struct Underway<'a> {
    client: &'a HostClient,
    at_host: u64,
}

impl<'a> Underway<'a> {
    fn begin(client: &'a HostClient, at_host: u64, id: &RequestId) -> Self {
        let id = id.clone();
        lock(&client.calls).push(OpenRequest { at_host, id });
        Self { client, at_host }
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        lock(&self.client.calls).retain(|call| call.at_host != self.at_host);
    }
}

fn notification(method: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": method })
}

/// Passes on the host's own messages, until the host or the client has gone. A question waits for
/// its answer on a separate task; one that is open when the host has gone is withdrawn.
async fn pass_on(
    client: Weak<HostClient>,
    mut told: mpsc::Receiver<Incoming>,
    peer: Peer<RoleServer>,
) {
    while let Some(Incoming { id, message }) = told.recv().await {
        let Some(client) = client.upgrade() else {
            return;
        };
        match id {
            Some(id) => {
                let asked = ask(&client, &peer, &id, message).await;
                tokio::spawn(async move { pass_answer(&client, id, asked).await });
            }
            None => tell(&client, &peer, message).await,
        }
    }
    let Some(client) = client.upgrade() else {
        return;
    };
    let open: Vec<_> = lock(&client.questions).drain(..).collect();
    for (_, question) in open {
        let why = "the host process has ended".to_owned();
        let withdrawn = CancelledNotificationParam::new(Some(question), Some(why));
        if let Err(error) = peer.notify_cancelled(withdrawn).await {
            tracing::debug!("a client cannot be notified: {error}");
        }
    }
}

/// Connects a client that has subscribed to something to the next host at once. Any other client gets
/// one with its next message.
async fn reconnect(links: Weak<HostLinks>, since: Instant, peer: &Peer<RoleServer>) {
    let is_subscribed = |links: &HostLinks| !lock(&links.subscriptions).is_empty();
    if !links.upgrade().is_some_and(|links| is_subscribed(&links)) {
        return;
    }
    sleep_until(since + SHORT_LINK).await;
    // The client may have gone meanwhile.
    let Some(links) = links.upgrade() else {
        return;
    };
    if let Err(error) = links.next_client(peer).await {
        tracing::warn!("subscriptions wait for the next message of their client: {error}");
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

/// Puts a question of the host to the client.
async fn ask(
    client: &HostClient,
    peer: &Peer<RoleServer>,
    id: &Value,
    message: Value,
) -> Result<RequestHandle<RoleServer>, ServiceError> {
    let question = question(client, message).map_err(|error| {
        ServiceError::McpError(ErrorData::internal_error(error.to_string(), None))
    })?;
    let question = ServerRequest::CustomRequest(question);
    let options = PeerRequestOptions::no_options();
    let asked = peer.send_cancellable_request(question, options).await?;
    lock(&client.questions).push((id.clone(), asked.id.clone()));
    Ok(asked)
}

/// Passes the answer to a question on to the host.
async fn pass_answer(
    client: &HostClient,
    id: Value,
    asked: Result<RequestHandle<RoleServer>, ServiceError>,
) {
    let answered = match asked {
        Ok(asked) => asked.await_response().await,
        Err(error) => Err(error),
    };
    lock(&client.questions).retain(|(at_host, _)| *at_host != id);
    let answer = match answered {
        Ok(result) => {
            let result = decisions::restored(json!(result));
            json!({ "jsonrpc": "2.0", "id": id, "result": result })
        }
        Err(ServiceError::McpError(error)) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
        Err(error) => {
            let CallError(error) = CallError::internal(error);
            json!({ "jsonrpc": "2.0", "id": id, "error": error })
        }
    };
    client.link.send(answer).await;
}

/// A question of the host as the client gets it: with all members, also those that MCP does not know.
fn question(client: &HostClient, message: Value) -> serde_json::Result<CustomRequest> {
    let mut question: CustomRequest = serde_json::from_value(request_of(message))?;
    let calls = lock(&client.calls);
    let asking = question.params.as_mut().and_then(|all| all.get_mut(CALL));
    let named: Option<u64> = asking.as_ref().and_then(|call| call.as_str()?.parse().ok());
    let call = calls.iter().find(|call| Some(call.at_host) == named);
    if let (Some(asking), Some(call)) = (asking, call) {
        *asking = json!(call.id.to_string());
    }
    // Without a request in progress, the question is sent on the stream that the client holds open.
    if let Some(call) = call.or_else(|| calls.last()) {
        let origin = OriginatingRequestId(call.id.clone());
        question.extensions.insert(origin);
    }
    Ok(question)
}

/// Passes a notification on: to the subscription of a client of 2026-07-28, or else to the client.
async fn tell(client: &HostClient, peer: &Peer<RoleServer>, mut message: Value) {
    if is_of_method(&message, CONFIRMED) {
        return;
    }
    // A question that has its answer is not withdrawn any more.
    if is_of_method(&message, CANCELLED) && rename_cancelled(client, &mut message).is_none() {
        return;
    }
    let Ok(notification) = serde_json::from_value::<ServerNotification>(request_of(message)) else {
        return tracing::warn!("a notification of the host process is not understood");
    };
    let sink = lock(&client.sink).clone();
    let told = match sink {
        Some(sink) => sink
            .send(notification)
            .await
            .map_err(|error| error.to_string()),
        None => peer
            .send_notification(notification)
            .await
            .map_err(|error| error.to_string()),
    };
    if let Err(error) = told {
        tracing::debug!("a client cannot be notified: {error}");
    }
}

/// Gives a cancellation of a question the ID that the client knows; `None` if the question is not open.
fn rename_cancelled(client: &HostClient, message: &mut Value) -> Option<()> {
    let cancelled = message.pointer_mut("/params/requestId")?;
    let mut questions = lock(&client.questions);
    let known = questions.iter().position(|(id, _)| *id == *cancelled)?;
    let (_, question) = questions.remove(known);
    *cancelled = json!(question);
    Some(())
}

/// The method and the parameters of a message.
fn request_of(mut message: Value) -> Value {
    let method = taken(&mut message, "method");
    match message.get_mut("params") {
        Some(params) => json!({ "method": method, "params": params.take() }),
        None => json!({ "method": method }),
    }
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

fn is_of_method(message: &Value, method: &str) -> bool {
    message["method"] == method
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
