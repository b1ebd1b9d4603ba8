//! Ends calls, requests and questions.

use std::time::Instant;

use codex_protocol::rpc::RequestId;
use serde_json::Value;

use super::deadlines::Expiry;
use super::{
    Answer, CallOutcome, Effect, Failure, PendingQuestion, PendingRequest, Router, cancellation,
    splice,
};

impl Router {
    /// Ends the turn of a call, so that its thread can be used again.
    pub(super) fn give_up(&mut self, id: &RequestId, why: Failure) -> Vec<Effect> {
        let reason = match why {
            Failure::ShuttingDown => "codex-mcp is shutting down",
            Failure::OutOfStep => "its answer can't be told from another one",
            _ => "it took too long",
        };
        let mut effects = vec![Effect::ToChild(cancellation(id, reason))];
        self.lift_deadline(id);
        effects.extend(self.drop_questions(id));
        if let Some(call) = self.calls.abandon(id) {
            if self.note_summary(id, None) {
                return effects;
            }
            let outcome = match why {
                Failure::TimedOut => CallOutcome::TimedOut,
                Failure::OutOfStep => CallOutcome::Failed,
                _ => CallOutcome::Abandoned,
            };
            self.note_over(id, call.thread.clone(), outcome);
            let answer = Answer::Failed { call, why };
            effects.push(Effect::Answer {
                id: id.clone(),
                answer,
            });
        }
        effects
    }

    /// Sets a deadline for the turn of a stale call, which may yet begin. After the deadline, the
    /// thread is free for other prompts.
    pub(super) fn await_turn(&mut self, call: &RequestId, now: Instant) {
        if self.calls.may_yet_begin(call) {
            let deadline = now + self.config.timeouts.request;
            self.deadlines.set(deadline, Expiry::Turn(call.clone()));
        }
    }

    pub(super) fn lift_deadline(&mut self, call: &RequestId) {
        if let Some(deadline) = self.calls.deadline(call) {
            self.deadlines.lift(deadline, Expiry::Call(call.clone()));
        }
    }

    /// Declines the open questions of a call that is over.
    pub(super) fn drop_questions(&mut self, call: &RequestId) -> Vec<Effect> {
        let of_call = |question: &PendingQuestion| question.call.as_ref() == Some(call);
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
        let Some(PendingRequest { method, .. }) = self.take_request(id) else {
            return Vec::new();
        };
        vec![Effect::Answer {
            id: id.clone(),
            answer: Answer::Error { method, why },
        }]
    }

    /// Removes a request that has its answer, or gets none.
    pub(super) fn take_request(&mut self, id: &RequestId) -> Option<PendingRequest> {
        let request = self.requests.remove(id)?;
        self.deadlines
            .lift(request.deadline, Expiry::Request(id.clone()));
        if let Some(ping) = &request.ping {
            self.pings.remove(ping);
        }
        Some(request)
    }

    /// Removes a question that has its answer, or needs none.
    pub(super) fn take_question(&mut self, id: &RequestId) -> Option<PendingQuestion> {
        let question = self.questions.remove(id)?;
        self.deadlines
            .lift(question.deadline, Expiry::Question(id.clone()));
        Some(question)
    }

    /// Declines a question of the child, and withdraws it from the client.
    pub(super) fn decline(&mut self, id: &RequestId, reason: &str) -> Vec<Effect> {
        if self.take_question(id).is_none() {
            return Vec::new();
        }
        let refusal = splice::declined(id, self.refusal());
        let withdrawn = cancellation(id, reason);
        vec![Effect::ToChild(refusal), Effect::ToClient(withdrawn)]
    }

    /// Declines a question that the client cannot answer. The call returns early, with the
    /// question.
    pub(super) fn decline_unasked(
        &mut self,
        id: &RequestId,
        call: Option<RequestId>,
        params: Value,
    ) -> Vec<Effect> {
        let mut effects = vec![Effect::ToChild(splice::declined(id, self.refusal()))];
        if let Some(id) = call
            && let Some(call) = self.calls.detach(&id)
        {
            self.note_over(&id, call.thread.clone(), CallOutcome::Abandoned);
            let question = params;
            let answer = Answer::Declined { call, question };
            effects.push(Effect::Answer { id, answer });
        }
        effects
    }
}
