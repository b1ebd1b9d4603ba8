//! `codex-mcp serve`: MCP on stdin and stdout.

use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use codex_mcp_protocol::lines::DEFAULT_LINE_LIMIT;
use rmcp::ServiceExt;
use rmcp::transport::stdio_pipes;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::log;
use super::stdio::{Logging, Preflight, Unfit};
use crate::config::{self, ConfigError, Warning};
use crate::engine::{Engine, Launch, Options};
use crate::mcp::{Api, Decider, Front, LineTransport, Patience};

/// What is set by a variable alone.
const VARIABLES: &str = "\
CODEX_MCP_STDIO_MODE says what to do where stdin or stdout is a terminal, or stderr is
stdout (`2>&1`): auto (the default) warns, strict refuses to start, off doesn't look.";

#[derive(Debug, clap::Args)]
#[command(after_help = VARIABLES)]
pub(super) struct Args {
    /// Which set of tools to serve.
    #[arg(long, value_enum, default_value = "classic")]
    api: Api,

    /// The Codex to run: a path, or a name on PATH. Default: `codex_bin` in the
    /// configuration, else `codex` on PATH.
    #[arg(long, value_name = "PATH", env = "CODEX_MCP_CODEX_BIN")]
    codex_bin: Option<PathBuf>,

    /// How long a call may take, in seconds, before its turn is interrupted.
    /// Default: `request_timeout_secs` in the configuration, else 300.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: Option<u64>,

    /// How long a question of Codex's stays open, in seconds, before it is
    /// declined.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    approval_timeout: u64,

    /// How long a turn may be silent, in seconds, before it is reported as
    /// stalled.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    stall_timeout: u64,

    /// With `--api sessions`, put Codex's questions to the client's user at once,
    /// where the client can ask (MCP elicitation), instead of leaving them to
    /// whoever looks in.
    #[arg(long)]
    elicit: bool,

    /// The longest message that is taken from the client or from Codex, in
    /// bytes, from 1 KiB to 1 GiB.
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_LINE_LIMIT, value_parser = RangedU64ValueParser::<usize>::new().range(LINE_LIMITS))]
    max_line: usize,
}

/// What `--max-line` may be. A shorter line holds no request, a longer one no
/// memory of a usual machine.
const LINE_LIMITS: RangeInclusive<u64> = 1024..=1 << 30;

/// Why serving ended badly.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    Stdio(#[from] Unfit),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("the runtime can't be started: {0}")]
    Runtime(io::Error),
    #[error("the client did not begin as an MCP client does: {0}")]
    Begin(Box<rmcp::service::ServerInitializeError>),
}

pub(super) fn run(args: &Args) -> ExitCode {
    let preflight = Preflight::new();
    match preflight.logging() {
        Logging::Possible => log::start(),
        Logging::Impossible => log::silence(),
    }
    match serve(args, preflight) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(args: &Args, preflight: Preflight) -> Result<(), ServeError> {
    preflight.verdict()?;
    let config = config::load(args.codex_bin.clone(), args.timeout)?;
    for Warning { message, hint } in &config.warnings {
        tracing::warn!("{message}. {hint}");
    }
    if args.elicit && args.api == Api::Classic {
        tracing::warn!("--elicit has no effect without --api sessions: classic calls always ask");
    }
    let patience = Patience {
        call: config.request_timeout,
        approval: Duration::from_secs(args.approval_timeout),
        stall: Duration::from_secs(args.stall_timeout),
    };
    let engine = Arc::new(Engine::new(Options {
        launch: Launch {
            codex: config.codex_bin,
            line_limit: args.max_line,
        },
        codex_home: config.codex_home,
        patience: patience.session(),
    }));
    // One thread: processes are tied to the thread that starts them.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ServeError::Runtime)?;
    let served = runtime.block_on(async {
        let served = serve_client(args, &engine, patience, preflight).await;
        engine.shut_down().await;
        served
    });
    // A read of stdin that is a terminal can't be called off.
    runtime.shutdown_background();
    served
}

async fn serve_client(
    args: &Args,
    engine: &Arc<Engine>,
    patience: Patience,
    preflight: Preflight,
) -> Result<(), ServeError> {
    let closing = CancellationToken::new();
    end_on_signals(&closing);
    engine.keep_tidy();
    let warming = Arc::clone(engine);
    tokio::spawn(async move { warming.warm_up().await });

    preflight.report();
    let (stdin, stdout) = stdio_pipes();
    let transport = LineTransport::new(stdin, stdout, args.max_line, closing.clone());
    let decider = match args.elicit {
        true => Decider::User,
        false => Decider::Poller,
    };
    let front = Front::new(
        Arc::clone(engine),
        args.api,
        decider,
        patience,
        closing.clone(),
    )
    .with_stdio(preflight.into_stdio());
    match front.serve(transport).await {
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

/// The end of the input and SIGTERM are the same to us; Ctrl-C and a closed
/// terminal too.
fn end_on_signals(closing: &CancellationToken) {
    for kind in [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ] {
        match signal(kind) {
            Ok(mut signals) => {
                let closing = closing.clone();
                tokio::spawn(async move {
                    signals.recv().await;
                    closing.cancel();
                });
            }
            Err(error) => tracing::warn!("{kind:?} is not heeded: {error}"),
        }
    }
}
