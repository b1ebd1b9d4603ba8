//! Progress notifications of a waiting call.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use codex_engine::logic::progress::{CurrentStep, timed};
use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use tokio::time::{Instant, timeout};

use crate::repeated_call;

/// The longest wait of a notification for a client that does not read.
pub(super) const CLIENT_TIMEOUT: Duration = Duration::from_secs(1);

/// The interval of progress notifications without news (10 s): some clients end a call that has
/// been silent for a minute.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Progress notifications of a call, sent if the caller gave a token.
pub(super) struct Progress {
    token: Option<ProgressToken>,
    /// The progress of the last notification.
    sent: f64,
    /// The number of the last step that was reported.
    step: u64,
    /// The current step in words.
    words: String,
    since: Instant,
    last: Instant,
}

impl Progress {
    /// The progress of a call that begins with this step.
    pub(super) fn new(context: &RequestContext<RoleServer>, words: &str) -> Self {
        let now = Instant::now();
        Self {
            token: context.meta.get_progress_token(),
            sent: earlier_progress(context),
            step: 0,
            words: words.to_owned(),
            since: now,
            last: now,
        }
    }

    /// The current step and its duration.
    pub(super) fn current_step(&self) -> String {
        timed(&self.words, self.since.elapsed())
    }

    pub(super) fn next_heartbeat(&self) -> Instant {
        self.last + HEARTBEAT
    }

    /// Begins a step without reporting it yet.
    pub(super) fn begin(&mut self, words: &str) {
        words.clone_into(&mut self.words);
        self.since = Instant::now();
    }

    /// Sets the current step, and reports it at once if it is a new one.
    pub(super) async fn report(
        &mut self,
        context: &RequestContext<RoleServer>,
        step: &CurrentStep,
    ) {
        self.set_step(step);
        if step.number > self.step {
            self.step = step.number;
            self.send(context, step.words.clone()).await;
        }
    }

    /// Sets the current step, to be reported with the next heartbeat.
    pub(super) fn set_step(&mut self, step: &CurrentStep) {
        if !step.words.is_empty() {
            self.words.clone_from(&step.words);
            let now = Instant::now();
            self.since = now.checked_sub(step.took).unwrap_or(now);
        }
    }

    pub(super) async fn heartbeat(&mut self, context: &RequestContext<RoleServer>) {
        self.send(context, self.current_step()).await;
    }

    async fn send(&mut self, context: &RequestContext<RoleServer>, message: String) {
        self.last = Instant::now();
        let Some(token) = &self.token else { return };
        self.sent += 1.0;
        let params = ProgressNotificationParam::new(token.clone(), self.sent).with_message(message);
        match timeout(CLIENT_TIMEOUT, context.peer.notify_progress(params)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!("progress not sent: {error}"),
            Err(_) => tracing::debug!("progress not sent: the client does not read"),
        }
    }
}

/// A lower bound for the progress of a repeated call: the milliseconds since 1970. MCP demands that
/// progress increases under the token of a call. The number of notifications that earlier hosts
/// have sent is not known, but no host sends one each millisecond.
fn earlier_progress(context: &RequestContext<RoleServer>) -> f64 {
    if !repeated_call::is_repeated(context) {
        return 0.0;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    (now.unwrap_or_default().as_secs_f64() * 1000.0).floor()
}
