//! The MCP sessions of clients over HTTP, bounded in number and in time.
//!
//! Each session is a client of a host, and a host does not end while it has a client. So a client
//! that leaves without ending its session must not keep the session forever. A session belongs to
//! the credential with which it was begun; for all others it does not exist.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::sync::lock;
use futures::{Stream, StreamExt, stream};
use mcp_server::incoming::already_open;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcError, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError,
};
use rmcp::transport::streamable_http_server::session::{
    ServerSseMessage, SessionId, SessionManager,
};
use tokio::time::{Instant, sleep};

use crate::logic::access::CredentialId;
use crate::slots::{SlotGuard, SlotPool};

/// The most sessions at a time.
const MOST: u32 = 64;

/// The most sessions at a time with the same credential.
const MOST_OF_ONE: u32 = MOST / 2;

/// How long a session without an open stream may be silent.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// How long a session with an open stream may be silent: as long as a question may be open.
const SILENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// The pause between two searches for sessions that are idle or whose credential is no longer valid.
const LOOK_AFTER: Duration = Duration::from_secs(30);

/// The most open requests of a session whose IDs are known.
const MOST_OPEN: usize = 1000;

tokio::task_local! {
    /// The caller of this task's request, which rmcp does not pass on.
    static CALLER: CredentialId;

    /// Whether this task's request needs a session for which there is no room. rmcp reports this
    /// only as a text.
    static IS_FULL: Cell<bool>;
}

/// Why an operation on a session fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionsError {
    /// There are too many.
    #[error(transparent)]
    Full(#[from] Full),
    /// rmcp's reason.
    #[error(transparent)]
    Local(#[from] LocalSessionManagerError),
}

/// There are too many sessions.
#[derive(Debug, thiserror::Error)]
#[error(
    "{MOST_OF_ONE} MCP sessions of this credential or {MOST} of all are open, which is the most; end one \
     with DELETE and its Mcp-Session-Id, or wait: a session without an open stream ends after {} minutes",
    IDLE_TIMEOUT.as_secs() / 60
)]
pub(crate) struct Full;

/// The sessions of rmcp, with the usage of each.
#[derive(Debug)]
pub(crate) struct McpSessions {
    local: LocalSessionManager,
    slots: Arc<SlotPool>,
    usages: Arc<Usages>,
}

type Usages = Mutex<HashMap<SessionId, Usage>>;

/// The usage of a session.
#[derive(Debug)]
struct Usage {
    /// How many streams its client has open.
    streams: usize,
    /// When the client was last heard of, unless a stream is open.
    heard: Instant,
    /// The digests of the IDs of its open requests, oldest first. A request whose stream was not read
    /// to its answer stays, as MCP forbids to use its ID again.
    open: VecDeque<u64>,
    /// The slot of the caller that has begun the session.
    slot: SlotGuard,
}

/// The digest of an ID, which may be long.
fn digest(id: &RequestId) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

impl Usage {
    /// Notes an open request. Returns whether no other one has its ID.
    fn begin(&mut self, request: u64) -> bool {
        if self.open.contains(&request) {
            return false;
        }
        if self.open.len() == MOST_OPEN {
            self.open.pop_front();
        }
        self.open.push_back(request);
        true
    }

    fn is_idle(&self) -> bool {
        self.streams == 0 && self.heard.elapsed() >= IDLE_TIMEOUT
    }
}

/// Forgets an open request of a session.
fn end(usages: &Usages, session: &SessionId, request: u64) {
    if let Some(usage) = lock(usages).get_mut(session) {
        usage.open.retain(|open| *open != request);
    }
}

/// An open stream of a session.
struct OpenStream {
    session: SessionId,
    usages: Arc<Usages>,
}

impl OpenStream {
    fn new(session: &SessionId, usages: &Arc<Usages>) -> Self {
        if let Some(usage) = lock(usages).get_mut(session) {
            usage.streams += 1;
        }
        Self {
            session: session.clone(),
            usages: Arc::clone(usages),
        }
    }

    /// Notes that a message on its way to the client may answer a request.
    fn note(&self, message: &ServerSseMessage) {
        let answered = match message.message.as_deref() {
            Some(ServerJsonRpcMessage::Response(response)) => digest(&response.id),
            Some(ServerJsonRpcMessage::Error(JsonRpcError { id: Some(id), .. })) => digest(id),
            _ => return,
        };
        end(&self.usages, &self.session, answered);
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        if let Some(usage) = lock(&self.usages).get_mut(&self.session) {
            usage.streams -= 1;
            usage.heard = Instant::now();
        }
    }
}

