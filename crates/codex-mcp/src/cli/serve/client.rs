//! Serves one client of `codex-mcp serve`, from its first message to its end.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use agent_team::shutdown_summary::{self, ThreadSummary};
use agent_team::{ShutdownSummary, TeamServices};
use codex_engine::binary::CodexBinary;
use codex_engine::{AppServers, Engine, InstalledCodex, Launch, Options};
use codex_protocol::codex::Release;
use common::text::hex;
use job_queue::service::Jobs;
use mcp_server::{
    Decider, Defaults, Deliveries, Group, Groups, LineTransport, Server, SessionTasks, Stdio,
    Timeouts, Warnings, serve_until_closed,
};
use safe_files::off_runtime;
use settings::Config;
use settings::bounds::Bounds;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::super::alerts::SharedEngine;
use super::super::backend::{self, Backend, BackendError};
use super::super::job_service::job_service;
use super::super::services::{self, Identity};
use super::super::{alerts, injected_servers};
use super::shared_identities::{IdentityLease, SharedIdentities};
use super::{Args, ServeError};

/// When a client's service ends.
#[derive(Debug, Clone)]
pub(in crate::cli) struct ClientEnd {
    /// Cancelled when the client has gone, or the service is to end.
    pub(in crate::cli) closing: CancellationToken,
    /// Cancelled when this process is to end.
    pub(in crate::cli) ended: CancellationToken,
    /// Cancelled when the service is to wait for nothing more.
    pub(in crate::cli) hurry: CancellationToken,
}

/// The settings and streams with which a client is served.
pub(in crate::cli) struct ClientSetup {
    pub(in crate::cli) config: Config,
    pub(in crate::cli) backend: Backend,
    pub(in crate::cli) defaults: Defaults,
    pub(in crate::cli) stdio: Stdio,
    /// The parts that the client shares with others; none if `None`.
    pub(in crate::cli) shared: Option<Shared>,
    pub(in crate::cli) end: ClientEnd,
}

/// The parts that the clients of a host share.
pub(in crate::cli) struct Shared {
    pub(in crate::cli) app_servers: Rc<AppServers>,
    /// The tasks of all clients.
    pub(in crate::cli) tasks: Arc<SessionTasks>,
    /// The identities that several clients share.
    pub(in crate::cli) identities: Rc<SharedIdentities>,
    /// The ID of this client.
    pub(in crate::cli) client: String,
    /// The key of the clients with which this client shares an identity, if it shares one.
    pub(in crate::cli) identity_key: Option<String>,
}

/// The backend that the client has asked for, if it has what the client wants of it.
pub(in crate::cli) fn backend(args: &Args, config: &Config) -> Result<Backend, BackendError> {
    let backend = backend::choose(args.backend, args.api, config)?;
    match (
        &backend,
        Groups::of(args.tools.clone()).has(Group::Sessions),
    ) {
        (Backend::McpServer(..), false) => Err(BackendError::ToolsNeedAppServer),
        _ => Ok(backend),
    }
}

/// The settings of new threads, with the prompts from their files.
pub(in crate::cli) async fn defaults(config: &Config) -> Result<Defaults, ServeError> {
    let threads = config.threads.clone();
    Ok(off_runtime::run(move || Defaults::read(&threads)).await??)
}

/// Serves the client that these streams lead to, until it has gone.
pub(in crate::cli) async fn serve<R, W>(
    args: &Args,
    setup: ClientSetup,
    streams: (R, W),
) -> Result<(), ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let ClientSetup {
        config,
        backend,
        defaults,
        stdio,
        shared,
        end,
    } = setup;
    let groups = Groups::of(args.tools.clone());
    let lease = lease(&config, backend.name(), shared.as_ref()).await;
    let identity: &Identity = &lease;
    for warning in &identity.warnings {
        tracing::warn!("{warning}");
    }
    let warnings = warnings(&config, identity, shared.as_ref());
    let defaults = defaults.for_member(identity.member.clone(), config.directory.clone());
    let defaults = match &args.resume {
        Some(thread) => identity.recall(&config.atm_home, thread.as_ref(), defaults, &warnings),
        None => defaults,
    };
    // From here on, no error may return before the identity is closed.
    if lease.is_new {
        identity.join(&config);
    }
    let jobs = job_service(&config, &identity.member, "codex-mcp serve", |error| {
        tracing::warn!("jobs are not written into the audit: {error}");
    });
    let setup = ServerSetup {
        config,
        defaults,
        jobs: Arc::new(jobs),
        warnings,
        groups,
        stdio,
        shared,
    };
    let served = match backend {
        Backend::AppServer => through_app_server(args, setup, identity, streams, &end).await,
        Backend::McpServer(codex, release) => {
            let options = proxy_options(args, setup, identity, codex, release);
            let ClientEnd { closing, hurry, .. } = end.clone();
            mcp_proxy::serve(options, streams, closing, hurry).await;
            Ok(())
        }
    };
    let close = async |identity: Identity| identity.close(&end.hurry).await;
    lease.release(&end.ended, close).await;
    served
}

