//! What comes from the child.

use std::time::Instant;

use codex_protocol::rpc::{Beheaded, ErrorObject, Message, RequestId};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::calls::{Answered, Call};
use super::deadlines::Due;
use super::{
    Answer, Cancelled, Child, ELICITATION, Effect, Elicits, Failure, How, Listed, Note,
    OUT_OF_STEP_LIMIT, QUESTION_LIMIT, Question, Router, Service, cancellation, introduction,
    splice, summaries,
};

#[derive(Deserialize)]
struct CallResult {
    #[serde(rename = "structuredContent")]
    structured: Option<InThread>,
    #[serde(default, rename = "isError")]
    is_error: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InThread {
    thread_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Introduction {
    server_info: Option<ServerInfo>,
}

#[derive(Deserialize)]
struct ServerInfo {
    version: Option<String>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "_meta")]
    meta: Meta<'a>,
    #[serde(borrow)]
    msg: Option<&'a RawValue>,
}

/// Whose an event is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    #[serde(borrow)]
    request_id: &'a RawValue,
    thread_id: Option<String>,
}

/// What happened, as far as it matters here.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum News {
    SessionConfigured {
        session_id: String,
    },
    TaskStarted,
    TaskComplete,
    TurnAborted,
    Error,
    AgentMessage {
        message: String,
    },
    AgentMessageContentDelta {
        item_id: String,
        delta: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Elicitation<'a> {
    #[serde(rename = "threadId")]
    thread: Option<String>,
    /// The id of the call, as a text whether it is one or a number.
    #[serde(borrow, rename = "codex_mcp_tool_call_id")]
    call: Option<&'a RawValue>,
}

impl Router {
    /// Takes a message of the child's. `bytes` is what `message` was read from.
    pub fn from_child(&mut self, bytes: &[u8], message: &Message<'_>, now: Instant) -> Vec<Effect> {
        self.from_child += 1;
        let mut effects = match message {
            Message::Response { id, outcome } => self.answer(bytes, id, outcome),
            Message::Notification { method, params } if method == "codex/event" => {
                self.event(bytes, *params)
            }
            Message::Request { id, method, params } if method == ELICITATION => {
                self.question(bytes, id, *params, now)
            }
            Message::Notification { method, params } if method == "notifications/cancelled" => {
                self.taken_back(*params);
                vec![Effect::ToClient(bytes.to_vec())]
            }
            Message::Notification { .. } | Message::Request { .. } => {
                vec![Effect::ToClient(bytes.to_vec())]
            }
        };
        effects.extend(self.ask_those_at_rest(now));
        effects
    }

    /// Sees to it that nobody waits for a message of the child's that couldn't be
    /// taken, for this reason.
    pub fn cut_off(&mut self, head: &Beheaded<'_>, why: Failure) -> Vec<Effect> {
        self.from_child += 1;
        match head {
            Beheaded::Response(id) => match self.asked.contains_key(id) {
                true => self.request_failed(id, why),
                false => self.call_failed(id, why),
            },
            Beheaded::Request { id, method } if *method == ELICITATION => {
                vec![Effect::ToChild(splice::declined(id, self.refusal()))]
            }
            Beheaded::Request { id, .. } => vec![Effect::ToChild(splice::refused(id))],
            Beheaded::Notification { .. } => Vec::new(),
        }
    }

    /// The child has answered a call with what can't be passed on.
    fn call_failed(&mut self, under: &RequestId, why: Failure) -> Vec<Effect> {
        let answered = self.calls.answered(under, None);
        self.over(answered, why)
    }

    /// A call is over without an answer of the child's that can be passed on.
    fn over(&mut self, call: Option<Answered>, why: Failure) -> Vec<Effect> {
        let Some(call) = call else { return Vec::new() };
        let (id, waited, mut effects) = self.clear(call);
        if self.note_summary(&id, None) {
            return effects;
        }
        if let Some(call) = &waited {
            self.note_over(&id, call.thread.clone(), How::Failed);
        }
        effects.extend(waited.map(|call| Effect::Answer {
            id,
            answer: Answer::Failed { call, why },
        }));
        effects
    }

    /// Takes away what there is of a call that is over, besides itself.
    fn clear(&mut self, call: Answered) -> (RequestId, Option<Call>, Vec<Effect>) {
        let Answered {
            id,
            deadline,
            waited,
            out_of_step,
        } = call;
        if let Some(thread) = out_of_step
            && self.out_of_step.len() < OUT_OF_STEP_LIMIT
        {
            self.summaries.forget(&thread);
            self.out_of_step.insert(thread);
        }
        if let Some(deadline) = deadline {
            self.deadlines.lift(deadline, Due::Call(id.clone()));
        }
        let effects = self.drop_questions(&id);
        (id, waited, effects)
    }

