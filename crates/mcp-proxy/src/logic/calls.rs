//! The calls of Codex's tools that are in flight, and those that the child still listens for.
//!
//! The child has a listener for each call, and the listeners of a thread share Codex's events for
//! that thread: each event reaches one of them. The listener that receives the end of a turn
//! answers under the ID of its own call, and ends. A cancelled call leaves its listener behind,
//! which can receive the end of another call's turn. Two listeners also send their events in any
//! order: the end of a turn can come after the beginning of the next one or before its own, and a
//! turn that is cancelled while it completes has two ends. But the turns of a thread begin one after
//! another, in the order of their calls, and each event names its turn, so it can be assigned to the
//! call that it is about.
//!
//! The child also answers at the error of a turn, and takes the end of that turn for the end of the
//! next one. Such a turn has two answers: its call gets the one at the error, and no call gets the
//! other, nor that of a turn without a call. But each takes a listener away. A call that has no
//! answer yet when no listener of its thread is left gets none.
//!
//! ```text
//!             the turn has begun            it has completed, or had an error
//!   Awaited ──────────────────────► Running ──────────────────────────────► Answering
//!                                      │                                     ▲   │
//!             the turn was aborted, or ▼         an error is reported late   │   │
//!             a later one has begun   Over ──────────────────────────────────┘   │
//!                                      ▲                                         │
//!                                      └─────────────── answered ────────────────┘
//!
//!                  has read an end            has answered
//!   Listens ─────────────────────► Answers ────────────────► Gone
//!
//!   InFlight ──── returns early ────► Unattended
//!      └───────────────┴── cancelled, or timed out ──► Stale
//! ```
//!
//! A call is forgotten once it is over and its listener is gone.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use codex_protocol::rpc::RequestId;

use super::ended_turns::EndedTurns;
use super::partial_text::PartialText;
use super::tracked_call::{CallStage, Listener, Reported, TrackedCall, TurnState};

/// The most stale calls that are remembered.
const STALE_LIMIT: usize = 10_000;

/// The thread of a call and its text so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallInfo {
    /// Its thread, once it is known.
    pub thread: Option<String>,
    /// The text that Codex has written so far.
    pub partial: String,
}

/// A finished call.
#[derive(Debug)]
pub(super) struct FinishedCall {
    /// Its id.
    pub(super) id: RequestId,
    /// Its deadline.
    pub(super) deadline: Option<Instant>,
    /// Its thread and text, if a client waits for the answer.
    pub(super) info: Option<CallInfo>,
    /// The thread, if the child has missed the end of the answered turn: it will take that end for
    /// the end of the next turn.
    pub(super) out_of_step: Option<String>,
}

/// The turn that an event of the child is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnRef<'a> {
    pub(super) thread: &'a str,
    /// The child's name of the turn, if the event has one.
    pub(super) id: Option<&'a str>,
}

impl<'a> TurnRef<'a> {
    /// The thread and the name of the turn; `None` if the event has no name.
    fn named(self) -> Option<(&'a str, &'a str)> {
        Some((self.thread, self.id?))
    }
}

/// All calls that the child still listens for.
#[derive(Debug, Default)]
pub(super) struct Calls {
    tracked: HashMap<RequestId, TrackedCall>,
    ended: EndedTurns,
    total: u64,
    pub in_flight: usize,
    stale: usize,
}

