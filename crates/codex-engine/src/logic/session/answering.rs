//! What Codex asks of a session, and how that is answered.

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

/// Why a question is open no longer.
enum Closed<'a> {
    /// Somebody has decided, and may have said why.
    Decided(DecidedBy, &'a Decision, Option<&'a str>),
    /// Nobody has, in time.
    TimedOut,
    /// The turn is to end, so it was declined.
    TurnEnds,
    /// Codex needs no answer any more.
    Resolved,
}

/// A question of Codex's, as it comes in.
#[derive(Debug)]
pub struct Asked {
    /// Our name for it, unique within the session.
    pub id: ActionId,
    /// Codex's name for it.
    pub request: RequestId,
    /// The question.
    pub ask: Ask,
    /// The question as it came.
    pub params: Value,
}

/// A question that is not open any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedQuestion {
    /// What Codex asked, in a line.
    pub question: String,
    /// How it was closed.
    pub closing: Closing,
}

/// How a question was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closing {
    /// Somebody has decided, by this decision.
    Decided(DecidedBy, String),
    /// Nobody decided in time: it was declined.
    TimedOut,
    /// The turn was to end: it was declined.
    TurnEnds,
    /// Codex needs no answer any more.
    Withdrawn,
}

impl From<&Closed<'_>> for Closing {
    fn from(why: &Closed<'_>) -> Self {
        match why {
            Closed::Decided(by, Decision::Submit(_), _) => Self::Decided(*by, "accept".to_owned()),
            Closed::Decided(by, decision, _) => Self::Decided(*by, decision.name().to_owned()),
            Closed::TimedOut => Self::TimedOut,
            Closed::TurnEnds => Self::TurnEnds,
            Closed::Resolved => Self::Withdrawn,
        }
    }
}

impl Session {
    /// Codex asks something. Outside a turn, and in one that is to be
    /// interrupted, it is declined at once.
    pub fn asked(&mut self, asked: Asked, now: Now) -> Vec<Effect> {
        let Asked {
            id,
            request,
            mut ask,
            params,
        } = asked;
        self.alive(now);
        let Some(turn) = self.turn.as_mut().filter(|turn| !turn.interrupt_wanted) else {
            return decline(&ask, request);
        };
        turn.final_error = None;
        turn.complete(&mut ask);
        self.activity.tell(describe::ask(&ask), now.instant);
        // A client that looks in as often as it is told sees it within this time.
        let unseen = self.patience.poll_interval();
        let action = Action {
            id,
            request,
            ask,
            params,
            created: now.wall,
            audience: Audience::Nobody,
            deadline: now.instant + unseen + self.patience.approval,
            expires: now.wall + unseen + self.patience.approval,
        };
        self.write(now, EventType::ApprovalRequest, action.told());
        self.alert_of_question(&action);
        self.actions.push(action);
        Vec::new()
    }

    /// The client answers an open question, and may add a note for the log.
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

