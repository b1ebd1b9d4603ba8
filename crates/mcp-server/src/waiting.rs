//! Waits on behalf of a call: sends heartbeats, and stops when the caller has gone.

use std::time::Duration;

use codex_engine::EngineError;
use codex_engine::logic::progress::CurrentStep;
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use tokio::time::{Instant, sleep_until, timeout};

use super::code::Code;
use super::error::ToolError;
use super::progress::Progress;
use crate::server::Server;

/// The step of a call before any other is known.
const WAITING: &str = "waiting for Codex";

/// The longest time for an action when the client has gone.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

impl Server {
    /// Waits for a future, which is dropped when the caller goes away.
    pub(super) async fn wait_for<T>(
        &self,
        context: &RequestContext<RoleServer>,
        what: impl Future<Output = T>,
    ) -> Result<T, ToolError> {
        let mut progress = Progress::new(context, WAITING);
        self.wait_until(context, None, &mut progress, what).await
    }

    /// Waits for a future like [`wait_for`](Self::wait_for), with heartbeats that report the step
    /// returned by `look`.
    pub(super) async fn wait_with_steps<T>(
        &self,
        context: &RequestContext<RoleServer>,
        look: impl Fn() -> Option<CurrentStep>,
        what: impl Future<Output = T>,
    ) -> Result<T, ToolError> {
        let mut progress = Progress::new(context, WAITING);
        self.wait_with_progress(context, None, &mut progress, &look, what)
            .await
    }

    /// Waits like [`wait_for`](Self::wait_for) until `deadline`, in a call that reports its own
    /// progress afterwards.
    pub(super) async fn wait_until<T>(
        &self,
        context: &RequestContext<RoleServer>,
        deadline: Option<Instant>,
        progress: &mut Progress,
        what: impl Future<Output = T>,
    ) -> Result<T, ToolError> {
        self.wait_with_progress(context, deadline, progress, &|| None, what)
            .await
    }

    async fn wait_with_progress<T>(
        &self,
        context: &RequestContext<RoleServer>,
        deadline: Option<Instant>,
        progress: &mut Progress,
        look: &impl Fn() -> Option<CurrentStep>,
        what: impl Future<Output = T>,
    ) -> Result<T, ToolError> {
        let mut what = std::pin::pin!(what);
        loop {
            let (code, why) = tokio::select! {
                biased;
                () = context.ct.cancelled() => (Code::Cancelled, "the call was cancelled"),
                () = self.closing.cancelled() => (Code::ShuttingDown, "codex-mcp is shutting down"),
                done = &mut what => return Ok(done),
                () = until(deadline) => (Code::Timeout, "Codex did not begin the turn in time"),
                () = sleep_until(progress.next_heartbeat()) => {
                    if let Some(step) = look() {
                        progress.set_step(&step);
                    }
                    progress.heartbeat(context).await;
                    continue;
                }
            };
            return Err(ToolError::new(code, why));
        }
    }

    /// Runs an action that is completed even if the caller goes away. When the server ends, the
    /// action has some seconds left.
    pub(super) async fn run_detached_through_shutdown<T: Send + 'static>(
        &self,
        context: &RequestContext<RoleServer>,
        act: impl Future<Output = Result<T, ToolError>> + Send + 'static,
    ) -> Result<T, ToolError> {
        let mut act = tokio::spawn(act);
        let waited = self.wait_for(context, &mut act).await;
        let done = match waited {
            Err(_) if self.closing.is_cancelled() => {
                let done = timeout(SHUTDOWN_TIMEOUT, act).await;
                done.map_err(|_| ToolError::new(Code::ShuttingDown, "it took too long"))?
            }
            waited => waited?,
        };
        done.map_err(|error| ToolError::new(Code::Internal, error.to_string()))?
    }

    /// Runs a step to its end even if the caller goes away, since an incomplete step is worse than
    /// none.
    pub(super) async fn run_detached<T: Send + 'static>(
        &self,
        context: &RequestContext<RoleServer>,
        step: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, ToolError> {
        let done = self.wait_for(context, tokio::spawn(step)).await?;
        let done = done.map_err(|error| ToolError::new(Code::Internal, error.to_string()))?;
        Ok(done?)
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
