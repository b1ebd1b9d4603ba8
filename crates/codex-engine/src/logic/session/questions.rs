//! The questions of Codex in a session, and their answers.

use std::time::Duration;

use codex_protocol::codex::Ask;
use codex_protocol::rpc::RequestId;
use common::json::merged;
use common::timestamp::Now;
use serde_json::{Value, json};

use super::{DecisionRefused, Effect, Session};
use crate::logic::action::{self, Action, ActionId, ActionKind, Audience, DecidedBy, Decision};
use crate::logic::describe;
use crate::logic::events::EventType;
use crate::logic::form;

/// How a question was closed, with the details for the event log.
enum Resolution<'a> {
    /// A decision, with an optional note.
    Decided(DecidedBy, &'a Decision, Option<&'a str>),
    /// Nobody decided in time.
    TimedOut,
    /// It was declined because the turn is to end.
    TurnEnded,
    /// It was declined because Codex could apply its answer to another open question.
    Ambiguous,
    /// Codex needs no answer any more.
    Resolved,
}

/// A new question of Codex's.
#[derive(Debug)]
pub struct IncomingQuestion {
    /// Our ID of it, unique within the session.
    pub id: ActionId,
    /// Codex's ID of the request.
    pub request: RequestId,
    /// The thread that asks: the session's, or one of a sub-agent.
    pub thread: String,
    /// The question.
    pub ask: Ask,
    /// The raw parameters.
    pub params: Value,
}

/// A question that was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedQuestion {
    /// The question in one line.
    pub question: String,
    /// Why it was closed.
    pub reason: CloseReason,
    /// The agent that decided by mail.
    pub agent: Option<String>,
}

/// Why a question was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloseReason {
    /// It was decided; the decision's name.
    Decided(DecidedBy, String),
    /// Nobody decided in time, so it was declined.
    TimedOut,
    /// The turn was to end, so it was declined.
    TurnEnded,
    /// Codex could apply its answer to another open question, so it was declined.
    Ambiguous,
    /// Codex needs no answer any more.
    Withdrawn,
}

impl From<&Resolution<'_>> for CloseReason {
    fn from(why: &Resolution<'_>) -> Self {
        match why {
            Resolution::Decided(by, Decision::Submit(_), _) => {
                Self::Decided(*by, "accept".to_owned())
            }
            Resolution::Decided(by, decision, _) => Self::Decided(*by, decision.name().to_owned()),
            Resolution::TimedOut => Self::TimedOut,
            Resolution::TurnEnded => Self::TurnEnded,
            Resolution::Ambiguous => Self::Ambiguous,
            Resolution::Resolved => Self::Withdrawn,
        }
    }
}

impl Session {
    /// Handles a question of Codex's. Outside of a turn, and in one that is being
    /// interrupted, it is declined at once. So is a question whose answer Codex could apply to
    /// another open question, together with that question.
    pub fn on_question(&mut self, asked: IncomingQuestion, now: Now) -> Vec<Effect> {
        let IncomingQuestion {
            id,
            request,
            thread,
            mut ask,
            params,
        } = asked;
        self.mark_active(now);
        let Some(turn) = self.turn.as_mut().filter(|turn| !turn.interrupt_wanted) else {
            return decline(&ask, request);
        };
        turn.final_error = None;
        turn.file_changes.complete(&thread, &mut ask);
        self.activity.report(describe::ask(&ask), now.instant);
        let repeated = self
            .asked_before
            .extract_if(.., |known| known.request == request)
            .next();
        let is_repeated = repeated.is_some();
        let audience = match repeated.as_ref().is_some_and(|known| known.was_shown) {
            true => Audience::Client,
            false => Audience::Nobody,
        };
        let open_for = match repeated.as_ref().and_then(|known| known.expires) {
            Some(expires) => expires.duration_since(now.wall).unwrap_or_default(),
            // Time for a client that polls at the recommended interval to see the question.
            None => self.timeouts.poll_interval() + self.approval_timeout(),
        };
        let id = repeated.map_or(id, |known| known.id);
        let action = Action {
            id,
            request,
            thread,
            ask,
            params,
            created: now.wall,
            audience,
            deadline: now.instant + open_for,
            expires: now.wall + open_for,
        };
        self.write(now, EventType::ApprovalRequest, action.event_data());
        let mut ambiguous = self.take_ambiguous(&action);
        if !ambiguous.is_empty() {
            ambiguous.push(action);
            return self.decline_each(ambiguous, &Resolution::Ambiguous, now);
        }
        if !is_repeated {
            self.alert_of_question(&action);
        }
        self.actions.push(action);
        Vec::new()
    }

