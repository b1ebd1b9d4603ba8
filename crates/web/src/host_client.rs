//! A client of the hosts: its connections, one after the other, and what a host sends by itself.
//!
//! Requests of the client are passed on by [`forwarder`](crate::forwarder).

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use common::sync::lock;
use common::text::hex;
use futures::FutureExt;
use futures::future::BoxFuture;
use host_process::endpoint::HostRemains;
use host_process::logic::subscriptions::Subscriptions;
use rmcp::model::{
    CancelledNotificationParam, CustomRequest, RequestId, ResourceUpdatedNotificationParam,
    ServerNotification, ServerRequest,
};
use rmcp::service::{
    OriginatingRequestId, Peer, PeerRequestOptions, RequestContext, RequestHandle, ServiceError,
    SubscriptionSink,
};
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, sleep_until};
use work_board::{CallError, Connect, ConnectOptions, HostLink, Incoming, Remains, taken};

use crate::decisions;
use crate::logic::access::CredentialId;

/// The notification that ends the introduction of a client.
pub(crate) const INITIALIZED: &str = "notifications/initialized";

/// The notification with which a host confirms a subscription. Not passed on, as rmcp confirms it.
const CONFIRMED: &str = "notifications/subscriptions/acknowledged";

/// The notification that a request needs no answer any more.
const CANCELLED: &str = "notifications/cancelled";

/// The method of a request to be notified of the changes of a resource.
pub(crate) const SUBSCRIBE: &str = "resources/subscribe";

/// The member of a question with the ID of the call that asks it.
const CALL: &str = "codex_mcp_tool_call_id";

/// The least time between the beginning of a connection to a host and the automatic connection to
/// the next one, and between two looks for that one. A message of the client connects at once. A call
/// that was repeated to two hosts in a row that ended sooner is not repeated any more, as it may be
/// what ends them.
pub(crate) const SHORT_LINK: Duration = Duration::from_secs(2);

/// The connections of a client to hosts, one after the other.
pub(crate) struct HostLinks {
    connect: Arc<Connect>,
    /// Returns the remains of the last host.
    pub(crate) remains: Arc<Remains>,
    client: Mutex<Option<Arc<HostClient>>>,
    /// The ID of the client; without random numbers, each host gets another one.
    id: Option<String>,
    /// The credential of the client.
    caller: Option<CredentialId>,
    /// The client's introduction, to be repeated to the next host. Without a session, there is none.
    pub(crate) introduction: OnceLock<Value>,
    /// The client's subscriptions, with their parameters, to be repeated to the next host.
    pub(crate) subscriptions: std::sync::Mutex<Subscriptions<Value>>,
    /// The number of the next request, which is repeated under it to the next host.
    next_call: Arc<AtomicU64>,
}

/// A connection to a host, with the state for passing on the host's own messages.
pub(crate) struct HostClient {
    pub(crate) link: HostLink,
    calls: Calls,
    questions: Questions,
    pub(crate) sink: std::sync::Mutex<Option<SubscriptionSink>>,
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

impl HostClient {
    /// Makes a request of the client, and waits for the result; `None` if the host has gone.
    pub(crate) async fn answer(
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

impl HostLinks {
    pub(crate) fn new(
        connect: Arc<Connect>,
        remains: Arc<Remains>,
        caller: Option<CredentialId>,
    ) -> Self {
        Self {
            connect,
            remains,
            client: Mutex::default(),
            id: random_id(),
            caller,
            introduction: OnceLock::new(),
            subscriptions: std::sync::Mutex::default(),
            next_call: Arc::default(),
        }
    }

    /// The connection to the host. If the host has gone, connects to another one, and repeats the
    /// introduction and the subscriptions.
    pub(crate) async fn client(
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

pub(crate) fn notification(method: &str) -> Value {
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

/// Connects a client that has subscribed to something to the next host as soon as there is one, or at
/// once if the host was killed. Any other client gets one with its next message.
async fn reconnect(links: Weak<HostLinks>, since: Instant, peer: &Peer<RoleServer>) {
    let is_subscribed = |links: &Arc<HostLinks>| !lock(&links.subscriptions).is_empty();
    let mut next_look = since + SHORT_LINK;
    // The client may go meanwhile.
    while links.upgrade().is_some_and(|links| is_subscribed(&links)) {
        sleep_until(next_look).await;
        let Some(links) = links.upgrade() else {
            return;
        };
        if (links.remains)() == HostRemains::Nothing {
            next_look = Instant::now() + SHORT_LINK;
            continue;
        }
        if let Err(error) = links.next_client(peer).await {
            tracing::warn!("subscriptions wait for the next message of their client: {error}");
        }
        return;
    }
}

pub(crate) fn error_data(CallError(error): CallError) -> ErrorData {
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

fn is_of_method(message: &Value, method: &str) -> bool {
    message["method"] == method
}
