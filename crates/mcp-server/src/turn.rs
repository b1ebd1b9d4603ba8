//! Waits for a turn on behalf of a tool call.
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
//!                 │ ├──── no turn and no outcome ─────────► HOST_LOST
//!                 │ ├──── timeout ── interrupt ── completed ► answer
//!                 │ └──── timeout ── interrupt ── ended ──► TIMEOUT, partial text
//!                 └────── cancelled, shutting down ─ interrupt
//! ```
//!
//! The engine declines questions that are not answered in time, so that no turn hangs, however a
//! question was asked.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use codex_engine::EngineError;
use codex_engine::command::{OpenQuestion, TurnRef, TurnView};
use codex_engine::logic::approval_text;
use codex_engine::logic::session::TurnOutcome;
use codex_protocol::codex::ThreadId;
use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, InputRequiredResult};
use rmcp::service::RequestContext;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::Instrument;

use super::answer::{
    INTERRUPT_TIMEOUT, TurnAnswer, TurnStatus, answer_of, is_complete_at_limit, outcome_of,
};
use super::code::Code;
use super::dialogs::{DialogAnswer, Dialogs, QuestionMode};
use super::error::ToolError;
use super::progress::Progress;
use super::question::{self, ChoiceTitles, Origin};
use super::request_state::RequestState;
use crate::decision::{ReplyOutcome, decide};
use crate::server::Server;

/// [`INTERRUPT_TIMEOUT`] for a program that is ending. It must be shorter than the time that rmcp
/// waits for the last answers (5 s), or the call would get no answer.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// The deadline of a call that waits for a turn.
#[derive(Debug, Clone, Copy)]
pub(super) enum CallDeadline {
    /// The turn is interrupted then.
    Interrupt(Instant),
    /// The call returns then, and the turn continues.
    Return(Instant),
}

/// A tool call that waits for a turn.
pub(super) struct TurnWait<'a> {
    server: &'a Server,
    context: &'a RequestContext<RoleServer>,
    turn: TurnRef,
    thread: ThreadId,
    deadline: CallDeadline,
    question_mode: QuestionMode,
    warnings: Vec<String>,
    progress: Progress,
    dialogs: Dialogs,
}

