//! Endings of turns and sessions.

use std::sync::Arc;

use codex_protocol::codex::{Turn, TurnError, TurnStatus};
use common::json::merged;
use common::timestamp::Now;
use serde_json::json;

use super::record::EndedRecord;
use super::turn::{Phase, RunningTurn, TurnEnd, TurnEnding};
use super::{AbandonedTurn, Cancellation, CodexLoss, Effect, Session, failure};
use crate::logic::events::EventType;

/// The effects that release the thread of a cancelled session.
const RELEASE: [Effect; 2] = [Effect::StopCommands, Effect::Unsubscribe];

impl Session {
    /// Codex refused the prompt of turn `number`: the turn is dropped, and the previous
    /// state restored.
    pub fn refused(&mut self, number: u64, now: Now) -> Vec<Effect> {
        self.abandoned.take_if(|turn| turn.number == number);
        let current = self.turns == number;
        let unstarted = |turn: &mut RunningTurn| current && turn.phase != Phase::Started;
        match self.turn.take_if(unstarted) {
            Some(turn) => {
                self.refused += 1;
                self.lost = turn.lost_before;
                self.after_turn(now)
            }
            None => Vec::new(),
        }
    }

    /// Interrupts the turn, and declines the open questions.
    pub fn interrupt(&mut self, now: Now) -> Vec<Effect> {
        if let Some(unsent) = self.withdraw() {
            let effects = self.decline_all(now);
            self.conclude(unsent, TurnEnding::Interrupted, None, now);
            return effects;
        }
        let Some(turn) = &mut self.turn else {
            return Vec::new();
        };
        let asked_before = std::mem::replace(&mut turn.interrupt_wanted, true);
        let target = match (&turn.id, turn.phase) {
            (Some(id), Phase::Started) if !asked_before => Some(id.clone()),
            _ => None,
        };
        let mut effects = self.decline_all(now);
        effects.extend(target.map(Effect::Interrupt));
        effects
    }

    /// Withdraws a prompt that has not been sent.
    fn withdraw(&mut self) -> Option<RunningTurn> {
        self.turn.take_if(|turn| turn.phase == Phase::Pending)
    }

    /// Interrupts once more a turn that was interrupted and has not ended, whether or not
    /// Codex has reported its start.
    pub fn interrupt_again(&mut self) -> Vec<Effect> {
        let interrupted = self.turn.as_ref().filter(|turn| turn.interrupt_wanted);
        let id = interrupted.and_then(|turn| turn.id.clone());
        id.map(Effect::Interrupt).into_iter().collect()
    }

    /// Gives up a turn that does not end, so that the thread can be used again. If Codex begins it
    /// later, it is interrupted then.
    pub fn abandon(&mut self, why: &str, now: Now) -> Vec<Effect> {
        let unstarted = self.turn.as_ref().filter(|turn| turn.phase == Phase::Sent);
        let abandoned = unstarted.map(|turn| AbandonedTurn {
            number: self.turns,
            id: turn.id.clone(),
        });
        let mut effects = self.decline_all(now);
        effects.extend(self.lose(why, now));
        self.abandoned = abandoned;
        effects
    }

    /// Ends the turn as failed, because the notification of its end cannot be read.
    pub fn cut_off(&mut self, why: &str, now: Now) -> Vec<Effect> {
        let Some(id) = self.turn_id().cloned() else {
            return Vec::new();
        };
        let turn = Turn {
            id,
            status: TurnStatus::Failed,
            error: Some(failure(why.to_owned())),
        };
        self.ended(
            TurnEnd {
                turn,
                raw_turn: None,
            },
            now,
        )
    }

    /// Ends the turn as failed if Codex has reported a final error and then no end within
    /// [`FINAL_ERROR_GRACE`](super::FINAL_ERROR_GRACE). Interrupts the turn in Codex, where it may
    /// still run.
    pub(super) fn end_after_error(&mut self, now: Now) -> Vec<Effect> {
        let due = |turn: &mut RunningTurn| {
            let error = turn.final_error.as_ref();
            error.is_some_and(|error| error.deadline <= now.instant)
        };
        let Some(mut turn) = self.turn.take_if(due) else {
            return Vec::new();
        };
        let mut effects = self.decline_all(now);
        if let (Some(id), Phase::Started) = (&turn.id, turn.phase) {
            let interrupt = (!turn.interrupt_wanted).then(|| Effect::Interrupt(id.clone()));
            effects.extend(interrupt);
            if self.cancelled.is_none() {
                effects.push(Effect::StopCommands);
            }
        }
        let error = turn.final_error.take().map(|last| last.error);
        self.conclude(turn, failed(error), None, now);
        effects.extend(self.after_turn(now));
        effects
    }

