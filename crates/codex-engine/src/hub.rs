//! Passes Codex's messages to the session machines, and drives their timers.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use codex_protocol::codex::{
    Ask, Item, LegacyRefusal, Notification, RateLimits, ThreadNotification, ToolCall,
};
use codex_protocol::rpc::RequestId;
use common::sync::lock;
use common::timestamp::Now;
use serde_json::value::RawValue;
use supervise::exit::{Exit, ExitCause, UnexpectedExit};
use tokio::sync::RwLock;
use tokio::time::{Instant, sleep, sleep_until};

use super::backend::{Generation, Supervisor};
use super::cached_usage::ReportedLimits;
use super::command::{TurnRef, new_action_id};
use super::connection::Listener;
use super::effects::perform;
use super::entry::Entry;
use super::observer::EngineObserver;
use super::sessions::Sessions;
use super::tool_calls;
use crate::logic::session::{Effect, IncomingQuestion, Session, State};

/// How long an interrupted turn may take to end before the next measure. Codex takes
/// about 20 ms.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(5);

/// Receives all messages of Codex.
#[derive(Default)]
pub(super) struct Hub {
    pub(super) sessions: Sessions,
    /// Read-locked while a thread is being unloaded, write-locked before Codex is ended: unloading
    /// archives the thread for a moment, and Codex must not end within it.
    pub(super) unloading: RwLock<()>,
    /// Locked while a session of an earlier host is restored.
    pub(super) restoring: tokio::sync::Mutex<()>,
    /// The account's usage limits.
    rate_limits: Mutex<ReportedLimits>,
    unexpected_exits: Mutex<UnexpectedExits>,
}

/// The unexpected exits of Codex.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct UnexpectedExits {
    pub(super) last: Option<UnexpectedExit>,
    pub(super) count: u64,
}

impl Hub {
    /// The account's usage limits and the time of Codex's last report, if there is one.
    pub(super) fn rate_limits(&self) -> Option<(RateLimits, Instant)> {
        lock(&self.rate_limits).get()
    }

    /// The limits, and the limit of a model that a turn has just reported.
    pub(super) fn limits_after_refusal(&self) -> (RateLimits, Option<String>) {
        lock(&self.rate_limits).after_refusal()
    }

    /// Takes over a response about the limits, and returns the merged state.
    pub(super) fn replace_limits(&self, read: RateLimits) -> RateLimits {
        lock(&self.rate_limits).replace(read)
    }

    pub(super) fn unexpected_exits(&self) -> UnexpectedExits {
        *lock(&self.unexpected_exits)
    }

    /// Notes the files that a sub-agent is about to change, for the session that will be asked to
    /// approve the change.
    fn note_changes_of_sub_agent(&self, notification: ThreadNotification<'_>) {
        if let Notification::ItemStarted(Item::FileChange { id, changes, .. }) =
            notification.notification
            && let Some(parent) = self.sessions.responsible(&notification.thread)
        {
            parent
                .access(|machine, _| machine.changes_announced(&notification.thread, id, changes));
        }
    }
}

impl Listener for Hub {
    fn on_notification(&self, notification: ThreadNotification<'_>) {
        // Codex also reports threads of its own, such as those of sub-agents. Of these, only their
        // questions matter to us, and the file changes that the questions are about.
        let found = match notification.notification {
            Notification::RequestResolved(_) => self.sessions.responsible(&notification.thread),
            _ => self.sessions.by_thread(&notification.thread),
        };
        let Some(entry) = found else {
            return self.note_changes_of_sub_agent(notification);
        };
        let _in_span = entry.span.enter();
        entry.notify(&notification);
        if let Notification::ItemStarted(Item::CollabAgentToolCall { children })
        | Notification::ItemCompleted(Item::CollabAgentToolCall { children }) =
            &notification.notification
        {
            for child in children {
                if self.sessions.adopt(child, &entry) {
                    entry.keep_child(child);
                }
            }
        }
        // Callers that wait for the turn need not be woken for each piece of text.
        let effects = match notification.notification {
            Notification::Delta(..) => {
                entry.write(|machine, now| machine.on_notification(notification, now))
            }
            _ => {
                let before = entry.access(|machine, _| machine.turns());
                let effects =
                    entry.change(|machine, now| machine.on_notification(notification, now));
                watch_turn_begun_elsewhere(&entry, before);
                effects
            }
        };
        perform(&entry, effects);
    }

    fn on_request(
        &self,
        thread: &str,
        request: RequestId,
        mut ask: Ask,
        params: &RawValue,
    ) -> bool {
        let Some(entry) = self.sessions.responsible(thread) else {
            return false;
        };
        let _in_span = entry.span.enter();
        let (server, _) = entry.server();
        ask.set_legacy_refusal(LegacyRefusal::of(server.about.codex_version()));
        let question = IncomingQuestion {
            id: new_action_id(),
            request,
            thread: thread.to_owned(),
            ask,
            // The parameters were parsed before.
            params: serde_json::from_str(params.get()).unwrap_or_default(),
        };
        let effects = entry.change(|machine, now| machine.on_question(question, now));
        perform(&entry, effects);
        true
    }

