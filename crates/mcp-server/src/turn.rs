//! Waiting for a turn on behalf of a tool call.
//!
//! ```text
//!                 ┌──────────────── step, heartbeat: progress ─┐
//!                 ▼                                            │
//!   started ─► waiting ── ended ──────────────────────────► answer
//!                 │ ├──── Codex asks, client can elicit ──► ask it, wait on
//!                 │ ├──── Codex asks, 2026-07-28 client ──► input_required
//!                 │ ├──── a question is dismissed ────────► waiting_approval
//!                 │ ├──── Codex asks, else ───────────────► waiting_approval
//!                 │ ├──── wait-ms is over ────────────────► running
//!                 │ └──── timeout ── interrupt ── ended ──► TIMEOUT, partial text
//!                 └────── cancelled, shutting down ─ interrupt
//! ```
//!
//! The engine declines what nobody answers in time, so that nothing hangs,
//! whichever way a question went.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use codex_engine::EngineError;
use codex_engine::command::{Open, TurnRef, View};
use codex_engine::logic::approval_text;
use codex_engine::logic::session::{Ending, Outcome};
use codex_protocol::codex::ThreadId;
use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, InputRequest, InputRequests, InputRequiredResult};
use rmcp::service::RequestContext;
use serde_json::json;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::Instrument;

use super::answer::{Answer, Status};
use super::code::Code;
use super::dialogs::{Answered, Dialogs, Manner};
use super::error::ToolError;
use super::progress::Progress;
use super::question::{self, Elicitation, Origin, Titles};
use super::request_state::RequestState;
use crate::decision::{Taken, decide};
use crate::server::Server;

/// How long an interrupted turn may take to end before the call answers
/// without it. Codex takes some 20 ms; rmcp waits 5 s for answers at the end.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(3);

/// The same when the program ends. Less than rmcp waits for the last answers
/// (5 s), or the call would stay without one.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(1);

/// What happens to a turn that takes longer than its call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    /// It is interrupted then.
    GiveUp(Instant),
    /// The call comes back then, and the turn goes on.
    ComeBack(Instant),
}

/// A tool call that waits for a turn.
pub(super) struct TurnWait<'a> {
    server: &'a Server,
    context: &'a RequestContext<RoleServer>,
    turn: TurnRef,
    thread: ThreadId,
    until: Until,
    manner: Manner,
    warnings: Vec<String>,
    told: Progress,
    dialogs: Dialogs,
}

/// What woke the wait.
enum Event {
    Changed(Result<(), EngineError>),
    Answered(Answered),
    Heartbeat,
    ComeBack,
    TimedOut,
    Cancelled,
    Closing,
}

impl<'a> TurnWait<'a> {
    pub(super) fn new(
        server: &'a Server,
        context: &'a RequestContext<RoleServer>,
        turn: TurnRef,
        thread: ThreadId,
        until: Until,
        told: Progress,
    ) -> Self {
        Self {
            server,
            context,
            turn,
            thread,
            until,
            manner: Manner::of(context),
            warnings: Vec::new(),
            told,
            dialogs: Dialogs::new(context.peer.clone()),
        }
    }

    /// The same with what the caller should know besides.
    pub(super) fn with_warnings(self, warnings: Vec<String>) -> Self {
        Self { warnings, ..self }
    }

    /// The same for a client whose user does not decide: open questions end the call.
    pub(super) fn asking_nobody(self) -> Self {
        Self {
            manner: Manner::ComeBack,
            ..self
        }
    }

    /// Waits until there is something to come back with.
    pub(super) async fn outcome(mut self) -> Result<CallToolResponse, ToolError> {
        let thread = self.thread.clone();
        let span = self.server.engine.span(&self.turn.session);
        let waited = self.wait().instrument(span).await;
        waited.map_err(|error| error.in_thread(&thread))
    }

