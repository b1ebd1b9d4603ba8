//! Codex's prerequisites: an installation and a login.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::output;
use supervise::short_lived;
use supervise::spawn::{Program, become_program};

use super::change::{is_on_path, program};
use super::{Args, Failure, Outcome, asks};
use crate::cli::runtime;
use crate::cli::stored::complain;
use crate::doctor::{Check, Report, Status};
use crate::environment::variable;

/// Codex's package for npm.
const PACKAGE: &str = "@openai/codex";

/// How long npm may take. It downloads some 100 MB.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(600);

/// Offers to install Codex with npm, if there is none.
pub(super) fn offer_install(args: &Args) -> Result<(), Failure> {
    let is_chosen = args.codex_bin.is_some() || variable("CODEX_MCP_CODEX_BIN").is_some();
    if is_chosen || is_on_path("codex") || !io::stdin().is_terminal() {
        return Ok(());
    }
    let Some(npm) = program("npm") else {
        return Ok(());
    };
    let question =
        format!("Codex is not installed. Run `npm install -g {PACKAGE}` (some 400 MB)? [y/N] ");
    if !asks(&question)? {
        return Ok(());
    }
    writeln!(output::stdout(), "Installing …")?;
    match runtime::block_on(install(&npm)).map_err(Failure::Runtime)? {
        Ok(()) => writeln!(output::stdout(), "Codex is installed.")?,
        // The rest can be done all the same, and its end says that Codex is missing.
        Err(error) => complain("error", &error),
    }
    Ok(())
}

async fn install(npm: &Path) -> Result<(), String> {
    let npm = Program::new(npm, ["install", "--global", PACKAGE]);
    match short_lived::run(&npm, INSTALL_TIMEOUT).await {
        Ok(output) if output.succeeded() => Ok(()),
        Ok(output) => Err(format!("npm failed: {}", output.stderr.trim())),
        Err(error) => Err(format!("npm failed: {error}")),
    }
}

/// Offers to log in, if that is what Codex needs; then `codex login` takes the place of this
/// process.
pub(super) fn offer_login(outcome: &Outcome) -> Result<(), Failure> {
    let Some(codex) = outcome.report.as_ref().and_then(to_log_in) else {
        return Ok(());
    };
    if !io::stdin().is_terminal() || !asks("Log in to Codex now? [y/N] ")? {
        return Ok(());
    }
    Err(Failure::Login(become_program(&Program::new(
        &codex,
        ["login"],
    ))))
}

/// The Codex that needs a login, and works otherwise.
pub(super) fn to_log_in(report: &Report) -> Option<PathBuf> {
    let problems = report.findings.iter();
    let mut problems = problems.filter(|finding| finding.status == Status::Problem);
    let is_login = problems.next()?.check == Check::Login && problems.next().is_none();
    let mut findings = report.findings.iter();
    let codex = findings.find(|finding| finding.check == Check::Codex)?;
    let chosen = codex.value.as_ref()?.get("chosen")?.as_str()?;
    is_login.then(|| chosen.into())
}