    fn answer(
        &mut self,
        bytes: &[u8],
        id: &RequestId,
        outcome: &Result<&RawValue, ErrorObject>,
    ) -> Vec<Effect> {
        let result = outcome.as_ref().ok().copied();
        if *id == introduction() {
            return self.introduced(result);
        }
        if let Some(before) = self.pings.remove(id) {
            let asked = self.take_asked(&before);
            let answer = asked.map(|asked| Effect::Answer {
                id: before,
                answer: Answer::UnknownMethod {
                    method: asked.method,
                },
            });
            return answer.into_iter().collect();
        }
        let Some(asked) = self.take_asked(id) else {
            return self.call_answered(bytes, id, result);
        };
        let listed = match (asked.method.as_str(), result) {
            ("tools/list", Some(result)) => {
                self.listed = Listed::Right;
                if let Some(tools) = splice::whole_list(result) {
                    self.setup.known_tools = tools;
                }
                splice::with_tools(bytes, result, &self.setup.own_tools)
            }
            _ => None,
        };
        vec![Effect::ToClient(listed.unwrap_or_else(|| bytes.to_vec()))]
    }

    fn introduced(&mut self, result: Option<&RawValue>) -> Vec<Effect> {
        let about: Option<Introduction> =
            result.and_then(|result| serde_json::from_str(result.get()).ok());
        let version = about.and_then(|about| about.server_info?.version);
        let version = version.or_else(|| self.setup.version.clone());
        if self.child == Child::Starting {
            self.child = Child::Ready { version };
        }
        if self.listed == Listed::Right {
            return Vec::new();
        }
        self.listed = Listed::Right;
        let changed = super::notification("notifications/tools/list_changed", &json!({}));
        vec![Effect::ToClient(changed)]
    }

    /// Brings the answer to the call that it belongs to.
    fn call_answered(
        &mut self,
        bytes: &[u8],
        id: &RequestId,
        result: Option<&RawValue>,
    ) -> Vec<Effect> {
        let about: Option<CallResult> =
            result.and_then(|result| serde_json::from_str(result.get()).ok());
        let how = match about.as_ref().is_some_and(|about| !about.is_error) {
            true => How::Answered,
            false => How::Failed,
        };
        let thread = about.and_then(|about| about.structured?.thread_id);
        let Some(answered) = self.calls.answered(id, thread.as_deref()) else {
            return Vec::new();
        };
        let (owner, waited, mut effects) = self.clear(answered);
        if self.summaries.is_asked(&owner) {
            let text = result.and_then(summaries::final_message);
            self.note_summary(&owner, text);
            return effects;
        }
        if let Some(call) = waited {
            self.note_answer(&owner, call.thread, thread, how);
            let moved = match owner == *id {
                true => None,
                false => splice::with_id(bytes, &owner),
            };
            effects.push(Effect::ToClient(moved.unwrap_or_else(|| bytes.to_vec())));
        }
        effects
    }

    /// Notes that a call has its answer, which names `told` as its thread.
    fn note_answer(
        &mut self,
        call: &RequestId,
        known: Option<String>,
        told: Option<String>,
        how: How,
    ) {
        let thread = match (known, told) {
            (None, Some(told)) => {
                self.note_thread(call, &told);
                Some(told)
            }
            (known, _) => known,
        };
        if let Some(thread) = &thread
            && how == How::Answered
            && !self.out_of_step.contains(thread)
        {
            self.summaries.remember(thread);
        }
        self.note_over(call, thread, how);
    }

    fn note_thread(&mut self, call: &RequestId, thread: &str) {
        self.notes.push(Note::Began {
            call: call.clone(),
            thread: thread.to_owned(),
        });
    }

    /// Notes what an event tells of its call, and brings it to the call that it
    /// belongs to.
    fn event(&mut self, bytes: &[u8], params: Option<&RawValue>) -> Vec<Effect> {
        let event: Option<Event<'_>> =
            params.and_then(|params| serde_json::from_str(params.get()).ok());
        let as_it_came = || Effect::ToClient(bytes.to_vec());
        let Some(Event { meta, msg }) = event else {
            return vec![as_it_came()];
        };
        let Ok(id) = serde_json::from_str(meta.request_id.get()) else {
            return vec![as_it_came()];
        };
        // Before 0.75 events don't tell their thread.
        let thread = meta.thread_id.or_else(|| self.calls.thread(&id));
        let thread = thread.as_deref();
        let news = msg.and_then(|msg| serde_json::from_str(msg.get()).ok());
        let subject = self.calls.subject(&id, thread);
        let moved = subject
            .filter(|subject| *subject != id)
            .and_then(|subject| {
                let written = splice::written(&subject);
                splice::replace(bytes, meta.request_id.get(), &written)
            });
        let mut effects = vec![moved.map_or_else(as_it_came, Effect::ToClient)];
        effects.extend(self.note(&id, thread, news.unwrap_or(News::Other)));
        effects
    }

