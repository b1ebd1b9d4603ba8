//! What Codex asks in a job, on its way into the store, and what the worker is told, on its
//! way to the turn.

use std::cell::RefCell;
use std::collections::HashSet;

use codex_engine::command::Open;
use codex_engine::logic::action::ActionId;
use codex_engine::logic::session::Alert;
use common::text::one_line;
use serde_json::json;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::cancel_handle::{CancelHandle, CancelReason};
use super::journal::Journal;
use super::{Worker, order};
use crate::call::{Given, News};
use crate::directive::{Answer, Directive};
use crate::question;
use crate::store::{Claim, DONE, Instruction, Job, NewQuestion, Origin, Written};

/// The kinds of the events of a job in which Codex asks, the worker was told something, and
/// a question was closed without an answer.
pub const ASKED: &str = "codex-mcp/question";
/// See [`ASKED`].
pub const TOLD: &str = "codex-mcp/told";
/// See [`ASKED`].
pub const UNANSWERED: &str = "codex-mcp/unanswered";

/// How much of the words for a turn is in the log, in bytes.
const WORDS: usize = 200;

/// The questions of an attempt, and the directives for it.
pub(super) struct Dialog<'a> {
    worker: &'a Worker,
    claim: &'a Claim,
    job: &'a Job,
    cancel: &'a CancelHandle,
    journal: &'a Journal,
    to_turn: mpsc::UnboundedSender<Given>,
    open: RefCell<Vec<NewQuestion>>,
    answered: RefCell<HashSet<String>>,
    /// The instructions that were taken: each is followed once, whatever the store says.
    taken: RefCell<HashSet<String>>,
    changed: Notify,
    closed: CancellationToken,
}

impl<'a> Dialog<'a> {
    /// That of an attempt, and what its turn is told.
    pub(super) fn of(
        worker: &'a Worker,
        claim: &'a Claim,
        job: &'a Job,
        journal: &'a Journal,
        cancel: &'a CancelHandle,
    ) -> (Self, mpsc::UnboundedReceiver<Given>) {
        let (to_turn, directives) = mpsc::unbounded_channel();
        let dialog = Self {
            worker,
            claim,
            job,
            cancel,
            journal,
            to_turn,
            open: RefCell::default(),
            answered: RefCell::default(),
            taken: RefCell::default(),
            changed: Notify::new(),
            closed: CancellationToken::new(),
        };
        (dialog, directives)
    }

    /// Takes in what happens; `alert` is told of each new question.
    pub(super) fn hear(&self, news: &News<'_>, alert: &dyn Fn(&Alert)) {
        match news {
            News::Questions(open) => self.asked(open, alert),
            News::Followed(directive) => self.followed(directive),
            News::Session(_) | News::Event(..) | News::Lost(_) => {}
        }
    }

    fn asked(&self, open: &[Open], alert: &dyn Fn(&Alert)) {
        let bounds = order::bounds(self.job, &self.worker.options);
        let bound = bounds.ok().and_then(|bounds| bounds.of_the_sandbox());
        let before = self.open.take();
        let is_open = |id: &str| open.iter().any(|one| one.id.0 == id);
        for closed in before.iter().filter(|one| !is_open(&one.id)) {
            self.closed_unanswered(&closed.id);
        }
        let mut now = Vec::with_capacity(open.len());
        for one in open {
            now.push(match before.iter().find(|known| known.id == one.id.0) {
                Some(known) => known.clone(),
                None => {
                    self.tell_of(one, alert);
                    question::kept(one, bound.as_ref())
                }
            });
        }
        self.open.replace(now);
        self.changed.notify_one();
    }

    fn tell_of(&self, open: &Open, alert: &dyn Fn(&Alert)) {
        let question = Alert::of_question(&open.id, &open.ask, open.expires);
        if let Alert::Question { summary, .. } = &question {
            let words = format!("asks: {summary}");
            let data = json!({ "words": words, "request_id": open.id });
            self.journal.note(ASKED, &data);
        }
        alert(&question);
    }

    fn closed_unanswered(&self, id: &str) {
        if !self.answered.borrow_mut().remove(id) {
            let words = format!(
                "question {id} was closed without an answer: its time was over, or Codex no \
                 longer needed one"
            );
            let data = json!({ "words": words, "request_id": id });
            self.journal.note(UNANSWERED, &data);
        }
    }

    fn followed(&self, directive: &Directive) {
        let data = match directive {
            Directive::Answer(answer) => {
                self.answered.borrow_mut().insert(answer.question.clone());
                in_words(answer)
            }
            Directive::Steer(words) => {
                json!({ "words": format!("steered: {}", one_line(words, WORDS)) })
            }
        };
        self.journal.note(TOLD, &data);
    }

    /// Says that the attempt is over.
    pub(super) fn close(&self) {
        self.closed.cancel();
    }

    /// Carries both ways until the attempt is over.
    pub(super) async fn carry(&self) {
        loop {
            tokio::select! {
                () = self.closed.cancelled() => return,
                () = self.changed.notified() => self.write_questions().await,
                () = self.cancel.instructed.notified() => self.take().await,
            }
        }
    }

    async fn write_questions(&self) {
        let open = self.open.borrow().clone();
        let store = &self.worker.store;
        let write = async || store.set_questions(self.claim, &open).await;
        if self.worker.trouble.insist(write).await == Written::Lost {
            self.cancel.cancel(CancelReason::Lost);
        }
    }

    async fn take(&self) {
        let store = &self.worker.store;
        let take = async || store.take_instructions(self.claim).await;
        for taken in self.worker.trouble.insist(take).await {
            let outcome = match self.pass_on(&taken).await {
                Ok(()) => DONE.to_owned(),
                Err(why) => why,
            };
            let conclude = async || store.conclude(self.claim, &taken.id, &outcome).await;
            self.worker.trouble.insist(conclude).await;
        }
    }

    /// Has the turn do it, if this host has said so, and only now.
    async fn pass_on(&self, taken: &Instruction) -> Result<(), String> {
        if taken.origin != Origin::ThisHost {
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
        let bounds = order::bounds(self.job, &self.worker.options);
        let bounds = bounds.map_err(|error| error.to_string())?;
        let (told, answer) = oneshot::channel();
        let given = Given {
            directive,
            bound: bounds.of_the_sandbox(),
            told,
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
    json!({ "words": format!("answered: {name}{because}"), "request_id": id, "decision": name })
}
