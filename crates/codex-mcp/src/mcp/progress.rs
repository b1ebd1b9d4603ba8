//! Progress notifications of a waiting call.

use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use tokio::time::{Instant, timeout};

use super::turn::CLIENT_PATIENCE;
use crate::engine::command::View;

/// A client hears at least this often that we are still there (10 s): some cut
/// a call that has been silent for a minute.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Progress notifications, where the caller gave a token.
pub(super) struct Progress {
    token: Option<ProgressToken>,
    steps: u64,
    sent: u32,
    doing: String,
    began: Instant,
    last: Instant,
}

impl Progress {
    pub(super) fn new(context: &RequestContext<RoleServer>) -> Self {
        let now = Instant::now();
        Self {
            token: context.meta.get_progress_token(),
            steps: 0,
            sent: 0,
            doing: "waiting for Codex".to_owned(),
            began: now,
            last: now,
        }
    }

    /// What was told last, in words.
    pub(super) fn doing(&self) -> &str {
        &self.doing
    }

    pub(super) fn next_heartbeat(&self) -> Instant {
        self.last + HEARTBEAT
    }

    pub(super) async fn tell(&mut self, context: &RequestContext<RoleServer>, view: &View) {
        let (steps, doing) = &view.progress;
        if *steps > self.steps {
            self.steps = *steps;
            self.doing.clone_from(doing);
            self.send(context, self.doing.clone()).await;
        }
    }

    /// Tells what happens, if that is something else than before.
    pub(super) async fn say(
        &mut self,
        context: &RequestContext<RoleServer>,
        doing: Option<String>,
    ) {
        if let Some(doing) = doing.filter(|doing| *doing != self.doing) {
            self.doing.clone_from(&doing);
            self.send(context, doing).await;
        }
    }

    pub(super) async fn heartbeat(&mut self, context: &RequestContext<RoleServer>) {
        let seconds = self.began.elapsed().as_secs();
        self.send(context, format!("{} ({seconds} s)", self.doing))
            .await;
    }

    async fn send(&mut self, context: &RequestContext<RoleServer>, message: String) {
        self.last = Instant::now();
        let Some(token) = &self.token else { return };
        self.sent += 1;
        let params = ProgressNotificationParam::new(token.clone(), f64::from(self.sent))
            .with_message(message);
        match timeout(CLIENT_PATIENCE, context.peer.notify_progress(params)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!("progress not sent: {error}"),
            Err(_) => tracing::debug!("progress not sent: the client does not read"),
        }
    }
}
