//! The sessions, by their own name and by that of their thread.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use codex_protocol::codex::{ApprovalPolicy, Heard, ModelOptions, ThreadId};
use codex_protocol::rpc::RequestId;
use common::timestamp::Now;
use serde_json::Value;
use supervise::clock::now;
use tokio::sync::{oneshot, watch};
use tracing::Span;

use super::EngineError;
use super::backend::Running;
use super::command::{
    Alerted, Effective, Info, Open, Overrides, Prompt, SessionId, Settings, Start, View,
    manner_over,
};
use super::observer::{EngineObserver, Kind};
use crate::logic::session::{Effect, Fate, IDLE_POLL_INTERVAL, Patience, Session, State};
use crate::picture::PictureCopies;

/// How many sessions there may be at a time. For one more, the one gives way that
/// was not used for longest.
const SESSIONS: usize = 1000;

/// How many threads of sub-agents are known at a time.
const CHILDREN: usize = 10_000;

/// Of how many threads the settings are remembered whose session is over. Of a
/// thread beyond that Codex's rollout is left.
const REMEMBERED: usize = 10_000;

/// Hears of what a person may have to see to. It must not wait.
pub(super) type OnAlert = dyn Fn(Alerted) + Send + Sync;

/// Hears all that Codex says of a thread, as it comes. It must not wait.
pub(super) type OnNews = dyn Fn(&Heard<'_>) + Send + Sync;

/// A session and what the shell has to know about it.
pub(super) struct Entry {
    pub(super) id: SessionId,
    pub(super) thread: ThreadId,
    origin: Origin,
    inner: Mutex<Inner>,
    /// Is told of questions that are closed.
    observer: Arc<dyn EngineObserver>,
    on_alert: Arc<OnAlert>,
    on_news: OnceLock<Box<OnNews>>,
    /// Marks the lines of the log that are about it.
    pub(super) span: Span,
    revision: watch::Sender<u64>,
    /// Counts what is written to the log, and the revisions.
    news: watch::Sender<u64>,
    /// Who waits for the decision on a question of ours, by the name that it has in place
    /// of Codex's.
    decisions: Mutex<HashMap<RequestId, oneshot::Sender<Value>>>,
}

struct Inner {
    machine: Session,
    /// What the caller set, to be set again when the thread is taken up anew.
    settings: Settings,
    /// What is in effect, without the changes that are pending.
    effective: Effective,
    /// Changes of the settings that the next prompt is to bring.
    pending: Overrides,
    /// The app-server that has, or last had, the thread loaded.
    server: Running,
    loading: Loading,
    /// What Codex was given to look at last.
    pictures: PictureCopies,
}

impl Inner {
    fn poll_interval(&self) -> Option<Duration> {
        let settings = self.settings.with(&self.pending);
        let running = match settings.thread.approval_policy {
            Some(ApprovalPolicy::Never) => IDLE_POLL_INTERVAL,
            _ => self.machine.patience().poll_interval(),
        };
        self.machine.state().poll_interval(running)
    }
}

/// How a thread came to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// It was begun for us.
    Begun,
    /// It, or what it was forked from, was there before.
    Before,
}

/// Whether the thread is loaded in the app-server that had it last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loading {
    Loaded,
    Unloaded,
}

impl Entry {
    pub(super) fn new(
        thread: ThreadId,
        origin: Origin,
        (settings, effective): (Settings, Effective),
        server: Running,
        patience: Patience,
        observer: Arc<dyn EngineObserver>,
        on_alert: Arc<OnAlert>,
    ) -> Self {
        let machine = Session::new(thread.as_str(), patience, now());
        let id = SessionId::new();
        Self {
            observer,
            on_alert,
            on_news: OnceLock::new(),
            span: tracing::info_span!("session", %id, %thread),
            id,
            thread,
            origin,
            inner: Mutex::new(Inner {
                machine,
                settings,
                effective,
                pending: Overrides::default(),
                server,
                loading: Loading::Loaded,
                pictures: PictureCopies::default(),
            }),
            revision: watch::Sender::new(0),
            news: watch::Sender::new(0),
            decisions: Mutex::default(),
        }
    }

