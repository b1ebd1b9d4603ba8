//! How turns and sessions end.

use std::sync::Arc;

use codex_protocol::codex::{Turn, TurnError, TurnStatus};
use common::json::merged;
use common::timestamp::Now;
use serde_json::json;

use super::turn::{Ended, Ending, Phase, Running};
use super::{Cancelled, Effect, Lost, Session, failure};
use crate::logic::events::EventType;

/// What becomes of a thread that nobody wants any more.
const LET_GO: [Effect; 2] = [Effect::StopCommands, Effect::LetGo];

impl Session {
    /// Codex didn't take the prompt of turn `number`, so there is no such turn, and
    /// all is as it was.
    pub fn refused(&mut self, number: u64, now: Now) -> Vec<Effect> {
        let current = self.turns == number;
        let unstarted = |turn: &mut Running| current && turn.phase != Phase::Started;
        match self.turn.take_if(unstarted) {
            Some(turn) => {
                self.refused += 1;
                self.lost = turn.lost_before;
                self.after_the_turn(now)
            }
            None => Vec::new(),
        }
    }

    /// Somebody wants the turn to end. Open questions are declined with it.
    pub fn interrupt(&mut self, now: Now) -> Vec<Effect> {
        if let Some(unsent) = self.take_back() {
            let effects = self.decline_all(now);
            self.conclude(unsent, Ending::Interrupted, None, now);
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

    /// Takes back a prompt that has not been sent.
    fn take_back(&mut self) -> Option<Running> {
        self.turn.take_if(|turn| turn.phase == Phase::Taken)
    }

    /// The turn has not ended although it was interrupted; asks once more,
    /// whether or not Codex has said that it has started.
    pub fn interrupt_again(&mut self) -> Vec<Effect> {
        let interrupted = self.turn.as_ref().filter(|turn| turn.interrupt_wanted);
        let id = interrupted.and_then(|turn| turn.id.clone());
        id.map(Effect::Interrupt).into_iter().collect()
    }

    /// Gives up a turn that does not end, so that the thread can be used again.
    pub fn abandon(&mut self, why: &str, now: Now) -> Vec<Effect> {
        let mut effects = self.decline_all(now);
        let wanted_by_nobody = self.cancelled.is_some() && self.turn.is_some();
        self.lose(why, now);
        if wanted_by_nobody {
            effects.extend(LET_GO);
        }
        effects
    }

    /// Ends the turn as failed, because news of its end can't be read.
    pub fn cut_off(&mut self, why: &str, now: Now) -> Vec<Effect> {
        let Some(id) = self.turn_id().cloned() else {
            return Vec::new();
        };
        let turn = Turn {
            id,
            status: TurnStatus::Failed,
            error: Some(failure(why.to_owned())),
        };
        self.ended(Ended { turn, told: None }, now)
    }

    /// Ends the turn as failed if Codex has told an error that it does not mend, and has not
    /// told of the end within [`FINAL_ERROR_GRACE`](super::FINAL_ERROR_GRACE). Should the
    /// turn run on in Codex all the same, it is interrupted.
    pub(super) fn end_after_error(&mut self, now: Now) -> Vec<Effect> {
        let due = |turn: &mut Running| {
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
        effects.extend(self.after_the_turn(now));
        effects
    }

    /// Codex is gone, and with it all that it held; `how` is told to whoever
    /// waits for the turn.
    pub fn lose(&mut self, how: &str, now: Now) {
        self.drop_questions(now);
        // A prompt that has not been sent goes to the next Codex.
        if self.has_unsent_prompt() {
            return;
        }
        self.active = now;
        self.lost = Some(Lost {
            how: how.to_owned(),
            at: now.wall,
        });
        if let Some(turn) = self.turn.take() {
            self.conclude(turn, Ending::Lost(how.to_owned()), None, now);
        }
        if self.cancelled.is_none() {
            let data = json!({ "message": how, "threadId": self.thread });
            self.write(now, EventType::Error, data);
        }
    }

    /// Codex has the thread again.
    pub fn recovered(&mut self) {
        if self.turn.is_none() {
            self.lost = None;
        }
    }

    /// Nobody wants the session any more. It stays to be looked at for a while.
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
        let mut effects = match self.take_back() {
            Some(_) => self.decline_all(now),
            None => self.interrupt(now),
        };
        if self.turn.is_none() {
            effects.extend(LET_GO);
        }
        self.active = now;
        self.write(
            now,
            EventType::Result,
            json!({ "status": "cancelled", "message": why, "reason": why, "turnId": turn }),
        );
        self.cancelled = Some(Cancelled {
            why: why.to_owned(),
            turn,
            at: now.wall,
        });
        effects
    }

    pub(super) fn ended(&mut self, ended: Ended, now: Now) -> Vec<Effect> {
        // News of an earlier turn may still be under way when the next one is
        // prompted, so an end counts only for the turn that it names.
        let named = Some(&ended.turn.id);
        let ours =
            |turn: &mut Running| turn.id.as_ref() == named || turn.answered.as_ref() == named;
        let Some(turn) = self.turn.take_if(ours) else {
            if let Some(running) = self.turn.as_mut().filter(|turn| turn.answered.is_none()) {
                running.early_end = Some(ended);
            }
            return Vec::new();
        };
        self.drop_questions(now);
        let mut effects = match turn.interrupt_wanted && self.cancelled.is_none() {
            true => vec![Effect::StopCommands],
            false => Vec::new(),
        };
        self.conclude(turn, ending(ended.turn), ended.told, now);
        effects.extend(self.after_the_turn(now));
        effects
    }

    /// Declines what is still open, and lets go of the thread if nobody wants it.
    fn after_the_turn(&mut self, now: Now) -> Vec<Effect> {
        let mut effects = self.decline_all(now);
        if self.cancelled.is_some() {
            effects.extend(LET_GO);
        }
        effects
    }

    fn conclude(
        &mut self,
        turn: Running,
        ending: Ending,
        told: Option<serde_json::Value>,
        now: Now,
    ) {
        let outcome = Arc::new(turn.outcome(ending, told, now.wall));
        self.outcome = Some((self.turns, Arc::clone(&outcome)));
        if self.cancelled.is_none() {
            let data = merged(outcome.told(), json!({ "threadId": self.thread }));
            self.write(now, EventType::Result, data);
        }
    }
}

fn ending(turn: Turn) -> Ending {
    match turn.status {
        TurnStatus::Completed => Ending::Completed,
        TurnStatus::Interrupted => Ending::Interrupted,
        TurnStatus::Failed => failed(turn.error),
        TurnStatus::InProgress | TurnStatus::Unknown => Ending::Failed(failure(
            "the turn ended in a way that this codex-mcp does not know".to_owned(),
        )),
    }
}

fn failed(error: Option<TurnError>) -> Ending {
    Ending::Failed(error.unwrap_or_else(|| failure("Codex gave no reason".to_owned())))
}