/// The identity of a client: its own, or the one that it shares with other clients of the host.
async fn lease(config: &Config, backend: &'static str, shared: Option<&Shared>) -> IdentityLease {
    let take = |client| Identity::take(config, backend, client);
    let Some(shared) = shared else {
        return IdentityLease::exclusive(take(None));
    };
    let Some(key) = shared.identity_key.as_deref() else {
        return IdentityLease::exclusive(take(Some(shared.client.as_str())));
    };
    // After a change of the settings, the next client has another identity.
    let team = config.team.as_ref().map(|team| team.value.to_string());
    let settings = (&config.atm_home, config.identity.value.to_string(), team);
    let slot = format!("{key} {settings:?}");
    shared.identities.lease(slot, || take(Some(key))).await
}

/// The warnings for a client: its own, or those that it shares with other clients of its identity.
fn warnings(config: &Config, identity: &Identity, shared: Option<&Shared>) -> Warnings {
    let mut first: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    first.extend(identity.warnings.iter().cloned());
    // The log has it when the member has tried to join.
    first.extend(services::missing_team(config));
    let key = shared.and_then(|shared| Some((shared, shared.identity_key.as_deref()?)));
    let warnings = key.map_or_else(Warnings::default, |(shared, key)| {
        shared.identities.warnings(key, &first)
    });
    for warning in first {
        warnings.push(warning);
    }
    warnings
}

fn timeouts(args: &Args, config: &Config) -> Timeouts {
    Timeouts {
        call: config.request_timeout.value,
        approval: args.approval_timeout,
        stall: args
            .stall_timeout
            .unwrap_or(config.alerts.stall_timeout.value),
    }
}

/// The parts that a server is built from.
struct ServerSetup {
    config: Config,
    defaults: Defaults,
    jobs: Arc<Jobs>,
    warnings: Warnings,
    groups: Groups,
    stdio: Stdio,
    shared: Option<Shared>,
}

/// The options of the proxy that serves a client through this Codex's MCP server. A host has no
/// proxies, so there is nothing shared.
fn proxy_options(
    args: &Args,
    setup: ServerSetup,
    identity: &Identity,
    codex: CodexBinary,
    release: Option<Release>,
) -> mcp_proxy::Options {
    let ServerSetup {
        config,
        defaults,
        jobs,
        warnings,
        groups,
        ..
    } = setup;
    mcp_proxy::Options {
        codex: InstalledCodex {
            binary: codex,
            home: config.codex_home.clone(),
            release,
        },
        defaults: defaults.with_mcp_servers(injected_servers::proxy_servers(&config, identity)),
        warnings,
        bounds: config.bounds(),
        services: identity.services.clone(),
        jobs,
        groups,
        shutdown_summary: identity.shutdown_summary,
        timeouts: timeouts(args, &config),
        line_limit: args.max_line,
    }
}

/// The engine of a client, with its records, alerts, tools and bounds.
fn engine(
    args: &Args,
    config: &Config,
    identity: &Identity,
    warnings: &Warnings,
    for_alerts: &SharedEngine,
) -> Engine {
    let warning_sink = warnings.clone();
    let sandbox_bound = config.bounds().sandbox_escape_bound();
    let engine = Engine::new(Options {
        launch: Launch {
            codex: config.chosen_codex(),
            line_limit: args.max_line,
        },
        codex_home: config.codex_home.clone(),
        timeouts: timeouts(args, config).session(),
    })
    .with_directory(config.directory.clone())
    .with_tools(injected_servers::member_tools(config, identity))
    .with_sandbox_bound(sandbox_bound.map(|bound| bound.to_string()))
    .with_warnings(move |warning| warning_sink.push(warning));
    let engine = alerts::with_session_alerts(engine, config, identity, warnings, for_alerts);
    match identity.services.records.clone() {
        Some(records) => engine.with_observer(records),
        None => engine,
    }
}

