//! `codex-mcp demo`: see it work, without an account.

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
use crate::demo::{self, Afterwards, Cause, DemoError, Options};

const ERROR: Style = AnsiColor::Red.on_default().bold();

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Leave the demo's directory, to look at it afterwards.
    #[arg(long)]
    keep: bool,

    /// The Codex to run: a path, or a name on PATH. Default: the variable
    /// CODEX_MCP_CODEX_BIN, `codex_bin` in the
    /// configuration, else `codex` on PATH, else one that is installed with npm
    /// for the demo alone.
    #[arg(long, value_name = "PATH")]
    codex_bin: Option<PathBuf>,
}

/// Why the demo was not played to its end.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("the runtime can't be started: {0}")]
    Runtime(io::Error),
    #[error(transparent)]
    Demo(#[from] DemoError),
}

/// Which signal asked for the end.
type Asked = Arc<OnceLock<SignalKind>>;

pub(super) fn run(args: &Args) -> ExitCode {
    let asked = Asked::default();
    match play(args, &asked) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Demo(error)) if error.cause() == Cause::Reader => ExitCode::SUCCESS,
        Err(Failure::Demo(error)) if error.cause() == Cause::Signal => interrupted(&asked),
        Err(error) => {
            // There is nobody left to tell if this fails.
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

fn play(args: &Args, asked: &Asked) -> Result<(), Failure> {
    let options = Options {
        codex_bin: settings::load(Flags {
            codex_bin: args.codex_bin.clone(),
            ..Flags::default()
        })?
        .chosen_codex(),
        afterwards: if args.keep {
            Afterwards::Keep
        } else {
            Afterwards::Remove
        },
    };
    let played = runtime::block_on(async {
        let stop = CancellationToken::new();
        stop_on_signals(&stop, asked).map_err(Failure::Runtime)?;
        Ok(demo::run(options, output::stdout(), &stop).await?)
    });
    played.map_err(Failure::Runtime)?
}

fn stop_on_signals(stop: &CancellationToken, asked: &Asked) -> io::Result<()> {
    for kind in [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ] {
        let mut signals = signal(kind)?;
        let stop = stop.clone();
        let asked = Arc::clone(asked);
        tokio::spawn(async move {
            signals.recv().await;
            let _ = asked.set(kind);
            stop.cancel();
        });
    }
    Ok(())
}

/// The exit code of a shell's for a program that a signal has ended.
fn interrupted(asked: &Asked) -> ExitCode {
    asked.get().copied().map_or(ExitCode::FAILURE, |signal| {
        ExitCode::from(exit::of_signal(signal))
    })
}