    async fn wait(&mut self) -> Result<CallToolResponse, ToolError> {
        loop {
            let view = self.server.engine.inspect(&self.turn.session)?;
            // Before the end: the last step and the end may well come together.
            self.told.tell(self.context, &view.progress).await;
            if let Some(outcome) = self.ended(&view) {
                self.withdraw_all().await;
                return self.come_back_with(outcome?);
            }
            if let Some(response) = self.attend(&view).await {
                self.withdraw_all().await;
                return Ok(response);
            }
            match self.next(view.revision).await {
                Event::Changed(changed) => changed?,
                Event::Answered(answered) => self.take(answered),
                Event::Heartbeat => {
                    let view = self.server.engine.inspect(&self.turn.session)?;
                    self.told.take(&view.progress);
                    self.told.heartbeat(self.context).await;
                }
                Event::ComeBack => {
                    self.withdraw_all().await;
                    return Ok(match view.actions.as_slice() {
                        [] => self.still_running(),
                        open => self.waiting_approval(open),
                    });
                }
                Event::TimedOut => {
                    tracing::warn!("{}", self.reason(Code::Timeout));
                    return self.give_up(Code::Timeout).await;
                }
                Event::Cancelled => return self.give_up(Code::Cancelled).await,
                Event::Closing => return self.give_up(Code::ShuttingDown).await,
            }
        }
    }

    async fn next(&mut self, revision: u64) -> Event {
        let session = &self.turn.session;
        let (end, late) = match self.until {
            Until::GiveUp(end) => (end, Event::TimedOut),
            Until::ComeBack(end) => (end, Event::ComeBack),
        };
        tokio::select! {
            biased;
            () = self.context.ct.cancelled() => Event::Cancelled,
            () = self.server.closing.cancelled() => Event::Closing,
            changed = self.server.engine.changed(session, revision) => Event::Changed(changed),
            Some(answered) = self.dialogs.next() => Event::Answered(answered),
            () = sleep_until(end) => late,
            () = sleep_until(self.told.next_heartbeat()) => Event::Heartbeat,
        }
    }

    /// The outcome of our turn, once it has one.
    fn ended(&self, view: &View) -> Option<Result<Arc<Outcome>, ToolError>> {
        match &view.outcome {
            Some((turn, outcome)) if *turn == self.turn.number => Some(Ok(Arc::clone(outcome))),
            Some((turn, _)) if *turn > self.turn.number => Some(Err(ToolError::new(
                Code::Internal,
                "a later turn of the thread has ended in the meantime",
            ))),
            _ => None,
        }
    }

    fn come_back_with(&mut self, outcome: Arc<Outcome>) -> Result<CallToolResponse, ToolError> {
        let Outcome { ending, text, .. } = Arc::unwrap_or_clone(outcome);
        let error = match ending {
            Ending::Completed => return Ok(self.answer(text, Status::Completed)),
            Ending::Interrupted => ToolError::new(Code::Interrupted, "the turn was interrupted"),
            Ending::Failed(error) => error.into(),
            Ending::Lost(how) => ToolError::new(Code::CodexDied, format!("{how} during the turn")),
        };
        Err(error.with_partial(text))
    }

    fn answer(&mut self, content: String, status: Status) -> CallToolResponse {
        let answer = Answer {
            thread: self.thread.clone(),
            session: self.turn.session.clone(),
            content,
            status,
            warnings: std::mem::take(&mut self.warnings),
        };
        answer.into_result().into()
    }

    /// Sees to the open questions; some end the call.
    async fn attend(&mut self, view: &View) -> Option<CallToolResponse> {
        let open = &view.actions;
        self.dialogs.withdraw_closed(open).await;
        if self.manner == Manner::Elicit {
            for question in open {
                if !self.dialogs.has(question) && !self.put_to_client(view, question).await {
                    self.manner = Manner::ComeBack;
                    break;
                }
            }
        }
        if open.is_empty() || self.manner == Manner::Elicit {
            return None;
        }
        if self.manner == Manner::InputRequired
            && let Some(response) = self.input_required(view)
        {
            return Some(response);
        }
        Some(self.waiting_approval(open))
    }

    fn still_running(&mut self) -> CallToolResponse {
        let content = format!(
            "Codex is still at work: {}. Look in with codex_check and sessionId {}.",
            self.told.doing(),
            self.turn.session,
        );
        self.answer(content, Status::Running)
    }

    /// Asks the client; `false` if it can't be asked.
    async fn put_to_client(&mut self, view: &View, question: &Open) -> bool {
        let call = self.context.id.to_string();
        let origin = Origin {
            thread: &self.thread,
            turn: view.turn_id.as_ref(),
            call: Some(&call),
        };
        self.dialogs.put(&origin, question).await
    }

