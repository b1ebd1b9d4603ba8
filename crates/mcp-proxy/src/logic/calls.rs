//! The calls of Codex's tools that are in flight, and those that the child still listens for.
//!
//! The child has a listener for each call, and the listeners of a thread share Codex's events for
//! that thread: each event reaches one of them. The listener that receives the end of a turn
//! answers under the ID of its own call, and ends. A cancelled call leaves its listener behind,
//! which can receive the end of another call's turn. Two listeners also send their events in any
//! order: the end of a turn can come after the beginning of the next one, and a turn that is
//! cancelled while it completes has two ends. But the turns of a thread begin one after another, in
//! the order of their calls, and each event names its turn, so it can be assigned to the call that
//! it is about.
//!
//! The child also answers at the error of a turn, and takes the end of that turn for the end of the
//! next one: the second answer of a turn is given to no call.
//!
//! ```text
//!             the turn has begun            the turn has completed
//!   Awaited ──────────────────────► Running ──────────────────────► Completed
//!                                      │    ┌── it has completed ──►    │
//!             the turn was aborted, or ▼    │  all the same             ▼
//!             a later one has begun   Over ─┘◄─ answered for another   forgotten:
//!                                      │        call's turn            answered
//!                                      └── answers for another call ──► forgotten
//!
//!   InFlight ──── returns early ────► Unattended
//!      └───────────────┴── cancelled, or timed out ──► Stale
//! ```

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use codex_protocol::rpc::RequestId;

use super::ended_turns::EndedTurns;
use super::partial_text::PartialText;
use super::tracked_call::{CallStage, StrayAnswer, TrackedCall, TurnState};

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

/// The call that the end of a turn belongs to.
enum Owner {
    Tracked(RequestId),
    /// A call that had its answer.
    Ended,
    Nobody,
}