    /// The decision on a question that is ours and not Codex's. There is none if the turn
    /// ends first.
    pub(super) fn expect_decision(&self, request: RequestId) -> oneshot::Receiver<Value> {
        let (sender, decided) = oneshot::channel();
        let mut decisions = self.decisions();
        decisions.retain(|_, waiting| !waiting.is_closed());
        decisions.insert(request, sender);
        decided
    }

    /// Who waits for the decision on a question of ours.
    pub(super) fn decision(&self, request: &RequestId) -> Option<oneshot::Sender<Value>> {
        self.decisions().remove(request)
    }

    fn decisions(&self) -> MutexGuard<'_, HashMap<RequestId, oneshot::Sender<Value>>> {
        // A map is valid at every point.
        self.decisions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Has somebody hear the news of the thread; `false` if somebody does already.
    pub(super) fn tell_news_to(&self, on_news: Box<OnNews>) -> bool {
        self.on_news.set(on_news).is_ok()
    }

    pub(super) fn tell_news(&self, heard: &Heard<'_>) {
        if let Some(on_news) = self.on_news.get() {
            on_news(heard);
        }
    }

    /// Keeps pictures for Codex, in place of those of the prompt before.
    pub(super) fn keep_until_next_prompt(&self, pictures: PictureCopies) {
        self.lock().pictures = pictures;
    }

    /// Lets the machine take something in and tells those who watch.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Session, Now) -> T) -> T {
        let result = self.write(change);
        self.revision.send_modify(|revision| *revision += 1);
        result
    }

    /// Lets the machine take in something that changes nothing but the log.
    pub(super) fn write<T>(&self, change: impl FnOnce(&mut Session, Now) -> T) -> T {
        let result = self.look(change);
        self.news.send_modify(|news| *news += 1);
        result
    }

    /// Lets somebody look at the machine.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Session, Now) -> T) -> T {
        let (result, closed, alerts) = {
            let machine = &mut self.lock().machine;
            let result = look(machine, now());
            (result, machine.take_closed(), machine.take_alerts())
        };
        for alert in alerts {
            (self.on_alert)(Alerted {
                session: self.id.clone(),
                thread: self.thread.clone(),
                alert,
            });
        }
        if !closed.is_empty() {
            self.observer.closed(&self.thread, &closed);
        }
        result
    }

    pub(super) fn state(&self) -> State {
        self.lock().machine.state()
    }

    /// Notes that somebody is shown the open questions.
    pub(super) fn show_questions(&self) {
        if self.look(Session::show_questions) {
            // Their deadlines have moved.
            self.change(|_, _| ());
        }
    }

    pub(super) fn server(&self) -> Running {
        self.lock().server.clone()
    }

    /// What its turn `number` was for the thread.
    pub(super) fn kind_of_prompt(&self, number: u64) -> Kind {
        match (self.origin, number) {
            (Origin::Begun, 1) => Kind::First,
            _ => Kind::Reply,
        }
    }

    /// How it is to be taken up again once it is over.
    fn keepsake(&self) -> Start {
        let inner = self.lock();
        Start {
            settings: inner.settings.with(&inner.pending),
            patience: Some(inner.machine.patience()),
            tag: None,
            ..Start::default()
        }
    }

    /// Those that the next prompt is to bring included.
    pub(super) fn settings(&self) -> Settings {
        let inner = self.lock();
        inner.settings.with(&inner.pending)
    }

    /// The error for those who want something of a session that is over.
    pub(super) fn cancelled(&self) -> EngineError {
        EngineError::Cancelled {
            session: self.id.clone(),
            thread: self.thread.clone(),
        }
    }

    /// Has the next prompt change the settings.
    pub(super) fn set_pending(&self, overrides: Overrides, manner: ModelOptions) {
        let mut inner = self.lock();
        inner.pending = overrides.over(std::mem::take(&mut inner.pending));
        inner.settings.manner = manner_over(manner, inner.settings.manner);
    }

    /// What a prompt changes, with what was to be changed before.
    pub(super) fn with_pending(&self, overrides: Overrides) -> Overrides {
        overrides.over(self.lock().pending.clone())
    }

    /// Codex has taken a prompt, and with it its changes of the settings.
    pub(super) fn prompted(&self, prompt: &Prompt) {
        let mut inner = self.lock();
        inner.effective = inner.effective.with(&prompt.overrides);
        inner.settings.apply(prompt);
        inner.pending = Overrides::default();
    }

    /// Whether the thread can be prompted there as it is.
    pub(super) fn is_loaded_in(&self, server: &Running) -> bool {
        let inner = self.lock();
        inner.loading == Loading::Loaded && inner.server.1 == server.1
    }

    pub(super) fn now_loaded_in(&self, server: Running, effective: Effective) {
        let mut inner = self.lock();
        inner.server = server;
        inner.effective = effective;
        inner.loading = Loading::Loaded;
    }

    /// Codex turns out to have unloaded the thread.
    pub(super) fn outdate(&self) {
        self.lock().loading = Loading::Unloaded;
    }

    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    pub(super) fn watch_news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    pub(super) fn view(&self) -> View {
        self.show_questions();
        let revision = *self.revision.borrow();
        let mut inner = self.lock();
        inner.machine.used(now());
        let machine = &inner.machine;
        let open = machine.actions().iter().map(|action| Open {
            id: action.id.clone(),
            ask: action.ask.clone(),
            shown: action.shown(),
            expires: action.expires,
        });
        View {
            revision,
            state: machine.state(),
            turn: machine.turns(),
            turn_id: machine.turn_id().cloned(),
            progress: machine.progress(now().instant),
            spent: machine.spent(),
            actions: open.collect(),
            outcome: machine.outcome().cloned(),
        }
    }

    pub(super) fn info(&self) -> Info {
        let inner = self.lock();
        Info {
            session: self.id.clone(),
            thread: self.thread.clone(),
            settings: inner.settings.with(&inner.pending),
            effective: inner.effective.with(&inner.pending),
            view: inner.machine.view(now().instant),
            poll_interval: inner.poll_interval(),
        }
    }

    /// How long a client may well wait before it looks again; `None` if nothing will
    /// change by itself.
    pub(super) fn poll_interval(&self) -> Option<Duration> {
        self.lock().poll_interval()
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
    /// The sessions whose threads have begun these threads of sub-agents.
    by_child: HashMap<String, Arc<Entry>>,
    /// The ids in the order in which the sessions began.
    order: VecDeque<SessionId>,
    remembered: HashMap<ThreadId, Start>,
    /// The remembered threads, longest ago first.
    remembered_order: VecDeque<ThreadId>,
}