    /// Takes the open questions that share the key of an answer with this one. Codex waits for one
    /// answer under a key: an answer to the first question would decide the last one. The keys are
    /// the model's, which can use one for two commands.
    fn take_ambiguous(&mut self, asked: &Action) -> Vec<Action> {
        let Some(key) = asked.answer_key() else {
            return Vec::new();
        };
        let is_ambiguous = |open: &mut Action| {
            open.request != asked.request
                && open.thread == asked.thread
                && open.answer_key() == Some(key)
        };
        self.actions.extract_if(.., is_ambiguous).collect()
    }

    /// Answers an open question for the client, with an optional note for the log.
    ///
    /// # Errors
    ///
    /// As [`Session::decide_as`].
    pub fn decide(
        &mut self,
        id: &ActionId,
        decision: &Decision,
        note: Option<&str>,
        now: Now,
    ) -> Result<Vec<Effect>, DecisionRefused> {
        self.decide_as(DecidedBy::Client, id, decision, note, now)
    }

    /// Answers an open question, with an optional note for the log.
    ///
    /// # Errors
    ///
    /// [`DecisionRefused`]; the question, if there is one, stays open.
    pub fn decide_as(
        &mut self,
        by: DecidedBy,
        id: &ActionId,
        decision: &Decision,
        note: Option<&str>,
        now: Now,
    ) -> Result<Vec<Effect>, DecisionRefused> {
        let position = self.actions.iter().position(|action| action.id == *id);
        let position = position.ok_or_else(|| self.no_open(id))?;
        let action = self.actions.get(position).ok_or(DecisionRefused::NotOpen)?;
        let answer = action::answer(&action.ask, decision)?;
        let action = self.actions.remove(position);
        self.mark_active(now);
        self.activity.count();
        match decision {
            // A declined step does not run.
            Decision::Decline | Decision::Cancel => {
                self.activity
                    .end(action.item_id().unwrap_or_default(), now.instant);
            }
            _ => self.activity.resume(now.instant),
        }
        self.close(&action, &Resolution::Decided(by, decision, note), now);
        let mut effects = vec![Effect::Answer {
            request: action.request,
            result: answer.result,
        }];
        if answer.interrupt {
            effects.extend(self.interrupt(now));
        }
        Ok(effects)
    }

    /// The error for a question that is not open: closed, with the reason in the log, or unknown.
    fn no_open(&self, id: &ActionId) -> DecisionRefused {
        match self.log.closing_of(&id.0) {
            Some(words) => DecisionRefused::Closed(words),
            None => DecisionRefused::NotOpen,
        }
    }

    /// Marks the open questions as shown. The timeout of those not shown before starts
    /// now. Returns `false` if there are none.
    pub fn show_questions(&mut self, now: Now) -> bool {
        let approval = self.approval_timeout();
        let unseen = |action: &&mut Action| action.audience == Audience::Nobody;
        let mut shown = false;
        for action in self.actions.iter_mut().filter(unseen) {
            action.show_to(Audience::Client, approval, now);
            shown = true;
        }
        shown
    }

    /// Notes that the client's user dismissed a question. It stays open for the readers
    /// of the session, with a new timeout.
    pub fn dismiss(&mut self, id: &ActionId, now: Now) {
        let approval = self.approval_timeout();
        let dismissed = self.actions.iter_mut().find(|action| action.id == *id);
        // Dismissing it repeatedly does not keep it open for ever.
        if let Some(action) = dismissed.filter(|action| action.audience != Audience::Readers) {
            action.show_to(Audience::Readers, approval, now);
        }
    }

    /// The questions that another process has shown and that Codex has yet to repeat.
    pub fn awaited_questions(&self) -> impl Iterator<Item = &ActionId> {
        self.asked_before.iter().map(|question| &question.id)
    }

    /// Whether Codex has yet to repeat a question that another process has shown.
    #[must_use]
    pub fn awaits_questions(&self) -> bool {
        !self.asked_before.is_empty()
    }

    /// Whether the client's user has dismissed an open question.
    #[must_use]
    pub fn has_dismissed(&self) -> bool {
        let dismissed = |action: &Action| action.audience == Audience::Readers;
        self.actions.iter().any(dismissed)
    }

    /// Closes a question to which Codex no longer needs an answer.
    pub(super) fn resolved(&mut self, request: &RequestId, now: Now) {
        let ours = |action: &mut Action| action.request == *request;
        let resolved: Vec<Action> = self.actions.extract_if(.., ours).collect();
        for action in resolved {
            self.close(&action, &Resolution::Resolved, now);
        }
    }

