//! Codex's questions as elicitations that the client is to answer.

use std::collections::HashMap;

use codex_engine::command::Open;
use codex_engine::logic::action::ActionId;
use futures::future::{BoxFuture, join_all};
use futures::stream::{FuturesUnordered, StreamExt};
use rmcp::RoleServer;
use rmcp::model::{
    CancelledNotificationParam, ClientResult, CustomRequest, ProtocolVersion, RequestId,
    ServerRequest,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestContext, RequestHandle};
use serde_json::Value;
use tokio::time::timeout;

use super::question::{Elicitation, Origin, Titles};
use crate::progress::CLIENT_TIMEOUT;

/// What can be done with a question in the middle of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// The client answers a request of ours.
    Elicit,
    /// The call ends with the question, and comes again with the answer.
    InputRequired,
    /// The call ends and tells that Codex waits.
    ComeBack,
}

impl Manner {
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Self {
        let elicits = context
            .client_capabilities()
            .and_then(|capabilities| capabilities.elicitation)
            // An empty capability means forms, as it did before there were others.
            .is_some_and(|elicitation| elicitation.form.is_some() || elicitation.url.is_none());
        let stateless = context
            .protocol_version()
            .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        match (elicits, stateless) {
            (false, _) => Self::ComeBack,
            (true, false) => Self::Elicit,
            (true, true) => Self::InputRequired,
        }
    }
}

/// A question put to the client, until it answers.
struct Put {
    request: RequestId,
    answered: bool,
}

/// What came back for a question; nothing if the client can't answer.
pub(super) type Answered = (ActionId, Option<Value>);

/// The questions that a client has before it.
pub(super) struct Dialogs {
    peer: Peer<RoleServer>,
    put: HashMap<ActionId, Put>,
    answers: FuturesUnordered<BoxFuture<'static, Answered>>,
}

impl Dialogs {
    pub(super) fn new(peer: Peer<RoleServer>) -> Self {
        Self {
            peer,
            put: HashMap::new(),
            answers: FuturesUnordered::new(),
        }
    }

    pub(super) fn has(&self, question: &Open) -> bool {
        self.put.contains_key(&question.id)
    }

    /// Asks the client; `false` if it can't be asked.
    pub(super) async fn put(&mut self, origin: &Origin<'_>, question: &Open) -> bool {
        let params = Elicitation::new(origin, question, Titles::EnumNames).into_params();
        let request = CustomRequest::new("elicitation/create", Some(params));
        let sent = self
            .peer
            .send_cancellable_request(
                ServerRequest::CustomRequest(request),
                PeerRequestOptions::no_options(),
            )
            .await;
        let Ok(RequestHandle { rx, id, .. }) = sent else {
            return false;
        };
        let action = question.id.clone();
        let put = Put {
            request: id,
            answered: false,
        };
        self.put.insert(action.clone(), put);
        self.answers.push(Box::pin(async move {
            match rx.await {
                Ok(Ok(ClientResult::CustomResult(answer))) => (action, Some(answer.0)),
                _ => (action, None),
            }
        }));
        true
    }

    /// The next answer; `None` if no question is before the client.
    pub(super) async fn next(&mut self) -> Option<Answered> {
        self.answers.next().await
    }

    /// Notes that a question has its answer; `false` if it had it before. One
    /// that was withdrawn ends with an error, which says nothing.
    pub(super) fn is_first_answer(&mut self, action: &ActionId) -> bool {
        self.put
            .get_mut(action)
            .is_some_and(|put| !std::mem::replace(&mut put.answered, true))
    }

    /// Tells the client which of its dialogs are of no use any more: all but
    /// those that are `open`.
    pub(super) async fn withdraw_closed(&mut self, open: &[Open]) {
        let closed: Vec<RequestId> = self
            .put
            .iter_mut()
            .filter(|(action, put)| !put.answered && !open.iter().any(|one| one.id == **action))
            .map(|(_, put)| {
                put.answered = true;
                put.request.clone()
            })
            .collect();
        let withdrawals = closed.into_iter().map(|request| {
            let why = "no answer is needed any more".to_owned();
            let params = CancelledNotificationParam::new(Some(request), Some(why));
            self.peer.notify_cancelled(params)
        });
        if timeout(CLIENT_TIMEOUT, join_all(withdrawals))
            .await
            .is_err()
        {
            tracing::debug!("elicitations were not withdrawn: the client does not read");
        }
    }
}