/// The engine of a client at work: with the app-server and the earlier sessions that it shares, and
/// with its background tasks.
async fn started_engine(
    engine: Engine,
    shared: Option<&Shared>,
    config: &Config,
    identity: &Identity,
    for_alerts: &SharedEngine,
) -> Arc<Engine> {
    let engine = Arc::new(match shared {
        Some(shared) => engine
            .with_client(shared.client.clone())
            .joining(&shared.app_servers, terms(&config.bounds())),
        None => engine,
    });
    // It is set once, as each engine has alerts of its own.
    let _ = for_alerts.set(Arc::downgrade(&engine));
    engine.take_back().await;
    engine.keep_tidy();
    if let (ShutdownSummary::Ask, Some(records)) =
        (identity.shutdown_summary, identity.services.records.clone())
    {
        let keep =
            move |words: ThreadSummary| records.summarised(words.thread.as_str(), words.summary);
        tokio::spawn(shutdown_summary::ask_unused(Arc::downgrade(&engine), keep));
    }
    let warming = Arc::clone(&engine);
    tokio::spawn(async move { warming.warm_up().await });
    engine
}

async fn through_app_server<R, W>(
    args: &Args,
    setup: ServerSetup,
    identity: &Identity,
    streams: (R, W),
    end: &ClientEnd,
) -> Result<(), ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let closing = end.closing.clone();
    let ServerSetup {
        config,
        defaults,
        jobs,
        warnings,
        groups,
        stdio,
        shared,
    } = setup;
    let timeouts = timeouts(args, &config);
    let for_alerts = SharedEngine::default();
    let engine = engine(args, &config, identity, &warnings, &for_alerts);
    let engine = started_engine(engine, shared.as_ref(), &config, identity, &for_alerts).await;
    let decider = match args.elicit {
        true => Decider::User,
        false => Decider::Poller,
    };
    let deliveries = Deliveries::default();
    let tasks = shared.as_ref().map(|shared| Arc::clone(&shared.tasks));
    let beginning_tasks = TaskTracker::new();
    let server = Server::new(
        Arc::clone(&engine),
        args.api,
        decider,
        timeouts,
        closing.clone(),
    )
    .with_groups(groups)
    .with_stdio(stdio)
    .with_defaults(defaults)
    .with_jobs(jobs)
    .with_tasks(tasks, beginning_tasks.clone())
    .with_warnings(warnings)
    .with_bounds(config.bounds())
    .with_services(identity.services.clone(), deliveries.clone());
    let served = serve_streams(server, streams, args.max_line, deliveries, &closing).await;
    let left = shared.is_some().then_some(beginning_tasks);
    end_of_client(&engine, left, identity, end).await;
    served
}

/// Serves the client at these streams until it has gone, or `closing` is cancelled.
async fn serve_streams<R, W>(
    server: Server,
    (reader, writer): (R, W),
    line_limit: usize,
    deliveries: Deliveries,
    closing: &CancellationToken,
) -> Result<(), ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let transport = LineTransport::new(reader, writer, line_limit, closing.clone());
    let transport = transport
        .with_deliveries(deliveries)
        .with_task_subscriptions(server.task_subscriptions());
    let served = serve_until_closed(server, transport, closing).await;
    served.map_err(ServeError::Begin)
}

/// Cleanup after a client disconnects. In a host, this waits for the client's turns, and for its
/// `tasks` that are beginning: they are recorded under its identity. Without a host, there are no
/// `tasks`.
async fn end_of_client(
    engine: &Engine,
    tasks: Option<TaskTracker>,
    identity: &Identity,
    end: &ClientEnd,
) {
    let is_shared = tasks.is_some();
    if let Some(tasks) = tasks {
        let working = async {
            tasks.close();
            tasks.wait().await;
            engine.own_turns_end().await;
        };
        tokio::select! {
            () = working => {}
            () = end.ended.cancelled() => {}
        }
    }
    if identity.shutdown_summary == ShutdownSummary::Ask {
        ask_for_summaries(engine, &identity.services, &end.hurry).await;
    }
    if is_shared {
        engine.unload_idle(|| end.ended.is_cancelled()).await;
    }
    engine.shut_down().await;
}

/// A digest of the bounds, which must match for clients to share sessions. The settings of a session
/// were narrowed to the bounds when it began, so it may exceed other bounds.
pub(in crate::cli) fn terms(bounds: &Bounds) -> String {
    let bounds = Bounds {
        base: PathBuf::new(),
        ..bounds.clone()
    };
    hex(&Sha256::digest(format!("{bounds:?}")))
}

/// Asks each thread for a summary, if there are records to store it.
async fn ask_for_summaries(engine: &Engine, services: &TeamServices, hurry: &CancellationToken) {
    let Some(records) = &services.records else {
        return;
    };
    let keep = |words: ThreadSummary| records.summarised(words.thread.as_str(), words.summary);
    shutdown_summary::ask_all(engine, hurry, keep).await;
}
