//! `codex-mcp worker`: runs the jobs of a store.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use codex_protocol::codex::SandboxMode;
use common::duration;
use job_queue::machine;
use job_queue::worker::lock::WorkerLock;
use job_queue::worker::start::{self, TAKEN};
use job_queue::worker::{
    self, Announcement, GRACE, LockedSlot, Options, Timing, UsualNotifiers, WorkerError,
};
use safe_files::own_log::OwnLog;
use settings::bounds::CurrentBounds;
use settings::store_location::Location;
use settings::{Config, ConfigError, Flags, RetentionSettings};

use super::shutdown::{self, Shutdown};
use super::values::one_of;
use super::{injected_servers, log, runtime, serve};

/// The explanation of workers in the help.
const HOW_IT_WORKS: &str = "\
Submitting a job starts a worker, which exits after a while without jobs. Start one by hand on \
other machines that share a PostgreSQL database, or to watch it work. Any number of workers may \
share a store; one of them runs each job.

A job that this user submitted on this machine, as its signature proves, is run with the Codex \
and the CODEX_HOME of its submitter. The worker does not run jobs of others, unless \
`jobs_of_others = \"run\"` is set in ~/.config/atm/config.toml (below ATM_HOME if that is set). \
Then it runs them with its own Codex and CODEX_HOME, and jobs that name programs fail. All other \
variables, such as API keys, are this worker's. When this worker is told to end (Ctrl-C, \
SIGTERM), it takes no more jobs, and gives its running jobs 30s (--grace) to finish; then, or at \
a second signal, it ends them. The exit code is 130 after Ctrl-C. When the worker is killed, the \
next one on this machine continues the calls of its jobs if it starts within 14s (on Linux, with \
Codex 0.130 or newer). Otherwise, all processes that the worker has started end then.";

#[derive(Debug, clap::Args)]
#[command(after_help = HOW_IT_WORKS)]
pub(super) struct Args {
    /// Where the jobs are: a file of SQLite, or a database such as
    /// postgres://user@host/jobs. Default: the variable CODEX_MCP_STORE, `store` in the
    /// configuration, else ~/.local/state/codex-mcp/jobs.db.
    #[arg(long, value_name = "LOCATION")]
    store: Option<Location>,

    /// How many jobs run at once. Default: `worker_concurrency` in the configuration,
    /// else 4.
    #[arg(long, value_name = "N")]
    concurrency: Option<NonZeroU32>,

    /// Exit after this long without work, or without the store, such as 90s or 10m, or never.
    /// Default: never.
    #[arg(long, value_name = "TIME", value_parser = idle)]
    idle: Option<IdleTimeout>,

    /// How long running jobs may continue when this worker is told to end, such as 90s or 5m.
    /// Default: 30s.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    grace: Option<Duration>,

    /// The Codex for jobs that were submitted on other machines: a path, or a name on
    /// PATH. Default: the variable CODEX_MCP_CODEX_BIN, `codex_bin` in the
    /// configuration, else `codex` on PATH.
    #[arg(long, value_name = "PATH")]
    codex_bin: Option<PathBuf>,

    /// The widest sandbox that jobs may have. Default: the variable
    /// CODEX_MCP_MAX_SANDBOX, `max_sandbox` in the configuration, else any.
    #[arg(long, value_parser = one_of::<SandboxMode>())]
    max_sandbox: Option<SandboxMode>,

    /// Refuse runs with criteria or notifiers that name programs (`allow_commands =
    /// false`).
    #[arg(long)]
    no_commands: bool,

    /// Jobs may work in this directory and below; can be given several times. A run may
    /// also use its own worktree if the top of its repository is in such a directory.
    /// Default: the variable CODEX_MCP_ALLOW_DIRS, `allow_dirs` in the configuration,
    /// else anywhere.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,

    /// The worker was started on demand, because jobs were submitted.
    #[arg(long, hide = true)]
    on_demand: bool,

    /// The duration of a lease without renewal, in milliseconds.
    #[arg(long, value_name = "MS", hide = true, value_parser = millis)]
    lease_ms: Option<Duration>,

    /// The interval of the heartbeat, in milliseconds.
    #[arg(long, value_name = "MS", hide = true, value_parser = millis)]
    heartbeat_ms: Option<Duration>,
}

/// The time for which a worker stays without work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdleTimeout {
    For(Duration),
    Forever,
}

/// Why the worker could not start or ended with an error.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{}: {error}", path.display())]
    WorkerLock { path: PathBuf, error: io::Error },
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

fn idle(text: &str) -> Result<IdleTimeout, String> {
    match text {
        "never" => Ok(IdleTimeout::Forever),
        text => duration::parse(text)
            .map(IdleTimeout::For)
            .map_err(|error| format!("{error}, or never")),
    }
}

fn millis(text: &str) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(millis @ 1..) => Ok(Duration::from_millis(millis)),
        _ => Err("it must be a whole number, 1 or more".to_owned()),
    }
}