    fn on_tool_call(&self, request: RequestId, call: ToolCall) -> Result<(), &'static str> {
        tool_calls::accept(&self.sessions, request, call)
    }

    fn on_rate_limits(&self, limits: RateLimits) {
        lock(&self.rate_limits).update(limits);
    }

    fn on_unreadable_end(&self, thread: &str, why: &str) {
        if let Some(entry) = self.sessions.by_thread(thread) {
            let effects = entry.change(|machine, now| machine.cut_off(why, now));
            perform(&entry, effects);
        }
    }
}

impl Supervisor for Hub {
    fn on_exit(&self, generation: Generation, exit: Exit, cause: ExitCause) {
        if cause == ExitCause::Unrequested {
            let at = SystemTime::now();
            let mut exits = lock(&self.unexpected_exits);
            exits.last = Some(UnexpectedExit { exit, at });
            exits.count += 1;
        }
        for entry in self.sessions.all() {
            if entry.server().1 == generation {
                // There is no Codex for the effects.
                let _ = entry.change(|machine, now| machine.lose(&format!("Codex {exit}"), now));
            }
        }
    }
}

/// Watches a turn that another client of Codex has begun, if there is one since `before` turns.
fn watch_turn_begun_elsewhere(entry: &Arc<Entry>, before: u64) {
    let number = entry.access(|machine, _| machine.turns());
    if number > before {
        tokio::spawn(run_timer(Arc::clone(entry), number, None));
    }
}

/// Drives the timers of a machine while its turn runs, and reports the outcome to `observer`;
/// `None` stands for the observer of the client that opened the session.
pub(super) async fn run_timer(
    entry: Arc<Entry>,
    turn: u64,
    observer: Option<Arc<dyn EngineObserver>>,
) {
    let mut revision = entry.watch();
    loop {
        revision.mark_unchanged();
        let (runs, deadline) = entry.access(|machine, _| {
            let runs = machine.has_turn() && machine.turns() == turn;
            (runs, machine.next_deadline())
        });
        if !runs {
            let observer = observer.unwrap_or_else(|| entry.owner().observer);
            return report_outcome(&entry, turn, &*observer);
        }
        tokio::select! {
            // Fails only without the entry, which this function holds.
            _ = revision.changed() => {}
            () = until(deadline) => {
                let (effects, runs) = entry.change(|machine, now| {
                    let effects = machine.tick(now);
                    (effects, machine.has_turn())
                });
                entry.span.in_scope(|| match runs {
                    false => tracing::warn!("Codex reported an error and no end of the turn; ended it as failed"),
                    true if effects.is_empty() => {}
                    true => tracing::warn!("declined a question that nobody answered in time"),
                });
                perform(&entry, effects);
            }
        }
    }
}

fn report_outcome(entry: &Entry, turn: u64, observer: &dyn EngineObserver) {
    let last = entry.access(|machine, _| machine.outcome().cloned());
    let reported = TurnRef {
        session: entry.id.clone(),
        number: turn,
    };
    match last {
        Some((number, outcome)) if number == turn => {
            observer.ended(&reported, &entry.thread, &outcome);
        }
        // A later turn has ended as well, and only its outcome is known.
        Some((number, _)) if number > turn => {}
        Some(_) | None => observer.refused(&reported, &entry.thread),
    }
}

async fn until(deadline: Option<std::time::Instant>) {
    match deadline {
        Some(deadline) => sleep_until(Instant::from_std(deadline)).await,
        None => std::future::pending().await,
    }
}

/// Interrupts a turn of a session. If the turn does not end, interrupts it again, and finally
/// abandons it, so that the thread can be used again.
pub(super) fn interrupt(entry: &Arc<Entry>, turn: u64) {
    if entry.access(|machine, _| machine.is_being_interrupted()) {
        return;
    }
    let effects = entry.change(|machine, now| match machine.turns() == turn {
        true => machine.interrupt(now),
        false => Vec::new(),
    });
    perform(entry, effects);
    ensure_end(entry);
}

/// Cancels a session and interrupts its turn, if there is one.
pub(super) fn cancel(entry: &Arc<Entry>, why: &str) {
    let _in_span = entry.span.enter();
    if entry.state() != State::Cancelled {
        tracing::info!("the session ends: {why}");
    }
    let effects = entry.change(|machine, now| machine.cancel(why, now));
    perform(entry, effects);
    ensure_end(entry);
}

/// Makes sure that the turn ends, if it is being interrupted.
pub(super) fn ensure_end(entry: &Arc<Entry>) {
    let (turn, is_interrupted) =
        entry.access(|machine, _| (machine.turns(), machine.is_being_interrupted()));
    if is_interrupted {
        tokio::spawn(force_end(Arc::clone(entry), turn));
    }
}

async fn force_end(entry: Arc<Entry>, turn: u64) {
    sleep(INTERRUPT_TIMEOUT).await;
    force_step(&entry, turn, |machine, _| machine.interrupt_again());
    sleep(INTERRUPT_TIMEOUT).await;
    force_step(&entry, turn, |machine, now| {
        let warn = || tracing::warn!("gave up an interrupted turn that does not end");
        entry.span.in_scope(warn);
        machine.abandon("Codex did not end the interrupted turn", now)
    });
}

fn force_step(entry: &Arc<Entry>, turn: u64, step: impl FnOnce(&mut Session, Now) -> Vec<Effect>) {
    let effects =
        entry.change(
            |machine, now| match machine.has_turn() && machine.turns() == turn {
                true => step(machine, now),
                false => Vec::new(),
            },
        );
    perform(entry, effects);
}
