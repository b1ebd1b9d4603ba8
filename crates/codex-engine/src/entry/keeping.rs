//! The state of a session that the guard of its app-server stores for the next host, and what an
//! earlier host has stored.

use std::sync::Mutex;

use codex_protocol::rpc::RequestId;
use common::sync::lock;
use supervise::adoptable::Keeper;
use supervise::clock::now;

use super::super::backend::Running;
use super::super::kept::{KeptSession, KeptSteps, keep_as, keys};
use super::{Entry, Owner};
use crate::logic::session::{Session, SessionRecord};

/// The most sub-agents of a session that the next host knows.
const CHILDREN: usize = 100;

/// The state of a session for the next host, as far as it is not in its machine.
#[derive(Default)]
pub(super) struct Kept {
    /// The last stored [`KeptSteps`], as JSON.
    steps: String,
    /// The IDs of Codex's requests for calls of our tools that are being executed.
    pub(super) calls: Vec<RequestId>,
    /// The number of the last turn that a call or a task has begun, and which it was.
    begun_by: Option<(u64, String)>,
    /// The latest threads of its sub-agents, oldest first.
    children: Vec<String>,
    /// The record of an earlier host, until the session is restored.
    record: Option<SessionRecord>,
    /// The number of the turn that an earlier host has begun and not seen end.
    continued_turn: Option<u64>,
    repetition: Repetition,
}

/// When Codex repeats the open questions of an earlier host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Repetition {
    /// As the threads of the session and of its sub-agents are resumed.
    Pending,
    /// Now, as all are resumed.
    Due,
    /// No more: what it has not repeated is not open any more.
    #[default]
    Over,
}

impl Entry {
    /// A session of an earlier host. It has no client, and its machine waits for the last turn.
    pub(crate) fn restored(kept: KeptSession, steps: KeptSteps, server: Running) -> Self {
        let KeptSession {
            session,
            thread,
            origin,
            settings,
            effective,
            pending,
            timeouts,
            sandbox_bound,
            client,
            children,
        } = kept;
        let KeptSteps {
            record,
            calls,
            begun_by,
            ..
        } = steps;
        let machine = Session::restored(thread.as_str(), timeouts, record.clone(), now());
        let owner = Owner {
            sandbox_bound,
            client,
            ..Owner::default()
        };
        let kept = Kept {
            steps: String::new(),
            calls,
            begun_by,
            children,
            continued_turn: record.is_running().then(|| record.turns()),
            record: Some(record),
            repetition: Repetition::Pending,
        };
        let names = (session, thread, origin);
        Self {
            kept: Mutex::new(kept),
            ..Self::with(
                names,
                (settings, effective, pending),
                server,
                machine,
                owner,
            )
        }
    }

    /// The record of an earlier host, until the session is [restored](Self::finish_restoring).
    pub(crate) fn earlier_record(&self) -> Option<SessionRecord> {
        lock(&self.kept).record.clone()
    }

    /// The number of turns of a session that is not restored yet and had no running turn when its earlier
    /// host ended; `None` for other sessions. Until it is restored, its state machine has a turn.
    pub(super) fn turns_before_idle(&self) -> Option<u64> {
        let kept = lock(&self.kept);
        let idle = kept.record.as_ref().filter(|record| !record.is_running());
        idle.map(SessionRecord::turns)
    }

    /// Notes that the session now has all that Codex knows about it.
    pub(crate) fn finish_restoring(&self) {
        lock(&self.kept).record = None;
        self.keep();
        self.revision.send_modify(|revision| *revision += 1);
    }

    pub(crate) fn repetition(&self) -> Repetition {
        lock(&self.kept).repetition
    }

    pub(crate) fn set_repetition(&self, repetition: Repetition) {
        lock(&self.kept).repetition = repetition;
        self.revision.send_modify(|revision| *revision += 1);
    }

    /// The threads of its sub-agents, as far as the next host is to know them.
    pub(crate) fn kept_children(&self) -> Vec<String> {
        lock(&self.kept).children.clone()
    }

    /// Notes the thread of a new sub-agent.
    pub(crate) fn keep_child(&self, child: &str) {
        {
            let children = &mut lock(&self.kept).children;
            if children.len() == CHILDREN {
                children.remove(0);
            }
            children.push(child.to_owned());
        }
        self.keep();
    }