pub(super) fn run(args: &Args) -> ExitCode {
    log::start();
    match work(args) {
        Ok(code) => code,
        Err(error) => {
            if matches!(error, Failure::Config(_)) {
                bound_log_without_settings(args);
            }
            tracing::error!("{error}");
            if args.on_demand {
                // If nobody reads the announcement, the log has the error.
                let _ = start::announce(&error.to_string());
            }
            ExitCode::FAILURE
        }
    }
}

/// Bounds the log of a worker that cannot use its settings: it is started again and again, and each
/// time adds the error. The user's bound counts unless it is wrong itself.
fn bound_log_without_settings(args: &Args) {
    let Ok(state) = serve::state() else {
        return;
    };
    let retention = settings::load_partial(&args.flags()).map_or_else(
        |_| RetentionSettings::default(),
        |read| read.config.retention,
    );
    let log = OwnLog::on_stderr(start::log_of(&state), retention.log_bytes.value);
    if let Some(Err(error)) = log.map(|log| log.bound()) {
        tracing::debug!("cannot rotate the log: {error}");
    }
}

fn work(args: &Args) -> Result<ExitCode, Failure> {
    let config = config(args)?;
    let options = options(args, &config);
    let place = WorkerLock::of(&options.location, &config.jobs.state);
    let log = OwnLog::on_stderr(
        start::log_of(&config.jobs.state),
        config.retention.log_bytes.value,
    );
    let limit = options.grace.saturating_add(shutdown::WORKER_LIMIT);
    let working = async {
        let shutdown = Shutdown::on_signals(limit);
        let Shutdown { closing, hurry, .. } = shutdown.clone();
        let held = place.take().await.map_err(|error| Failure::WorkerLock {
            path: place.file().to_owned(),
            error,
        })?;
        let announcement = match (args.on_demand, &held) {
            (true, None) => {
                start::announce(TAKEN).map_err(WorkerError::Slot)?;
                return Ok(ExitCode::SUCCESS);
            }
            (true, Some(_)) => Announcement::OnStdout,
            (false, _) => Announcement::None,
        };
        let slot = LockedSlot::new(place, held, announcement);
        let working = worker::run(options, slot, closing, hurry);
        beside(log::bound(log), working).await?;
        Ok(shutdown.exit_code())
    };
    runtime::block_on(working).map_err(Failure::Runtime)?
}

/// Completes `work` while `service` runs.
async fn beside<T>(service: impl Future<Output = ()>, work: impl Future<Output = T>) -> T {
    let service = async {
        service.await;
        pending::<Infallible>().await
    };
    tokio::select! {
        done = work => done,
        never = service => match never {},
    }
}

fn config(args: &Args) -> Result<Config, ConfigError> {
    let config = settings::load(args.flags())?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    Ok(config)
}

fn options(args: &Args, config: &Config) -> Options {
    let flags = args.flags();
    Options {
        location: config.jobs.store.value.clone(),
        host: machine::name(),
        codex: config.chosen_codex(),
        codex_home: config.codex_home.clone(),
        tools: injected_servers::job_tools(config),
        bounds: CurrentBounds::read_by(move || Ok(settings::load(flags.clone())?.bounds())),
        state: config.jobs.state.clone(),
        concurrency: args.concurrency.unwrap_or(config.jobs.concurrency.value),
        idle: args.idle(config.jobs.idle.value),
        keep_jobs: config.retention.jobs.value,
        stall: config.alerts.stall_timeout.value,
        notifiers: UsualNotifiers {
            notify: config.alerts.notifiers(),
            kinds: config.alerts.notify_on.value.clone(),
            answer_by_mail: config.alerts.answer_by_mail.value,
            user_identity: config.user_identity.clone(),
            atm_home: config.atm_home.clone(),
            audit_limit: config.retention.audit_bytes.value,
        },
        grace: args.grace.unwrap_or(GRACE),
        others: config.jobs.others.value,
        timing: args.timing(),
    }
}

impl Args {
    fn flags(&self) -> Flags {
        Flags {
            codex_bin: self.codex_bin.clone(),
            store: self.store.clone(),
            max_sandbox: self.max_sandbox,
            allow_commands: self.no_commands.then_some(false),
            allow_dirs: self.allow_dir.clone(),
            ..Flags::default()
        }
    }

    fn idle(&self, on_demand: Duration) -> Option<Duration> {
        match (self.idle, self.on_demand) {
            (Some(IdleTimeout::For(limit)), _) => Some(limit),
            (None, true) => Some(on_demand),
            (Some(IdleTimeout::Forever), _) | (None, false) => None,
        }
    }

    fn timing(&self) -> Timing {
        let usual = Timing::default();
        let lease = self.lease_ms.unwrap_or(usual.lease);
        Timing {
            lease,
            heartbeat: self.heartbeat_ms.unwrap_or(usual.heartbeat),
            ending: usual.ending.min(lease / 2),
        }
    }
}