impl Tables {
    fn forget(&mut self, entry: &Arc<Entry>) {
        let is_it = |one: &Arc<Entry>| Arc::ptr_eq(one, entry);
        self.by_id.remove(&entry.id);
        self.order.retain(|id| *id != entry.id);
        self.by_child.retain(|_, parent| !is_it(parent));
        if self.by_thread.get(&entry.thread).is_some_and(is_it) {
            self.by_thread.remove(&entry.thread);
            self.remember(entry.thread.clone(), entry.keepsake());
        }
    }

    /// Forgets the session that is at nothing and was not used for longest.
    fn evict(&mut self) -> Option<Arc<Entry>> {
        let unused = |entry: &&Arc<Entry>| entry.look(|machine, _| !machine.has_turn());
        let since = |entry: &&Arc<Entry>| entry.look(|machine, _| machine.last_active());
        let entry = self.by_id.values().filter(unused).min_by_key(since)?;
        let entry = Arc::clone(entry);
        self.forget(&entry);
        Some(entry)
    }

    /// Leaves nothing of a session.
    fn erase(&mut self, entry: &Arc<Entry>) {
        self.forget(entry);
        if !self.by_thread.contains_key(&entry.thread) {
            self.remembered.remove(&entry.thread);
            self.remembered_order
                .retain(|thread| *thread != entry.thread);
        }
    }

    fn remember(&mut self, thread: ThreadId, start: Start) {
        if self.remembered.insert(thread.clone(), start).is_none() {
            self.remembered_order.push_back(thread);
        }
        while self.remembered_order.len() > REMEMBERED {
            if let Some(oldest) = self.remembered_order.pop_front() {
                self.remembered.remove(&oldest);
            }
        }
    }

    /// It stays remembered, as the thread may not be resumed after all.
    fn recall(&self, thread: &str) -> Option<Start> {
        self.remembered.get(thread).cloned()
    }
}

