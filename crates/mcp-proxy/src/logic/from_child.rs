//! Handles the messages of the child.

use std::borrow::Cow;
use std::time::Instant;

use codex_protocol::rpc::{ErrorObject, Message, RequestId, TruncatedMessage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::calls::{CallInfo, FinishedCall, TurnRef};
use super::deadlines::Expiry;
use super::{
    Answer, CallOutcome, CancelledParams, Child, ELICITATION, Effect, Failure, Note,
    OUT_OF_STEP_LIMIT, PendingQuestion, QUESTION_LIMIT, Router, Service, ToolList, cancellation,
    initialize_id, splice, summaries,
};

#[derive(Deserialize)]
struct CallResult {
    #[serde(rename = "structuredContent")]
    structured: Option<StructuredContent>,
    #[serde(default, rename = "isError")]
    is_error: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StructuredContent {
    thread_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitializeResult {
    server_info: Option<ServerInfo>,
}

#[derive(Deserialize)]
struct ServerInfo {
    version: Option<String>,
}

#[derive(Deserialize)]
struct EventParams<'a> {
    #[serde(borrow, rename = "_meta")]
    meta: EventMeta<'a>,
    /// The turn. It is empty in an event that is about the thread.
    #[serde(borrow, default)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    msg: Option<&'a RawValue>,
}

/// The call and the thread of an event.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventMeta<'a> {
    #[serde(borrow)]
    request_id: &'a RawValue,
    thread_id: Option<String>,
}

/// An event of Codex, as far as the router needs it.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CodexEvent {
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
    /// The ID of the call, which the child writes as a string even if it is a number.
    #[serde(borrow, rename = "codex_mcp_tool_call_id")]
    call: Option<&'a RawValue>,
    #[serde(rename = "codex_event_id")]
    turn: Option<String>,
}

