//! Brings what Codex says to the session machines, and performs what they
//! decide.

use std::sync::{Arc, Weak};
use std::time::Duration;

use codex_mcp_core::session::{Effect, Session, State};
use codex_mcp_protocol::codex::{Ask, Method, Notification, ThreadParams, TurnInterruptParams};
use codex_mcp_protocol::rpc::RequestId;
use tokio::time::{Instant, sleep, sleep_until};

use super::backend::{Generation, Supervisor};
use super::connection::Listener;
use super::exit::Exit;
use super::sessions::{Entry, Sessions};

/// How long an interrupted turn may take to end before something is done about
/// it. Codex takes some 20 ms.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(5);

/// How often sessions that nobody uses are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Where everything that Codex says arrives.
#[derive(Default)]
pub(super) struct Hub {
    pub(super) sessions: Sessions,
}

impl Listener for Hub {
    fn heard(&self, thread: &str, news: Notification<'_>) {
        // Codex also tells of threads of its own, such as those of subagents.
        let Some(entry) = self.sessions.by_thread(thread) else {
            return;
        };
        if let Notification::AgentMessageDelta(_) = news {
            entry.change_quietly(|machine| machine.heard(news));
        } else {
            let effects = entry.change(|machine| machine.heard(news));
            perform(&entry, effects);
        }
    }

    fn asked(&self, thread: &str, request: RequestId, ask: Ask) -> bool {
        let Some(entry) = self.sessions.by_thread(thread) else {
            return false;
        };
        let now = Instant::now();
        let (effects, deadline) = entry.change(|machine| {
            let effects = machine.asked(request, ask, now.into_std());
            (effects, machine.actions().last().map(|open| open.deadline))
        });
        perform(&entry, effects);
        if let Some(deadline) = deadline {
            tokio::spawn(decline_at(entry, deadline.into()));
        }
        true
    }

    fn cut_off(&self, thread: &str, why: &str) {
        if let Some(entry) = self.sessions.by_thread(thread) {
            let effects = entry.change(|machine| machine.cut_off(why));
            perform(&entry, effects);
        }
    }
}

impl Supervisor for Hub {
    fn gone(&self, generation: Generation, exit: Exit) {
        for entry in self.sessions.all() {
            if entry.server().1 == generation {
                entry.change(|machine| machine.lose(&format!("Codex {exit}")));
            }
        }
    }
}

async fn decline_at(entry: Arc<Entry>, deadline: Instant) {
    sleep_until(deadline).await;
    let effects = entry.change(|machine| machine.tick(deadline.into_std()));
    if !effects.is_empty() {
        tracing::warn!("thread {}: nobody answered in time; declined", entry.thread);
    }
    perform(&entry, effects);
}

/// Puts sessions to rest for as long as there is a hub.
pub(super) async fn sweep(hub: Weak<Hub>) {
    loop {
        sleep(SWEEP_EVERY).await;
        let Some(hub) = hub.upgrade() else { return };
        for entry in hub.sessions.put_to_rest() {
            let params = ThreadParams {
                thread_id: &entry.thread,
            };
            let (server, _) = entry.server();
            server.connection().cast(Method::ThreadUnsubscribe, &params);
        }
    }
}

/// Interrupts a turn of a session. Should it not end, insists, and gives it up
/// in the end, so that its thread can be used again.
pub(super) fn interrupt(entry: &Arc<Entry>, turn: u64) {
    let effects = entry.change(|machine| match machine.turns() == turn {
        true => machine.interrupt(),
        false => Vec::new(),
    });
    perform(entry, effects);
    tokio::spawn(insist(Arc::clone(entry), turn));
}

async fn insist(entry: Arc<Entry>, turn: u64) {
    sleep(INTERRUPT_PATIENCE).await;
    insist_once(&entry, turn, Session::interrupt_again);
    sleep(INTERRUPT_PATIENCE).await;
    insist_once(&entry, turn, |machine| {
        tracing::warn!("thread {}: the interrupted turn does not end", entry.thread);
        machine.abandon("Codex did not end the turn that was interrupted")
    });
}

fn insist_once(entry: &Entry, turn: u64, insist: impl FnOnce(&mut Session) -> Vec<Effect>) {
    let runs = |machine: &Session| {
        let at_work = matches!(machine.state(), State::Running | State::WaitingApproval);
        at_work && machine.turns() == turn
    };
    let effects = entry.change(|machine| match runs(machine) {
        true => insist(machine),
        false => Vec::new(),
    });
    perform(entry, effects);
}

/// Does what a machine decided.
pub(super) fn perform(entry: &Entry, effects: Vec<Effect>) {
    if effects.is_empty() {
        return;
    }
    let (server, _) = entry.server();
    let connection = server.connection();
    for effect in effects {
        match effect {
            Effect::Answer { request, result } => connection.answer(&request, &result),
            Effect::Interrupt(turn) => {
                let params = TurnInterruptParams {
                    thread_id: &entry.thread,
                    turn_id: &turn,
                };
                connection.cast(Method::TurnInterrupt, &params);
            }
            Effect::StopCommands => {
                let params = ThreadParams {
                    thread_id: &entry.thread,
                };
                connection.cast(Method::BackgroundTerminalsClean, &params);
            }
        }
    }
}
