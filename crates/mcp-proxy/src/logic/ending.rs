//! What is over, or has to be.

use std::time::Instant;

use codex_protocol::rpc::RequestId;
use serde_json::Value;

use super::deadlines::Due;
use super::{Answer, Asked, Effect, Failure, How, Question, Router, cancellation, splice};

impl Router {
    /// Ends the turn of a call, so that its thread can be used again.
    pub(super) fn give_up(&mut self, id: &RequestId, why: Failure) -> Vec<Effect> {
        let reason = match why {
            Failure::ShuttingDown => "codex-mcp is shutting down",
            _ => "it took too long",
        };
        let mut effects = vec![Effect::ToChild(cancellation(id, reason))];
        self.lift_deadline(id);
        effects.extend(self.drop_questions(id));
        if let Some(call) = self.calls.end(id) {
            if self.note_summary(id, None) {
                return effects;
            }
            let how = match why {
                Failure::TimedOut => How::TimedOut,
                _ => How::Left,
            };
            self.note_over(id, call.thread.clone(), how);
            let answer = Answer::Failed { call, why };
            effects.push(Effect::Answer {
                id: id.clone(),
                answer,
            });
        }
        effects
    }

    /// The turn of a call that nobody wants any more may yet begin, though not for ever:
    /// then its thread is not kept for it any longer.
    pub(super) fn await_turn(&mut self, call: &RequestId, now: Instant) {
        if self.calls.may_yet_begin(call) {
            let deadline = now + self.setup.limits.request;
            self.deadlines.set(deadline, Due::Turn(call.clone()));
        }
    }

    pub(super) fn lift_deadline(&mut self, call: &RequestId) {
        if let Some(deadline) = self.calls.deadline(call) {
            self.deadlines.lift(deadline, Due::Call(call.clone()));
        }
    }

    /// Declines what was asked on behalf of a call that is over.
    pub(super) fn drop_questions(&mut self, call: &RequestId) -> Vec<Effect> {
        let of_call = |question: &Question| question.call.as_ref() == Some(call);
        let dropped: Vec<RequestId> = self
            .questions
            .iter()
            .filter(|(_, question)| of_call(question))
            .map(|(id, _)| id.clone())
            .collect();
        let decline = |id| self.decline(id, "its call is over");
        dropped.iter().flat_map(decline).collect()
    }

    pub(super) fn request_failed(&mut self, id: &RequestId, why: Failure) -> Vec<Effect> {
        let Some(Asked { method, .. }) = self.take_asked(id) else {
            return Vec::new();
        };
        vec![Effect::Answer {
            id: id.clone(),
            answer: Answer::Error { method, why },
        }]
    }

    /// Takes out a request that has its answer, or gets none.
    pub(super) fn take_asked(&mut self, id: &RequestId) -> Option<Asked> {
        let asked = self.asked.remove(id)?;
        self.deadlines
            .lift(asked.deadline, Due::Request(id.clone()));
        if let Some(ping) = &asked.ping {
            self.pings.remove(ping);
        }
        Some(asked)
    }

    /// Takes out a question that has its answer, or needs none.
    pub(super) fn take_question(&mut self, id: &RequestId) -> Option<Question> {
        let question = self.questions.remove(id)?;
        self.deadlines
            .lift(question.deadline, Due::Question(id.clone()));
        Some(question)
    }

    /// Answers a question of the child's with a no, and takes it back from the
    /// client.
    pub(super) fn decline(&mut self, id: &RequestId, reason: &str) -> Vec<Effect> {
        if self.take_question(id).is_none() {
            return Vec::new();
        }
        let no = splice::declined(id, self.refusal());
        let withdrawn = cancellation(id, reason);
        vec![Effect::ToChild(no), Effect::ToClient(withdrawn)]
    }

    /// Says no to a question that nobody can be asked; its call comes back with it.
    pub(super) fn decline_unasked(
        &mut self,
        id: &RequestId,
        call: Option<RequestId>,
        params: Value,
    ) -> Vec<Effect> {
        let mut effects = vec![Effect::ToChild(splice::declined(id, self.refusal()))];
        if let Some(of) = call
            && let Some(call) = self.calls.leave(&of)
        {
            self.note_over(&of, call.thread.clone(), How::Left);
            let question = params;
            let answer = Answer::Declined { call, question };
            effects.push(Effect::Answer { id: of, answer });
        }
        effects
    }
}