impl Calls {
    pub(super) fn begin(&mut self, id: RequestId, thread: Option<String>, deadline: Instant) {
        self.total += 1;
        self.in_flight += 1;
        let text = PartialText::default();
        let call = TrackedCall {
            thread,
            number: self.total,
            turn: TurnState::Awaited,
            turn_id: None,
            reported: Reported::default(),
            listener: Listener::Listens,
            stage: CallStage::InFlight { deadline, text },
        };
        self.tracked.insert(id, call);
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The number of calls whose turn runs and is not being ended.
    pub(super) fn unfinished(&self) -> usize {
        self.tracked.len() - self.stale
    }

    /// The number of threads with a turn that runs and is not being ended.
    pub(super) fn active_threads(&self) -> usize {
        let active = self.tracked.values().filter(|call| !call.stage.is_stale());
        let threads: HashSet<&str> = active.filter_map(|call| call.thread.as_deref()).collect();
        threads.len()
    }

    pub(super) fn is_known(&self, id: &RequestId) -> bool {
        self.tracked.contains_key(id)
    }

    /// The deadline of a call's turn, unless it is being ended.
    pub(super) fn deadline(&self, id: &RequestId) -> Option<Instant> {
        match self.tracked.get(id)?.stage {
            CallStage::InFlight { deadline, .. } | CallStage::Unattended { deadline } => {
                Some(deadline)
            }
            CallStage::Stale => None,
        }
    }

    /// Whether a turn runs in a thread, or a turn that is to be ended may yet begin: a new prompt
    /// would join that turn, and one of the two calls would never get an answer.
    pub(super) fn is_busy(&self, thread: &str) -> bool {
        let mut of_thread = self.of_thread(thread);
        of_thread.any(|(_, call)| match call.stage {
            CallStage::InFlight { .. } | CallStage::Unattended { .. } => true,
            CallStage::Stale => call.turn == TurnState::Awaited,
        }) || self.runs_without_call(thread)
    }

    /// Whether a turn that was begun without a call runs in a thread, as by mail of a sub-agent.
    pub(super) fn runs_without_call(&self, thread: &str) -> bool {
        self.ended.runs_without_call(thread)
    }

    /// Whether the thread has a turn that is not over, even if its call is stale.
    pub(super) fn has_turn(&self, thread: &str) -> bool {
        let mut of_thread = self.of_thread(thread);
        of_thread.any(|(_, call)| call.turn != TurnState::Over) || self.runs_without_call(thread)
    }

    /// The thread of a call, once it is known.
    pub(super) fn thread(&self, id: &RequestId) -> Option<String> {
        self.tracked.get(id)?.thread.clone()
    }

    fn of_thread<'a>(
        &'a self,
        thread: &'a str,
    ) -> impl Iterator<Item = (&'a RequestId, &'a TrackedCall)> {
        let of_thread = move |call: &TrackedCall| call.thread.as_deref() == Some(thread);
        self.tracked.iter().filter(move |(_, call)| of_thread(call))
    }

    /// The call to which a message of the child under `id` about `thread` belongs: the call with
    /// that ID or, if its turn is over, the latest call of its thread.
    pub(super) fn subject(&self, id: &RequestId, thread: Option<&str>) -> Option<RequestId> {
        let call = self.tracked.get(id)?;
        if !call.is_left_behind() {
            return Some(id.clone());
        }
        self.of_thread(thread.or(call.thread.as_deref())?)
            .filter(|(_, call)| !call.stage.is_stale())
            .max_by_key(|(_, call)| call.number)
            .map(|(id, _)| id.clone())
    }

    /// The call of the thread's first turn that has not ended.
    fn current_turn(&self, thread: &str) -> Option<RequestId> {
        first(self.of_thread(thread), |call| call.turn.is_under_way())
    }

    /// The first call of the thread that awaits its turn.
    fn first_awaiting(&self, thread: &str) -> Option<RequestId> {
        first(self.of_thread(thread), |call| {
            call.turn == TurnState::Awaited
        })
    }

    /// The latest tracked call whose turn has this name.
    fn tracked_turn(&self, thread: &str, turn_id: &str) -> Option<RequestId> {
        self.of_thread(thread)
            .filter(|(_, call)| call.turn_id.as_deref() == Some(turn_id))
            .max_by_key(|(_, call)| call.number)
            .map(|(id, _)| id.clone())
    }