    /// Somebody answers an open question, and may add a note for the log.
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
        let position = position.ok_or(DecisionRefused::NotOpen)?;
        let action = self.actions.get(position).ok_or(DecisionRefused::NotOpen)?;
        let answer = action::answer(&action.ask, decision)?;
        let action = self.actions.remove(position);
        self.alive(now);
        self.activity.count();
        match decision {
            // A step that was declined does not begin.
            Decision::Decline | Decision::Cancel => {
                self.activity
                    .end(action.item_id().unwrap_or_default(), now.instant);
            }
            _ => self.activity.resume(now.instant),
        }
        self.close(&action, &Closed::Decided(by, decision, note), now);
        let mut effects = vec![Effect::Answer {
            request: action.request,
            result: answer.result,
        }];
        if answer.interrupt {
            effects.extend(self.interrupt(now));
        }
        Ok(effects)
    }

    /// Somebody is shown the open questions. The time of those that nobody has seen
    /// before begins now; `false` if there are none.
    pub fn show_questions(&mut self, now: Now) -> bool {
        let approval = self.patience.approval;
        let unseen = |action: &&mut Action| action.audience == Audience::Nobody;
        let mut shown = false;
        for action in self.actions.iter_mut().filter(unseen) {
            action.show_to(Audience::Client, approval, now);
            shown = true;
        }
        shown
    }

    /// The client's user has dismissed a question without a choice, so that it is for
    /// whoever looks into the session, with as much time again.
    pub fn dismiss(&mut self, id: &ActionId, now: Now) {
        let approval = self.patience.approval;
        if let Some(action) = self.actions.iter_mut().find(|action| action.id == *id) {
            action.show_to(Audience::Readers, approval, now);
        }
    }

    /// Whether a question is open that the client's user has dismissed.
    #[must_use]
    pub fn has_dismissed(&self) -> bool {
        let dismissed = |action: &Action| action.audience == Audience::Readers;
        self.actions.iter().any(dismissed)
    }

    /// Codex needs no answer to a question any more.
    pub(super) fn resolved(&mut self, request: &RequestId, now: Now) {
        let ours = |action: &mut Action| action.request == *request;
        let resolved: Vec<Action> = self.actions.extract_if(.., ours).collect();
        for action in resolved {
            self.close(&action, &Closed::Resolved, now);
        }
    }

    pub(super) fn decline_late(&mut self, now: Now) -> Vec<Effect> {
        let late = |action: &mut Action| action.deadline <= now.instant;
        let late: Vec<Action> = self.actions.extract_if(.., late).collect();
        self.decline_each(late, &Closed::TimedOut, now)
    }

    pub(super) fn decline_all(&mut self, now: Now) -> Vec<Effect> {
        let open = std::mem::take(&mut self.actions);
        self.decline_each(open, &Closed::TurnEnds, now)
    }

    /// There is nobody any more who would read an answer.
    pub(super) fn drop_questions(&mut self, now: Now) {
        for action in std::mem::take(&mut self.actions) {
            self.close(&action, &Closed::Resolved, now);
        }
    }

    fn decline_each(&mut self, open: Vec<Action>, why: &Closed<'_>, now: Now) -> Vec<Effect> {
        if !open.is_empty() {
            self.heard = now.instant;
        }
        open.into_iter()
            .flat_map(|action| {
                self.close(&action, why, now);
                decline(&action.ask, action.request)
            })
            .collect()
    }

    /// The questions that were closed since the last time.
    pub fn take_closed(&mut self) -> Vec<ClosedQuestion> {
        std::mem::take(&mut self.closed)
    }

    fn close(&mut self, action: &Action, why: &Closed<'_>, now: Now) {
        self.log.settle(&action.id.0);
        self.closed.push(ClosedQuestion {
            question: describe::ask(&action.ask),
            closing: Closing::from(why),
        });
        let data = json!({
            "requestId": action.id,
            "kind": ActionKind::from(&action.ask),
            "itemId": action.item_id(),
        });
        let particulars = match why {
            Closed::Decided(_, Decision::Submit(answers), note) => {
                json!({ "decision": "accept", "answers": answers, "denyMessage": note })
            }
            Closed::Decided(_, decision, note) => {
                json!({ "decision": decision.name(), "denyMessage": note })
            }
            Closed::TimedOut => json!({
                "decision": "decline",
                "timeout": true,
                "message": "nobody answered in time, so it was declined",
            }),
            Closed::TurnEnds => json!({
                "decision": "decline",
                "message": "the turn was to end, so it was declined",
            }),
            Closed::Resolved => json!({
                "decision": "cancel",
                "message": "Codex needs no answer any more",
            }),
        };
        self.write(now, EventType::ApprovalResult, merged(data, particulars));
    }
}

impl Action {
    fn show_to(&mut self, audience: Audience, approval: Duration, now: Now) {
        self.audience = audience;
        self.deadline = now.instant + approval;
        self.expires = now.wall + approval;
    }
}

pub(super) fn decline(ask: &Ask, request: RequestId) -> Vec<Effect> {
    // Declining fits every question; a test of `action` says so.
    action::answer(ask, &Decision::Decline)
        .map(|answer| Effect::Answer {
            request,
            result: answer.result,
        })
        .into_iter()
        .collect()
}
