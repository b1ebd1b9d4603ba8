//! Asks the client's user at once, if that was requested (`--elicit`).

use std::sync::Arc;

use codex_engine::Engine;
use codex_engine::command::TurnRef;
use codex_protocol::codex::ThreadId;
use rmcp::RoleServer;
use rmcp::service::RequestContext;

use crate::decision::decide;
use crate::dialogs::{Dialogs, QuestionMode};
use crate::question::Origin;
use crate::server::{Decider, Server};

/// Whether the client's user is asked the questions of a session.
pub(super) fn can_ask_user(server: &Server, context: &RequestContext<RoleServer>) -> bool {
    server.decider == Decider::User && QuestionMode::of(context) == QuestionMode::Elicit
}

/// Asks the client's user the questions of a turn, until the turn has ended. A client that can't be
/// asked finds them when it polls.
pub(crate) fn elicit(
    server: &Server,
    context: &RequestContext<RoleServer>,
    turn: &TurnRef,
    thread: &ThreadId,
) {
    if !can_ask_user(server, context) {
        return;
    }
    let turn_dialogs = TurnDialogs {
        engine: Arc::clone(&server.engine),
        turn: turn.clone(),
        thread: thread.clone(),
        dialogs: Dialogs::new(context.peer.clone()),
    };
    let closing = server.closing.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = closing.cancelled() => {}
            () = turn_dialogs.run() => {}
        }
    });
}

struct TurnDialogs {
    engine: Arc<Engine>,
    turn: TurnRef,
    thread: ThreadId,
    dialogs: Dialogs,
}

impl TurnDialogs {
    async fn run(mut self) {
        let session = self.turn.session.clone();
        while let Ok(view) = self.engine.inspect(&session) {
            self.dialogs.withdraw_closed(&view.actions).await;
            if view.turn != self.turn.number || !view.state.is_at_work() {
                return;
            }
            for question in &view.actions {
                let origin = Origin {
                    thread: &self.thread,
                    turn: view.turn_id.as_ref(),
                    call: None,
                };
                if !self.dialogs.has(question) && !self.dialogs.ask(&origin, question).await {
                    return;
                }
            }
            tokio::select! {
                changed = self.engine.changed(&session, view.revision) => {
                    if changed.is_err() {
                        return;
                    }
                }
                Some((action, answer)) = self.dialogs.next() => {
                    if self.dialogs.is_first_answer(&action)
                        && let Ok(session) = self.engine.handle(&session)
                    {
                        decide(&session, &action, answer.as_ref());
                    }
                }
            }
        }
    }
}