    /// The tracked call that the end of a turn belongs to. A turn that is not known by name is that of
    /// the thread's first call whose turn has neither a name nor an end; the call keeps the name.
    fn owner_of_end(&mut self, turn: TurnRef<'_>) -> Option<RequestId> {
        let TurnRef {
            thread,
            id: turn_id,
        } = turn;
        let Some(turn_id) = turn_id else {
            return self.current_turn(thread);
        };
        if let Some(call) = self.tracked_turn(thread, turn_id) {
            return Some(call);
        }
        if self.ended.get(thread, turn_id).is_some() {
            return None;
        }
        let is_unnamed = |call: &TrackedCall| call.turn.is_under_way() && call.turn_id.is_none();
        let owner = first(self.of_thread(thread), is_unnamed)?;
        self.tracked.get_mut(&owner)?.turn_id = Some(turn_id.to_owned());
        Some(owner)
    }

    /// The call that the client sees an event under `id` as part of, which may be over: that of the
    /// event's turn. A turn that is not known by name has not begun, and is that of the first call
    /// that awaits one, or else that of [`subject`](Self::subject).
    pub(super) fn call_of_event(
        &self,
        id: &RequestId,
        turn: Option<TurnRef<'_>>,
    ) -> Option<RequestId> {
        let thread = turn.map(|turn| turn.thread);
        let Some((thread, turn_id)) = turn.and_then(|turn| Some((turn.thread, turn.id?))) else {
            return self.subject(id, thread);
        };
        let own = self
            .tracked
            .get(id)
            .and_then(|call| call.turn_id.as_deref());
        if own == Some(turn_id) {
            return Some(id.clone());
        }
        if let Some(call) = self.tracked_turn(thread, turn_id) {
            return Some(call);
        }
        if let Some(call) = self.ended.get(thread, turn_id) {
            return call.cloned();
        }
        let awaiting = self.first_awaiting(thread);
        awaiting.or_else(|| self.subject(id, Some(thread)))
    }

    /// Finishes the call to which an answer under the ID `under` belongs. `thread` is the thread
    /// that the answer names, if the answer is the end of a turn.
    pub(super) fn answered(
        &mut self,
        under: &RequestId,
        thread: Option<&str>,
    ) -> Option<FinishedCall> {
        let listener = self
            .tracked
            .get_mut(under)
            .map(|call| std::mem::replace(&mut call.listener, Listener::Gone));
        let owner = match listener {
            Some(Listener::Answers(owner)) => owner,
            _ => {
                let current = thread.and_then(|thread| self.current_turn(thread));
                current.or_else(|| self.subject(under, thread))
            }
        };
        let finished = owner.and_then(|owner| self.finish(owner));
        self.forget_if_done(under);
        finished
    }

    /// Ends a call that gets no further answer. It stays tracked while its listener is left.
    fn finish(&mut self, id: RequestId) -> Option<FinishedCall> {
        let deadline = self.deadline(&id);
        let info = self.detach(&id);
        let call = self.forget(&id)?;
        let missed_end = call.turn == TurnState::Answering && !call.reported.end;
        let out_of_step = call.thread.clone().filter(|_| missed_end);
        if call.listener != Listener::Gone {
            self.keep_as_stale(id.clone(), call, TurnState::Over);
        }
        Some(FinishedCall {
            id,
            deadline,
            info,
            out_of_step,
        })
    }

    /// Whether the child has a listener in a thread.
    pub(super) fn has_listener(&self, thread: &str) -> bool {
        let mut of_thread = self.of_thread(thread);
        of_thread.any(|(_, call)| call.listener != Listener::Gone)
    }

    /// The first call of a thread whose turn is not being ended.
    pub(super) fn first_unfinished(&self, thread: &str) -> Option<RequestId> {
        first(self.of_thread(thread), |call| !call.stage.is_stale())
    }