/// The event that ended a wait.
enum WaitEvent {
    Changed(Result<(), EngineError>),
    Answered(DialogAnswer),
    Heartbeat,
    WaitOver,
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
        deadline: CallDeadline,
        progress: Progress,
    ) -> Self {
        Self {
            server,
            context,
            turn,
            thread,
            deadline,
            question_mode: QuestionMode::of(context),
            warnings: Vec::new(),
            progress,
            dialogs: Dialogs::new(context.peer.clone()),
        }
    }

    /// The same with warnings for the caller.
    pub(super) fn with_warnings(self, warnings: Vec<String>) -> Self {
        Self { warnings, ..self }
    }

    /// The same without dialogs: open questions end the call.
    pub(super) fn without_dialogs(self) -> Self {
        Self {
            question_mode: QuestionMode::EndCall,
            ..self
        }
    }

    /// Waits until there is an answer for the caller.
    pub(super) async fn outcome(mut self) -> Result<CallToolResponse, ToolError> {
        let thread = self.thread.clone();
        let span = self.server.engine.span(&self.turn.session);
        let waited = self.wait().instrument(span).await;
        waited.map_err(|error| error.in_thread(&thread))
    }

    async fn wait(&mut self) -> Result<CallToolResponse, ToolError> {
        loop {
            // Read before the view, as the turn may end between the two.
            let has_turn = self.server.engine.handle(&self.turn.session)?.has_turn();
            let view = self.server.engine.inspect(&self.turn.session)?;
            // Reported before the end, as the last step and the end may arrive together.
            self.progress.report(self.context, &view.progress).await;
            if let Some(outcome) = self.ended(&view) {
                self.withdraw_all().await;
                return self.finish(outcome?);
            }
            if !has_turn {
                let why = "the last host process has ended, and the outcome of the turn is lost";
                return Err(ToolError::new(Code::HostLost, why));
            }
            if let Some(response) = self.handle_questions(&view).await {
                self.withdraw_all().await;
                return Ok(response);
            }
            match self.next(view.revision).await {
                WaitEvent::Changed(changed) => changed?,
                WaitEvent::Answered(answered) => self.accept_answer(answered),
                WaitEvent::Heartbeat => {
                    let view = self.server.engine.inspect(&self.turn.session)?;
                    self.progress.set_step(&view.progress);
                    self.progress.heartbeat(self.context).await;
                }
                WaitEvent::WaitOver => {
                    self.withdraw_all().await;
                    return Ok(match view.actions.as_slice() {
                        [] => self.still_running(),
                        open => self.waiting_approval(open),
                    });
                }
                WaitEvent::TimedOut => {
                    tracing::warn!("{}", self.reason(Code::Timeout));
                    return self.give_up(Code::Timeout).await;
                }
                WaitEvent::Cancelled => return self.give_up(Code::Cancelled).await,
                WaitEvent::Closing => return self.give_up(Code::ShuttingDown).await,
            }
        }
    }

    async fn next(&mut self, revision: u64) -> WaitEvent {
        let session = &self.turn.session;
        let (end, late) = match self.deadline {
            CallDeadline::Interrupt(end) => (end, WaitEvent::TimedOut),
            CallDeadline::Return(end) => (end, WaitEvent::WaitOver),
        };
        tokio::select! {
            biased;
            () = self.context.ct.cancelled() => WaitEvent::Cancelled,
            () = self.server.closing.cancelled() => WaitEvent::Closing,
            changed = self.server.engine.changed(session, revision) => WaitEvent::Changed(changed),
            Some(answered) = self.dialogs.next() => WaitEvent::Answered(answered),
            () = sleep_until(end) => late,
            () = sleep_until(self.progress.next_heartbeat()) => WaitEvent::Heartbeat,
        }
    }

    /// The outcome of our turn, once it has one.
    fn ended(&self, view: &TurnView) -> Option<Result<Arc<TurnOutcome>, ToolError>> {
        outcome_of(view, self.turn.number)
    }

    fn finish(&mut self, outcome: Arc<TurnOutcome>) -> Result<CallToolResponse, ToolError> {
        let answer = TurnAnswer {
            warnings: std::mem::take(&mut self.warnings),
            ..answer_of(outcome, &self.thread, &self.turn.session)?
        };
        Ok(answer.into_result().into())
    }

    fn answer(&mut self, content: String, status: TurnStatus) -> CallToolResponse {
        let answer = TurnAnswer {
            thread: self.thread.clone(),
            session: self.turn.session.clone(),
            content,
            status,
            warnings: std::mem::take(&mut self.warnings),
        };
        answer.into_result().into()
    }

    /// Handles the open questions; some end the call.
    async fn handle_questions(&mut self, view: &TurnView) -> Option<CallToolResponse> {
        let open = &view.actions;
        self.dialogs.withdraw_closed(open).await;
        if self.question_mode == QuestionMode::Elicit {
            for question in open {
                if !self.dialogs.has(question) && !self.ask_client(view, question).await {
                    self.question_mode = QuestionMode::EndCall;
                    break;
                }
            }
        }
        if open.is_empty() || self.question_mode == QuestionMode::Elicit {
            return None;
        }
        if self.question_mode == QuestionMode::InputRequired
            && let Some(response) = self.input_required(view)
        {
            return Some(response);
        }
        Some(self.waiting_approval(open))
    }

    fn still_running(&mut self) -> CallToolResponse {
        let content = format!(
            "Codex is still at work: {}. Poll with codex_check and sessionId {}.",
            self.progress.current_step(),
            self.turn.session,
        );
        self.answer(content, TurnStatus::Running)
    }

    /// Asks the client; `false` if it can't be asked.
    async fn ask_client(&mut self, view: &TurnView, question: &OpenQuestion) -> bool {
        let call = self.context.id.to_string();
        let origin = Origin {
            thread: &self.thread,
            turn: view.turn_id.as_ref(),
            call: Some(&call),
        };
        self.dialogs.ask(&origin, question).await
    }

    /// Applies the client's answer to a question.
    fn accept_answer(&mut self, (action, answer): DialogAnswer) {
        if self.dialogs.is_first_answer(&action) {
            // Without its session, the question is gone too.
            if let Ok(session) = self.server.engine.handle(&self.turn.session)
                && decide(&session, &action, answer.as_ref()) == ReplyOutcome::Dismissed
            {
                self.question_mode = QuestionMode::EndCall;
            }
        }
    }

    /// Withdraws all questions. When the server ends, nobody is left to send withdrawals.
    async fn withdraw_all(&mut self) {
        if !self.server.closing.is_cancelled() {
            self.dialogs.withdraw_closed(&[]).await;
        }
    }

    /// The questions as part of a result; `None` if one can't be written as an elicitation.
    fn input_required(&self, view: &TurnView) -> Option<CallToolResponse> {
        let call = self.context.id.to_string();
        let origin = Origin {
            thread: &self.thread,
            turn: view.turn_id.as_ref(),
            call: Some(&call),
        };
        let requests = question::input_requests(&origin, &view.actions, ChoiceTitles::OneOf);
        if requests.len() < view.actions.len() {
            return None;
        }
        let state = RequestState {
            turn: self.turn.clone(),
            thread: self.thread.clone(),
        };
        Some(InputRequiredResult::new(Some(requests), Some(state.to_text())).into())
    }

    fn waiting_approval(&mut self, open: &[OpenQuestion]) -> CallToolResponse {
        let questions: Vec<String> = open
            .iter()
            .map(|question| approval_text::question(&question.ask))
            .collect();
        let content = format!(
            "Codex waits for an answer:\n{}\n\
             Decide with codex_check (action respond_permission or \
             respond_user_input, sessionId {}, and the requestId of each of `actions`) within {} s, \
             or it is declined; either way the turn continues. Codex asks less under another \
             approval-policy or sandbox.",
            questions.join("\n\n"),
            self.turn.session,
            seconds_left(
                open.iter().map(|question| question.expires),
                SystemTime::now()
            ),
        );
        let actions = open.iter().map(question::as_action).collect();
        self.answer(content, TurnStatus::WaitingApproval(actions))
    }

    /// Interrupts the turn, so that the thread can be used again, and returns an error with the text
    /// that Codex has written so far, or the answer if the turn has just been completed.
    async fn give_up(&mut self, code: Code) -> Result<CallToolResponse, ToolError> {
        self.withdraw_all().await;
        let engine = &self.server.engine;
        if let Some(outcome) = self.ended(&engine.inspect(&self.turn.session)?) {
            return self.finish(outcome?);
        }
        let time_limit = match code {
            Code::ShuttingDown => SHUTDOWN_TIMEOUT,
            _ => INTERRUPT_TIMEOUT,
        };
        let text = engine.partial_text(&self.turn.session)?;
        engine.interrupt(&self.turn)?;
        let ended = timeout(time_limit, self.until_ended()).await;
        let text = match ended {
            Ok(Some(outcome)) if is_complete_at_limit(code, &outcome) => {
                return self.finish(outcome);
            }
            Ok(Some(outcome)) => outcome.text.clone(),
            Ok(None) | Err(_) => text,
        };
        Err(ToolError::new(code, self.reason(code)).with_partial(text))
    }

    fn reason(&self, code: Code) -> String {
        match code {
            Code::Timeout => format!(
                "the turn took longer than {} s and was interrupted; its last step: {}",
                self.server.timeouts.call.as_secs(),
                self.progress.current_step(),
            ),
            Code::ShuttingDown => "codex-mcp is shutting down; the turn was interrupted".to_owned(),
            _ => "the call was cancelled and the turn interrupted".to_owned(),
        }
    }

    async fn until_ended(&mut self) -> Option<Arc<TurnOutcome>> {
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

/// The seconds until the first of these times, rounded up.
fn seconds_left(expiries: impl Iterator<Item = SystemTime>, now: SystemTime) -> u64 {
    let first = expiries
        .min()
        .and_then(|first| first.duration_since(now).ok());
    let left = first.unwrap_or_default();
    left.as_secs() + u64::from(left.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_that_of_the_first_question_to_expire() {
        let now = SystemTime::now();
        let left = |milliseconds: &[u64]| {
            let expiries = milliseconds.iter().copied().map(Duration::from_millis);
            seconds_left(expiries.map(|after| now + after), now)
        };
        assert_eq!(left(&[60_000]), 60);
        assert_eq!(left(&[86_400_000, 4_999, 60_000]), 5);
        assert_eq!(
            seconds_left([now - Duration::from_secs(1)].into_iter(), now),
            0
        );
        assert_eq!(left(&[]), 0);
    }
}