/// The turn that an event of the child is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnRef<'a> {
    pub(super) thread: &'a str,
    /// The child's name of the turn, if the event has one.
    pub(super) id: Option<&'a str>,
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
            answered_at_error: None,
            stray_answer: None,
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
        })
    }

    /// Whether the thread has a turn that has not ended, even if its call is stale.
    pub(super) fn has_turn(&self, thread: &str) -> bool {
        self.current_turn(thread).is_some()
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

    /// The call that the end of a turn belongs to. A turn that is not known by name is the thread's
    /// first turn that has not ended; its call keeps the name.
    fn owner_of_end(&mut self, turn: TurnRef<'_>) -> Owner {
        let TurnRef {
            thread,
            id: turn_id,
        } = turn;
        if let Some(turn_id) = turn_id {
            if let Some(call) = self.tracked_turn(thread, turn_id) {
                return Owner::Tracked(call);
            }
            match self.ended.get(thread, turn_id) {
                Some(Some(_)) => return Owner::Ended,
                Some(None) => return Owner::Nobody,
                None => {}
            }
        }
        let Some(current) = self.current_turn(thread) else {
            return Owner::Nobody;
        };
        if let (Some(call), Some(_)) = (self.tracked.get_mut(&current), turn_id) {
            call.turn_id = turn_id.map(str::to_owned);
        }
        Owner::Tracked(current)
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
        let completed_by =
            |call: &TrackedCall| matches!(&call.turn, TurnState::Completed(by) if by == under);
        let owner = first(self.tracked.iter(), completed_by);
        let failed_by = |call: &TrackedCall| call.answered_at_error.as_ref() == Some(under);
        let owner = owner.or_else(|| first(self.tracked.iter(), failed_by));
        let owner = owner.or_else(|| self.current_turn(thread?));
        let owner = owner.or_else(|| self.subject(under, thread))?;
        let deadline = self.deadline(&owner);
        let info = self.detach(&owner);
        let finished = self.forget(&owner)?;
        let has_completed = matches!(finished.turn, TurnState::Completed(_));
        let missed_end = finished.answered_at_error.is_some() && !has_completed;
        let out_of_step = finished.thread.clone().filter(|_| missed_end);
        if owner != *under {
            // The listener that answered has ended. The listener of the call that got the answer is
            // still there.
            self.forget_listener(under);
            self.keep_as_stale(owner.clone(), finished, TurnState::Over);
        }
        Some(FinishedCall {
            id: owner,
            deadline,
            info,
            out_of_step,
        })
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
            let turn = tracked.turn.clone();
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
    /// turn. Returns the ID of that call if it is stale: its turn then has to be ended.
    pub(super) fn turn_began(&mut self, turn: TurnRef<'_>) -> Option<RequestId> {
        let TurnRef {
            thread,
            id: turn_id,
        } = turn;
        self.free_name(turn);
        let of_thread = |call: &TrackedCall| call.thread.as_deref() == Some(thread);
        let awaiting = self.first_awaiting(thread);
        let Some((id, call)) =
            awaiting.and_then(|id| Some((id.clone(), self.tracked.get_mut(&id)?)))
        else {
            if let Some(turn_id) = turn_id {
                self.ended.insert(thread, turn_id, None);
            }
            return None;
        };
        call.turn = TurnState::Running;
        call.turn_id = turn_id.map(str::to_owned);
        let unwanted = call.stage.is_stale().then_some(id);
        let number = call.number;
        for call in self.tracked.values_mut() {
            let earlier = of_thread(call) && call.number < number;
            if earlier && call.stage.is_stale() && call.turn == TurnState::Running {
                call.turn = TurnState::Over;
            }
        }
        unwanted
    }

    /// Takes the name of a turn that begins from an earlier turn. Old releases number the turns of a
    /// thread, and use the ID of the request for the first one.
    fn free_name(&mut self, turn: TurnRef<'_>) {
        let TurnRef {
            thread,
            id: Some(turn_id),
        } = turn
        else {
            return;
        };
        self.ended.remove(thread, turn_id);
        let earlier = self.tracked_turn(thread, turn_id);
        if let Some(call) = earlier.and_then(|id| self.tracked.get_mut(&id)) {
            call.turn_id = None;
        }
    }

    /// Finishes the call of a turn that was aborted: the child never answers that call. A turn that
    /// has completed before gets its answer.
    pub(super) fn turn_aborted(&mut self, turn: TurnRef<'_>) -> Option<FinishedCall> {
        let Owner::Tracked(id) = self.owner_of_end(turn) else {
            return None;
        };
        if !self.tracked.get(&id)?.turn.is_under_way() {
            return None;
        }
        let deadline = self.deadline(&id);
        let info = self.detach(&id);
        let aborted = self.forget(&id)?;
        self.keep_as_stale(id.clone(), aborted, TurnState::Over);
        Some(FinishedCall {
            id,
            deadline,
            info,
            out_of_step: None,
        })
    }

    /// Notes an error in a turn, which the child answers under the ID `under`.
    pub(super) fn turn_failed(&mut self, turn: TurnRef<'_>, under: &RequestId) {
        self.turn_answered(turn, under, |call| {
            call.answered_at_error = Some(under.clone());
        });
    }

    /// Notes that a turn has completed, and that its answer will come under the ID `under`.
    pub(super) fn turn_completed(&mut self, turn: TurnRef<'_>, under: &RequestId) {
        self.turn_answered(turn, under, |call| {
            call.turn = TurnState::Completed(under.clone());
        });
    }

    /// Notes with `note` for which call an answer under the ID `under` will be, or that it will be
    /// for none.
    fn turn_answered(
        &mut self,
        turn: TurnRef<'_>,
        under: &RequestId,
        note: impl FnOnce(&mut TrackedCall),
    ) {
        let stray = match self.owner_of_end(turn) {
            Owner::Tracked(owner) => match self.tracked.get_mut(&owner) {
                Some(call) if call.answered_at_error.is_none() => return note(call),
                _ => StrayAnswer::Second,
            },
            Owner::Ended => StrayAnswer::Second,
            Owner::Nobody => StrayAnswer::WithoutCall,
        };
        if let Some(call) = self.tracked.get_mut(under) {
            call.stray_answer = Some(stray);
        }
    }

    /// Takes an answer under the ID `under` that is for no call, if it is one. Returns the call that
    /// gets no answer any more because of it, if there is one.
    pub(super) fn take_stray_answer(&mut self, under: &RequestId) -> Option<Option<RequestId>> {
        let call = self.tracked.get_mut(under)?;
        let stray = call.stray_answer.take()?;
        let thread = call.thread.clone();
        let was_left_behind = call.is_left_behind();
        self.forget_listener(under);
        Some(match stray {
            StrayAnswer::Second => thread.and_then(|thread| self.current_turn(&thread)),
            StrayAnswer::WithoutCall => Some(under.clone()).filter(|_| !was_left_behind),
        })
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
            self.set_turn(Some(id.clone()), TurnState::Over);
        }
    }

    fn set_turn(&mut self, id: Option<RequestId>, turn: TurnState) {
        if let Some(call) = id.and_then(|id| self.tracked.get_mut(&id)) {
            call.turn = turn;
        }
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

    fn forget(&mut self, id: &RequestId) -> Option<TrackedCall> {
        let call = self.tracked.remove(id)?;
        if let (Some(thread), Some(turn_id)) = (&call.thread, &call.turn_id) {
            self.ended.insert(thread, turn_id, Some(id));
        }
        match call.stage {
            CallStage::InFlight { .. } => self.in_flight -= 1,
            CallStage::Unattended { .. } => {}
            CallStage::Stale => self.stale -= 1,
        }
        Some(call)
    }

    /// Forgets a call whose listener has ended, if nothing more is expected of it. The answer to an
    /// error of its turn can still come, under another ID.
    fn forget_listener(&mut self, id: &RequestId) {
        let call = self.tracked.get(id);
        if call.is_some_and(|call| call.is_left_behind() && call.answered_at_error.is_none()) {
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
            format!("{id} {stage}, {:?}", call.turn)
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
