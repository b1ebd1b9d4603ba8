//! `codex-mcp serve`: MCP on stdin and stdout.

use std::io;
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use agent_team::logic::ThreadName;
use agent_team::shutdown_summary::{self, ThreadSummary};
use agent_team::{ShutdownSummary, TeamServices};
use clap::builder::RangedU64ValueParser;
use codex_engine::{Engine, InstalledCodex, Launch, Options};
use codex_protocol::lines::DEFAULT_LINE_LIMIT;
use job_queue::service::Jobs;
use mcp_server::{
    Api, Decider, Defaults, Deliveries, Group, Groups, LineTransport, Server, Timeouts, Warnings,
};
use rmcp::ServiceExt;
use rmcp::transport::stdio_pipes;
use safe_files::off_runtime::{self, OffRuntimeError};
use settings::{Config, ConfigError, TIMEOUTS, Warning};
use tokio_util::sync::CancellationToken;

use super::backend::{self, Backend, BackendChoice, BackendError};
use super::job_service::job_service;
use super::services::Identity;
use super::settings::Settings;
use super::shutdown::{self, Shutdown};
use super::stdio::{Preflight, StdioError};
use super::times::duration_within;
use super::{alerts, own_servers, runtime};

/// The settings that only a variable can change.
const VARIABLES: &str = "\
CODEX_MCP_STDIO_MODE says what to do where stdin or stdout is a terminal, or stderr is \
stdout (`2>&1`): auto (the default) warns, strict refuses to start, off doesn't look.";

#[derive(Debug, clap::Args)]
#[command(after_help = VARIABLES)]
pub(super) struct Args {
    /// Which set of tools to serve.
    #[arg(long, value_enum, default_value = "classic")]
    api: Api,

    /// Which groups of tools to serve, with commas between; codex_status is in each.
    /// Fewer tools take less of the client's context. Default: all.
    #[arg(long, value_enum, value_name = "GROUP", value_delimiter = ',')]
    tools: Vec<Group>,

    /// The server of Codex to use.
    #[arg(long, value_enum, default_value = "auto")]
    backend: BackendChoice,

    #[command(flatten)]
    settings: Settings,

    /// How long an approval request stays open after a client could first see it, from 1s to
    /// 24h, before it is declined.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration_within(TIMEOUTS))]
    approval_timeout: Duration,

    /// The longest time without an event, from 1s to 24h, before a turn is reported as stalled.
    /// Default: `stall_timeout_secs` in the configuration, else 5m.
    #[arg(long, value_name = "TIME", value_parser = duration_within(TIMEOUTS))]
    stall_timeout: Option<Duration>,

    /// With `--api sessions`, put Codex's questions to the client's user at once, where the
    /// client can ask (MCP elicitation), instead of leaving them to pollers.
    #[arg(long)]
    elicit: bool,

    /// Continue an earlier thread of this identity with the first new one: the one that was
    /// worked on last, or this one, by its id or the first characters of it. The new thread gets
    /// the earlier one's summary.
    #[arg(long, value_name = "THREAD", num_args = 0..=1)]
    resume: Option<Option<ThreadName>>,

    /// The longest message that is taken from the client or from Codex, in
    /// bytes, from 1 KiB to 1 GiB. With `--backend mcp-server`, Codex's may be four
    /// times as long, since it writes each answer into its message twice.
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_LINE_LIMIT, value_parser = RangedU64ValueParser::<usize>::new().range(LINE_LIMITS))]
    max_line: usize,
}

/// The limits of `--max-line`. No request fits into a shorter line, and a longer one would not
/// fit into the memory of a usual machine.
const LINE_LIMITS: RangeInclusive<u64> = 1024..=1 << 30;

/// Why serving failed.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    Stdio(#[from] StdioError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("cannot read the prompt files: {0}")]
    Files(#[from] OffRuntimeError),
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error("the client did not begin as an MCP client does: {0}")]
    Begin(Box<rmcp::service::ServerInitializeError>),
}

pub(super) fn run(args: &Args) -> ExitCode {
    let preflight = Preflight::new();
    let logging = preflight.logging();
    logging.start();
    match serve(args, preflight) {
        Ok(code) => code,
        Err(error) => {
            logging.end(&error);
            ExitCode::FAILURE
        }
    }
}

fn serve(args: &Args, preflight: Preflight) -> Result<ExitCode, ServeError> {
    preflight.verdict()?;
    let config = settings::load(args.settings.flags())?;
    for Warning { message, hint } in &config.warnings {
        tracing::warn!("{message}. {hint}");
    }
    if args.elicit && args.api == Api::Classic {
        tracing::warn!("--elicit has no effect without --api sessions: classic calls always ask");
    }
    runtime::block_on(serve_client(args, config, preflight)).map_err(ServeError::Runtime)?
}

