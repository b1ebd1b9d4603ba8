//! Brings what Codex says to the session machines.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use codex_protocol::codex::{Ask, Heard, Item, LegacyRefusal, Notification, RateLimits, ToolCall};
use codex_protocol::rpc::RequestId;
use common::timestamp::Now;
use serde_json::value::RawValue;
use supervise::exit::{Cause, Death, Exit};
use tokio::time::{Instant, sleep, sleep_until};

use super::backend::{Generation, Supervisor};
use super::command::{TurnRef, new_action_id};
use super::connection::Listener;
use super::effects::perform;
use super::limits::ReportedLimits;
use super::observer::EngineObserver;
use super::sessions::{Entry, Sessions};
use super::thread_tools::{NoTools, ThreadTools};
use super::tool_calls;
use crate::logic::session::{Asked, Effect, Session, State};

/// How long an interrupted turn may take to end before something is done about
/// it. Codex takes some 20 ms.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(5);

/// How often sessions that nobody uses are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Where everything that Codex says arrives.
#[derive(Default)]
pub(super) struct Hub {
    pub(super) sessions: Sessions,
    /// The account's usage limits.
    rate_limits: Mutex<ReportedLimits>,
    deaths: Mutex<Deaths>,
    /// What threads are given, unless that is nothing.
    tools: OnceLock<Arc<dyn ThreadTools>>,
}

/// What is known of the Codexes that have died.
#[derive(Default)]
struct Deaths {
    last: Option<Death>,
    /// Whether nobody was told of the last one.
    is_news: bool,
}

impl Deaths {
    fn died(&mut self, death: Death) {
        *self = Self {
            last: Some(death),
            is_news: true,
        };
    }
}

impl Hub {
    /// The account's usage limits and when Codex last reported them, if it has.
    pub(super) fn rate_limits(&self) -> Option<(RateLimits, Instant)> {
        lock(&self.rate_limits).get()
    }

    /// Takes in an answer about the limits, and returns all that is known of them now.
    pub(super) fn replace_limits(&self, read: RateLimits) -> RateLimits {
        lock(&self.rate_limits).replace(read)
    }

    /// Gives threads these tools. Those of the first call stay.
    pub(super) fn give(&self, tools: Arc<dyn ThreadTools>) {
        self.tools.get_or_init(|| tools);
    }

    pub(super) fn tools(&self) -> Arc<dyn ThreadTools> {
        let tools = self.tools.get().cloned();
        tools.unwrap_or_else(|| Arc::new(NoTools))
    }

    pub(super) fn last_death(&self) -> Option<Death> {
        lock(&self.deaths).last
    }