    /// Lets a call return early while its turn continues.
    pub(super) fn detach(&mut self, id: &RequestId) -> Option<CallInfo> {
        let tracked = self.tracked.get_mut(id)?;
        let CallStage::InFlight { deadline, .. } = tracked.stage else {
            return None;
        };
        let unattended = CallStage::Unattended { deadline };
        let CallStage::InFlight { text, .. } = std::mem::replace(&mut tracked.stage, unattended)
        else {
            return None;
        };
        self.in_flight -= 1;
        Some(CallInfo {
            thread: tracked.thread.clone(),
            partial: text.into_text(),
        })
    }

    /// Marks a call as stale, as its turn is being ended. Returns its thread and text if a client
    /// waits for its answer.
    pub(super) fn abandon(&mut self, id: &RequestId) -> Option<CallInfo> {
        let call = self.detach(id);
        if self.deadline(id).is_some()
            && let Some(tracked) = self.forget(id)
        {
            let turn = tracked.turn;
            self.keep_as_stale(id.clone(), tracked, turn);
        }
        call
    }

    /// The calls whose turns run, in the order in which they were made.
    pub(super) fn all_unfinished(&self) -> Vec<RequestId> {
        let mut calls: Vec<(u64, &RequestId)> = self
            .tracked
            .iter()
            .filter(|(_, call)| !call.stage.is_stale())
            .map(|(id, call)| (call.number, id))
            .collect();
        calls.sort_unstable();
        calls.into_iter().map(|(_, id)| id.clone()).collect()
    }

    /// Forgets all calls, as the child is gone. Returns those that a client waits for.
    pub(super) fn take_all(&mut self) -> Vec<(RequestId, CallInfo)> {
        let in_flight = self.all_unfinished().into_iter().filter_map(|id| {
            let call = self.detach(&id)?;
            Some((id, call))
        });
        let in_flight = in_flight.collect();
        self.tracked.clear();
        self.stale = 0;
        in_flight
    }

    /// Sets the thread of a call. Returns `true` if the thread was unknown before.
    pub(super) fn set_thread(&mut self, id: &RequestId, thread: &str) -> bool {
        match self.tracked.get_mut(id) {
            Some(call) if call.thread.is_none() => {
                call.thread = Some(thread.to_owned());
                true
            }
            _ => false,
        }
    }

    /// Notes that a turn of the thread has begun, and assigns it to the first call that awaits a
    /// turn, unless it has a call already. Returns the ID of that call if it is stale: its turn then
    /// has to be ended.
    pub(super) fn turn_began(&mut self, turn: TurnRef<'_>) -> Option<RequestId> {
        let TurnRef {
            thread,
            id: turn_id,
        } = turn;
        if self.note_beginning(turn) {
            return None;
        }
        let Some(id) = self.first_awaiting(thread) else {
            self.began_without_call(turn);
            return None;
        };
        self.free_name(turn);
        let call = self.tracked.get_mut(&id)?;
        call.turn = TurnState::Running;
        call.turn_id = turn_id.map(str::to_owned);
        call.reported.beginning = true;
        let unwanted = call.stage.is_stale().then_some(id);
        let number = call.number;
        self.end_turns_before(number, thread);
        unwanted
    }

    /// Notes that a turn without a call has begun. A turn that is known is reported once more, and may
    /// be over.
    fn began_without_call(&mut self, turn: TurnRef<'_>) {
        let Some((thread, turn_id)) = turn.named() else {
            return;
        };
        let is_remembered = self.ended.get(thread, turn_id).is_some();
        if !is_remembered && self.tracked_turn(thread, turn_id).is_none() {
            let reported = Reported {
                beginning: true,
                end: false,
            };
            self.ended.insert(thread, turn_id, None, reported);
        }
    }

