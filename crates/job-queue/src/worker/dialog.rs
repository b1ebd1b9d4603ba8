//! Carries Codex's questions from a turn to the store, and instructions from the store to the
//! turn.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use codex_engine::command::OpenQuestion;
use codex_engine::logic::action::{ActionId, DecidedBy};
use codex_engine::logic::session::Alert;
use common::text::one_line;
use goal_run::logic::mail_answers;
use serde_json::json;
use tokio::sync::{Mutex, Notify, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::cancel_handle::{CancelHandle, CancelReason};
use super::journal::Journal;
use super::mail_question::{GivenAnswers, JobQuestion, MailedAnswer};
use super::{Worker, attempt_spec};
use crate::call::{CallUpdate, PendingDirective};
use crate::directive::{Answer, Directive};
use crate::question;
use crate::store::{Claim, DONE, Instruction, Job, NewQuestion, Origin, WriteOutcome};

/// The event kinds of a question, a followed instruction, and a question that was closed
/// without an answer.
pub const ASKED: &str = "codex-mcp/question";
/// See [`ASKED`].
pub const TOLD: &str = "codex-mcp/told";
/// See [`ASKED`].
pub const UNANSWERED: &str = "codex-mcp/unanswered";

/// The limit of a steering text or reason in an event, in bytes.
const WORDS: usize = 200;

/// The questions of an attempt, and the directives for it.
pub(super) struct Dialog<'a> {
    worker: &'a Worker,
    claim: &'a Claim,
    job: &'a Job,
    cancel: &'a CancelHandle,
    journal: &'a Journal,
    to_turn: mpsc::UnboundedSender<PendingDirective>,
    open: RefCell<Vec<NewQuestion>>,
    /// By the IDs of the open questions; dropped when they are closed.
    open_for_mail: RefCell<HashMap<String, DropGuard>>,
    /// The answers by mail, with a sender for each question.
    mailed: Mutex<mpsc::UnboundedReceiver<MailedAnswer>>,
    to_mailed: mpsc::UnboundedSender<MailedAnswer>,
    given: GivenAnswers,
    /// The IDs of the questions that an earlier worker has announced.
    announced: HashSet<String>,
    /// The instructions that were taken: each is followed once, even if its row is put back.
    taken: RefCell<HashSet<String>>,
    /// Outcomes that could not be stored yet, by the IDs of their instructions.
    unstored: RefCell<HashMap<String, String>>,
    changed: Notify,
    closed: CancellationToken,
}

impl<'a> Dialog<'a> {
    /// The dialog of an attempt, and the channel of directives for its turn.
    pub(super) fn of(
        worker: &'a Worker,
        claim: &'a Claim,
        job: &'a Job,
        journal: &'a Journal,
        cancel: &'a CancelHandle,
    ) -> (Self, mpsc::UnboundedReceiver<PendingDirective>) {
        let (to_turn, directives) = mpsc::unbounded_channel();
        let (to_mailed, mailed) = mpsc::unbounded_channel();
        let dialog = Self {
            worker,
            claim,
            job,
            cancel,
            journal,
            to_turn,
            open: RefCell::default(),
            open_for_mail: RefCell::default(),
            mailed: Mutex::new(mailed),
            to_mailed,
            given: GivenAnswers::default(),
            announced: HashSet::new(),
            taken: RefCell::default(),
            unstored: RefCell::default(),
            changed: Notify::new(),
            closed: CancellationToken::new(),
        };
        (dialog, directives)
    }

    /// The same dialog of an attempt that an earlier worker has begun; `announced` are the IDs of the
    /// questions that it has announced.
    pub(super) fn continuing(self, announced: HashSet<String>) -> Self {
        Self { announced, ..self }
    }

