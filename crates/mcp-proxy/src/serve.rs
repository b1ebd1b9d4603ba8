//! Serves one client from its first message to its last answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_team::{ShutdownSummary, TeamServices, shutdown_summary};
use codex_engine::InstalledCodex;
use job_queue::service::Jobs;
use mcp_server::defaults::Defaults;
use mcp_server::warnings::Warnings;
use mcp_server::{Groups, Timeouts};
use rmcp::model::Tool;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use settings::bounds::Bounds;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::added_tools;
use crate::augment::Augmenter;
use crate::intake::Side;
use crate::known_tools::known_tools;
use crate::logic::{Router, RouterConfig, RouterTimeouts};
use crate::outbox::Outbox;
use crate::proxy::{DRAIN_TIMEOUT, Proxy, RouterState, child_limit};
use crate::recorder::Recorder;

/// The number of messages of the greatest length that fill an outbox.
const OUTBOX_MESSAGES: usize = 2;

/// The least size in bytes at which an outbox counts as full, so that it always has room for a
/// burst of short messages.
const MIN_OUTBOX_BYTES: usize = 1024 * 1024;

/// The longest time for a request that is not a tool call. The child answers such requests at once.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The configuration of a proxy.
pub struct Options {
    /// The Codex whose MCP server is run.
    pub codex: InstalledCodex,
    /// The settings of new threads that apply unless a call sets them.
    pub defaults: Defaults,
    /// Warnings for the caller.
    pub warnings: Warnings,
    /// The bounds on the settings that the client may request.
    pub bounds: Bounds,
    /// The server's records and mail as a member of a team.
    pub services: TeamServices,
    /// The store of jobs.
    pub jobs: Arc<Jobs>,
    /// The groups of our own tools that are served. The child's tools are always served.
    pub groups: Groups,
    /// Whether threads are asked for a summary when the server ends.
    pub shutdown_summary: ShutdownSummary,
    /// The time-outs of calls and questions.
    pub timeouts: Timeouts,
    /// The longest message that is read from the client, in bytes. A message of the child may be
    /// four times as long.
    pub line_limit: usize,
}

/// Serves one client until it has gone, or `closing` is cancelled.
///
/// When `hurry` is cancelled too, the proxy ends without waiting for anything.
pub async fn serve<R, W>(
    options: Options,
    (reader, writer): (R, W),
    closing: CancellationToken,
    hurry: CancellationToken,
) where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let capacity = |longest: usize| MIN_OUTBOX_BYTES.max(longest.saturating_mul(OUTBOX_MESSAGES));
    let (to_client, for_client) = Outbox::new(capacity(child_limit(options.line_limit)));
    let (to_child, for_child) = Outbox::new(capacity(options.line_limit));
    let proxy = Proxy::new(&options, to_client, to_child, closing.clone());
    let proxy = Arc::new(proxy);
    let written = CancellationToken::new();
    let writing = tokio::spawn({
        let (closing, written) = (closing.clone(), written.clone());
        async move {
            if let Err(error) = for_client.write(writer, written).await {
                tracing::debug!("the client no longer listens: {error}");
                closing.cancel();
            }
        }
    });
    let hang_up = CancellationToken::new();
    let child = Arc::clone(&proxy).run_child(options.codex, for_child, hang_up.clone());
    let child = tokio::spawn(child);
    let clock = tokio::spawn(Arc::clone(&proxy).run_clock());
    tokio::select! {
        () = proxy.read(Side::Client, reader) => {}
        () = closing.cancelled() => {}
    }
    proxy.leaving.cancel();

    let effects = proxy.with_router(|router, _| router.shut_down());
    proxy.perform(effects);
    if options.shutdown_summary == ShutdownSummary::Ask {
        tokio::select! {
            () = proxy.summarise() => {}
            () = hurry.cancelled() => {}
        }
    }
    hang_up.cancel();
    // The task can't fail: nothing panics in it, and nobody aborts it.
    let _ = child.await;
    let own_calls = proxy.wait_until(|router| router.open_own_calls() == 0);
    if timeout(DRAIN_TIMEOUT, own_calls).await.is_err() {
        tracing::warn!("a tool has not answered in time; ending without its answer");
    }
    written.cancel();
    if timeout(DRAIN_TIMEOUT, writing).await.is_err() {
        tracing::warn!("the client does not read its last answers");
    }
    clock.abort();
}

impl Proxy {
    fn new(
        options: &Options,
        to_client: Outbox,
        to_child: Outbox,
        closing: CancellationToken,
    ) -> Self {
        let timeouts = RouterTimeouts {
            call: options.timeouts.call,
            approval: options.timeouts.approval,
            request: REQUEST_TIMEOUT,
        };
        let own_tools = added_tools::all(&options.services, &options.groups);
        let config = RouterConfig {
            timeouts,
            version: options.codex.release.map(|release| release.to_string()),
            server_info: json!({
                "name": "codex-mcp",
                "title": "codex-mcp",
                "version": env!("CARGO_PKG_VERSION"),
            }),
            known_tools: known_tools(options.codex.release)
                .iter()
                .filter_map(raw)
                .collect(),
            own_tools: own_tools
                .iter()
                .filter_map(|tool| Some((tool.name.to_string(), raw(tool)?)))
                .collect(),
        };
        Self {
            state: Mutex::new(RouterState {
                router: Router::new(config),
                alarm: None,
            }),
            timeouts,
            augmenter: Arc::new(Augmenter {
                defaults: options.defaults.clone(),
                bounds: options.bounds.clone(),
                codex_home: options.codex.home.clone(),
            }),
            warnings: options.warnings.clone(),
            recorder: Recorder::new(options.services.clone()),
            directories: Mutex::default(),
            jobs: Arc::clone(&options.jobs),
            client_limit: options.line_limit,
            child_limit: child_limit(options.line_limit),
            framing: Mutex::default(),
            to_client,
            to_child,
            leaving: closing.child_token(),
            closing,
            alarm_changed: Notify::new(),
            answered: Notify::new(),
            started: Instant::now(),
        }
    }

    /// Asks each thread for a summary, and waits for the summaries until their time-out.
    async fn summarise(self: &Arc<Self>) {
        let effects = self
            .with_router(|router, now| router.request_summaries(shutdown_summary::REQUEST, now));
        self.perform(effects);
        let all = self.wait_until(|router| router.pending_summaries() == 0);
        if timeout(shutdown_summary::TIMEOUT, all).await.is_err() {
            tracing::warn!("not all threads gave a summary in time");
        }
    }
}

fn raw(tool: &Tool) -> Option<Box<RawValue>> {
    to_raw_value(tool).ok()
}
