//! The log on stderr. stdout belongs to the protocol.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use common::output::{self, Colours, Verbosity};
use safe_files::off_runtime;
use safe_files::own_log::OwnLog;
use tokio::time::sleep;
use tracing_subscriber::EnvFilter;

/// Chooses what is logged, in `tracing-subscriber`'s filter syntax.
const VARIABLE: &str = "CODEX_MCP_LOG";

/// rmcp logs each message at `info`, and sqlx slow statements: too much for this log.
const DEFAULT: &str = "info,rmcp=warn,sqlx=warn";

/// The time between two looks at the size of a log.
const LOOK_AFTER: Duration = Duration::from_secs(10);

/// Sets the log of a background process aside whenever it is too long.
pub(super) async fn bound(log: Option<OwnLog>) {
    let Some(log) = log else {
        return;
    };
    loop {
        let own = log.clone();
        match off_runtime::run(move || own.bound()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!("the log is not set aside: {error}"),
            Err(error) => tracing::debug!("the log is not looked at: {error}"),
        }
        sleep(LOOK_AFTER).await;
    }
}

/// Suppresses the reports of panics, as stderr is stdout and must carry only the protocol.
pub(super) fn silence() {
    std::panic::set_hook(Box::new(|_| {}));
}

/// The level where a person reads other output.
const QUIET: &str = "warn";

/// What `--quiet` and `--verbose` log.
const ERRORS: &str = "error";
const DETAILS: &str = "debug,rmcp=warn,sqlx=warn,hyper=warn,hyper_util=warn";

/// Starts logging.
pub(super) fn start() {
    start_with(DEFAULT);
}

/// Starts logging warnings and errors only, for verbs with other output.
pub(super) fn start_quietly() {
    start_with(QUIET);
}

/// The exit code of a server's result; logs the error if there is one.
pub(super) fn exit(served: io::Result<ExitCode>) -> ExitCode {
    match served {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn start_with(usual: &'static str) {
    let verbosity = output::verbosity();
    let usual = match verbosity {
        Verbosity::Quiet => ERRORS,
        Verbosity::Usual => usual,
        Verbosity::Verbose => DETAILS,
    };
    let asked = EnvFilter::try_from_env(VARIABLE);
    let wrong = std::env::var_os(VARIABLE).and(asked.as_ref().err().map(ToString::to_string));
    // A flag takes precedence over the variable.
    let asked = asked.ok().filter(|_| verbosity == Verbosity::Usual);
    let styles = output::stderr_colours();
    tracing_subscriber::fmt()
        .with_env_filter(asked.unwrap_or_else(|| EnvFilter::new(usual)))
        .with_writer(move || output::log(styles))
        .with_ansi(styles == Colours::On)
        // Otherwise a line that cannot be written is reported with `eprintln!`, which panics where
        // stderr is the log on the full disk.
        .log_internal_errors(false)
        .init();
    if let Some(error) = wrong {
        tracing::warn!("{VARIABLE} is not a filter such as {usual}, and is ignored: {error}");
    }
}
