//! The state that the tasks of one client's proxy share: the router, and the means to perform its
//! decisions.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use codex_protocol::lines::Framing;
use codex_protocol::rpc::RequestId;
use common::sync::lock;
use job_queue::service::Jobs;
use mcp_server::deliveries::AfterDelivery;
use mcp_server::warnings::Warnings;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::augment::Augmenter;
use crate::directories::ThreadDirectories;
use crate::logic::{Answer, Effect, Note, Router, RouterTimeouts};
use crate::outbox::Outbox;
use crate::recorder::Recorder;
use crate::{answers, wire};

/// The factor by which a message of the child may be longer than one of the client. `codex
/// mcp-server` writes an answer twice into one message (0.104.0 and 0.153.4: 10 MB of text become
/// 21 MB), and JSON writes a line break or a quotation mark as two bytes. So an answer as long as
/// the client's longest message passes, even if it consists of nothing but those.
pub(super) const ANSWER_EXPANSION: usize = 4;

/// The longest time to wait until the child's last messages are read, or the client has read its
/// own.
pub(super) const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest message that is read from the child, in bytes; `client` is the client's limit.
pub(super) fn child_limit(client: usize) -> usize {
    client.saturating_mul(ANSWER_EXPANSION)
}

/// The router, and the deadline to which the clock is set.
pub(super) struct RouterState {
    pub(super) router: Router,
    pub(super) alarm: Option<std::time::Instant>,
}

/// Serves one client.
pub(super) struct Proxy {
    pub(super) state: Mutex<RouterState>,
    pub(super) timeouts: RouterTimeouts,
    pub(super) augmenter: Arc<Augmenter>,
    pub(super) warnings: Warnings,
    pub(super) recorder: Recorder,
    pub(super) directories: Mutex<ThreadDirectories>,
    pub(super) jobs: Arc<Jobs>,
    /// The longest message that is read from the client, in bytes.
    pub(super) client_limit: usize,
    /// The longest message that is read from the child, in bytes.
    pub(super) child_limit: usize,
    /// The framing that the client uses; answers to it use the same.
    pub(super) framing: Mutex<Framing>,
    pub(super) to_client: Outbox,
    pub(super) to_child: Outbox,
    /// Cancelled when the client has gone, or when the proxy gives the client up.
    pub(super) closing: CancellationToken,
    /// Cancelled with `closing`, and also when the client has closed its side: from then on, the
    /// proxy waits for no call.
    pub(super) leaving: CancellationToken,
    /// Woken when the router has a deadline before the one to which the clock is set.
    pub(super) alarm_changed: Notify,
    /// Woken when one of our own tools has answered, when its call is cancelled, or when a thread
    /// has given its summary.
    pub(super) answered: Notify,
    pub(super) started: Instant,
}

impl Proxy {
    /// Lets the router handle a message or the time, records its notes, and sets the clock.
    pub(super) fn with_router(
        &self,
        act: impl FnOnce(&mut Router, std::time::Instant) -> Vec<Effect>,
    ) -> Vec<Effect> {
        let mut state = lock(&self.state);
        let effects = act(&mut state.router, Instant::now().into_std());
        let notes = state.router.take_notes();
        let next = state.router.next_deadline();
        if next.is_some_and(|next| state.alarm.is_none_or(|alarm| next < alarm)) {
            self.alarm_changed.notify_one();
        }
        drop(state);
        for note in notes {
            match note {
                Note::SummaryReceived { .. } | Note::OwnCallCancelled => {
                    self.answered.notify_waiters();
                }
                Note::ThreadStarted { .. } => self.augmenter.defaults.forget_previous_thread(),
                _ => {}
            }
            lock(&self.directories).apply(&note);
            self.recorder.record(note);
        }
        effects
    }

    /// Waits until the router fulfils a condition. The condition is checked again whenever
    /// `answered` is woken.
    pub(super) async fn wait_until(&self, is_fulfilled: impl Fn(&Router) -> bool) {
        loop {
            let answered = self.answered.notified();
            if is_fulfilled(&lock(&self.state).router) {
                return;
            }
            answered.await;
        }
    }

    /// Tells the router the time at each of its deadlines.
    pub(super) async fn run_clock(self: Arc<Self>) {
        loop {
            let alarm = {
                let mut state = lock(&self.state);
                state.alarm = state.router.next_deadline();
                state.alarm
            };
            let rings = async {
                match alarm {
                    Some(alarm) => sleep_until(Instant::from_std(alarm)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.alarm_changed.notified() => {}
                () = rings => {
                    let effects = self.with_router(Router::tick);
                    self.perform(effects);
                }
            }
        }
    }

    /// Performs what the router has decided. Never waits.
    pub(super) fn perform(self: &Arc<Self>, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::ToClient(message) => self.send_to_client(message),
                Effect::ToChild(message) => self.to_child.put(wire::one_line(message)),
                Effect::Answer { id, answer } => {
                    log(&id, &answer);
                    self.send_to_client(answers::message(&id, answer, &self.timeouts));
                }
                Effect::CallOwnTool {
                    id,
                    name,
                    arguments,
                } => {
                    let proxy = Arc::clone(self);
                    tokio::spawn(async move { proxy.run_own_tool(&id, &name, arguments).await });
                }
            }
        }
    }

    fn send_to_client(&self, message: Vec<u8>) {
        self.send_to_client_then(message, None);
    }

    /// Sends a message to the client, and runs `then` once it has been written.
    pub(super) fn send_to_client_then(&self, message: Vec<u8>, then: Option<AfterDelivery>) {
        if self.to_client.is_full() && !self.closing.is_cancelled() {
            tracing::warn!("the client does not read its answers; giving it up");
            self.closing.cancel();
        }
        let framed = lock(&self.framing).frame(message);
        self.to_client.put_then(framed, then);
    }
}

/// Logs an answer that reports a failure.
fn log(id: &RequestId, answer: &Answer) {
    match answer {
        Answer::Failed { why, .. } => tracing::info!("call {id} failed: {why:?}"),
        Answer::Declined { .. } => {
            tracing::info!(
                "call {id}: declined a question of Codex, as the client cannot be asked"
            );
        }
        Answer::Error { method, why } => tracing::info!("{method} failed: {why:?}"),
        Answer::Result(_)
        | Answer::UnknownMethod { .. }
        | Answer::IdInUse
        | Answer::IdSpent
        | Answer::TooMany => {}
    }
}