async fn serve_client(
    args: &Args,
    config: Config,
    preflight: Preflight,
) -> Result<ExitCode, ServeError> {
    let shutdown = Shutdown::on_signals(shutdown::SERVER_LIMIT);
    let ended = shutdown.clone();
    let backend = backend::choose(args.backend, args.api, &config)?;
    let groups = Groups::of(args.tools.clone());
    if let (Backend::McpServer(..), false) = (&backend, groups.has(Group::Sessions)) {
        return Err(BackendError::ToolsNeedAppServer.into());
    }
    let threads = config.threads.clone();
    let defaults = off_runtime::run(move || Defaults::read(&threads)).await??;
    let warnings = Warnings::default();
    for warning in &config.warnings {
        warnings.push(warning.to_string());
    }
    let identity = Identity::take(&config, backend.name());
    for warning in &identity.warnings {
        tracing::warn!("{warning}");
        warnings.push(warning.as_str());
    }
    let defaults = defaults.for_member(identity.member.clone(), config.directory.clone());
    let defaults = match &args.resume {
        Some(thread) => identity.recall(&config.atm_home, thread.as_ref(), defaults, &warnings),
        None => defaults,
    };
    // From here on, no error may return before the identity is closed.
    identity.join(&config);
    let hurry = shutdown.hurry.clone();
    let jobs = job_service(&config, &identity.member, "codex-mcp serve", |error| {
        tracing::warn!("jobs are not written into the audit: {error}");
    });
    let jobs = Arc::new(jobs);
    let served = match backend {
        Backend::AppServer => {
            let setup = Setup {
                config,
                defaults,
                jobs,
                warnings,
                groups,
            };
            through_app_server(args, setup, &identity, preflight, shutdown).await
        }
        Backend::McpServer(codex, release) => {
            let options = mcp_proxy::Options {
                codex: InstalledCodex {
                    binary: codex,
                    home: config.codex_home.clone(),
                    release,
                },
                defaults: defaults.with_mcp_servers(own_servers::proxy_servers(&config, &identity)),
                warnings,
                bounds: config.bounds(),
                services: identity.services.clone(),
                jobs,
                groups,
                shutdown_summary: identity.shutdown_summary,
                timeouts: timeouts(args, &config),
                line_limit: args.max_line,
            };
            preflight.report();
            let Shutdown { closing, hurry, .. } = shutdown;
            mcp_proxy::serve(options, stdio_pipes(), closing, hurry).await;
            Ok(())
        }
    };
    identity.close(&hurry).await;
    served.map(|()| ended.exit_code())
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
struct Setup {
    config: Config,
    defaults: Defaults,
    jobs: Arc<Jobs>,
    warnings: Warnings,
    groups: Groups,
}

async fn through_app_server(
    args: &Args,
    setup: Setup,
    identity: &Identity,
    preflight: Preflight,
    shutdown: Shutdown,
) -> Result<(), ServeError> {
    let Shutdown { closing, hurry, .. } = shutdown;
    let Setup {
        config,
        defaults,
        jobs,
        warnings,
        groups,
    } = setup;
    let timeouts = timeouts(args, &config);
    let warning_sink = warnings.clone();
    let bounds = config.bounds();
    let engine = Engine::new(Options {
        launch: Launch {
            codex: config.chosen_codex(),
            line_limit: args.max_line,
        },
        codex_home: config.codex_home.clone(),
        timeouts: timeouts.session(),
    })
    .with_directory(config.directory.clone())
    .with_tools(own_servers::member_tools(&config, identity))
    .with_sandbox_bound(bounds.sandbox_escape_bound().map(|bound| bound.to_string()))
    .with_warnings(move |warning| warning_sink.push(warning));
    let engine = alerts::with_session_alerts(engine, &config, identity, &warnings);
    let engine = Arc::new(match identity.services.records.clone() {
        Some(records) => engine.with_observer(records),
        None => engine,
    });
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

    preflight.report();
    let decider = match args.elicit {
        true => Decider::User,
        false => Decider::Poller,
    };
    let deliveries = Deliveries::default();
    let server = Server::new(
        Arc::clone(&engine),
        args.api,
        decider,
        timeouts,
        closing.clone(),
    )
    .with_groups(groups)
    .with_stdio(preflight.into_stdio())
    .with_defaults(defaults)
    .with_jobs(jobs)
    .with_warnings(warnings)
    .with_bounds(bounds)
    .with_services(identity.services.clone(), deliveries.clone());
    let served = serve_on_stdio(server, args.max_line, deliveries, closing).await;
    if identity.shutdown_summary == ShutdownSummary::Ask {
        ask_for_summaries(&engine, &identity.services, &hurry).await;
    }
    engine.shut_down().await;
    served
}

async fn serve_on_stdio(
    server: Server,
    line_limit: usize,
    deliveries: Deliveries,
    closing: CancellationToken,
) -> Result<(), ServeError> {
    let (stdin, stdout) = stdio_pipes();
    let transport = LineTransport::new(stdin, stdout, line_limit, closing.clone());
    match server.serve(transport.with_deliveries(deliveries)).await {
        Ok(service) => {
            if let Err(error) = service.waiting().await {
                tracing::error!("serving ended abruptly: {error}");
            }
            Ok(())
        }
        Err(_) if closing.is_cancelled() => Ok(()),
        Err(error) => Err(ServeError::Begin(Box::new(error))),
    }
}

/// Asks each thread for a summary, if there are records to store it.
async fn ask_for_summaries(engine: &Engine, services: &TeamServices, hurry: &CancellationToken) {
    let Some(records) = &services.records else {
        return;
    };
    let keep = |words: ThreadSummary| records.summarised(words.thread.as_str(), words.summary);
    shutdown_summary::ask_all(engine, hurry, keep).await;
}