    /// Ends the stale turns of a thread whose calls have lower numbers: a later turn has begun.
    fn end_turns_before(&mut self, number: u64, thread: &str) {
        let is_overtaken = |call: &TrackedCall| {
            call.number < number && call.stage.is_stale() && call.turn == TurnState::Running
        };
        let overtaken: Vec<RequestId> = self
            .of_thread(thread)
            .filter(|(_, call)| is_overtaken(call))
            .map(|(id, _)| id.clone())
            .collect();
        for id in &overtaken {
            self.end_turn(id);
        }
    }

    /// Notes that the beginning of a turn was reported. Returns `true` if the turn is known already: its
    /// end was reported before, or it runs.
    fn note_beginning(&mut self, turn: TurnRef<'_>) -> bool {
        let Some((thread, turn_id)) = turn.named() else {
            return false;
        };
        let tracked = self.tracked_turn(thread, turn_id);
        match tracked.and_then(|id| self.tracked.get_mut(&id)) {
            Some(call) => {
                let has_begun = std::mem::replace(&mut call.reported.beginning, true);
                !has_begun || call.turn == TurnState::Running
            }
            None => self.ended.note_beginning(thread, turn_id),
        }
    }

    /// Takes the name of a turn that begins from an earlier turn. Old releases number the turns of a
    /// thread, and use the ID of the request for the first one.
    fn free_name(&mut self, turn: TurnRef<'_>) {
        let Some((thread, turn_id)) = turn.named() else {
            return;
        };
        self.ended.remove(thread, turn_id);
        let earlier = self.tracked_turn(thread, turn_id);
        if let Some(call) = earlier.and_then(|id| self.tracked.get_mut(&id)) {
            call.turn_id = None;
        }
    }

    /// Finishes the call of a turn that was aborted: the child never answers that call. A turn that
    /// has completed before, or had an error, gets its answer.
    pub(super) fn turn_aborted(&mut self, turn: TurnRef<'_>) -> Option<FinishedCall> {
        let id = self.note_end(turn)?;
        match self.tracked.get(&id)?.turn.is_under_way() {
            true => self.finish(id),
            false => None,
        }
    }

    /// Notes that the end of a turn was reported. Returns the tracked call that it belongs to.
    fn note_end(&mut self, turn: TurnRef<'_>) -> Option<RequestId> {
        let owner = self.owner_of_end(turn);
        if let Some(call) = owner.as_ref().and_then(|owner| self.tracked.get_mut(owner)) {
            call.reported.end = true;
        } else if let Some(turn_id) = turn.id {
            self.ended.note_end(turn.thread, turn_id);
        }
        owner
    }

    /// Notes an error in a turn, which the child answers under the ID `under`. The call gets this
    /// answer, also if the turn was reported as completed before: that answer does not have the
    /// error.
    pub(super) fn turn_failed(&mut self, turn: TurnRef<'_>, under: &RequestId) {
        let owner = self.owner_of_end(turn);
        if let Some(call) = owner.as_ref().and_then(|owner| self.tracked.get_mut(owner)) {
            call.turn = TurnState::Answering;
        }
        let other = Listener::Answers(owner.clone());
        for call in self.tracked.values_mut() {
            if call.listener == other {
                call.listener = Listener::Answers(None);
            }
        }
        self.expect_answer(under, owner);
    }

    /// Notes that a turn has completed, which the child answers under the ID `under`.
    pub(super) fn turn_completed(&mut self, turn: TurnRef<'_>, under: &RequestId) {
        let owner = self.note_end(turn);
        let call = owner.as_ref().and_then(|owner| self.tracked.get_mut(owner));
        let is_only_answer = call.is_some_and(TrackedCall::complete);
        self.expect_answer(under, owner.filter(|_| is_only_answer));
    }

    /// Notes for which call the child's next answer under the ID `under` is.
    fn expect_answer(&mut self, under: &RequestId, owner: Option<RequestId>) {
        if let Some(call) = self.tracked.get_mut(under) {
            call.listener = Listener::Answers(owner);
        }
    }

