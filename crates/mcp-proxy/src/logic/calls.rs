//! The calls of Codex's tools that are under way, and those that the child has
//! not forgotten.
//!
//! The child has a listener for each call, and the listeners of a thread share what
//! Codex tells of it: whichever hears the end of a turn answers under the id of its
//! own call, and is gone. A call that is cancelled leaves its listener behind. But
//! the turns of a thread come one after the other, in the order of their calls, so
//! what is told can be brought to the call that it is about.
//!
//! ```text
//!            told that it has begun        told that it has completed
//!   Awaited ───────────────────────► Begun ───────────────────────► Completed
//!                                      │                                │
//!                    told that it was  ▼                                ▼
//!                    aborted, or that Over ◄── answered for another    gone:
//!                    a later one has   │       one's turn              answered
//!                    begun             └── answers for another ──► gone
//!
//!   InFlight ── comes back early ──► Unattended
//!      └───────────────┴── cancelled, or too late ──► Stale
//! ```

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use codex_protocol::rpc::RequestId;

use super::said::Said;

/// How many stale calls are remembered.
const STALE_LIMIT: usize = 10_000;

/// What is known of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its thread, once it is known.
    pub thread: Option<String>,
    /// What Codex has said.
    pub partial: String,
}

#[derive(Debug)]
struct Known {
    thread: Option<String>,
    /// Counts the calls, and so the turns of a thread.
    number: u64,
    turn: Turn,
    /// Whether the child was told of an error in the turn: it answers then, and
    /// doesn't hear the turn's end.
    erred: bool,
    stage: Stage,
}

/// How far the turn of a call is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Turn {
    Awaited,
    Begun,
    /// The answer is under way, under this id.
    Completed(RequestId),
    /// It has no answer, or has had it; the child still listens on the call's behalf.
    Over,
}

impl Turn {
    fn is_under_way(&self) -> bool {
        matches!(self, Self::Awaited | Self::Begun)
    }
}

/// Who wants a call.
#[derive(Debug)]
enum Stage {
    /// Somebody waits for its answer.
    InFlight {
        /// By when it has to come.
        deadline: Instant,
        /// What Codex has said until now.
        said: Said,
    },
    /// It came back early, and its turn goes on.
    Unattended {
        /// By when it has to end.
        deadline: Instant,
    },
    /// Nobody: its turn is being ended, or over.
    Stale,
}

impl Stage {
    fn is_stale(&self) -> bool {
        matches!(self, Self::Stale)
    }
}

/// A call that is over.
#[derive(Debug)]
pub(super) struct Answered {
    /// Its id.
    pub(super) id: RequestId,
    /// By when it had to be.
    pub(super) deadline: Option<Instant>,
    /// What is known of it, if somebody waits for the answer.
    pub(super) waited: Option<Call>,
    /// The thread in which the child has not heard the end of the turn that it
    /// answers, and takes it for that of the next one.
    pub(super) out_of_step: Option<String>,
}

/// All calls that the child knows.
#[derive(Debug, Default)]
pub(super) struct Calls {
    known: HashMap<RequestId, Known>,
    begun: u64,
    pub in_flight: usize,
    stale: usize,
}

impl Calls {
    pub(super) fn begin(&mut self, id: RequestId, thread: Option<String>, deadline: Instant) {
        self.begun += 1;
        self.in_flight += 1;
        let said = Said::default();
        let call = Known {
            thread,
            number: self.begun,
            turn: Turn::Awaited,
            erred: false,
            stage: Stage::InFlight { deadline, said },
        };
        self.known.insert(id, call);
    }

    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// How many have a turn that goes on and is not being ended.
    pub(super) fn unfinished(&self) -> usize {
        self.known.len() - self.stale
    }

    /// How many threads have a turn that goes on and is not being ended.
    pub(super) fn active_threads(&self) -> usize {
        let active = self.known.values().filter(|call| !call.stage.is_stale());
        let threads: HashSet<&str> = active.filter_map(|call| call.thread.as_deref()).collect();
        threads.len()
    }

    pub(super) fn is_known(&self, id: &RequestId) -> bool {
        self.known.contains_key(id)
    }

    /// By when the turn of a call has to end, if it is not being ended.
    pub(super) fn deadline(&self, id: &RequestId) -> Option<Instant> {
        match self.known.get(id)?.stage {
            Stage::InFlight { deadline, .. } | Stage::Unattended { deadline } => Some(deadline),
            Stage::Stale => None,
        }
    }

    /// Whether a turn goes on in a thread, or may yet begin and be ended: a prompt
    /// would become a part of it, and one of the two calls never have an answer.
    pub(super) fn is_busy(&self, thread: &str) -> bool {
        let mut of_thread = self.of_thread(thread);
        of_thread.any(|(_, call)| match call.stage {
            Stage::InFlight { .. } | Stage::Unattended { .. } => true,
            Stage::Stale => call.turn == Turn::Awaited,
        })
    }

