//! Passes Codex's questions to the client as elicitations.

use std::collections::HashMap;

use codex_engine::command::OpenQuestion;
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

use super::question::{ChoiceTitles, Elicitation, Origin};
use crate::progress::CLIENT_TIMEOUT;

/// The way in which Codex's questions are put to the client during a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuestionMode {
    /// The client answers a request of ours.
    Elicit,
    /// The call ends with the question, and is repeated with the answer.
    InputRequired,
    /// The call ends and reports that Codex waits.
    EndCall,
}

impl QuestionMode {
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Self {
        let elicits = context
            .client_capabilities()
            .and_then(|capabilities| capabilities.elicitation)
            // An empty capability means forms, which were the only kind at first.
            .is_some_and(|elicitation| elicitation.form.is_some() || elicitation.url.is_none());
        let stateless = context
            .protocol_version()
            .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        match (elicits, stateless) {
            (false, _) => Self::EndCall,
            (true, false) => Self::Elicit,
            (true, true) => Self::InputRequired,
        }
    }
}

/// A question that the client was asked.
struct PendingDialog {
    request: RequestId,
    answered: bool,
}

/// The client's answer to a question; `None` if the client can't answer.
pub(super) type DialogAnswer = (ActionId, Option<Value>);

/// The questions that a client was asked.
pub(super) struct Dialogs {
    peer: Peer<RoleServer>,
    pending: HashMap<ActionId, PendingDialog>,
    answers: FuturesUnordered<BoxFuture<'static, DialogAnswer>>,
}

impl Dialogs {
    pub(super) fn new(peer: Peer<RoleServer>) -> Self {
        Self {
            peer,
            pending: HashMap::new(),
            answers: FuturesUnordered::new(),
        }
    }

    pub(super) fn has(&self, question: &OpenQuestion) -> bool {
        self.pending.contains_key(&question.id)
    }

    /// Asks the client a question; `false` if the client can't be asked.
    pub(super) async fn ask(&mut self, origin: &Origin<'_>, question: &OpenQuestion) -> bool {
        let params = Elicitation::new(origin, question, ChoiceTitles::EnumNames).into_params();
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
        let pending = PendingDialog {
            request: id,
            answered: false,
        };
        self.pending.insert(action.clone(), pending);
        self.answers.push(Box::pin(async move {
            match rx.await {
                Ok(Ok(ClientResult::CustomResult(answer))) => (action, Some(answer.0)),
                _ => (action, None),
            }
        }));
        true
    }

    /// The next answer; `None` if the client has no question to answer.
    pub(super) async fn next(&mut self) -> Option<DialogAnswer> {
        self.answers.next().await
    }

    /// Notes the answer to a question; returns `false` if the question already had one. A withdrawn
    /// question ends with an error, which does not count.
    pub(super) fn is_first_answer(&mut self, action: &ActionId) -> bool {
        self.pending
            .get_mut(action)
            .is_some_and(|pending| !std::mem::replace(&mut pending.answered, true))
    }

    /// Withdraws all dialogs but those of the `open` questions.
    pub(super) async fn withdraw_closed(&mut self, open: &[OpenQuestion]) {
        let closed: Vec<RequestId> = self
            .pending
            .iter_mut()
            .filter(|(action, pending)| {
                !pending.answered && !open.iter().any(|one| one.id == **action)
            })
            .map(|(_, pending)| {
                pending.answered = true;
                pending.request.clone()
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