    /// The client has answered a question, or can't.
    fn take(&mut self, (action, answer): Answered) {
        if self.dialogs.is_first_answer(&action) {
            let engine = &self.server.engine;
            match decide(engine, &self.turn.session, &action, answer.as_ref()) {
                Taken::Decided => {}
                Taken::Dismissed => self.manner = Manner::ComeBack,
            }
        }
    }

    /// At the end nobody is left to send withdrawals.
    async fn withdraw_all(&mut self) {
        if !self.server.closing.is_cancelled() {
            self.dialogs.withdraw_closed(&[]).await;
        }
    }

    /// The questions as part of a result; `None` if one doesn't fit the form.
    fn input_required(&self, view: &View) -> Option<CallToolResponse> {
        let mut requests: InputRequests = BTreeMap::new();
        let call = self.context.id.to_string();
        let origin = Origin {
            thread: &self.thread,
            turn: view.turn_id.as_ref(),
            call: Some(&call),
        };
        for question in &view.actions {
            let Elicitation {
                message,
                requested_schema,
                extra,
            } = Elicitation::new(&origin, question, Titles::OneOf);
            let request: InputRequest = serde_json::from_value(json!({
                "method": "elicitation/create",
                "params": {
                    "mode": "form",
                    "message": message,
                    "requestedSchema": requested_schema,
                    "_meta": extra,
                },
            }))
            .inspect_err(|error| tracing::warn!("a question can't be passed on: {error}"))
            .ok()?;
            requests.insert(question.id.0.clone(), request);
        }
        let state = RequestState {
            turn: self.turn.clone(),
            thread: self.thread.clone(),
        };
        Some(InputRequiredResult::new(Some(requests), Some(state.to_text())).into())
    }

    fn waiting_approval(&mut self, open: &[Open]) -> CallToolResponse {
        let questions: Vec<String> = open
            .iter()
            .map(|question| approval_text::question(&question.ask))
            .collect();
        let content = format!(
            "Codex waits for an answer:\n{}\n\
             Decide with codex_check (action respond_permission or \
             respond_user_input, sessionId {}, and the requestId of each of `actions`) within {} s, \
             or it is declined; either way the turn goes on. Codex asks less under another \
             approval-policy or sandbox.",
            questions.join("\n\n"),
            self.turn.session,
            self.server.timeouts.approval.as_secs(),
        );
        let actions = open.iter().map(question::as_action).collect();
        self.answer(content, Status::WaitingApproval(actions))
    }

    /// Interrupts the turn, so that the thread can be used again, and tells
    /// what Codex had said, or all of it if the turn has just ended.
    async fn give_up(&mut self, code: Code) -> Result<CallToolResponse, ToolError> {
        self.withdraw_all().await;
        let engine = &self.server.engine;
        if let Some(outcome) = self.ended(&engine.inspect(&self.turn.session)?) {
            return self.come_back_with(outcome?);
        }
        let patience = match code {
            Code::ShuttingDown => SHUTDOWN_PATIENCE,
            _ => INTERRUPT_PATIENCE,
        };
        let text = engine.partial_text(&self.turn.session)?;
        engine.interrupt(&self.turn)?;
        let ended = timeout(patience, self.until_ended()).await;
        let text = match ended {
            Ok(Some(outcome)) => outcome.text.clone(),
            Ok(None) | Err(_) => text,
        };
        Err(ToolError::new(code, self.reason(code)).with_partial(text))
    }

    fn reason(&self, code: Code) -> String {
        match code {
            Code::Timeout => format!(
                "the turn took longer than {} s and was interrupted; the last that was heard: {}",
                self.server.timeouts.call.as_secs(),
                self.told.doing(),
            ),
            Code::ShuttingDown => "codex-mcp is shutting down; the turn was interrupted".to_owned(),
            _ => "the call was cancelled and the turn interrupted".to_owned(),
        }
    }

    async fn until_ended(&mut self) -> Option<Arc<Outcome>> {
        let engine = &self.server.engine;
        loop {
            let view = engine.inspect(&self.turn.session).ok()?;
            if let Some(outcome) = self.ended(&view) {
                return outcome.ok();
            }
            engine
                .changed(&self.turn.session, view.revision)
                .await
                .ok()?;
        }
    }
}
