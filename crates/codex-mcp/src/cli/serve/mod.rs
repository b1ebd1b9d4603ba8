//! `codex-mcp serve`: MCP on stdin and stdout.
//!
//! This process serves its client itself (`client`), or passes the client's messages on to the
//! host that several clients share (`relayed`). Clients of a host can share an identity
//! (`shared_identities`).

mod client;
mod relayed;
mod shared_identities;

use std::io;
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::time::Duration;

use agent_team::logic::ThreadName;
use codex_protocol::lines::DEFAULT_LINE_LIMIT;
use mcp_server::{Api, Group};
use rmcp::transport::stdio_pipes;
use safe_files::off_runtime::OffRuntimeError;
use settings::{Config, ConfigError, Flags, TIMEOUTS};

use super::backend::{Backend, BackendChoice, BackendError};
use super::runtime;
use super::settings::Settings;
use super::shutdown::{self, Shutdown};
use super::stdio::{Preflight, StdioError};
use super::times::duration_within;
use super::values::number_within;

pub(super) use client::{
    ClientEnd, ClientSetup, Shared, backend, defaults, serve as serve_client, terms,
};
pub(super) use relayed::{
    HostEndpointError, all_endpoints, connect_as, endpoint, start_awaited_host, start_next_host,
    state,
};
pub(super) use shared_identities::SharedIdentities;

/// The settings that only a variable can change.
const VARIABLES: &str = "\
CODEX_MCP_STDIO_MODE says what to do if stdin or stdout is a terminal, or stderr is stdout \
(`2>&1`): auto (the default) warns, strict refuses to start, off skips the check.";

#[derive(Debug, clap::Args)]
#[command(after_help = VARIABLES)]
pub(super) struct Args {
    /// Which set of tools to serve.
    #[arg(long, value_enum, default_value = "classic")]
    api: Api,

    /// Which groups of tools to serve, separated by commas; codex_status is in each.
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

    /// With `--api sessions`, ask the client's user Codex's questions at once, if the
    /// client can ask (MCP elicitation), instead of leaving them to polling.
    #[arg(long)]
    elicit: bool,

    /// Give the first new thread the summary of an earlier thread of this identity: the one used
    /// last, or THREAD (an ID or a prefix of one).
    #[arg(long, value_name = "THREAD", num_args = 0..=1)]
    resume: Option<Option<ThreadName>>,

    /// The longest message to accept from the client or from Codex, in bytes, from 1 KiB
    /// to 1 GiB. With `--backend mcp-server`, Codex's may be four times as long, because
    /// Codex writes each answer into its message twice.
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_LINE_LIMIT, value_parser = number_within(LINE_LIMITS))]
    max_line: usize,
}

/// The limits of `--max-line`. No request fits into a shorter line, and a longer one would not
/// fit into the memory of a usual machine.
const LINE_LIMITS: RangeInclusive<usize> = 1024..=1 << 30;

/// Why serving failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServeError {
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
    #[error("cannot write to the client: {0}")]
    Client(io::Error),
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
    let config = settings::load(args.flags())?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    if args.elicit && args.api == Api::Classic {
        tracing::warn!("--elicit has no effect without --api sessions: classic calls always ask");
    }
    let served = serve_until_shutdown(args, config, preflight);
    runtime::block_on(served).map_err(ServeError::Runtime)?
}

async fn serve_until_shutdown(
    args: &Args,
    config: Config,
    preflight: Preflight,
) -> Result<ExitCode, ServeError> {
    let shutdown = Shutdown::on_signals(shutdown::SERVER_LIMIT);
    let backend = client::backend(args, &config)?;
    if config.host.value && matches!(backend, Backend::AppServer) {
        let stdio = preflight.stdio();
        let connecting = relayed::connect(&config, &stdio);
        match shutdown.closing.run_until_cancelled(connecting).await {
            None => return Ok(shutdown.exit_code()),
            Some(Ok(link)) => {
                preflight.report();
                relayed::run(args, link, &shutdown).await?;
                return Ok(shutdown.exit_code());
            }
            Some(Err(error)) => {
                tracing::warn!("{error}. This process serves its client alone.");
            }
        }
    }
    let defaults = client::defaults(&config).await?;
    preflight.report();
    let setup = ClientSetup {
        config,
        backend,
        defaults,
        stdio: preflight.stdio(),
        shared: None,
        end: ClientEnd {
            closing: shutdown.closing.clone(),
            ended: shutdown.closing.clone(),
            hurry: shutdown.hurry.clone(),
        },
    };
    client::serve(args, setup, stdio_pipes()).await?;
    Ok(shutdown.exit_code())
}

impl Args {
    /// The settings of the command line.
    pub(super) fn flags(&self) -> Flags {
        self.settings.flags()
    }
}