impl Router {
    /// Handles a message of the child. `bytes` is the text that `message` was parsed from.
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
                self.withdraw_question(*params);
                vec![Effect::ToClient(bytes.to_vec())]
            }
            Message::Notification { .. } | Message::Request { .. } => {
                vec![Effect::ToClient(bytes.to_vec())]
            }
        };
        effects.extend(self.request_idle_summaries(now));
        effects
    }

    /// Handles an unreadable message of the child: fails the request that it answers, or answers
    /// the child's own request with an error.
    pub fn fail_unreadable(&mut self, head: &TruncatedMessage<'_>, why: Failure) -> Vec<Effect> {
        self.from_child += 1;
        match head {
            TruncatedMessage::Response(id) => match self.requests.contains_key(id) {
                true => self.request_failed(id, why),
                false => self.call_failed(id, why),
            },
            TruncatedMessage::Request { id, method } if *method == ELICITATION => {
                vec![Effect::ToChild(splice::declined(id, self.refusal()))]
            }
            TruncatedMessage::Request { id, .. } => vec![Effect::ToChild(splice::refused(id))],
            TruncatedMessage::Notification { .. } => Vec::new(),
        }
    }

    /// Ends the call to which an answer of the child belongs that can't be passed on.
    fn call_failed(&mut self, under: &RequestId, why: Failure) -> Vec<Effect> {
        let thread = self.calls.thread(under);
        let answered = self.calls.answered(under, None);
        let mut effects = self.end_call(answered, why);
        effects.extend(self.end_unheard(thread));
        effects
    }

    /// Ends a call for which the child has no answer that can be passed on.
    fn end_call(&mut self, call: Option<FinishedCall>, why: Failure) -> Vec<Effect> {
        let Some(call) = call else { return Vec::new() };
        let (id, info, mut effects) = self.clear_call(call);
        if self.note_summary(&id, None) {
            return effects;
        }
        if let Some(call) = &info {
            self.note_over(&id, call.thread.clone(), CallOutcome::Failed);
        }
        effects.extend(info.map(|call| Effect::Answer {
            id,
            answer: Answer::Failed { call, why },
        }));
        effects
    }

    /// Removes the deadline and the questions of a finished call.
    fn clear_call(&mut self, call: FinishedCall) -> (RequestId, Option<CallInfo>, Vec<Effect>) {
        let FinishedCall {
            id,
            deadline,
            info,
            out_of_step,
        } = call;
        if let Some(thread) = out_of_step {
            self.mark_out_of_step(thread);
        }
        if let Some(deadline) = deadline {
            self.deadlines.lift(deadline, Expiry::Call(id.clone()));
        }
        let effects = self.drop_questions(&id);
        (id, info, effects)
    }

    fn answer(
        &mut self,
        bytes: &[u8],
        id: &RequestId,
        outcome: &Result<&RawValue, ErrorObject>,
    ) -> Vec<Effect> {
        let result = outcome.as_ref().ok().copied();
        if *id == initialize_id() {
            return self.child_initialized(result);
        }
        if let Some(before) = self.pings.remove(id) {
            let asked = self.take_request(&before);
            let answer = asked.map(|asked| Effect::Answer {
                id: before,
                answer: Answer::UnknownMethod {
                    method: asked.method,
                },
            });
            return answer.into_iter().collect();
        }
        let Some(asked) = self.take_request(id) else {
            let thread = self.calls.thread(id);
            let mut effects = self.call_answered(bytes, id, result);
            effects.extend(self.end_unheard(thread));
            return effects;
        };
        let listed = match (asked.method.as_str(), result) {
            ("tools/list", Some(result)) => {
                self.tool_list = ToolList::Actual;
                if let Some(tools) = splice::whole_list(result) {
                    self.config.known_tools = tools;
                }
                splice::with_tools(bytes, result, &self.config.own_tools)
            }
            _ => None,
        };
        vec![Effect::ToClient(listed.unwrap_or_else(|| bytes.to_vec()))]
    }

    /// If the child has no listener left in a thread, ends its call and marks the thread: the child will
    /// answer the next prompt with the end of the present turn.
    fn end_unheard(&mut self, thread: Option<String>) -> Vec<Effect> {
        let Some(thread) = thread.filter(|thread| !self.calls.has_listener(thread)) else {
            return Vec::new();
        };
        let call = self.calls.first_unfinished(&thread);
        if call.is_some() || self.calls.runs_without_call(&thread) {
            self.mark_out_of_step(thread);
        }
        let Some(call) = call else {
            return Vec::new();
        };
        let effects = self.give_up(&call, Failure::OutOfStep);
        self.calls.forget(&call);
        effects
    }

    fn mark_out_of_step(&mut self, thread: String) {
        if self.out_of_step.len() < OUT_OF_STEP_LIMIT {
            self.summaries.forget(&thread);
            self.out_of_step.insert(thread);
        }
    }

    fn child_initialized(&mut self, result: Option<&RawValue>) -> Vec<Effect> {
        let about: Option<InitializeResult> =
            result.and_then(|result| serde_json::from_str(result.get()).ok());
        let version = about.and_then(|about| about.server_info?.version);
        let version = version.or_else(|| self.config.version.clone());
        if self.child == Child::Starting {
            self.child = Child::Ready { version };
        }
        if self.tool_list == ToolList::Actual {
            return Vec::new();
        }
        self.tool_list = ToolList::Actual;
        let changed = super::notification("notifications/tools/list_changed", &json!({}));
        vec![Effect::ToClient(changed)]
    }

    /// Passes an answer on under the ID of the call that it belongs to.
    fn call_answered(
        &mut self,
        bytes: &[u8],
        id: &RequestId,
        result: Option<&RawValue>,
    ) -> Vec<Effect> {
        let about: Option<CallResult> =
            result.and_then(|result| serde_json::from_str(result.get()).ok());
        let outcome = match about.as_ref().is_some_and(|about| !about.is_error) {
            true => CallOutcome::Answered,
            false => CallOutcome::Failed,
        };
        let thread = about.and_then(|about| about.structured?.thread_id);
        let Some(answered) = self.calls.answered(id, thread.as_deref()) else {
            return Vec::new();
        };
        let (owner, info, mut effects) = self.clear_call(answered);
        if self.summaries.is_summary_call(&owner) {
            let text = result.and_then(summaries::final_message);
            self.note_summary(&owner, text);
            return effects;
        }
        if let Some(call) = info {
            self.note_answer(&owner, call.thread, thread, outcome);
            let moved = match owner == *id {
                true => None,
                false => splice::with_id(bytes, &owner),
            };
            effects.push(Effect::ToClient(moved.unwrap_or_else(|| bytes.to_vec())));
        }
        effects
    }

    /// Notes that a call has its answer; `named` is the thread that the answer names.
    fn note_answer(
        &mut self,
        call: &RequestId,
        known: Option<String>,
        named: Option<String>,
        outcome: CallOutcome,
    ) {
        let thread = match (known, named) {
            (None, Some(named)) => {
                self.note_thread(call, &named);
                Some(named)
            }
            (known, _) => known,
        };
        if let Some(thread) = &thread
            && outcome == CallOutcome::Answered
            && !self.out_of_step.contains(thread)
        {
            self.summaries.remember(thread);
        }
        self.note_over(call, thread, outcome);
    }

    fn note_thread(&mut self, call: &RequestId, thread: &str) {
        self.notes.push(Note::ThreadStarted {
            call: call.clone(),
            thread: thread.to_owned(),
        });
    }

    /// Passes an event on under the ID of the call that it belongs to, and applies it to the state
    /// of the call.
    fn event(&mut self, bytes: &[u8], params: Option<&RawValue>) -> Vec<Effect> {
        let event: Option<EventParams<'_>> =
            params.and_then(|params| serde_json::from_str(params.get()).ok());
        let unchanged = || Effect::ToClient(bytes.to_vec());
        let Some(EventParams {
            meta,
            id: turn_id,
            msg,
        }) = event
        else {
            return vec![unchanged()];
        };
        let Ok(id) = serde_json::from_str(meta.request_id.get()) else {
            return vec![unchanged()];
        };
        // Before 0.75, events do not name their thread.
        let thread = meta.thread_id.or_else(|| self.calls.thread(&id));
        let turn = turn_of(thread.as_deref(), Some(&turn_id));
        if let Some(TurnRef { thread, .. }) = turn
            && self.calls.set_thread(&id, thread)
        {
            self.note_thread(&id, thread);
        }
        let event = msg.and_then(|msg| serde_json::from_str(msg.get()).ok());
        let event = event.unwrap_or(CodexEvent::Other);
        // Before the event's call is looked for, as the turn has none until it begins.
        let unwanted = match (&event, turn) {
            (CodexEvent::TaskStarted, Some(turn)) => self.calls.turn_began(turn),
            _ => None,
        };
        let call = self.calls.call_of_event(&id, turn);
        let moved = call.as_ref().filter(|call| **call != id).and_then(|call| {
            let written = splice::to_json(call);
            splice::replace(bytes, meta.request_id.get(), &written)
        });
        let mut effects = vec![moved.map_or_else(unchanged, Effect::ToClient)];
        // The child drops a cancellation that comes before the turn.
        let reason = "it was cancelled before it began";
        effects.extend(unwanted.map(|id| Effect::ToChild(cancellation(&id, reason))));
        effects.extend(self.apply_event(&id, call.as_ref(), turn, event));
        effects
    }

    /// Applies an event of `call` that the child sends under the ID `under`.
    fn apply_event(
        &mut self,
        under: &RequestId,
        call: Option<&RequestId>,
        turn: Option<TurnRef<'_>>,
        event: CodexEvent,
    ) -> Vec<Effect> {
        match (event, turn) {
            (CodexEvent::TurnAborted, Some(turn)) => return self.turn_aborted(turn),
            (CodexEvent::Error, Some(turn)) => self.calls.turn_failed(turn, under),
            (CodexEvent::SessionConfigured { session_id }, None)
                if self.calls.set_thread(under, &session_id) =>
            {
                self.note_thread(under, &session_id);
            }
            (CodexEvent::TaskComplete, Some(turn)) => {
                self.calls.turn_completed(turn, under);
                self.summaries.remember(turn.thread);
            }
            (CodexEvent::AgentMessage { message }, _) => {
                if let Some(call) = call {
                    self.calls.add_message(call, &message);
                }
            }
            (CodexEvent::AgentMessageContentDelta { item_id, delta }, _) => {
                if let Some(call) = call {
                    self.calls.add_delta(call, &item_id, &delta);
                }
            }
            _ => {}
        }
        Vec::new()
    }

    /// Ends the call of an aborted turn, whatever aborted it (the client's answer to a question, or
    /// another cause): the child never answers that call.
    fn turn_aborted(&mut self, turn: TurnRef<'_>) -> Vec<Effect> {
        let aborted = self.calls.turn_aborted(turn);
        self.end_call(aborted, Failure::Interrupted)
    }

    /// Passes a question on to a client that can ask its user. Otherwise the question is declined,
    /// and its call returns with it.
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
            turn,
        } = serde_json::from_str(params).unwrap_or_default();
        let call = named.and_then(|named| self.named_call(named, thread, turn.as_deref()));
        let rewritten = named.zip(call.as_ref()).and_then(|(named, call)| {
            let text = call.text();
            let same = serde_json::from_str::<String>(named.get()).is_ok_and(|named| named == text);
            match same {
                true => None,
                false => splice::replace(bytes, named.get(), &splice::to_json(&text)),
            }
        });
        if self.service == Service::Closing {
            // The client gets no more questions; the only calls that can ask now are those for
            // summaries.
            return vec![Effect::ToChild(splice::declined(id, self.refusal()))];
        }
        let params: Value = serde_json::from_str(params).unwrap_or_default();
        if !self.supports_forms || self.questions.len() >= QUESTION_LIMIT {
            return self.decline_unasked(id, call, params);
        }
        // A child that uses an ID again does not need the first answer.
        self.take_question(id);
        if let Some(open) = self.ambiguous_question(&params, call.as_ref()) {
            let refusal = splice::declined(id, self.refusal());
            let mut effects = self.decline(&open, "another question has the same ID");
            effects.push(Effect::ToChild(refusal));
            return effects;
        }
        let deadline = now + self.config.timeouts.approval;
        self.deadlines.set(deadline, Expiry::Question(id.clone()));
        let question = PendingQuestion {
            call,
            deadline,
            params,
        };
        self.questions.insert(id.clone(), question);
        vec![Effect::ToClient(
            rewritten.unwrap_or_else(|| bytes.to_vec()),
        )]
    }

    /// The open question that shares its ID of a command with this one. The child waits for one
    /// answer under such an ID: an answer to the first question would decide the last one. The IDs
    /// are the model's, which can use one for two commands.
    fn ambiguous_question(&self, params: &Value, call: Option<&RequestId>) -> Option<RequestId> {
        let key = params.get("codex_call_id")?;
        let thread = params.get("threadId");
        let is_ambiguous = |open: &PendingQuestion| {
            // Before 0.75, questions do not name their thread.
            let same_call = thread.is_some() || open.call.as_ref() == call;
            open.params.get("codex_call_id") == Some(key)
                && open.params.get("threadId") == thread
                && same_call
        };
        let mut open = self.questions.iter();
        let (id, _) = open.find(|(_, question)| is_ambiguous(question))?;
        Some(id.clone())
    }

    /// Removes a question that the child has withdrawn.
    fn withdraw_question(&mut self, params: Option<&RawValue>) {
        let cancelled: Option<CancelledParams> =
            params.and_then(|params| serde_json::from_str(params.get()).ok());
        if let Some(CancelledParams { request_id }) = cancelled {
            self.take_question(&request_id);
        }
    }

    /// The call that a question of the child belongs to.
    fn named_call(
        &self,
        named: &RawValue,
        thread: Option<String>,
        turn_id: Option<&str>,
    ) -> Option<RequestId> {
        let named: String = serde_json::from_str(named.get()).ok()?;
        let number = named.parse().ok().map(RequestId::Number);
        let id = number
            .filter(|id| self.calls.is_known(id))
            .unwrap_or(RequestId::Text(named));
        let thread = thread.or_else(|| self.calls.thread(&id));
        self.calls
            .call_of_event(&id, turn_of(thread.as_deref(), turn_id))
    }
}

/// The turn that the child names, if it names the thread.
fn turn_of<'a>(thread: Option<&'a str>, turn_id: Option<&'a str>) -> Option<TurnRef<'a>> {
    let id = turn_id.filter(|id| !id.is_empty());
    thread.map(|thread| TurnRef { thread, id })
}
