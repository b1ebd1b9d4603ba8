//! The sessions, by their own name and by that of their thread.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use codex_mcp_core::session::{Session, State};
use codex_mcp_protocol::codex::{ThreadId, ThreadSettings};
use tokio::sync::watch;
use tokio::time::Instant;

use super::backend::Running;
use super::command::{Open, SessionId, View};

/// A session that nobody has used for this long is put to rest (30 min): Codex
/// may unload its thread, and a reply takes it up again with its settings.
const REST_AFTER: Duration = Duration::from_secs(30 * 60);

/// How many sessions are remembered at most, those at rest included. Of a thread
/// beyond that Codex's rollout is left.
const SESSIONS: usize = 10_000;

/// A session and what the shell has to know about it.
pub(super) struct Entry {
    pub(super) id: SessionId,
    pub(super) thread: ThreadId,
    /// What the caller set, to be set again when the thread is taken up anew.
    pub(super) settings: ThreadSettings,
    inner: Mutex<Inner>,
    revision: watch::Sender<u64>,
}

struct Inner {
    machine: Session,
    /// The app-server that has, or last had, the thread loaded.
    server: Running,
    rest: Rest,
    used: Instant,
}

/// Whether Codex tells us of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    AtWork,
    AtRest,
}

impl Entry {
    pub(super) fn new(
        thread: ThreadId,
        settings: ThreadSettings,
        server: Running,
        approval_timeout: Duration,
    ) -> Self {
        Self {
            id: SessionId::new(),
            thread,
            settings,
            inner: Mutex::new(Inner {
                machine: Session::new(approval_timeout),
                server,
                rest: Rest::AtWork,
                used: Instant::now(),
            }),
            revision: watch::Sender::new(0),
        }
    }

    /// Lets the machine take something in and tells those who watch.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Session) -> T) -> T {
        let result = self.change_quietly(change);
        self.revision.send_modify(|revision| *revision += 1);
        result
    }

    /// Lets the machine take in something that nobody waits for.
    pub(super) fn change_quietly<T>(&self, change: impl FnOnce(&mut Session) -> T) -> T {
        change(&mut self.lock().machine)
    }

    pub(super) fn server(&self) -> Running {
        self.lock().server.clone()
    }

    /// Whether the thread can be prompted there as it is.
    pub(super) fn is_loaded_in(&self, server: &Running) -> bool {
        let inner = self.lock();
        inner.rest == Rest::AtWork && inner.server.1 == server.1
    }

    pub(super) fn now_loaded_in(&self, server: Running) {
        let mut inner = self.lock();
        inner.server = server;
        inner.rest = Rest::AtWork;
        inner.used = Instant::now();
    }

    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    pub(super) fn view(&self) -> View {
        let revision = *self.revision.borrow();
        let mut inner = self.lock();
        inner.used = Instant::now();
        let machine = &inner.machine;
        let (steps, doing) = machine.progress();
        View {
            revision,
            state: machine.state(),
            turn: machine.turns(),
            turn_id: machine.turn_id().cloned(),
            progress: (steps, doing.to_owned()),
            actions: machine
                .actions()
                .iter()
                .map(|action| Open {
                    id: action.id.clone(),
                    ask: action.ask.clone(),
                })
                .collect(),
            outcome: machine.outcome().cloned(),
        }
    }

    /// Puts a session to rest that nobody has used for long; `false` if it is in
    /// use, or at rest already.
    fn put_to_rest(&self, now: Instant) -> bool {
        let mut inner = self.lock();
        let idle = matches!(inner.machine.state(), State::Idle | State::Lost);
        let unused = now.duration_since(inner.used) > REST_AFTER;
        if !idle || !unused || inner.rest == Rest::AtRest {
            return false;
        }
        inner.rest = Rest::AtRest;
        inner.machine.forget_outcome();
        true
    }

    fn is_at_rest(&self) -> bool {
        self.lock().rest == Rest::AtRest
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A machine is valid after every step, also one that panicked.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Tables {
    by_id: HashMap<SessionId, Arc<Entry>>,
    by_thread: HashMap<ThreadId, Arc<Entry>>,
}

/// All sessions.
#[derive(Default)]
pub(super) struct Sessions {
    tables: Mutex<Tables>,
}

impl Sessions {
    /// Adds a session. Returns the one that the thread has got in the meantime,
    /// if any.
    pub(super) fn add(&self, entry: Entry) -> Arc<Entry> {
        let mut tables = self.lock();
        if let Some(already) = tables.by_thread.get(&entry.thread) {
            return Arc::clone(already);
        }
        if tables.by_id.len() >= SESSIONS {
            tables.by_id.retain(|_, entry| !entry.is_at_rest());
            tables.by_thread.retain(|_, entry| !entry.is_at_rest());
        }
        let entry = Arc::new(entry);
        tables.by_id.insert(entry.id.clone(), Arc::clone(&entry));
        tables
            .by_thread
            .insert(entry.thread.clone(), Arc::clone(&entry));
        entry
    }

    /// Puts those to rest that nobody has used for long, and returns them.
    pub(super) fn put_to_rest(&self) -> Vec<Arc<Entry>> {
        let now = Instant::now();
        let mut sessions = self.all();
        sessions.retain(|entry| entry.put_to_rest(now));
        sessions
    }

    pub(super) fn by_id(&self, id: &SessionId) -> Option<Arc<Entry>> {
        self.lock().by_id.get(id).cloned()
    }

    pub(super) fn by_thread(&self, thread: &str) -> Option<Arc<Entry>> {
        self.lock().by_thread.get(thread).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Entry>> {
        self.lock().by_id.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        // Both maps are written together and nothing in between can panic.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