    /// Whether a turn of the thread's has not ended, wanted or not.
    pub(super) fn has_turn(&self, thread: &str) -> bool {
        self.first_under_way(thread).is_some()
    }

    /// The thread of a call, once it is known.
    pub(super) fn thread(&self, id: &RequestId) -> Option<String> {
        self.known.get(id)?.thread.clone()
    }

    fn of_thread<'a>(
        &'a self,
        thread: &'a str,
    ) -> impl Iterator<Item = (&'a RequestId, &'a Known)> {
        let of_thread = move |call: &Known| call.thread.as_deref() == Some(thread);
        self.known.iter().filter(move |(_, call)| of_thread(call))
    }

    /// The call whose turn is the first of the thread's that has not ended.
    fn first_under_way<'a>(&'a self, thread: &'a str) -> Option<(&'a RequestId, &'a Known)> {
        let of_thread = self.of_thread(thread);
        of_thread
            .filter(|(_, call)| call.turn.is_under_way())
            .min_by_key(|(_, call)| call.number)
    }

    /// Whose something is that the child tells or asks under `id`, about `thread`:
    /// the call's own, or, if its turn is over, that of the latest call of its thread.
    pub(super) fn subject(&self, id: &RequestId, thread: Option<&str>) -> Option<RequestId> {
        let call = self.known.get(id)?;
        if !call.stage.is_stale() || call.turn != Turn::Over {
            return Some(id.clone());
        }
        self.of_thread(thread.or(call.thread.as_deref())?)
            .filter(|(_, call)| !call.stage.is_stale())
            .max_by_key(|(_, call)| call.number)
            .map(|(id, _)| id.clone())
    }

    /// Whose turn has ended: the first one's of the thread that was under way.
    fn whose_turn(&self, thread: &str) -> Option<RequestId> {
        self.first_under_way(thread).map(|(id, _)| id.clone())
    }

    /// The child has answered under `under`. `thread` is the one that the answer
    /// names, if it is the end of a turn. Whose answer it is.
    pub(super) fn answered(&mut self, under: &RequestId, thread: Option<&str>) -> Option<Answered> {
        let heard = |call: &Known| matches!(&call.turn, Turn::Completed(by) if by == under);
        let completed = self.known.iter().filter(|(_, call)| heard(call));
        let of = completed.min_by_key(|(_, call)| call.number);
        let of = of.map(|(id, _)| id.clone());
        let of = of.or_else(|| self.whose_turn(thread?));
        let of = of.or_else(|| self.subject(under, thread))?;
        let deadline = self.deadline(&of);
        let waited = self.leave(&of);
        let answered = self.forget(&of)?;
        let unheard = answered.erred && answered.turn.is_under_way();
        let out_of_step = answered.thread.clone().filter(|_| unheard);
        if of != *under {
            // The listener that has answered is gone, and that of the call which got
            // the answer listens on.
            let spent = self.known.get(under);
            if spent.is_some_and(|spent| spent.stage.is_stale() && spent.turn == Turn::Over) {
                self.forget(under);
            }
            self.keep_as_stale(of.clone(), answered, Turn::Over);
        }
        Some(Answered {
            id: of,
            deadline,
            waited,
            out_of_step,
        })
    }

    /// Lets a call come back early: its turn goes on.
    pub(super) fn leave(&mut self, id: &RequestId) -> Option<Call> {
        let known = self.known.get_mut(id)?;
        let Stage::InFlight { deadline, .. } = known.stage else {
            return None;
        };
        let unattended = Stage::Unattended { deadline };
        let Stage::InFlight { said, .. } = std::mem::replace(&mut known.stage, unattended) else {
            return None;
        };
        self.in_flight -= 1;
        Some(Call {
            thread: known.thread.clone(),
            partial: said.into_text(),
        })
    }

    /// Nobody wants a call any more, and its turn is being ended. What is known of
    /// it, if somebody waits for its answer.
    pub(super) fn end(&mut self, id: &RequestId) -> Option<Call> {
        let call = self.leave(id);
        if self.deadline(id).is_some()
            && let Some(known) = self.forget(id)
        {
            let turn = known.turn.clone();
            self.keep_as_stale(id.clone(), known, turn);
        }
        call
    }

    /// The calls whose turns go on, in the order in which they were made.
    pub(super) fn all_unfinished(&self) -> Vec<RequestId> {
        let mut calls: Vec<(u64, &RequestId)> = self
            .known
            .iter()
            .filter(|(_, call)| !call.stage.is_stale())
            .map(|(id, call)| (call.number, id))
            .collect();
        calls.sort_unstable();
        calls.into_iter().map(|(_, id)| id.clone()).collect()
    }

    /// The child is gone, and with it all that it knew. Those calls for which
    /// somebody waits.
    pub(super) fn take_all(&mut self) -> Vec<(RequestId, Call)> {
        let waited = self.all_unfinished().into_iter().filter_map(|id| {
            let call = self.leave(&id)?;
            Some((id, call))
        });
        let waited = waited.collect();
        self.known.clear();
        self.stale = 0;
        waited
    }

    /// The child tells which thread a call has. `true` if that is news.
    pub(super) fn set_thread(&mut self, id: &RequestId, thread: &str) -> bool {
        match self.known.get_mut(id) {
            Some(call) if call.thread.is_none() => {
                call.thread = Some(thread.to_owned());
                true
            }
            _ => false,
        }
    }

    /// A turn of the thread has begun: that of the first call which still awaits
    /// one. Its id, if nobody wants it any more and it has to be ended.
    pub(super) fn turn_began(&mut self, thread: &str) -> Option<RequestId> {
        let of_thread = |call: &Known| call.thread.as_deref() == Some(thread);
        let (id, call) = self
            .known
            .iter_mut()
            .filter(|(_, call)| of_thread(call) && call.turn == Turn::Awaited)
            .min_by_key(|(_, call)| call.number)?;
        call.turn = Turn::Begun;
        let unwanted = call.stage.is_stale().then(|| id.clone());
        let number = call.number;
        for call in self.known.values_mut() {
            let earlier = of_thread(call) && call.number < number;
            if earlier && call.stage.is_stale() && call.turn == Turn::Begun {
                call.turn = Turn::Over;
            }
        }
        unwanted
    }

    /// A turn of the thread was aborted: the first one. The child never answers its
    /// call.
    pub(super) fn turn_aborted(&mut self, thread: &str) -> Option<Answered> {
        let id = self.whose_turn(thread)?;
        let deadline = self.deadline(&id);
        let waited = self.leave(&id);
        let aborted = self.forget(&id)?;
        self.keep_as_stale(id.clone(), aborted, Turn::Over);
        Some(Answered {
            id,
            deadline,
            waited,
            out_of_step: None,
        })
    }

    /// The child was told of an error in the turn that is under way.
    pub(super) fn erred(&mut self, thread: &str) {
        let id = self.whose_turn(thread);
        if let Some(call) = id.and_then(|id| self.known.get_mut(&id)) {
            call.erred = true;
        }
    }

    /// Whether nobody waits for a call that the child still knows.
    pub(super) fn is_left(&self, id: &RequestId) -> bool {
        let call = self.known.get(id);
        call.is_some_and(|call| !matches!(call.stage, Stage::InFlight { .. }))
    }

    /// Whether the turn of a call that nobody wants any more has yet to begin.
    pub(super) fn may_yet_begin(&self, id: &RequestId) -> bool {
        let call = self.known.get(id);
        call.is_some_and(|call| call.stage.is_stale() && call.turn == Turn::Awaited)
    }

    /// That turn is not waited for any longer.
    pub(super) fn never_began(&mut self, id: &RequestId) {
        if self.may_yet_begin(id) {
            self.set_turn(Some(id.clone()), Turn::Over);
        }
    }

    /// A turn of the thread has completed, and the listener for `under` has heard
    /// of it.
    pub(super) fn turn_completed(&mut self, thread: &str, under: &RequestId) {
        let of = self.whose_turn(thread);
        self.set_turn(of, Turn::Completed(under.clone()));
    }

    fn set_turn(&mut self, id: Option<RequestId>, turn: Turn) {
        if let Some(call) = id.and_then(|id| self.known.get_mut(&id)) {
            call.turn = turn;
        }
    }

    pub(super) fn wrote(&mut self, id: &RequestId, item: &str, delta: &str) {
        if let Some(said) = self.said_in(id) {
            said.wrote(item, delta);
        }
    }

    pub(super) fn said(&mut self, id: &RequestId, message: &str) {
        if let Some(said) = self.said_in(id) {
            said.said(message);
        }
    }

    fn said_in(&mut self, id: &RequestId) -> Option<&mut Said> {
        match &mut self.known.get_mut(id)?.stage {
            Stage::InFlight { said, .. } => Some(said),
            _ => None,
        }
    }

    fn forget(&mut self, id: &RequestId) -> Option<Known> {
        let call = self.known.remove(id)?;
        match call.stage {
            Stage::InFlight { .. } => self.in_flight -= 1,
            Stage::Unattended { .. } => {}
            Stage::Stale => self.stale -= 1,
        }
        Some(call)
    }

    fn keep_as_stale(&mut self, id: RequestId, call: Known, turn: Turn) {
        if self.stale < STALE_LIMIT {
            self.stale += 1;
            let stage = Stage::Stale;
            self.known.insert(
                id,
                Known {
                    stage,
                    turn,
                    ..call
                },
            );
        }
    }

    /// How far each call is, in the order of their ids.
    #[cfg(test)]
    pub(super) fn describe(&self) -> String {
        let one = |(id, call): (&RequestId, &Known)| {
            let stage = match call.stage {
                Stage::InFlight { .. } => "in flight",
                Stage::Unattended { .. } => "unattended",
                Stage::Stale => "stale",
            };
            format!("{id} {stage}, {:?}", call.turn)
        };
        let mut all: Vec<String> = self.known.iter().map(one).collect();
        all.sort_unstable();
        all.join("; ")
    }
}