    pub(super) fn decline_late(&mut self, now: Now) -> Vec<Effect> {
        let late = |action: &mut Action| action.deadline <= now.instant;
        let late: Vec<Action> = self.actions.extract_if(.., late).collect();
        if !late.is_empty() && self.keeps_questions_open() {
            // The question was open for longer than a session may be unused. The turn continues.
            self.active = now;
        }
        self.decline_each(late, &Resolution::TimedOut, now)
    }

    pub(super) fn decline_all(&mut self, now: Now) -> Vec<Effect> {
        let open = std::mem::take(&mut self.actions);
        self.decline_each(open, &Resolution::TurnEnded, now)
    }

    /// Closes all questions without answers, as Codex would not read them.
    pub(super) fn drop_questions(&mut self, now: Now) {
        for action in std::mem::take(&mut self.actions) {
            self.close(&action, &Resolution::Resolved, now);
        }
    }

    /// Closes the questions of the session's own thread without answers: Codex drops them with the
    /// turn. It still waits for the answers to those of sub-agents.
    pub(super) fn drop_own_questions(&mut self, now: Now) {
        let own = |action: &mut Action| action.thread == self.thread;
        let dropped: Vec<Action> = self.actions.extract_if(.., own).collect();
        for action in dropped {
            self.close(&action, &Resolution::Resolved, now);
        }
    }

    fn decline_each(&mut self, open: Vec<Action>, why: &Resolution<'_>, now: Now) -> Vec<Effect> {
        if !open.is_empty() {
            self.last_heard = now.instant;
        }
        open.into_iter()
            .flat_map(|action| {
                self.close(&action, why, now);
                decline(&action.ask, action.request)
            })
            .collect()
    }

    /// Takes the questions that were closed since the last call.
    pub fn take_closed(&mut self) -> Vec<ClosedQuestion> {
        std::mem::take(&mut self.closed)
    }

    fn close(&mut self, action: &Action, why: &Resolution<'_>, now: Now) {
        self.log.settle(&action.id.0);
        let agent = match why {
            Resolution::Decided(DecidedBy::Mail, _, note) => note.map(str::to_owned),
            _ => None,
        };
        self.closed.push(ClosedQuestion {
            question: describe::ask(&action.ask),
            reason: CloseReason::from(why),
            agent,
        });
        let data = json!({
            "requestId": action.id,
            "kind": ActionKind::from(&action.ask),
            "itemId": action.item_id(),
        });
        let particulars = match why {
            Resolution::Decided(by, Decision::Submit(answers), note) => json!({
                "decision": "accept",
                "decidedBy": by.name(),
                "answers": form::for_logs(&action.ask, answers),
                "denyMessage": note,
            }),
            Resolution::Decided(by, decision, note) => json!({
                "decision": decision.name(),
                "decidedBy": by.name(),
                "denyMessage": note,
            }),
            Resolution::TimedOut => json!({
                "decision": "decline",
                "timeout": true,
                "message": "nobody answered in time, so it was declined",
            }),
            Resolution::TurnEnded => json!({
                "decision": "decline",
                "message": "the turn was to end, so it was declined",
            }),
            Resolution::Ambiguous => json!({
                "decision": "decline",
                "message": "Codex asked two questions with the same ID and could confuse the \
                    answers, so both were declined",
            }),
            Resolution::Resolved => json!({
                "decision": "cancel",
                "message": "Codex needs no answer any more",
            }),
        };
        self.write(now, EventType::ApprovalResult, merged(data, particulars));
    }
}

impl Action {
    /// The key under which Codex waits for the answer, unique in a thread if the model obeys.
    /// Codex does not send that of an MCP server's question.
    fn answer_key(&self) -> Option<&str> {
        match &self.ask {
            Ask::Command(asked) => Some(asked.approval_id.as_deref().unwrap_or(&asked.item_id)),
            _ => self.item_id(),
        }
    }

    fn show_to(&mut self, audience: Audience, approval: Duration, now: Now) {
        self.audience = audience;
        self.deadline = now.instant + approval;
        self.expires = now.wall + approval;
    }
}

pub(super) fn decline(ask: &Ask, request: RequestId) -> Vec<Effect> {
    // Declining fits every question, as a test of `action` checks.
    action::answer(ask, &Decision::Decline)
        .map(|answer| Effect::Answer {
            request,
            result: answer.result,
        })
        .into_iter()
        .collect()
}
