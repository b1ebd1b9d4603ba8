//! The sessions, by their own ID and by that of their thread.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use codex_protocol::codex::{ApprovalPolicy, ModelOptions, ThreadId, ThreadNotification};
use codex_protocol::rpc::RequestId;
use common::timestamp::Now;
use serde::Serialize;
use serde_json::Value;
use supervise::adoptable::Keeper;
use supervise::clock::now;
use tokio::sync::{oneshot, watch};
use tracing::Span;

use super::backend::Running;
use super::command::{
    EffectiveSettings, OpenQuestion, Overrides, Prompt, SessionAlert, SessionId, SessionInfo,
    Settings, StartThread, TurnView, overlay_model_options,
};
use super::error::EngineError;
use super::kept::{self, KeptSession, KeptSteps, Origin};
use super::observer::{EngineObserver, InputKind, NoObserver};
use super::thread_tools::{NoTools, ThreadTools};
use crate::logic::session::{
    Effect, Fate, IDLE_POLL_INTERVAL, Session, SessionRecord, State, Timeouts,
};
use crate::picture::PictureCopies;

/// The most sessions at a time. For one more, the least recently used idle session is
/// removed.
const SESSIONS: usize = 1000;

/// The most threads of sub-agents that are known at a time.
const CHILDREN: usize = 10_000;

/// The most threads whose settings are remembered after the end of their session. Of
/// further threads only Codex's rollout remains.
const REMEMBERED: usize = 10_000;

/// Receives alerts. It must not block.
pub(super) type OnAlert = dyn Fn(SessionAlert) + Send + Sync;

/// Receives all notifications about a thread as they arrive. It must not block.
pub(super) type OnNotification = dyn Fn(&ThreadNotification<'_>) + Send + Sync;

/// What a session has from the engine that has opened it.
#[derive(Clone)]
pub(super) struct Owner {
    /// Keeps a record.
    pub(super) observer: Arc<dyn EngineObserver>,
    pub(super) on_alert: Arc<OnAlert>,
    /// The tools of its thread, beside Codex's own.
    pub(super) tools: Arc<dyn ThreadTools>,
    /// The setting that keeps commands in the sandbox, if there is one.
    pub(super) sandbox_bound: Option<String>,
    /// The ID of its client, by which it is recognised by the next host.
    pub(super) client: Option<String>,
    /// Differs between engines.
    mark: Arc<()>,
}

impl Owner {
    /// Whether this is the same engine.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.mark, &other.mark)
    }
}

impl Default for Owner {
    fn default() -> Self {
        Self {
            observer: Arc::new(NoObserver),
            on_alert: Arc::new(drop),
            tools: Arc::new(NoTools),
            sandbox_bound: None,
            client: None,
            mark: Arc::new(()),
        }
    }
}

/// A session and the data that the engine keeps about it.
pub(super) struct Entry {
    pub(super) id: SessionId,
    pub(super) thread: ThreadId,
    origin: Origin,
    inner: Mutex<Inner>,
    owner: Mutex<Owner>,
    on_notification: OnceLock<Box<OnNotification>>,
    /// The span of its log lines.
    pub(super) span: Span,
    revision: watch::Sender<u64>,
    /// The number of writes to the event log, and of revisions.
    news: watch::Sender<u64>,
    /// The receivers of decisions on questions of ours, by the ID that such a question
    /// has in place of Codex's.
    decisions: Mutex<HashMap<RequestId, oneshot::Sender<Value>>>,
    kept: Mutex<Kept>,
}

/// What is kept of a session for the next host.
#[derive(Default)]
struct Kept {
    /// The last value for its steps.
    steps: String,
    /// The calls of our tools that have been begun in the turn.
    calls: Vec<RequestId>,
    /// The turn that a client's call has begun last, and the call.
    begun_by: Option<(u64, String)>,
    /// The record of an earlier host, until the session is restored.
    record: Option<SessionRecord>,
}

struct Inner {
    machine: Session,
    /// The settings that the caller requested, to be set again when the thread is
    /// resumed.
    settings: Settings,
    /// The effective settings, without the pending changes.
    effective: EffectiveSettings,
    /// Changes of the settings that the next prompt will make.
    pending: Overrides,
    /// The app-server that has, or last had, the thread loaded.
    server: Running,
    load_state: LoadState,
    /// The pictures of the last prompt.
    pictures: PictureCopies,
}