    /// The running turn, if an earlier host has begun it.
    pub(crate) fn continued_turn(&self) -> Option<u64> {
        let turn = lock(&self.kept).continued_turn?;
        let runs =
            self.access(|machine, _| machine.state().is_at_work() && machine.turns() == turn);
        runs.then_some(turn)
    }

    /// Notes the call or the task that has begun a turn.
    pub(crate) fn begun_by(&self, turn: u64, origin: Option<String>) {
        lock(&self.kept).begun_by = origin.map(|origin| (turn, origin));
        self.keep_steps();
    }

    /// Forgets the call or task that began this turn, because the turn has failed to begin.
    pub(crate) fn forget_origin(&self, turn: u64) {
        // A later turn may have begun meanwhile.
        lock(&self.kept)
            .begun_by
            .take_if(|(begun, _)| *begun == turn);
        self.keep_steps();
    }

    /// The latest turn, if this call or task has begun it.
    pub(crate) fn turn_begun_by(&self, origin: &str) -> Option<u64> {
        let (turn, by) = lock(&self.kept).begun_by.clone()?;
        let is_latest = self.access(|machine, _| machine.turns()) == turn;
        (by == origin && is_latest).then_some(turn)
    }

    /// Notes that a call of one of our tools begins; returns `false` if it had begun before.
    pub(crate) async fn begin_call(&self, request: &RequestId) -> bool {
        let Some(keeper) = self.keeper() else {
            return true;
        };
        {
            let mut kept = lock(&self.kept);
            if kept.calls.contains(request) {
                return false;
            }
            kept.calls.push(request.clone());
        }
        self.keep_steps();
        keeper.flush().await;
        true
    }

    /// Returns whether this host or an earlier one has noted the beginning of this tool call.
    pub(crate) fn has_begun_call(&self, request: &RequestId) -> bool {
        lock(&self.kept).calls.contains(request)
    }

    /// Waits until the guard has received all values.
    pub(crate) async fn flush_kept(&self) {
        if let Some(keeper) = self.keeper() {
            keeper.flush().await;
        }
    }

    /// Notes that a call of one of our tools is over: Codex has its answer, or expects none any
    /// more.
    pub(crate) fn end_call(&self, request: &RequestId) {
        lock(&self.kept).calls.retain(|call| call != request);
        self.keep_steps();
    }

    fn keeper(&self) -> Option<Keeper> {
        lock(&self.inner).server.0.keeper().cloned()
    }

    /// Stores all values of the session in the guard.
    pub(crate) fn keep(&self) {
        let Some(keeper) = self.keeper() else { return };
        let owner = self.owner();
        let children = self.kept_children();
        let kept = {
            let inner = lock(&self.inner);
            KeptSession {
                session: self.id.clone(),
                thread: self.thread.clone(),
                origin: self.origin,
                settings: inner.settings.clone(),
                effective: inner.effective.clone(),
                pending: inner.pending.clone(),
                timeouts: inner.machine.timeouts(),
                sandbox_bound: owner.sandbox_bound,
                client: owner.client,
                children,
            }
        };
        let [settings, _] = keys(&self.id);
        keep_as(&keeper, &settings, &kept);
        lock(&self.kept).steps.clear();
        self.keep_steps();
    }

    /// Stores the turns of the session in the guard, if they have changed.
    pub(super) fn keep_steps(&self) {
        let Some(keeper) = self.keeper() else { return };
        let mut kept = lock(&self.kept);
        if kept.record.is_some() {
            // The session is not restored yet.
            return;
        }
        let Some(record) = lock(&self.inner).machine.record() else {
            kept.steps.clear();
            return self.forget_kept();
        };
        let steps = KeptSteps {
            thread: Some(self.thread.clone()),
            record,
            calls: kept.calls.clone(),
            begun_by: kept.begun_by.clone(),
        };
        let [_, key] = keys(&self.id);
        if let Ok(steps) = serde_json::to_string(&steps)
            && steps != kept.steps
        {
            keeper.keep(&key, steps.clone());
            kept.steps = steps;
        }
    }

    /// Removes the values of the session from the guard.
    pub(crate) fn forget_kept(&self) {
        if let Some(keeper) = self.keeper() {
            for key in keys(&self.id) {
                keeper.forget(&key);
            }
        }
    }
}
