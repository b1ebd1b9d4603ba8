//! Directives to a running turn: answers to Codex's questions, and steering.

use std::future::pending;
use std::time::{Duration, Instant};

use codex_engine::command::{OpenQuestion, SessionId};
use codex_engine::logic::action::{self, ActionId, Decision};
use codex_engine::logic::work::WorkEnding;
use codex_engine::{ApprovalOutOfBounds, EngineError};
use settings::bounds::Bound;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Call;
use crate::directive::{Answer, Directive};

/// How long Codex may take to accept steering. It takes some milliseconds.
const STEER_TIMEOUT: Duration = Duration::from_secs(5);

/// Controls a running turn: cancels it, and gives it directives.
#[derive(Debug)]
pub struct Control<'a> {
    /// Cancels the turn.
    pub cancel: CancellationToken,
    /// The directives for the turn. Those that are left when the turn has ended are dropped.
    pub directives: Option<&'a mut mpsc::UnboundedReceiver<PendingDirective>>,
}

impl From<CancellationToken> for Control<'_> {
    fn from(cancel: CancellationToken) -> Self {
        Self {
            cancel,
            directives: None,
        }
    }
}

/// A directive for a turn that waits to be followed.
#[derive(Debug)]
pub struct PendingDirective {
    /// The directive.
    pub directive: Directive,
    /// The bound, if there is one, that refuses answers by which a command leaves the sandbox.
    pub bound: Option<Bound>,
    /// Receives the result: `Ok` if the directive was followed, else the reason.
    pub reply: oneshot::Sender<Result<(), String>>,
}

/// The channel of directives, if the turn takes any.
pub(super) type Directives<'a> = Option<&'a mut mpsc::UnboundedReceiver<PendingDirective>>;

/// An error of following a directive.
#[derive(Debug, thiserror::Error)]
enum DirectiveError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    OutOfBounds(#[from] ApprovalOutOfBounds),
    #[error(
        "question {0} is not open any more: it was answered, it timed out, or Codex no longer needs an answer"
    )]
    NotOpen(String),
    #[error("this decision is not among those that the question offers")]
    NotOffered,
    #[error("Codex has not answered within {} s whether it accepts the message", STEER_TIMEOUT.as_secs())]
    Silent,
}

/// Waits for the next directive.
pub(super) async fn next(directives: &mut Directives<'_>) -> PendingDirective {
    let next = match directives {
        Some(coming) => coming.recv().await,
        None => None,
    };
    match next {
        Some(given) => given,
        None => pending().await,
    }
}

impl Call<'_> {
    /// Updates the open questions. The turn's time limit is paused while a question is open.
    pub(super) fn update_questions(&mut self, session: &SessionId, open: &[OpenQuestion]) {
        match (open.is_empty(), self.waiting_since) {
            (false, None) => self.waiting_since = Some(Instant::now()),
            (true, Some(since)) => {
                self.waiting_since = None;
                self.limit = self
                    .limit
                    .and_then(|limit| limit.checked_add(since.elapsed()));
            }
            _ => {}
        }
        self.note_record(session);
        self.sink.questions(open);
    }

    /// Follows a directive, and replies with the result.
    pub(super) async fn follow(&mut self, session: &SessionId, given: PendingDirective) {
        let PendingDirective {
            directive,
            bound,
            reply,
        } = given;
        let followed = match &directive {
            Directive::Answer(answer) => self.answer(session, answer, bound),
            Directive::Steer(words) => self.steer(session, words).await,
        };
        if followed.is_ok() {
            self.sink.followed(&directive);
            if let Directive::Answer(answer) = &directive
                && answer.decision == Decision::Cancel
            {
                self.declined = Some(WorkEnding::Declined(answer.reason.clone()));
            }
        }
        // The sender may have stopped waiting.
        let _ = reply.send(followed.map_err(|error| error.to_string()));
    }

    fn answer(
        &self,
        session: &SessionId,
        answer: &Answer,
        bound: Option<Bound>,
    ) -> Result<(), DirectiveError> {
        let id = ActionId(answer.question.clone());
        let view = self.engine.inspect(session)?;
        let open = view.actions.iter().find(|open| open.id == id);
        let open = open.ok_or_else(|| DirectiveError::NotOpen(answer.question.clone()))?;
        let decision = &answer.decision;
        let is_form = matches!(decision, Decision::Submit(_));
        if !is_form && !action::offered(&open.ask).contains(decision) {
            return Err(DirectiveError::NotOffered);
        }
        if let Some(bound) = bound
            && action::leaves_the_sandbox(&open.ask, decision)
        {
            return Err(ApprovalOutOfBounds(bound.to_string()).into());
        }
        let reason = answer.reason.as_deref();
        Ok(self.engine.respond(session, &id, decision, reason)?)
    }

    async fn steer(&self, session: &SessionId, words: &str) -> Result<(), DirectiveError> {
        let steered = timeout(STEER_TIMEOUT, self.engine.steer(session, words)).await;
        Ok(steered.map_err(|_| DirectiveError::Silent)??)
    }
}