    /// Handles an update of the call; `on_question` is called for each new question.
    pub(super) fn handle_update(&self, news: &CallUpdate<'_>, on_question: &dyn Fn(JobQuestion)) {
        match news {
            CallUpdate::Questions(open) => self.update_questions(open, on_question),
            CallUpdate::Followed(directive) => self.record_followed(directive),
            CallUpdate::Session(_)
            | CallUpdate::Event(..)
            | CallUpdate::Lost(_)
            | CallUpdate::Record(_) => {}
        }
    }

    fn update_questions(&self, open: &[OpenQuestion], on_question: &dyn Fn(JobQuestion)) {
        let bounds = attempt_spec::bounds(self.job, &self.worker.options);
        let bound = bounds.ok().and_then(|bounds| bounds.sandbox_escape_bound());
        let before = self.open.take();
        let is_open = |id: &str| open.iter().any(|one| one.id.0 == id);
        for closed in before.iter().filter(|one| !is_open(&one.id)) {
            self.open_for_mail.borrow_mut().remove(&closed.id);
            self.record_unanswered(&closed.id);
        }
        let mut now = Vec::with_capacity(open.len());
        for one in open {
            now.push(match before.iter().find(|known| known.id == one.id.0) {
                Some(known) => known.clone(),
                None => {
                    on_question(self.announce(one, bound.is_some()));
                    question::new_question(one, bound.as_ref())
                }
            });
        }
        self.open.replace(now);
        self.changed.notify_one();
    }

    fn announce(&self, open: &OpenQuestion, is_bounded: bool) -> JobQuestion {
        let alert = Alert::of_question(&open.id, &open.ask, open.expires);
        let is_announced = self.announced.contains(&open.id.0);
        if let Alert::Question { summary, .. } = &alert
            && !is_announced
        {
            let words = format!("asks: {summary}");
            let data = json!({ "words": words, "request_id": open.id });
            self.journal.note(ASKED, &data);
        }
        let closed = CancellationToken::new();
        let guard = closed.clone().drop_guard();
        let id = open.id.0.clone();
        self.open_for_mail.borrow_mut().insert(id.clone(), guard);
        JobQuestion {
            job: self.job.summary.id.clone(),
            id,
            is_announced,
            alert,
            offer: mail_answers::offer(&open.ask, is_bounded),
            to_dialog: self.to_mailed.clone(),
            given: self.given.clone(),
            closed,
        }
    }

    fn record_unanswered(&self, id: &str) {
        if self.given.refusal(id).is_none() {
            let words = format!(
                "question {id} was closed without an answer: it timed out, or Codex no \
                 longer needed one"
            );
            let data = json!({ "words": words, "request_id": id });
            self.journal.note(UNANSWERED, &data);
        }
    }

    fn record_followed(&self, directive: &Directive) {
        let data = match directive {
            Directive::Answer(answer) => {
                self.given.add(answer);
                in_words(answer)
            }
            Directive::Steer(words) => {
                json!({ "words": format!("steered: {}", one_line(words, WORDS)) })
            }
        };
        self.journal.note(TOLD, &data);
    }

    /// Ends [`Dialog::carry`] at the end of the attempt.
    pub(super) fn close(&self) {
        self.closed.cancel();
    }

    /// Carries questions and instructions until the attempt has ended.
    pub(super) async fn carry(&self) {
        let mut mailed = self.mailed.lock().await;
        loop {
            tokio::select! {
                () = self.closed.cancelled() => return,
                () = self.changed.notified() => self.write_questions().await,
                () = self.cancel.instructed.notified() => self.take().await,
                Some(mailed) = mailed.recv() => self.follow_mail(mailed).await,
            }
        }
    }

    async fn write_questions(&self) {
        let open = self.open.borrow().clone();
        let store = &self.worker.store;
        let write = async || store.set_questions(self.claim, &open).await;
        match self.worker.store_health.retry(write).await {
            Ok(WriteOutcome::Done) => {}
            Ok(WriteOutcome::Lost) => self.cancel.cancel(CancelReason::Lost),
            Err(error) => {
                tracing::warn!(
                    "cannot store Codex's questions, so nobody can answer them: {error}"
                );
            }
        }
    }