/// The caller whose request this task handles.
pub(crate) fn caller() -> Option<CredentialId> {
    CALLER.try_with(Clone::clone).ok()
}

/// Runs a caller's request. Returns its response, and whether it was refused because of too many
/// sessions.
pub(crate) async fn noting_full<T>(
    caller: CredentialId,
    respond: impl Future<Output = T>,
) -> (T, Result<(), Full>) {
    let noting = async {
        let response = respond.await;
        (response, IS_FULL.with(Cell::get))
    };
    let noting = IS_FULL.scope(Cell::new(false), noting);
    let (response, is_full) = CALLER.scope(caller, noting).await;
    match is_full {
        true => (response, Err(Full)),
        false => (response, Ok(())),
    }
}

impl McpSessions {
    pub(crate) fn new() -> Self {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(SILENCE);
        Self {
            local,
            slots: SlotPool::new(MOST),
            usages: Arc::default(),
        }
    }

    /// Ends the sessions that are idle, and those whose credential is no longer valid. Never returns.
    pub(crate) async fn end_abandoned(
        self: Arc<Self>,
        is_valid: impl Fn(&CredentialId) -> bool + Send,
    ) {
        loop {
            sleep(LOOK_AFTER).await;
            for id in self.abandoned(&is_valid) {
                tracing::info!(
                    "an MCP session ends: its client was silent, or its credential is no longer valid"
                );
                if let Err(error) = self.close_session(&id).await {
                    tracing::warn!("an MCP session cannot be ended: {error}");
                }
            }
        }
    }

    fn abandoned(&self, is_valid: impl Fn(&CredentialId) -> bool) -> Vec<SessionId> {
        let all: Vec<_> = {
            let usages = lock(&self.usages);
            let all = usages.iter();
            all.map(|(id, usage)| (id.clone(), usage.is_idle(), usage.slot.owner().clone()))
                .collect()
        };
        // Checking a credential may read a file, so it is done without holding the lock.
        let all = all.into_iter();
        all.filter(|(_, is_idle, owner)| *is_idle || !is_valid(owner))
            .map(|(id, ..)| id)
            .collect()
    }

    /// Whether this session belongs to the caller.
    pub(crate) fn has(&self, id: &str, caller: &CredentialId) -> bool {
        let usages = lock(&self.usages);
        usages
            .get(id)
            .is_some_and(|usage| usage.slot.owner() == caller)
    }

    /// Notes that the client was heard of.
    fn heard(&self, id: &SessionId) {
        if let Some(usage) = lock(&self.usages).get_mut(id) {
            usage.heard = Instant::now();
        }
    }

    /// Notes an open request of a session. Returns whether no other one has its ID.
    fn begin(&self, session: &SessionId, request: &RequestId) -> bool {
        let mut usages = lock(&self.usages);
        let usage = usages.get_mut(session);
        usage.is_none_or(|usage| usage.begin(digest(request)))
    }

    /// Wraps a stream of a session. The session is not idle as long as the stream is open.
    fn open<S: Stream<Item = ServerSseMessage>>(
        &self,
        id: &SessionId,
        stream: S,
    ) -> impl Stream<Item = ServerSseMessage> + use<S> {
        let open = OpenStream::new(id, &self.usages);
        stream.inspect(move |message| open.note(message))
    }
}

