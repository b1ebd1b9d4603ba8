//! The sessions, by their own ID and by that of their thread.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use codex_protocol::codex::ThreadId;
use common::sync::lock;

use super::command::{SessionId, StartThread};
use super::entry::Entry;
use crate::logic::session::{Effect, Session, State, TidyOutcome};

/// The most sessions at a time. For one more, the least recently used idle session is
/// removed.
const SESSIONS: usize = 1000;

/// The most IDs of earlier sessions that are remembered.
const UNLISTED: usize = 10_000;

/// The most threads of sub-agents that are known at a time.
const CHILDREN: usize = 10_000;

/// The most threads whose settings are remembered after their session has ended; each takes about
/// 1.3 KiB. For further threads, only Codex's rollout remains, as it does for all threads when the
/// process ends.
const REMEMBERED: usize = 500;

#[derive(Default)]
struct Tables {
    by_id: HashMap<SessionId, Arc<Entry>>,
    by_thread: HashMap<ThreadId, Arc<Entry>>,
    /// The sessions whose threads started these threads of sub-agents.
    by_child: HashMap<String, Arc<Entry>>,
    /// The IDs in the order in which the sessions began.
    order: VecDeque<SessionId>,
    /// The IDs that were removed from the list last.
    unlisted: VecDeque<SessionId>,
    remembered: HashMap<ThreadId, StartThread>,
    /// The remembered threads, in the order in which their last sessions ended.
    remembered_order: VecDeque<ThreadId>,
}

impl Tables {
    fn forget(&mut self, entry: &Arc<Entry>) {
        let is_it = |one: &Arc<Entry>| Arc::ptr_eq(one, entry);
        entry.forget_kept();
        self.unlist(entry);
        self.by_child.retain(|_, parent| !is_it(parent));
        if self.by_thread.get(&entry.thread).is_some_and(is_it) {
            self.by_thread.remove(&entry.thread);
            self.remember(entry.thread.clone(), entry.resume_settings());
        }
    }

    /// Removes a session from the list. Its thread and those of its sub-agents stay known.
    fn unlist(&mut self, entry: &Arc<Entry>) {
        if self.by_id.remove(&entry.id).is_some() {
            self.order.retain(|id| *id != entry.id);
            self.note_unlisted(entry.id.clone());
        }
    }

    fn note_unlisted(&mut self, id: SessionId) {
        self.unlisted.push_back(id);
        if self.unlisted.len() > UNLISTED {
            self.unlisted.pop_front();
        }
    }

    /// Removes the least recently used session without a turn from the list.
    fn evict(&mut self) -> Option<Arc<Entry>> {
        let unused = |entry: &&Arc<Entry>| entry.access(|machine, _| !machine.has_turn());
        let since = |entry: &&Arc<Entry>| entry.access(|machine, _| machine.last_active());
        let entry = self.by_id.values().filter(unused).min_by_key(since)?;
        let entry = Arc::clone(entry);
        self.unlist(&entry);
        Some(entry)
    }

    /// Removes a session and its remembered settings.
    fn erase(&mut self, entry: &Arc<Entry>) {
        self.forget(entry);
        if !self.by_thread.contains_key(&entry.thread) {
            self.remembered.remove(&entry.thread);
            self.remembered_order
                .retain(|thread| *thread != entry.thread);
        }
    }

    fn remember(&mut self, thread: ThreadId, start: StartThread) {
        if self.remembered.insert(thread.clone(), start).is_some() {
            self.remembered_order.retain(|other| *other != thread);
        }
        self.remembered_order.push_back(thread);
        while self.remembered_order.len() > REMEMBERED {
            if let Some(oldest) = self.remembered_order.pop_front() {
                self.remembered.remove(&oldest);
            }
        }
    }

    /// The settings stay remembered, as resuming the thread may fail.
    fn recall(&self, thread: &str) -> Option<StartThread> {
        self.remembered.get(thread).cloned()
    }
}

/// The session of a thread, after an attempt to add one.
pub(super) enum AddedSession {
    /// The session was added. Holds it, and the session that was removed from the list to make
    /// room. The thread of the latter is known until [`Sessions::forget`].
    New {
        entry: Arc<Entry>,
        evicted: Option<Arc<Entry>>,
    },
    /// Another session of the thread was added in the meantime.
    Existing(Arc<Entry>),
}

/// There are too many sessions with a running turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct TooManySessions;

/// All sessions.
#[derive(Default)]
pub(super) struct Sessions {
    tables: Mutex<Tables>,
}

impl Sessions {
    /// Adds a session. If its thread has got another one in the meantime, returns that one, unless
    /// it is cancelled: a cancelled session is replaced.
    pub(super) fn add(&self, entry: Entry) -> Result<AddedSession, TooManySessions> {
        let mut tables = lock(&self.tables);
        if let Some(already) = tables.by_thread.get(&entry.thread)
            && already.state() != State::Cancelled
        {
            return Ok(AddedSession::Existing(Arc::clone(already)));
        }
        let evicted = match tables.by_id.len() >= SESSIONS {
            true => Some(tables.evict().ok_or(TooManySessions)?),
            false => None,
        };
        let entry = Arc::new(entry);
        tables.by_id.insert(entry.id.clone(), Arc::clone(&entry));
        tables
            .by_thread
            .insert(entry.thread.clone(), Arc::clone(&entry));
        tables.order.push_back(entry.id.clone());
        Ok(AddedSession::New { entry, evicted })
    }