    /// Handles the exit of Codex, or another reason by which the turn is lost; `how` is its
    /// description. The effects are for a Codex that still runs.
    pub fn lose(&mut self, how: &str, now: Now) -> Vec<Effect> {
        self.drop_questions(now);
        self.abandoned = None;
        // An unsent prompt goes to the next Codex.
        if self.has_unsent_prompt() {
            return Vec::new();
        }
        self.active = now;
        self.lost = Some(CodexLoss {
            how: how.to_owned(),
            at: now.wall,
        });
        let effects = match self.turn.take_if(|turn| turn.earlier_end.is_none()) {
            Some(turn) => {
                self.conclude(turn, TurnEnding::Lost(how.to_owned()), None, now);
                self.after_turn(now)
            }
            // If an earlier host has seen the turn end, the result is not lost.
            None => self.has_no_turn(now),
        };
        if self.cancelled.is_none() {
            let data = json!({ "message": how, "threadId": self.thread });
            self.write(now, EventType::Error, data);
        }
        effects
    }

    /// Notes that Codex has the thread loaded again.
    pub fn recovered(&mut self) {
        if self.turn.is_none() {
            self.lost = None;
        }
    }

    /// Cancels the session. It can be inspected for a while.
    pub fn cancel(&mut self, why: &str, now: Now) -> Vec<Effect> {
        if self.cancelled.is_some() {
            return Vec::new();
        }
        let turn = match self.turn_id() {
            Some(id) => Some(id.clone()),
            None => self
                .outcome
                .as_ref()
                .and_then(|(_, outcome)| outcome.turn.clone()),
        };
        let mut effects = match self.withdraw() {
            Some(_) => self.decline_all(now),
            None => self.interrupt(now),
        };
        if self.turn.is_none() {
            effects.extend(RELEASE);
        }
        self.active = now;
        self.write(
            now,
            EventType::Result,
            json!({ "status": "cancelled", "message": why, "reason": why, "turnId": turn }),
        );
        self.cancelled = Some(Cancellation {
            why: why.to_owned(),
            turn,
            at: now.wall,
        });
        effects
    }

    pub(super) fn ended(&mut self, ended: TurnEnd, now: Now) -> Vec<Effect> {
        // Notifications of an earlier turn may arrive after the next prompt, so an end
        // counts only for the turn that it names.
        let named = Some(&ended.turn.id);
        let last = self
            .outcome
            .as_ref()
            .map(|(_, outcome)| outcome.turn.clone());
        let is_new = last.is_none_or(|last| last.as_ref() != named);
        let ours = |turn: &mut RunningTurn| {
            let is_named = turn.id.as_ref() == named || turn.answered.as_ref() == named;
            is_named || (turn.is_foreign && is_new)
        };
        let Some(mut turn) = self.turn.take_if(ours) else {
            if let Some(running) = self.turn.as_mut().filter(|turn| turn.answered.is_none()) {
                running.early_end = Some(ended);
            }
            return Vec::new();
        };
        self.abandoned = None;
        // Codex begins a review under one ID and ends it under another. Its history has the latter.
        turn.id = Some(ended.turn.id.clone());
        self.drop_own_questions(now);
        let mut effects = self.decline_all(now);
        if turn.interrupt_wanted && self.cancelled.is_none() {
            effects.push(Effect::StopCommands);
        }
        self.conclude(turn, ending(ended.turn), ended.raw_turn, now);
        effects.extend(self.after_turn(now));
        effects
    }

    /// Declines the open questions, and releases the thread of a cancelled session.
    pub(super) fn after_turn(&mut self, now: Now) -> Vec<Effect> {
        let mut effects = self.decline_all(now);
        if self.cancelled.is_some() {
            effects.extend(RELEASE);
        }
        effects
    }

    pub(super) fn conclude(
        &mut self,
        turn: RunningTurn,
        ending: TurnEnding,
        raw_turn: Option<serde_json::Value>,
        now: Now,
    ) {
        // A later question may reuse the number of one of this turn's questions.
        self.asked_before.clear();
        let is_announced = !turn.is_unannounced;
        let earlier = turn.earlier_end.as_ref();
        let at = earlier.map_or(now.wall, |(_, end)| end.at);
        let outcome = Arc::new(turn.outcome(ending, raw_turn, at));
        let before = self.outcome.replace((self.turns, Arc::clone(&outcome)));
        self.before_summary = match is_announced {
            true => None,
            false => self
                .before_summary
                .take()
                .or_else(|| EndedRecord::of(&before?.1)),
        };
        if is_announced {
            self.alert_of_end(&outcome);
        }
        if self.cancelled.is_none() {
            let data = merged(outcome.event_data(), json!({ "threadId": self.thread }));
            self.write(now, EventType::Result, data);
        }
    }
}

fn ending(turn: Turn) -> TurnEnding {
    match turn.status {
        TurnStatus::Completed => TurnEnding::Completed,
        TurnStatus::Interrupted => TurnEnding::Interrupted,
        TurnStatus::Failed => failed(turn.error),
        TurnStatus::InProgress | TurnStatus::Unknown => TurnEnding::Failed(failure(
            "the turn ended in a way that this codex-mcp does not know".to_owned(),
        )),
    }
}

fn failed(error: Option<TurnError>) -> TurnEnding {
    TurnEnding::Failed(error.unwrap_or_else(|| failure("Codex gave no reason".to_owned())))
}