impl SessionManager for McpSessions {
    type Error = SessionsError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionsError> {
        // Outside of a request, there is no caller to own a session.
        let slot = CALLER.try_with(|caller| self.slots.take(caller));
        let Ok(Some(slot)) = slot else {
            let _ = IS_FULL.try_with(|is_full| is_full.set(true));
            return Err(Full.into());
        };
        let (id, transport) = self.local.create_session().await?;
        let usage = Usage {
            streams: 0,
            heard: Instant::now(),
            open: VecDeque::new(),
            slot,
        };
        lock(&self.usages).insert(id.clone(), usage);
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionsError> {
        Ok(self.local.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionsError> {
        Ok(self.local.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionsError> {
        lock(&self.usages).remove(id);
        Ok(self.local.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        // rmcp would handle both requests, and cancel one of them with the answer to the other.
        let request = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        if let Some(request) = &request
            && !self.begin(id, request)
        {
            self.heard(id);
            let refusal = ServerJsonRpcMessage::error(already_open(request), Some(request.clone()));
            let refusal = ServerSseMessage::from_message(refusal);
            return Ok(stream::iter([refusal]).left_stream());
        }
        match self.local.create_stream(id, message).await {
            Ok(stream) => Ok(self.open(id, stream).right_stream()),
            Err(error) => {
                // The request was not passed on, and its client may try again.
                if let Some(request) = &request {
                    end(&self.usages, id, digest(request));
                }
                Err(error.into())
            }
        }
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), SessionsError> {
        self.heard(id);
        Ok(self.local.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        let stream = self.local.create_standalone_stream(id).await?;
        Ok(self.open(id, stream))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        let stream = self.local.resume(id, last_event_id).await?;
        Ok(self.open(id, stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sessions_are_bounded_in_number() {
        let sessions = McpSessions::new();
        let create = |owner: &str| {
            let owner = CredentialId::of_test(owner);
            noting_full(owner, sessions.create_session())
        };
        let mut all = Vec::new();
        for owner in ["one", "other"] {
            for _ in 0..MOST_OF_ONE {
                all.push(create(owner).await.0.unwrap().0);
            }
        }
        for owner in ["one", "third"] {
            let (refused, full) = create(owner).await;
            let error = refused.map(drop).unwrap_err().to_string();
            assert!(error.contains("end one with DELETE"), "{error}");
            assert_eq!(full.unwrap_err().to_string(), error);
        }
        sessions.close_session(&all[0]).await.unwrap();
        let (refused, full) = create("other").await;
        assert!(refused.is_err() && full.is_err(), "it has its share");
        let (created, full) = create("third").await;
        assert!(created.is_ok() && full.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn session_is_owned_by_its_creator() {
        let sessions = McpSessions::new();
        let (owner, other) = (CredentialId::of_test("one"), CredentialId::of_test("other"));
        let creating = noting_full(owner.clone(), sessions.create_session());
        let (id, _transport) = creating.await.0.unwrap();
        assert!(sessions.has(&id, &owner));
        assert!(!sessions.has(&id, &other));
        assert!(!sessions.has("unknown", &owner));
    }

    #[tokio::test(start_paused = true)]
    async fn session_of_a_revoked_credential_ends() {
        let sessions = Arc::new(McpSessions::new());
        let create = |owner: &str| {
            let owner = CredentialId::of_test(owner);
            noting_full(owner, sessions.create_session())
        };
        let (kept, _transport) = create("one").await.0.unwrap();
        let (revoked, _transport) = create("revoked").await.0.unwrap();
        let gone = CredentialId::of_test("revoked");
        tokio::spawn(Arc::clone(&sessions).end_abandoned(move |id| *id != gone));
        sleep(LOOK_AFTER * 2).await;
        assert!(sessions.has_session(&kept).await.unwrap());
        assert!(!sessions.has_session(&revoked).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_session_ends_unless_a_stream_is_open() {
        let sessions = Arc::new(McpSessions::new());
        tokio::spawn(Arc::clone(&sessions).end_abandoned(|_| true));
        let create = || {
            let owner = CredentialId::of_test("one");
            noting_full(owner, sessions.create_session())
        };
        let (watched, _transport) = create().await.0.unwrap();
        let (idle, _transport) = create().await.0.unwrap();
        let stream = sessions.open(&watched, stream::pending());
        sleep(IDLE_TIMEOUT / 2).await;
        sessions.heard(&idle);
        sleep(IDLE_TIMEOUT * 3 / 4).await;
        assert!(sessions.has_session(&idle).await.unwrap());
        sleep(IDLE_TIMEOUT / 2).await;
        assert!(!sessions.has_session(&idle).await.unwrap());
        assert!(sessions.has_session(&watched).await.unwrap());
        // Silence counts from the end of the last stream.
        drop(stream);
        sleep(IDLE_TIMEOUT / 2).await;
        assert!(sessions.has_session(&watched).await.unwrap());
        sleep(IDLE_TIMEOUT).await;
        assert!(!sessions.has_session(&watched).await.unwrap());
        sessions.slots.all_free().await;
    }

    #[tokio::test(start_paused = true)]
    async fn request_that_its_session_refuses_can_be_sent_again() {
        let sessions = McpSessions::new();
        let creating = noting_full(CredentialId::of_test("one"), sessions.create_session());
        let (id, transport) = creating.await.0.unwrap();
        // This ends the session.
        drop(transport);
        for _ in 0..2 {
            let ping = serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
            let ping = serde_json::from_value(ping).unwrap();
            assert!(sessions.create_stream(&id, ping).await.is_err());
        }
    }
}
