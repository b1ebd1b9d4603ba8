//! A session, with the data that the engine keeps about it.

mod keeping;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use codex_protocol::codex::{ApprovalPolicy, ModelOptions, ThreadId, ThreadNotification};
use codex_protocol::rpc::RequestId;
use common::sync::lock;
use common::timestamp::Now;
use serde_json::Value;
use supervise::clock::now;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tracing::Span;

use super::backend::Running;
use super::command::{
    EffectiveSettings, OpenQuestion, Overrides, Prompt, SessionAlert, SessionId, SessionInfo,
    Settings, StartThread, TurnView, overlay_model_options,
};
use super::error::EngineError;
use super::kept::Origin;
use super::observer::{EngineObserver, InputKind, NoObserver};
use super::thread_tools::{NoTools, ThreadTools};
use crate::logic::action::ActionId;
use crate::logic::session::{IDLE_POLL_INTERVAL, Session, State, Timeouts};
use crate::picture::PictureCopies;
use keeping::Kept;
pub(crate) use keeping::Repetition;

/// Receives alerts. It must not block.
pub(super) type OnAlert = dyn Fn(SessionAlert) + Send + Sync;

/// Receives all notifications about a thread as they arrive. It must not block.
pub(super) type OnNotification = dyn Fn(&ThreadNotification<'_>) + Send + Sync;

/// The parts of a session that come from the engine that has opened it.
#[derive(Clone)]
pub(super) struct Owner {
    /// Keeps a record.
    pub(super) observer: Arc<dyn EngineObserver>,
    pub(super) on_alert: Arc<OnAlert>,
    /// The tools of its thread, in addition to Codex's own.
    pub(super) tools: Arc<dyn ThreadTools>,
    /// The setting that keeps commands in the sandbox, if there is one.
    pub(super) sandbox_bound: Option<String>,
    /// The ID of its client, by which it is recognised by the next host.
    pub(super) client: Option<String>,
    /// Differs between engines.
    mark: Arc<()>,
}

impl Owner {
    /// Whether both come from the same engine.
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
    /// Locked while its thread is unloaded after its end, and while a session that succeeds it begins.
    pub(super) unloading: tokio::sync::Mutex<()>,
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
            unloading: tokio::sync::Mutex::default(),
        }
    }

    /// The parts that come from the engine that has opened the session.
    pub(super) fn owner(&self) -> Owner {
        lock(&self.owner).clone()
    }

    /// Gives the session to the engine of its client. An earlier bound stays.
    pub(super) fn set_owner(&self, next: Owner) {
        {
            let mut owner = lock(&self.owner);
            *owner = Owner {
                sandbox_bound: owner.sandbox_bound.take().or(next.sandbox_bound),
                ..next
            };
        }
        self.keep();
    }

    /// Registers a question of ours, and returns the receiver of its decision. No
    /// decision arrives if the turn ends first.
    pub(super) fn expect_decision(&self, request: RequestId) -> oneshot::Receiver<Value> {
        let (sender, decided) = oneshot::channel();
        let mut decisions = lock(&self.decisions);
        decisions.retain(|_, waiting| !waiting.is_closed());
        decisions.insert(request, sender);
        decided
    }

    /// Takes the receiver of the decision on a question of ours.
    pub(super) fn decision(&self, request: &RequestId) -> Option<oneshot::Sender<Value>> {
        lock(&self.decisions).remove(request)
    }

    /// Sets the receiver of the thread's notifications; `false` if there is one already.
    pub(super) fn set_on_notification(&self, on_notification: Box<OnNotification>) -> bool {
        self.on_notification.set(on_notification).is_ok()
    }

    pub(super) fn notify(&self, notification: &ThreadNotification<'_>) {
        if let Some(on_notification) = self.on_notification.get() {
            on_notification(notification);
        }
    }

    /// Keeps pictures for Codex, in place of those of the previous prompt.
    pub(super) fn keep_until_next_prompt(&self, pictures: PictureCopies) {
        lock(&self.inner).pictures = pictures;
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
        let result = self.access(change);
        self.news.send_modify(|news| *news += 1);
        result
    }

    /// Accesses the machine without waking watchers.
    pub(super) fn access<T>(&self, access: impl FnOnce(&mut Session, Now) -> T) -> T {
        let (result, closed, alerts) = {
            let machine = &mut lock(&self.inner).machine;
            let result = access(machine, now());
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

    /// Whether the session was opened in Codex's own program, and is not over.
    pub(super) fn is_attached(&self) -> bool {
        let machine = &lock(&self.inner).machine;
        machine.is_attached() && machine.state() != State::Cancelled
    }

    pub(super) fn state(&self) -> State {
        lock(&self.inner).machine.state()
    }

    /// Marks the open questions as shown.
    pub(super) fn show_questions(&self) {
        if self.access(Session::show_questions) {
            // Their deadlines have moved.
            self.change(|_, _| ());
        }
    }

    pub(super) fn server(&self) -> Running {
        lock(&self.inner).server.clone()
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
    pub(super) fn resume_settings(&self) -> StartThread {
        let inner = lock(&self.inner);
        StartThread {
            settings: inner.settings.with(&inner.pending),
            timeouts: Some(inner.machine.timeouts()),
            tag: None,
            ..StartThread::default()
        }
    }

    /// The settings, with the pending changes.
    pub(super) fn settings(&self) -> Settings {
        let inner = lock(&self.inner);
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
            let mut inner = lock(&self.inner);
            inner.pending = overrides.over(std::mem::take(&mut inner.pending));
            inner.settings.model_options =
                overlay_model_options(model_options, inner.settings.model_options);
        }
        self.keep();
    }

    /// The changes of a prompt, merged over the pending ones.
    pub(super) fn with_pending(&self, overrides: Overrides) -> Overrides {
        overrides.over(lock(&self.inner).pending.clone())
    }

    /// Applies the settings of a prompt that Codex has accepted.
    pub(super) fn prompted(&self, prompt: &Prompt) {
        {
            let mut inner = lock(&self.inner);
            inner.effective = inner.effective.with(&prompt.overrides);
            inner.settings.apply(prompt);
            inner.pending = Overrides::default();
        }
        self.keep();
    }

    /// Whether the thread is loaded in this app-server.
    pub(super) fn is_loaded_in(&self, server: &Running) -> bool {
        let inner = lock(&self.inner);
        inner.load_state == LoadState::Loaded && inner.server.1 == server.1
    }

    pub(super) fn mark_loaded_in(&self, server: Running, effective: EffectiveSettings) {
        {
            let mut inner = lock(&self.inner);
            inner.server = server;
            inner.effective = effective;
            inner.load_state = LoadState::Loaded;
        }
        // Another app-server reuses the numbers of requests.
        lock(&self.kept).calls.clear();
        self.keep();
    }

    /// Notes that Codex has unloaded the thread.
    pub(super) fn mark_unloaded(&self) {
        lock(&self.inner).load_state = LoadState::Unloaded;
    }

    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Waits while a condition holds, for at most `limit`.
    pub(super) async fn wait_while(&self, limit: Duration, holds: impl Fn() -> bool) {
        let mut revision = self.watch();
        // Fails only without the entry, which the caller holds.
        let waiting = async { while holds() && revision.changed().await.is_ok() {} };
        let _ = timeout(limit, waiting).await;
    }

    pub(super) fn watch_news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    pub(super) fn view(&self) -> TurnView {
        self.show_questions();
        let revision = *self.revision.borrow();
        let mut inner = lock(&self.inner);
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
        let may_repeat = self.repetition() != Repetition::Over;
        let turns_before_idle = self.turns_before_idle();
        let inner = lock(&self.inner);
        let mut view = inner.machine.view(now().instant);
        // Not if a turn has begun since, of this host or of another client of Codex.
        let was_idle = turns_before_idle == Some(inner.machine.turns()) && view.turn.is_none();
        if was_idle && view.state == State::Running {
            view.state = State::Idle;
        }
        let awaited = inner.machine.awaited_questions();
        let awaited = awaited.filter(|_| may_repeat && inner.machine.state().is_at_work());
        SessionInfo {
            session: self.id.clone(),
            thread: self.thread.clone(),
            settings: inner.settings.with(&inner.pending),
            effective: inner.effective.with(&inner.pending),
            view,
            title: inner.machine.title().map(str::to_owned),
            questions: open_ids(&inner.machine),
            awaited: awaited.cloned().collect(),
            expiries: inner
                .machine
                .actions()
                .iter()
                .map(|action| action.expires)
                .collect(),
            poll_interval: inner.poll_interval(),
        }
    }

    /// The recommended time until the next poll; `None` if nothing will change by itself.
    pub(super) fn poll_interval(&self) -> Option<Duration> {
        lock(&self.inner).poll_interval()
    }
}

fn open_ids(machine: &Session) -> Vec<ActionId> {
    let open = machine.actions().iter();
    open.map(|action| action.id.clone()).collect()
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