impl Inner {
    fn poll_interval(&self) -> Option<Duration> {
        let settings = self.settings.with(&self.pending);
        let running = match settings.thread.approval_policy {
            Some(ApprovalPolicy::Never) => IDLE_POLL_INTERVAL,
            _ => self.machine.timeouts().poll_interval(),
        };
        self.machine.state().poll_interval(running)
    }
}

/// Whether the thread is loaded in its last app-server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoadState {
    Loaded,
    Unloaded,
}

impl Entry {
    pub(super) fn new(
        thread: ThreadId,
        origin: Origin,
        (settings, effective): (Settings, EffectiveSettings),
        server: Running,
        timeouts: Timeouts,
        owner: Owner,
    ) -> Self {
        let machine = Session::new(thread.as_str(), timeouts, now());
        Self::with(
            (SessionId::new(), thread, origin),
            (settings, effective, Overrides::default()),
            server,
            machine,
            owner,
        )
    }

    /// A session of an earlier host. It has no client, and its machine waits for the last turn.
    pub(super) fn restored(kept: KeptSession, steps: KeptSteps, server: Running) -> Self {
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
        } = kept;
        let KeptSteps {
            record,
            calls,
            begun_by,
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
            record: Some(record),
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

    fn with(
        (id, thread, origin): (SessionId, ThreadId, Origin),
        (settings, effective, pending): (Settings, EffectiveSettings, Overrides),
        server: Running,
        machine: Session,
        owner: Owner,
    ) -> Self {
        Self {
            owner: Mutex::new(owner),
            kept: Mutex::default(),
            on_notification: OnceLock::new(),
            span: tracing::info_span!("session", %id, %thread),
            id,
            thread,
            origin,
            inner: Mutex::new(Inner {
                machine,
                settings,
                effective,
                pending,
                server,
                load_state: LoadState::Loaded,
                pictures: PictureCopies::default(),
            }),
            revision: watch::Sender::new(0),
            news: watch::Sender::new(0),
            decisions: Mutex::default(),
        }
    }

    /// What the session has from the engine that has opened it.
    pub(super) fn owner(&self) -> Owner {
        lock(&self.owner).clone()
    }

    /// Whether it was left by an earlier host that had this client.
    pub(super) fn is_left_by(&self, client: &str) -> bool {
        let is_waiting = lock(&self.kept).record.is_some();
        is_waiting && lock(&self.owner).client.as_deref() == Some(client)
    }

    /// Gives the session to the engine of its client. An earlier bound stays.
    pub(super) fn set_owner(&self, next: Owner) {
        let mut owner = lock(&self.owner);
        *owner = Owner {
            sandbox_bound: owner.sandbox_bound.take().or(next.sandbox_bound),
            ..next
        };
    }

    /// The record of an earlier host, until the session is [restored](Self::finish_restoring).
    pub(super) fn earlier_record(&self) -> Option<SessionRecord> {
        lock(&self.kept).record.clone()
    }

    /// The session has all that Codex knows about it.
    pub(super) fn finish_restoring(&self) {
        lock(&self.kept).record = None;
        self.keep();
    }

    /// Notes the client's call that has begun a turn.
    pub(super) fn begun_by(&self, turn: u64, call: Option<String>) {
        lock(&self.kept).begun_by = call.map(|call| (turn, call));
        self.keep_steps();
    }

    /// The latest turn, if this call of the client has begun it.
    pub(super) fn turn_of_call(&self, call: &str) -> Option<u64> {
        let (turn, by) = lock(&self.kept).begun_by.clone()?;
        let is_latest = self.look(|machine, _| machine.turns()) == turn;
        (by == call && is_latest).then_some(turn)
    }

    /// Notes that a call of one of our tools begins; `false` if it was begun before.
    pub(super) async fn begin_call(&self, request: &RequestId) -> bool {
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

    /// Waits until the guard has what it is to keep.
    pub(super) async fn flush_kept(&self) {
        if let Some(keeper) = self.keeper() {
            keeper.flush().await;
        }
    }

    /// Notes that a call of one of our tools has been answered.
    pub(super) fn end_call(&self, request: &RequestId) {
        lock(&self.kept).calls.retain(|call| call != request);
        self.keep_steps();
    }

    fn keeper(&self) -> Option<Keeper> {
        self.lock().server.0.keeper().cloned()
    }

    /// Has all of the session kept for the next host.
    pub(super) fn keep(&self) {
        let Some(keeper) = self.keeper() else { return };
        let owner = self.owner();
        let kept = {
            let inner = self.lock();
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
            }
        };
        let [settings, _] = kept::keys(&self.id);
        keep_as(&keeper, &settings, &kept);
        lock(&self.kept).steps.clear();
        self.keep_steps();
    }

    /// Has the steps of the session kept, if they are others than before.
    fn keep_steps(&self) {
        let Some(keeper) = self.keeper() else { return };
        let mut kept = lock(&self.kept);
        if kept.record.is_some() {
            // It is not restored yet.
            return;
        }
        let Some(record) = self.lock().machine.record() else {
            kept.steps.clear();
            return self.forget_kept();
        };
        let steps = KeptSteps {
            record,
            calls: kept.calls.clone(),
            begun_by: kept.begun_by.clone(),
        };
        let [_, key] = kept::keys(&self.id);
        if let Ok(steps) = serde_json::to_string(&steps)
            && steps != kept.steps
        {
            keeper.keep(&key, steps.clone());
            kept.steps = steps;
        }
    }

    /// Nothing of the session is kept any more.
    fn forget_kept(&self) {
        if let Some(keeper) = self.keeper() {
            for key in kept::keys(&self.id) {
                keeper.forget(&key);
            }
        }
    }

    /// Registers a question of ours, and returns the receiver of its decision. No
    /// decision arrives if the turn ends first.
    pub(super) fn expect_decision(&self, request: RequestId) -> oneshot::Receiver<Value> {
        let (sender, decided) = oneshot::channel();
        let mut decisions = self.decisions();
        decisions.retain(|_, waiting| !waiting.is_closed());
        decisions.insert(request, sender);
        decided
    }

    /// Takes the receiver of the decision on a question of ours.
    pub(super) fn decision(&self, request: &RequestId) -> Option<oneshot::Sender<Value>> {
        self.decisions().remove(request)
    }

    fn decisions(&self) -> MutexGuard<'_, HashMap<RequestId, oneshot::Sender<Value>>> {
        // A map is valid at every point.
        self.decisions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the receiver of the thread's notifications; `false` if there is one already.
    pub(super) fn set_on_notification(&self, on_notification: Box<OnNotification>) -> bool {
        self.on_notification.set(on_notification).is_ok()
    }

    pub(super) fn notify(&self, heard: &ThreadNotification<'_>) {
        if let Some(on_notification) = self.on_notification.get() {
            on_notification(heard);
        }
    }

    /// Keeps pictures for Codex, in place of those of the previous prompt.
    pub(super) fn keep_until_next_prompt(&self, pictures: PictureCopies) {
        self.lock().pictures = pictures;
    }

    /// Changes the machine and wakes all watchers.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Session, Now) -> T) -> T {
        let result = self.write(change);
        self.keep_steps();
        self.revision.send_modify(|revision| *revision += 1);
        result
    }