    /// Notes what the child tells under the id of a call.
    fn note(&mut self, id: &RequestId, thread: Option<&str>, news: News) -> Vec<Effect> {
        if let Some(thread) = thread
            && self.calls.set_thread(id, thread)
        {
            self.note_thread(id, thread);
        }
        match (news, thread) {
            (News::TaskStarted, Some(thread)) => {
                // The child forgets a cancellation that comes before the turn.
                let unwanted = self.calls.turn_began(thread);
                let reason = "it was cancelled before it began";
                let again = unwanted.map(|id| Effect::ToChild(cancellation(&id, reason)));
                return again.into_iter().collect();
            }
            (News::TurnAborted, Some(thread)) => return self.aborted(thread),
            (News::Error, Some(thread)) => self.calls.erred(thread),
            (News::SessionConfigured { session_id }, None)
                if self.calls.set_thread(id, &session_id) =>
            {
                self.note_thread(id, &session_id);
            }
            (News::TaskComplete, Some(thread)) => {
                self.calls.turn_completed(thread, id);
                self.summaries.remember(thread);
            }
            (News::AgentMessage { message }, _) => {
                if let Some(call) = self.calls.subject(id, thread) {
                    self.calls.said(&call, &message);
                }
            }
            (News::AgentMessageContentDelta { item_id, delta }, _) => {
                if let Some(call) = self.calls.subject(id, thread) {
                    self.calls.wrote(&call, &item_id, &delta);
                }
            }
            _ => {}
        }
        Vec::new()
    }

    /// A turn was aborted, as the client wanted it by its answer to a question, or for
    /// another reason: the child never answers its call.
    fn aborted(&mut self, thread: &str) -> Vec<Effect> {
        let aborted = self.calls.turn_aborted(thread);
        self.over(aborted, Failure::Interrupted)
    }

    /// A question goes to the client if that can ask its user. Otherwise it is
    /// declined, and the call comes back with it.
    fn question(
        &mut self,
        bytes: &[u8],
        id: &RequestId,
        params: Option<&RawValue>,
        now: Instant,
    ) -> Vec<Effect> {
        let params = params.map_or("{}", RawValue::get);
        let Elicitation {
            thread,
            call: named,
        } = serde_json::from_str(params).unwrap_or_default();
        let call = named.and_then(|named| self.named_call(named, thread.as_deref()));
        let rewritten = named.zip(call.as_ref()).and_then(|(named, call)| {
            let text = call.text();
            let same = serde_json::from_str::<String>(named.get()).is_ok_and(|named| named == text);
            match same {
                true => None,
                false => splice::replace(bytes, named.get(), &splice::written(&text)),
            }
        });
        if self.service == Service::Closing {
            // Nobody is left to ask, and what asks is a summary at the most.
            return vec![Effect::ToChild(splice::declined(id, self.refusal()))];
        }
        let params: Value = serde_json::from_str(params).unwrap_or_default();
        if self.elicits == Elicits::No || self.questions.len() >= QUESTION_LIMIT {
            return self.decline_unasked(id, call, params);
        }
        // A child that uses an id again has no use for the first answer.
        self.take_question(id);
        let deadline = now + self.setup.limits.approval;
        self.deadlines.set(deadline, Due::Question(id.clone()));
        let question = Question {
            call,
            deadline,
            params,
        };
        self.questions.insert(id.clone(), question);
        vec![Effect::ToClient(
            rewritten.unwrap_or_else(|| bytes.to_vec()),
        )]
    }

    /// The child needs no answer to a question any more.
    fn taken_back(&mut self, params: Option<&RawValue>) {
        let cancelled: Option<Cancelled> =
            params.and_then(|params| serde_json::from_str(params.get()).ok());
        if let Some(Cancelled { request_id }) = cancelled {
            self.take_question(&request_id);
        }
    }

    /// The call on whose behalf the child asks.
    fn named_call(&self, named: &RawValue, thread: Option<&str>) -> Option<RequestId> {
        let named: String = serde_json::from_str(named.get()).ok()?;
        let number = named.parse().ok().map(RequestId::Number);
        let id = number
            .filter(|id| self.calls.is_known(id))
            .unwrap_or(RequestId::Text(named));
        self.calls.subject(&id, thread)
    }
}