    /// Cancels and forgets sessions that have not been used for long. Returns the effects
    /// to perform.
    pub(super) fn tidy(&self) -> Vec<(Arc<Entry>, Vec<Effect>)> {
        let mut to_do = Vec::new();
        for entry in self.all() {
            let (effects, outcome) = entry.access(Session::tidy);
            if outcome == TidyOutcome::Forget {
                self.forget(&entry);
            }
            if !effects.is_empty() {
                // Wakes the watchers.
                entry.change(|_, _| ());
                to_do.push((entry, effects));
            }
        }
        to_do
    }

    /// Removes a session. The settings of its thread stay remembered.
    pub(super) fn forget(&self, entry: &Arc<Entry>) {
        lock(&self.tables).forget(entry);
    }

    /// Removes a session and the settings of its thread.
    pub(super) fn erase(&self, entry: &Arc<Entry>) {
        lock(&self.tables).erase(entry);
    }

    /// Registers the thread of a sub-agent that a session's thread started. If several sessions
    /// claim it, it stays with the first one that is not cancelled, since a step may also name
    /// sub-agents of other threads. Returns whether it is new to the session.
    pub(super) fn adopt(&self, child: &str, parent: &Arc<Entry>) -> bool {
        let mut tables = lock(&self.tables);
        let known = tables.by_child.get(child);
        let is_free = known.is_none_or(|parent| parent.state() == State::Cancelled);
        if !is_free || tables.by_child.len() >= CHILDREN {
            return false;
        }
        let before = tables.by_child.insert(child.to_owned(), Arc::clone(parent));
        before.is_none_or(|before| !Arc::ptr_eq(&before, parent))
    }

    /// The threads of sub-agents of a session's thread.
    pub(super) fn children(&self, parent: &Arc<Entry>) -> Vec<String> {
        let tables = lock(&self.tables);
        let all = tables.by_child.iter();
        let own = all.filter(|(_, entry)| Arc::ptr_eq(entry, parent));
        own.map(|(child, _)| child.clone()).collect()
    }

    /// The session that answers for the questions of a thread: its own session, or for a sub-agent
    /// the session whose thread started it.
    pub(super) fn responsible(&self, thread: &str) -> Option<Arc<Entry>> {
        let tables = lock(&self.tables);
        let own = tables.by_thread.get(thread);
        own.or_else(|| tables.by_child.get(thread)).cloned()
    }

    /// The settings with which a thread can be resumed, if they are remembered.
    pub(super) fn recall(&self, thread: &str) -> Option<StartThread> {
        let tables = lock(&self.tables);
        match tables.by_thread.get(thread) {
            Some(entry) => Some(entry.resume_settings()),
            None => tables.recall(thread),
        }
    }

    /// Whether the thread's settings are known because it has, or had, a session.
    pub(super) fn remembers(&self, thread: &str) -> bool {
        let tables = lock(&self.tables);
        tables.by_thread.contains_key(thread) || tables.remembered.contains_key(thread)
    }

    pub(super) fn by_id(&self, id: &SessionId) -> Option<Arc<Entry>> {
        lock(&self.tables).by_id.get(id).cloned()
    }

    /// Whether a session with this ID was listed here, and has been removed since.
    pub(super) fn was_listed(&self, id: &SessionId) -> bool {
        lock(&self.tables).unlisted.contains(id)
    }

    pub(super) fn by_thread(&self, thread: &str) -> Option<Arc<Entry>> {
        lock(&self.tables).by_thread.get(thread).cloned()
    }

    /// Whether a session is the current one of its thread.
    pub(super) fn is_current(&self, entry: &Arc<Entry>) -> bool {
        let current = self.by_thread(entry.thread.as_str());
        current.is_some_and(|current| Arc::ptr_eq(&current, entry))
    }

    /// All sessions, in the order of their beginning.
    pub(super) fn all(&self) -> Vec<Arc<Entry>> {
        let tables = lock(&self.tables);
        let known = tables.order.iter().filter_map(|id| tables.by_id.get(id));
        known.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(number: usize) -> ThreadId {
        ThreadId::parse(&format!("01a200a4-af16-7971-bdb2-{number:012x}")).unwrap()
    }

    #[test]
    fn threads_that_were_used_last_are_remembered() {
        let mut tables = Tables::default();
        for number in 0..REMEMBERED {
            tables.remember(thread(number), StartThread::default());
        }
        tables.remember(thread(0), StartThread::default());
        tables.remember(thread(REMEMBERED), StartThread::default());
        let forgotten =
            (0..=REMEMBERED).filter(|number| tables.recall(thread(*number).as_str()).is_none());
        assert_eq!(forgotten.collect::<Vec<_>>(), [1]);
        assert_eq!(tables.remembered_order.len(), REMEMBERED);
    }

    #[test]
    fn ids_of_sessions_that_are_no_longer_listed_are_bounded() {
        let sessions = Sessions::default();
        let id = |number: usize| SessionId::named(&format!("sess_{number}"));
        for number in 0..=UNLISTED {
            lock(&sessions.tables).note_unlisted(id(number));
        }
        assert!(!sessions.was_listed(&id(0)));
        assert!(sessions.was_listed(&id(1)) && sessions.was_listed(&id(UNLISTED)));
    }
}