/// A session that was added, or is there already, and one that gave way.
pub(super) struct Added {
    pub(super) entry: Arc<Entry>,
    pub(super) evicted: Option<Arc<Entry>>,
}

/// There are too many sessions that are at work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Full;

/// All sessions.
#[derive(Default)]
pub(super) struct Sessions {
    tables: Mutex<Tables>,
}

impl Sessions {
    /// Adds a session. Returns the one that the thread has got in the meantime,
    /// if any. One that is cancelled gives way.
    pub(super) fn add(&self, entry: Entry) -> Result<Added, Full> {
        let mut tables = self.lock();
        if let Some(already) = tables.by_thread.get(&entry.thread)
            && already.state() != State::Cancelled
        {
            return Ok(Added {
                entry: Arc::clone(already),
                evicted: None,
            });
        }
        let evicted = match tables.by_id.len() >= SESSIONS {
            true => Some(tables.evict().ok_or(Full)?),
            false => None,
        };
        let entry = Arc::new(entry);
        tables.by_id.insert(entry.id.clone(), Arc::clone(&entry));
        tables
            .by_thread
            .insert(entry.thread.clone(), Arc::clone(&entry));
        tables.order.push_back(entry.id.clone());
        Ok(Added { entry, evicted })
    }

    /// Cancels and forgets what nobody has used for long. Returns what is to be
    /// done about it.
    pub(super) fn tidy(&self) -> Vec<(Arc<Entry>, Vec<Effect>)> {
        let mut to_do = Vec::new();
        for entry in self.all() {
            let (effects, fate) = entry.look(Session::tidy);
            if fate == Fate::Forget {
                self.forget(&entry);
            }
            if !effects.is_empty() {
                // Those who watch it are to know.
                entry.change(|_, _| ());
                to_do.push((entry, effects));
            }
        }
        to_do
    }

    fn forget(&self, entry: &Arc<Entry>) {
        self.lock().forget(entry);
    }

    /// Forgets a session, and how its thread was set.
    pub(super) fn erase(&self, entry: &Arc<Entry>) {
        self.lock().erase(entry);
    }

    /// A sub-agent of a session's thread has a thread of its own.
    pub(super) fn adopt(&self, child: &str, parent: &Arc<Entry>) {
        let mut tables = self.lock();
        if tables.by_child.len() < CHILDREN {
            tables.by_child.insert(child.to_owned(), Arc::clone(parent));
        }
    }

    /// The session that a question about a thread is for: its own, or that of the
    /// thread which has begun it.
    pub(super) fn responsible(&self, thread: &str) -> Option<Arc<Entry>> {
        let tables = self.lock();
        let own = tables.by_thread.get(thread);
        own.or_else(|| tables.by_child.get(thread)).cloned()
    }

    /// How a thread was whose session is over, if that is remembered.
    pub(super) fn recall(&self, thread: &str) -> Option<Start> {
        let tables = self.lock();
        match tables.by_thread.get(thread) {
            Some(entry) => Some(entry.keepsake()),
            None => tables.recall(thread),
        }
    }

    /// Whether it is known how a thread was set: it has a session, or had one.
    pub(super) fn remembers(&self, thread: &str) -> bool {
        let tables = self.lock();
        tables.by_thread.contains_key(thread) || tables.remembered.contains_key(thread)
    }

    pub(super) fn by_id(&self, id: &SessionId) -> Option<Arc<Entry>> {
        self.lock().by_id.get(id).cloned()
    }

    pub(super) fn by_thread(&self, thread: &str) -> Option<Arc<Entry>> {
        self.lock().by_thread.get(thread).cloned()
    }

    /// Whether a session is the one that its thread has now.
    pub(super) fn is_current(&self, entry: &Arc<Entry>) -> bool {
        let current = self.by_thread(entry.thread.as_str());
        current.is_some_and(|current| Arc::ptr_eq(&current, entry))
    }

    /// All of them, in the order in which they began.
    pub(super) fn all(&self) -> Vec<Arc<Entry>> {
        let tables = self.lock();
        let known = tables.order.iter().filter_map(|id| tables.by_id.get(id));
        known.cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        // The maps are written together and nothing in between can panic.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
