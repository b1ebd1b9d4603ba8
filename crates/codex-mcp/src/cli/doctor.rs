//! `codex-mcp doctor`: checks whether Codex can work here.

use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use common::output;

use super::runtime;
use super::times::duration_within;
use crate::doctor::{Facts, Report, as_text, gather, judge};

/// The limits of `--timeout`.
const LIMITS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print one JSON object instead of text: {"codex_mcp", "works", "checks":
    /// [{"name", "status": "ok" | "note" | "warning" | "problem", "message",
    /// "value"?, "hint"?}]}.
    #[arg(long)]
    json: bool,

    /// The Codex to check: a path, or a name on PATH. Default: the variable
    /// CODEX_MCP_CODEX_BIN, `codex_bin` in the configuration, else `codex` on PATH.
    #[arg(long, value_name = "PATH")]
    codex_bin: Option<PathBuf>,

    /// The time limit for each program that doctor runs, up to 10m.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration_within(LIMITS))]
    timeout: Duration,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let report = match facts(args) {
        Ok(facts) => judge(&facts),
        Err(error) => return fail("cannot start the runtime", &error),
    };
    match print(&report, args.json) {
        Ok(()) => {}
        // The reader has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        Err(error) => return fail("cannot write to stdout", &error),
    }
    if report.works() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn facts(args: &Args) -> io::Result<Facts> {
    runtime::block_on(gather(args.codex_bin.clone(), args.timeout))
}

fn print(report: &Report, json: bool) -> io::Result<()> {
    if json {
        output::json(report)
    } else {
        as_text(report, output::stdout_columns(), &mut output::stdout())
    }
}

fn fail(what: &str, error: &io::Error) -> ExitCode {
    // If stderr is closed too, the exit code reports the failure.
    let _ = writeln!(output::stderr(), "error: {what}: {error}");
    ExitCode::FAILURE
}