    async fn take(&self) {
        let store = &self.worker.store;
        let take = async || store.take_instructions(self.claim).await;
        let taken = self.worker.store_health.retry(take).await;
        let taken = taken.unwrap_or_else(|error| {
            tracing::warn!("cannot take the instructions for the job: {error}");
            Vec::new()
        });
        for taken in taken {
            let unstored = self.unstored.borrow_mut().remove(&taken.id);
            let outcome = match unstored {
                Some(outcome) => outcome,
                None => match self.pass_on(&taken).await {
                    Ok(()) => DONE.to_owned(),
                    Err(why) => why,
                },
            };
            let conclude = async || store.conclude(self.claim, &taken.id, &outcome).await;
            if let Err(error) = self.worker.store_health.retry(conclude).await {
                tracing::warn!("cannot store the outcome of an instruction yet: {error}");
                self.unstored.borrow_mut().insert(taken.id, outcome);
            }
        }
    }

    /// Passes an instruction to the turn, if this machine has signed it and it was not used before.
    async fn pass_on(&self, taken: &Instruction) -> Result<(), String> {
        if taken.origin != Origin::ThisMachine {
            let host = &self.worker.options.host;
            return Err(format!(
                "it is not signed with the key of the worker's host, {host}: only its own user \
                 can tell the job something, on that host"
            ));
        }
        if !self.taken.borrow_mut().insert(taken.id.clone()) {
            return Err("it was used before".to_owned());
        }
        let directive = serde_json::from_str(&taken.data).map_err(|error| error.to_string())?;
        self.give(directive).await
    }

    async fn follow_mail(&self, MailedAnswer { answer, reply }: MailedAnswer) {
        let followed = self.give(Directive::Answer(answer)).await;
        // The reader of the mail may have stopped waiting.
        let _ = reply.send(followed);
    }

    /// Gives a directive to the turn. The refusal of an answer that comes too late says which was
    /// first.
    async fn give(&self, directive: Directive) -> Result<(), String> {
        let question = match &directive {
            Directive::Answer(answer) => Some(answer.question.clone()),
            Directive::Steer(_) => None,
        };
        let followed = self.give_within_bounds(directive).await;
        followed.map_err(|why| {
            let first = question.and_then(|question| self.given.refusal(&question));
            first.unwrap_or(why)
        })
    }

    /// Gives a directive to the turn, within the current bounds.
    async fn give_within_bounds(&self, directive: Directive) -> Result<(), String> {
        let bounds = attempt_spec::bounds(self.job, &self.worker.options);
        let bounds = bounds.map_err(|error| error.to_string())?;
        let (reply, answer) = oneshot::channel();
        let given = PendingDirective {
            directive,
            bound: bounds.sandbox_escape_bound(),
            reply,
        };
        let over = || "the turn has ended before".to_owned();
        self.to_turn.send(given).map_err(|_| over())?;
        answer.await.unwrap_or_else(|_| Err(over()))
    }
}

fn in_words(answer: &Answer) -> serde_json::Value {
    let name = answer.decision.name();
    let reason = answer.reason.as_deref();
    let because = reason.map_or_else(String::new, |reason| {
        format!(" ({})", one_line(reason, WORDS))
    });
    let id = ActionId(answer.question.clone());
    let by = answer.by.map(DecidedBy::name);
    let place = answer.by.map_or("", place);
    json!({
        "words": format!("answered{place}: {name}{because}"),
        "request_id": id,
        "decision": name,
        "decided_by": by,
        "answer": answer.in_short(),
    })
}

/// Where somebody decided, for the log.
fn place(by: DecidedBy) -> &'static str {
    match by {
        DecidedBy::Page => " on the page",
        DecidedBy::Terminal => " at a terminal",
        DecidedBy::Elicitation => " in the client's dialog",
        DecidedBy::Client => " by a tool",
        DecidedBy::Mail => " by mail",
        DecidedBy::Settings | DecidedBy::Nobody => "",
    }
}
