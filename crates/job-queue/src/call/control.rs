//! What a turn is told while it runs, and how it takes that.

use std::future::pending;
use std::time::{Duration, Instant};

use codex_engine::command::{Open, SessionId};
use codex_engine::logic::action::{self, ActionId, Decision};
use codex_engine::logic::work::Ending;
use codex_engine::{ApprovalOutOfBounds, EngineError};
use settings::bounds::Bound;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Call;
use crate::directive::{Answer, Directive};

/// How long Codex may take to take words for its turn. It takes some milliseconds.
const STEER_PATIENCE: Duration = Duration::from_secs(5);

/// By what a turn is ended early, and told what to do.
#[derive(Debug)]
pub struct Control<'a> {
    /// Ends it.
    pub cancel: CancellationToken,
    /// What it is to do while it runs. Those that are left when it has ended are dropped.
    pub directives: Option<&'a mut mpsc::UnboundedReceiver<Given>>,
}

impl From<CancellationToken> for Control<'_> {
    fn from(cancel: CancellationToken) -> Self {
        Self {
            cancel,
            directives: None,
        }
    }
}

/// A directive for a turn.
#[derive(Debug)]
pub struct Given {
    /// What it is.
    pub directive: Directive,
    /// What keeps commands in the sandbox whatever is answered.
    pub bound: Option<Bound>,
    /// Told whether it was followed, or else why not.
    pub told: oneshot::Sender<Result<(), String>>,
}

/// Those that are still to come.
pub(super) type Directives<'a> = Option<&'a mut mpsc::UnboundedReceiver<Given>>;

/// Why a directive is not followed.
#[derive(Debug, thiserror::Error)]
enum NotFollowed {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    OutOfBounds(#[from] ApprovalOutOfBounds),
    #[error(
        "question {0} is not open any more: it was answered, its time was over, or Codex no longer needs an answer"
    )]
    NotOpen(String),
    #[error("this decision is not among those that the question offers")]
    NotOffered,
    #[error("Codex has not said within {} s whether it takes the words", STEER_PATIENCE.as_secs())]
    Silent,
}

/// Waits for the next one.
pub(super) async fn next(directives: &mut Directives<'_>) -> Given {
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
    /// Takes in the questions that are open now. The turn's time stands still while there
    /// is one.
    pub(super) fn asked(&mut self, open: &[Open]) {
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
        self.hearing.questions(open);
    }

    /// Does what was directed, and says what came of it.
    pub(super) async fn follow(&mut self, session: &SessionId, given: Given) {
        let Given {
            directive,
            bound,
            told,
        } = given;
        let followed = match &directive {
            Directive::Answer(answer) => self.answer(session, answer, bound),
            Directive::Steer(words) => self.steer(session, words).await,
        };
        if followed.is_ok() {
            self.hearing.followed(&directive);
            if let Directive::Answer(answer) = &directive
                && answer.decision == Decision::Cancel
            {
                self.declined = Some(Ending::Declined(answer.reason.clone()));
            }
        }
        // Whoever has asked may have gone.
        let _ = told.send(followed.map_err(|error| error.to_string()));
    }

    fn answer(
        &self,
        session: &SessionId,
        answer: &Answer,
        bound: Option<Bound>,
    ) -> Result<(), NotFollowed> {
        let id = ActionId(answer.question.clone());
        let view = self.engine.inspect(session)?;
        let open = view.actions.iter().find(|open| open.id == id);
        let open = open.ok_or_else(|| NotFollowed::NotOpen(answer.question.clone()))?;
        let decision = &answer.decision;
        let is_form = matches!(decision, Decision::Submit(_));
        if !is_form && !action::offered(&open.ask).contains(decision) {
            return Err(NotFollowed::NotOffered);
        }
        if let Some(bound) = bound
            && action::leaves_the_sandbox(&open.ask, decision)
        {
            return Err(ApprovalOutOfBounds(bound.to_string()).into());
        }
        let reason = answer.reason.as_deref();
        Ok(self.engine.respond(session, &id, decision, reason)?)
    }

    async fn steer(&self, session: &SessionId, words: &str) -> Result<(), NotFollowed> {
        let steered = timeout(STEER_PATIENCE, self.engine.steer(session, words)).await;
        Ok(steered.map_err(|_| NotFollowed::Silent)??)
    }
}