    /// Whether the child listens for a call that no client waits for.
    pub(super) fn is_abandoned(&self, id: &RequestId) -> bool {
        let call = self.tracked.get(id);
        call.is_some_and(|call| !matches!(call.stage, CallStage::InFlight { .. }))
    }

    /// Whether the turn of a stale call may yet begin.
    pub(super) fn may_yet_begin(&self, id: &RequestId) -> bool {
        let call = self.tracked.get(id);
        call.is_some_and(|call| call.stage.is_stale() && call.turn == TurnState::Awaited)
    }

    /// Stops waiting for the turn of a stale call to begin.
    pub(super) fn stop_awaiting_turn(&mut self, id: &RequestId) {
        if self.may_yet_begin(id) {
            self.end_turn(id);
        }
    }

    fn end_turn(&mut self, id: &RequestId) {
        if let Some(call) = self.tracked.get_mut(id) {
            call.turn = TurnState::Over;
        }
        self.forget_if_done(id);
    }

    pub(super) fn add_delta(&mut self, id: &RequestId, item: &str, delta: &str) {
        if let Some(text) = self.partial_text_of(id) {
            text.add_delta(item, delta);
        }
    }

    pub(super) fn add_message(&mut self, id: &RequestId, message: &str) {
        if let Some(text) = self.partial_text_of(id) {
            text.add_message(message);
        }
    }

    fn partial_text_of(&mut self, id: &RequestId) -> Option<&mut PartialText> {
        match &mut self.tracked.get_mut(id)?.stage {
            CallStage::InFlight { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Stops tracking a call.
    pub(super) fn forget(&mut self, id: &RequestId) -> Option<TrackedCall> {
        let call = self.tracked.remove(id)?;
        if let (Some(thread), Some(turn_id)) = (&call.thread, &call.turn_id) {
            self.ended.insert(thread, turn_id, Some(id), call.reported);
        }
        match call.stage {
            CallStage::InFlight { .. } => self.in_flight -= 1,
            CallStage::Unattended { .. } => {}
            CallStage::Stale => self.stale -= 1,
        }
        Some(call)
    }

    fn forget_if_done(&mut self, id: &RequestId) {
        if self.tracked.get(id).is_some_and(TrackedCall::is_done) {
            self.forget(id);
        }
    }

    fn keep_as_stale(&mut self, id: RequestId, call: TrackedCall, turn: TurnState) {
        if self.stale < STALE_LIMIT {
            self.stale += 1;
            let stage = CallStage::Stale;
            self.tracked.insert(
                id,
                TrackedCall {
                    stage,
                    turn,
                    ..call
                },
            );
        }
    }

    /// The state of each call, in the order of their IDs, for test failures.
    #[cfg(test)]
    pub(super) fn describe(&self) -> String {
        let describe_call = |(id, call): (&RequestId, &TrackedCall)| {
            let stage = match call.stage {
                CallStage::InFlight { .. } => "in flight",
                CallStage::Unattended { .. } => "unattended",
                CallStage::Stale => "stale",
            };
            let listener = match &call.listener {
                Listener::Listens => String::new(),
                Listener::Answers(Some(owner)) => format!(", answers for {owner}"),
                Listener::Answers(None) => ", answers for none".to_owned(),
                Listener::Gone => ", no listener".to_owned(),
            };
            format!("{id} {stage}, {:?}{listener}", call.turn)
        };
        let mut all: Vec<String> = self.tracked.iter().map(describe_call).collect();
        all.sort_unstable();
        all.join("; ")
    }
}

/// The first of some calls that satisfies a condition.
fn first<'a>(
    calls: impl Iterator<Item = (&'a RequestId, &'a TrackedCall)>,
    condition: impl Fn(&TrackedCall) -> bool,
) -> Option<RequestId> {
    calls
        .filter(|(_, call)| condition(call))
        .min_by_key(|(_, call)| call.number)
        .map(|(id, _)| id.clone())
}