    /// The last death, if nobody was told of it. From now on somebody was.
    pub(super) fn unreported_death(&self) -> Option<Death> {
        let mut deaths = lock(&self.deaths);
        let is_news = std::mem::take(&mut deaths.is_news);
        deaths.last.filter(|_| is_news)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is in them is valid at every point.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Listener for Hub {
    fn heard(&self, heard: Heard<'_>) {
        // Codex also tells of threads of its own, such as those of sub-agents; of
        // these only their questions are ours.
        let found = match heard.news {
            Notification::RequestResolved(_) => self.sessions.responsible(&heard.thread),
            _ => self.sessions.by_thread(&heard.thread),
        };
        let Some(entry) = found else { return };
        let _in_span = entry.span.enter();
        entry.tell_news(&heard);
        if let Notification::ItemStarted(Item::CollabAgentToolCall { children })
        | Notification::ItemCompleted(Item::CollabAgentToolCall { children }) = &heard.news
        {
            for child in children {
                self.sessions.adopt(child, &entry);
            }
        }
        // Those who wait for the turn need not hear of each piece of text.
        let effects = match heard.news {
            Notification::Delta(..) => entry.write(|machine, now| machine.heard(heard, now)),
            _ => entry.change(|machine, now| machine.heard(heard, now)),
        };
        perform(&entry, effects);
    }

    fn asked(&self, thread: &str, request: RequestId, mut ask: Ask, params: &RawValue) -> bool {
        let Some(entry) = self.sessions.responsible(thread) else {
            return false;
        };
        let _in_span = entry.span.enter();
        let (server, _) = entry.server();
        ask.set_legacy_refusal(LegacyRefusal::of(server.about.codex_version()));
        let asked = Asked {
            id: new_action_id(),
            request,
            ask,
            // It was read as JSON before.
            params: serde_json::from_str(params.get()).unwrap_or_default(),
        };
        let effects = entry.change(|machine, now| machine.asked(asked, now));
        perform(&entry, effects);
        true
    }

    fn called(&self, request: RequestId, call: ToolCall) -> Result<(), &'static str> {
        tool_calls::take(&self.sessions, self.tools(), request, call)
    }

    fn rate_limits(&self, limits: RateLimits) {
        lock(&self.rate_limits).update(limits);
    }

    fn cut_off(&self, thread: &str, why: &str) {
        if let Some(entry) = self.sessions.by_thread(thread) {
            let effects = entry.change(|machine, now| machine.cut_off(why, now));
            perform(&entry, effects);
        }
    }
}

impl Supervisor for Hub {
    fn gone(&self, generation: Generation, exit: Exit, cause: Cause) {
        if cause == Cause::Itself {
            let at = SystemTime::now();
            lock(&self.deaths).died(Death { exit, at });
        }
        for entry in self.sessions.all() {
            if entry.server().1 == generation {
                entry.change(|machine, now| machine.lose(&format!("Codex {exit}"), now));
            }
        }
    }
}

/// Tells a machine the time for as long as its turn runs, and in the end the observer
/// what came of it.
pub(super) async fn keep_time(entry: Arc<Entry>, turn: u64, observer: Arc<dyn EngineObserver>) {
    let mut revision = entry.watch();
    loop {
        revision.mark_unchanged();
        let (runs, deadline) = entry.look(|machine, _| {
            let runs = machine.has_turn() && machine.turns() == turn;
            (runs, machine.next_deadline())
        });
        if !runs {
            return testify(&entry, turn, &*observer);
        }
        tokio::select! {
            // Fails only without the entry, which is here.
            _ = revision.changed() => {}
            () = until(deadline) => {
                let (effects, runs) = entry.change(|machine, now| {
                    let effects = machine.tick(now);
                    (effects, machine.has_turn())
                });
                entry.span.in_scope(|| match runs {
                    false => tracing::warn!("Codex told an error, and not the end of the turn"),
                    true if effects.is_empty() => {}
                    true => tracing::warn!("nobody answered in time; declined"),
                });
                perform(&entry, effects);
            }
        }
    }
}

fn testify(entry: &Entry, turn: u64, observer: &dyn EngineObserver) {
    let outcome = entry.look(|machine, _| machine.outcome().cloned());
    // A prompt that was not taken has none.
    if let Some((number, outcome)) = outcome
        && number == turn
    {
        let session = entry.id.clone();
        let turn = TurnRef { session, number };
        observer.ended(&turn, &entry.thread, &outcome);
    }
}

async fn until(deadline: Option<std::time::Instant>) {
    match deadline {
        Some(deadline) => sleep_until(Instant::from_std(deadline)).await,
        None => std::future::pending().await,
    }
}

/// Cancels and forgets sessions that nobody uses, for as long as there is a hub.
pub(super) async fn sweep(hub: Weak<Hub>) {
    loop {
        sleep(SWEEP_EVERY).await;
        let Some(hub) = hub.upgrade() else { return };
        for (entry, effects) in hub.sessions.tidy() {
            let _in_span = entry.span.enter();
            tracing::info!("the session ends: it was not used for long");
            perform(&entry, effects);
            see_to_its_end(&entry);
        }
    }
}

/// Interrupts a turn of a session. Should it not end, insists, and gives it up
/// in the end, so that its thread can be used again.
pub(super) fn interrupt(entry: &Arc<Entry>, turn: u64) {
    if entry.look(|machine, _| machine.is_being_interrupted()) {
        return;
    }
    let effects = entry.change(|machine, now| match machine.turns() == turn {
        true => machine.interrupt(now),
        false => Vec::new(),
    });
    perform(entry, effects);
    see_to_its_end(entry);
}

/// Cancels a session; its turn, if there is one, is interrupted.
pub(super) fn cancel(entry: &Arc<Entry>, why: &str) {
    let _in_span = entry.span.enter();
    if entry.state() != State::Cancelled {
        tracing::info!("the session ends: {why}");
    }
    let effects = entry.change(|machine, now| machine.cancel(why, now));
    perform(entry, effects);
    see_to_its_end(entry);
}

/// Insists on the end of the turn that was interrupted.
fn see_to_its_end(entry: &Arc<Entry>) {
    let (turn, runs) = entry.look(|machine, _| (machine.turns(), machine.has_turn()));
    if runs {
        tokio::spawn(insist(Arc::clone(entry), turn));
    }
}

async fn insist(entry: Arc<Entry>, turn: u64) {
    sleep(INTERRUPT_PATIENCE).await;
    insist_once(&entry, turn, |machine, _| machine.interrupt_again());
    sleep(INTERRUPT_PATIENCE).await;
    insist_once(&entry, turn, |machine, now| {
        let warn = || tracing::warn!("the interrupted turn does not end");
        entry.span.in_scope(warn);
        machine.abandon("Codex did not end the turn that was interrupted", now)
    });
}

fn insist_once(
    entry: &Arc<Entry>,
    turn: u64,
    insist: impl FnOnce(&mut Session, Now) -> Vec<Effect>,
) {
    let effects =
        entry.change(
            |machine, now| match machine.has_turn() && machine.turns() == turn {
                true => insist(machine, now),
                false => Vec::new(),
            },
        );
    perform(entry, effects);
}
