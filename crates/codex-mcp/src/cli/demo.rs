//! `codex-mcp demo`: shows the program at work, without an account.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use anstyle::{AnsiColor, Style};
use common::output;
use settings::{ConfigError, Flags};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{exit, runtime};
use crate::demo::{self, Cause, Cleanup, DemoError, Options};

const ERROR: Style = AnsiColor::Red.on_default().bold();

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Keep the demo's directory for inspection.
    #[arg(long)]
    keep: bool,

    /// The Codex to run: a path, or a name on PATH. Default: the variable
    /// CODEX_MCP_CODEX_BIN, `codex_bin` in the configuration, else `codex` on PATH, else
    /// one that npm installs only for the demo.
    #[arg(long, value_name = "PATH")]
    codex_bin: Option<PathBuf>,
}

/// Why the demo ended early.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error(transparent)]
    Demo(#[from] DemoError),
}

/// The first signal that ended the demo.
type StopSignal = Arc<OnceLock<SignalKind>>;

pub(super) fn run(args: &Args) -> ExitCode {
    let stop_signal = StopSignal::default();
    match play(args, &stop_signal) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Demo(error)) if error.cause() == Cause::Reader => ExitCode::SUCCESS,
        Err(Failure::Demo(error)) if error.cause() == Cause::Signal => interrupted(&stop_signal),
        Err(error) => {
            // If stderr is closed, nothing can be reported.
            let _ = complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn complain(error: &Failure) -> io::Result<()> {
    let mut out = output::stderr();
    writeln!(out)?;
    out.styled(ERROR, "error:")?;
    writeln!(out, " {error}")
}

fn play(args: &Args, stop_signal: &StopSignal) -> Result<(), Failure> {
    let options = Options {
        codex_bin: settings::load(Flags {
            codex_bin: args.codex_bin.clone(),
            ..Flags::default()
        })?
        .chosen_codex(),
        cleanup: if args.keep {
            Cleanup::Keep
        } else {
            Cleanup::Remove
        },
    };
    let played = runtime::block_on(async {
        let stop = CancellationToken::new();
        stop_on_signals(&stop, stop_signal).map_err(Failure::Runtime)?;
        Ok(demo::run(options, output::stdout(), &stop).await?)
    });
    played.map_err(Failure::Runtime)?
}

fn stop_on_signals(stop: &CancellationToken, stop_signal: &StopSignal) -> io::Result<()> {
    for kind in [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ] {
        let mut signals = signal(kind)?;
        let stop = stop.clone();
        let stop_signal = Arc::clone(stop_signal);
        tokio::spawn(async move {
            signals.recv().await;
            let _ = stop_signal.set(kind);
            stop.cancel();
        });
    }
    Ok(())
}

/// The exit code that shells use for a program ended by a signal.
fn interrupted(stop_signal: &StopSignal) -> ExitCode {
    stop_signal
        .get()
        .copied()
        .map_or(ExitCode::FAILURE, |signal| {
            ExitCode::from(exit::signal_code(signal))
        })
}
