//! Questions of jobs that agents may answer by mail.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use codex_engine::logic::action::{DecidedBy, Decision};
use codex_engine::logic::session::Alert;
use common::sync::lock;
use futures::FutureExt;
use futures::future::BoxFuture;
use goal_run::logic::mail_answers::Offer;
use goal_run::notify::MailQuestion;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::directive::Answer;
use crate::logic::JobId;

/// The answers to the questions of an attempt, for those who answer later. Clones share them, and
/// outlast the attempt.
#[derive(Debug, Clone, Default)]
pub(super) struct GivenAnswers(Arc<Mutex<HashMap<String, String>>>);

impl GivenAnswers {
    /// Notes an answer that was followed.
    pub(super) fn add(&self, answer: &Answer) {
        lock(&self.0).insert(answer.question.clone(), answer.in_short());
    }

    /// The answer to this question, and who gave it.
    fn first(&self, question: &str) -> Option<String> {
        lock(&self.0).get(question).cloned()
    }

    /// Why another answer to this question is refused, if it was answered.
    pub(super) fn refusal(&self, question: &str) -> Option<String> {
        let first = self.first(question)?;
        Some(format!("question {question} was answered already: {first}"))
    }
}

/// A question of a job.
pub(super) struct JobQuestion {
    pub(super) job: JobId,
    /// The ID of the question.
    pub(super) id: String,
    /// Whether an earlier worker has announced it.
    pub(super) is_announced: bool,
    /// The notice of the question.
    pub(super) alert: Alert,
    /// The decisions that can be made by mail.
    pub(super) offer: Offer,
    /// Takes answers to the dialog of the attempt.
    pub(super) to_dialog: mpsc::UnboundedSender<MailedAnswer>,
    /// The answers that were followed.
    pub(super) given: GivenAnswers,
    /// Cancelled when the question is closed.
    pub(super) closed: CancellationToken,
}

/// An answer that came by mail.
pub(super) struct MailedAnswer {
    pub(super) answer: Answer,
    /// Receives the result: `Ok` if the answer was followed, else the reason.
    pub(super) reply: oneshot::Sender<Result<(), String>>,
}

impl MailQuestion for JobQuestion {
    fn offer(&self) -> Offer {
        match self.is_open() {
            true => self.offer.clone(),
            false => Offer::default(),
        }
    }

    fn is_open(&self) -> bool {
        !self.closed.is_cancelled()
    }

    fn closing(&self) -> Option<String> {
        let unanswered =
            || "without an answer: it timed out, or Codex no longer needs one".to_owned();
        Some(self.given.first(&self.id).unwrap_or_else(unanswered))
    }

    fn decide(&self, decision: Decision, by: String) -> BoxFuture<'_, Result<(), String>> {
        let (reply, outcome) = oneshot::channel();
        let answer = Answer {
            question: self.id.clone(),
            decision,
            reason: Some(by),
            by: Some(DecidedBy::Mail),
        };
        let sent = self.to_dialog.send(MailedAnswer { answer, reply });
        async move {
            let over = || {
                let first = self.given.refusal(&self.id);
                Err(first.unwrap_or_else(|| "the turn has ended before".to_owned()))
            };
            match sent {
                Ok(()) => outcome.await.unwrap_or_else(|_| over()),
                Err(_) => over(),
            }
        }
        .boxed()
    }

    fn audited(&self) -> Option<(Uuid, String)> {
        let Alert::Question { summary, .. } = &self.alert else {
            return None;
        };
        // A job's ID has the form of a UUID.
        let job = Uuid::parse_str(self.job.as_str()).ok()?;
        Some((job, summary.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The dialog of the attempt has gone, as after the end of the turn.
    #[tokio::test]
    async fn refusal_after_the_turn_names_the_decider() {
        let (to_dialog, dialog) = mpsc::unbounded_channel();
        drop(dialog);
        let given = GivenAnswers::default();
        let question = JobQuestion {
            job: JobId::from_random(0),
            id: "req_1".to_owned(),
            is_announced: false,
            alert: Alert::Stalled {
                silent: Duration::ZERO,
                doing: String::new(),
            },
            offer: Offer::default(),
            to_dialog,
            given: given.clone(),
            closed: CancellationToken::new(),
        };
        let reply = async || question.decide(Decision::Accept, "lead@t".to_owned()).await;
        let refused = Err("the turn has ended before".to_owned());
        assert_eq!(reply().await, refused);
        let closing = question.closing().unwrap();
        assert!(closing.starts_with("without an answer: "), "{closing}");
        given.add(&Answer {
            question: "req_1".to_owned(),
            decision: Decision::Decline,
            reason: Some("not now".to_owned()),
            by: Some(DecidedBy::Terminal),
        });
        let refused = Err("question req_1 was answered already: decline (terminal)".to_owned());
        assert_eq!(reply().await, refused);
        assert_eq!(question.closing().unwrap(), "decline (terminal)");
        // As sessions show a form that was filled in.
        given.add(&Answer {
            question: "req_1".to_owned(),
            decision: Decision::Submit(serde_json::Map::new()),
            reason: None,
            by: Some(DecidedBy::Page),
        });
        assert_eq!(question.closing().unwrap(), "accept (page)");
    }
}
