//! Questions of jobs that agents may answer by mail.

use codex_engine::logic::action::{DecidedBy, Decision};
use codex_engine::logic::session::Alert;
use futures::FutureExt;
use futures::future::BoxFuture;
use goal_run::logic::mail_answers::Offer;
use goal_run::notify::MailQuestion;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::directive::Answer;
use crate::logic::JobId;

/// A question of a job.
pub(super) struct JobQuestion {
    pub(super) job: JobId,
    /// The ID of the question.
    pub(super) id: String,
    /// The notice of the question.
    pub(super) alert: Alert,
    /// The decisions that can be made by mail.
    pub(super) offer: Offer,
    /// Takes answers to the dialog of the attempt.
    pub(super) to_dialog: mpsc::UnboundedSender<MailedAnswer>,
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
            let over = || Err("the turn has ended before".to_owned());
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