    /// Changes only the event log of the machine.
    pub(super) fn write<T>(&self, change: impl FnOnce(&mut Session, Now) -> T) -> T {
        let result = self.look(change);
        self.news.send_modify(|news| *news += 1);
        result
    }

    /// Accesses the machine without waking watchers.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Session, Now) -> T) -> T {
        let (result, closed, alerts) = {
            let machine = &mut self.lock().machine;
            let result = look(machine, now());
            (result, machine.take_closed(), machine.take_alerts())
        };
        if alerts.is_empty() && closed.is_empty() {
            return result;
        }
        let owner = self.owner();
        for alert in alerts {
            (owner.on_alert)(SessionAlert {
                session: self.id.clone(),
                thread: self.thread.clone(),
                alert,
            });
        }
        if !closed.is_empty() {
            owner.observer.closed(&self.thread, &closed);
        }
        result
    }

    pub(super) fn state(&self) -> State {
        self.lock().machine.state()
    }

    /// Marks the open questions as shown.
    pub(super) fn show_questions(&self) {
        if self.look(Session::show_questions) {
            // Their deadlines have moved.
            self.change(|_, _| ());
        }
    }

    pub(super) fn server(&self) -> Running {
        self.lock().server.clone()
    }

    /// Whether its thread existed before this session.
    pub(super) fn was_there_before(&self) -> bool {
        self.origin == Origin::Existing
    }

    /// The kind of input that turn `number` was for the thread.
    pub(super) fn kind_of_prompt(&self, number: u64) -> InputKind {
        match (self.origin, number) {
            (Origin::New, 1) => InputKind::First,
            _ => InputKind::Reply,
        }
    }

    /// The settings with which its thread is resumed after the session has ended.
    fn resume_settings(&self) -> StartThread {
        let inner = self.lock();
        StartThread {
            settings: inner.settings.with(&inner.pending),
            timeouts: Some(inner.machine.timeouts()),
            tag: None,
            ..StartThread::default()
        }
    }

    /// The settings, with the pending changes.
    pub(super) fn settings(&self) -> Settings {
        let inner = self.lock();
        inner.settings.with(&inner.pending)
    }

    /// The error for requests to a cancelled session.
    pub(super) fn cancelled(&self) -> EngineError {
        EngineError::Cancelled {
            session: self.id.clone(),
            thread: self.thread.clone(),
        }
    }

    /// Stores changes of the settings for the next prompt.
    pub(super) fn set_pending(&self, overrides: Overrides, model_options: ModelOptions) {
        {
            let mut inner = self.lock();
            inner.pending = overrides.over(std::mem::take(&mut inner.pending));
            inner.settings.model_options =
                overlay_model_options(model_options, inner.settings.model_options);
        }
        self.keep();
    }

    /// The changes of a prompt, merged over the pending ones.
    pub(super) fn with_pending(&self, overrides: Overrides) -> Overrides {
        overrides.over(self.lock().pending.clone())
    }

    /// Codex has accepted a prompt and its changes of the settings.
    pub(super) fn prompted(&self, prompt: &Prompt) {
        {
            let mut inner = self.lock();
            inner.effective = inner.effective.with(&prompt.overrides);
            inner.settings.apply(prompt);
            inner.pending = Overrides::default();
        }
        self.keep();
    }

    /// Whether the thread is loaded in this app-server.
    pub(super) fn is_loaded_in(&self, server: &Running) -> bool {
        let inner = self.lock();
        inner.load_state == LoadState::Loaded && inner.server.1 == server.1
    }

    pub(super) fn mark_loaded_in(&self, server: Running, effective: EffectiveSettings) {
        {
            let mut inner = self.lock();
            inner.server = server;
            inner.effective = effective;
            inner.load_state = LoadState::Loaded;
        }
        // Another app-server numbers its requests anew.
        lock(&self.kept).calls.clear();
        self.keep();
    }

    /// Notes that Codex has unloaded the thread.
    pub(super) fn mark_unloaded(&self) {
        self.lock().load_state = LoadState::Unloaded;
    }

    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    pub(super) fn watch_news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    pub(super) fn view(&self) -> TurnView {
        self.show_questions();
        let revision = *self.revision.borrow();
        let mut inner = self.lock();
        inner.machine.used(now());
        let machine = &inner.machine;
        TurnView {
            revision,
            state: machine.state(),
            turn: machine.turns(),
            turn_id: machine.turn_id().cloned(),
            progress: machine.progress(now().instant),
            spent: machine.spent(),
            actions: open_questions(machine),
            outcome: machine.outcome().cloned(),
        }
    }

    pub(super) fn info(&self) -> SessionInfo {
        let inner = self.lock();
        SessionInfo {
            session: self.id.clone(),
            thread: self.thread.clone(),
            settings: inner.settings.with(&inner.pending),
            effective: inner.effective.with(&inner.pending),
            view: inner.machine.view(now().instant),
            poll_interval: inner.poll_interval(),
        }
    }

    /// The recommended time until the next poll; `None` if nothing will change by itself.
    pub(super) fn poll_interval(&self) -> Option<Duration> {
        self.lock().poll_interval()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A machine is valid after every step, even after one that panicked.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Tables {
    by_id: HashMap<SessionId, Arc<Entry>>,
    by_thread: HashMap<ThreadId, Arc<Entry>>,
    /// The sessions whose threads started these threads of sub-agents.
    by_child: HashMap<String, Arc<Entry>>,
    /// The IDs in the order in which the sessions began.
    order: VecDeque<SessionId>,
    remembered: HashMap<ThreadId, StartThread>,
    /// The remembered threads, the oldest first.
    remembered_order: VecDeque<ThreadId>,
}

impl Tables {
    fn forget(&mut self, entry: &Arc<Entry>) {
        let is_it = |one: &Arc<Entry>| Arc::ptr_eq(one, entry);
        entry.forget_kept();
        self.by_id.remove(&entry.id);
        self.order.retain(|id| *id != entry.id);
        self.by_child.retain(|_, parent| !is_it(parent));
        if self.by_thread.get(&entry.thread).is_some_and(is_it) {
            self.by_thread.remove(&entry.thread);
            self.remember(entry.thread.clone(), entry.resume_settings());
        }
    }

    /// Removes the least recently used session without a turn.
    fn evict(&mut self) -> Option<Arc<Entry>> {
        let unused = |entry: &&Arc<Entry>| entry.look(|machine, _| !machine.has_turn());
        let since = |entry: &&Arc<Entry>| entry.look(|machine, _| machine.last_active());
        let entry = self.by_id.values().filter(unused).min_by_key(since)?;
        let entry = Arc::clone(entry);
        self.forget(&entry);
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
        if self.remembered.insert(thread.clone(), start).is_none() {
            self.remembered_order.push_back(thread);
        }
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

/// The added or existing session of a thread, and the session that was removed for it.
pub(super) struct AddedSession {
    pub(super) entry: Arc<Entry>,
    pub(super) evicted: Option<Arc<Entry>>,
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
    /// Adds a session. If the thread has got another one meanwhile, returns that; a
    /// cancelled one is replaced.
    pub(super) fn add(&self, entry: Entry) -> Result<AddedSession, TooManySessions> {
        let mut tables = self.lock();
        if let Some(already) = tables.by_thread.get(&entry.thread)
            && already.state() != State::Cancelled
        {
            return Ok(AddedSession {
                entry: Arc::clone(already),
                evicted: None,
            });
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
        Ok(AddedSession { entry, evicted })
    }

    /// Cancels and forgets sessions that have not been used for long. Returns the effects
    /// to perform.
    pub(super) fn tidy(&self) -> Vec<(Arc<Entry>, Vec<Effect>)> {
        let mut to_do = Vec::new();
        for entry in self.all() {
            let (effects, fate) = entry.look(Session::tidy);
            if fate == Fate::Forget {
                self.forget(&entry);
            }
            if !effects.is_empty() {
                // Watchers have to be woken.
                entry.change(|_, _| ());
                to_do.push((entry, effects));
            }
        }
        to_do
    }

    /// Removes a session. The settings of its thread stay remembered.
    pub(super) fn forget(&self, entry: &Arc<Entry>) {
        self.lock().forget(entry);
    }

    /// Removes a session and the settings of its thread.
    pub(super) fn erase(&self, entry: &Arc<Entry>) {
        self.lock().erase(entry);
    }

    /// Registers the thread of a sub-agent of a session's thread.
    pub(super) fn adopt(&self, child: &str, parent: &Arc<Entry>) {
        let mut tables = self.lock();
        if tables.by_child.len() < CHILDREN {
            tables.by_child.insert(child.to_owned(), Arc::clone(parent));
        }
    }

    /// The threads of sub-agents of a session's thread.
    pub(super) fn children(&self, parent: &Arc<Entry>) -> Vec<String> {
        let tables = self.lock();
        let all = tables.by_child.iter();
        let own = all.filter(|(_, entry)| Arc::ptr_eq(entry, parent));
        own.map(|(child, _)| child.clone()).collect()
    }

    /// The session responsible for questions of a thread: its own, or that of the thread
    /// which started it.
    pub(super) fn responsible(&self, thread: &str) -> Option<Arc<Entry>> {
        let tables = self.lock();
        let own = tables.by_thread.get(thread);
        own.or_else(|| tables.by_child.get(thread)).cloned()
    }

    /// The settings with which a thread can be resumed, if they are remembered.
    pub(super) fn recall(&self, thread: &str) -> Option<StartThread> {
        let tables = self.lock();
        match tables.by_thread.get(thread) {
            Some(entry) => Some(entry.resume_settings()),
            None => tables.recall(thread),
        }
    }

    /// Whether the thread's settings are known because it has, or had, a session.
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

    /// Whether a session is the current one of its thread.
    pub(super) fn is_current(&self, entry: &Arc<Entry>) -> bool {
        let current = self.by_thread(entry.thread.as_str());
        current.is_some_and(|current| Arc::ptr_eq(&current, entry))
    }

    /// All sessions, in the order of their beginning.
    pub(super) fn all(&self) -> Vec<Arc<Entry>> {
        let tables = self.lock();
        let known = tables.order.iter().filter_map(|id| tables.by_id.get(id));
        known.cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        // The maps are changed together, and no step in between can panic.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data are valid at every point.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keep_as(keeper: &Keeper, key: &str, value: &impl Serialize) {
    // Plain values are always written.
    if let Ok(value) = serde_json::to_string(value) {
        keeper.keep(key, value);
    }
}

/// The open questions of a session.
pub(super) fn open_questions(machine: &Session) -> Vec<OpenQuestion> {
    let open = machine.actions().iter().map(|action| OpenQuestion {
        id: action.id.clone(),
        ask: action.ask.clone(),
        shown: action.shown(),
        expires: action.expires,
    });
    open.collect()
}
