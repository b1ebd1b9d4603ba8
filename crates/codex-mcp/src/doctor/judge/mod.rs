//! Judges the facts: one function for each check, which reads nothing but the facts.

mod codex;
mod home;
mod login;
mod private_git;
mod store;
mod tools;
mod words;

use std::path::{Path, PathBuf};

use codex_config::trust::covered_files::CoveredFile;
use codex_config::trust::{Trust, TrustChanges};
use codex_engine::binary::NoCodex;
use serde_json::json;
use settings::{ConfigError, Source, Warning};

use super::facts::{Codex, CodexSetup, CommandOutcome, Facts, Home, Probes, RepositoryFiles};
use super::report::{Check, Finding, Report};
use crate::installation::Installation;
use crate::writable_state::{REMEDY, WritableState};

pub(crate) use codex::INSTALL;
pub(super) use codex::codex_version;
pub(super) use login::login as judge_login;
pub(super) use words::command_name;

/// Why a check that needs our own settings was not made.
const NO_SETTINGS: &str = "the settings cannot be used";

/// Judges the facts.
#[must_use]
pub fn judge(facts: &Facts) -> Report {
    let mut findings = vec![installation(&facts.installation)];
    findings.extend(match &facts.codex {
        Ok(setup) => setup_findings(setup),
        Err(error) => without_settings(error),
    });
    findings.push(tools::git(&facts.tools.git));
    findings.push(tools::gh(&facts.tools.gh, &facts.tools.gh_login));
    findings.extend(private_git::leftovers(&facts.leftovers));
    findings.push(state_directory(&facts.state));
    findings.push(match &facts.codex {
        Ok(setup) => store::store(&setup.store),
        Err(_) => Finding::not_checked(Check::Store, NO_SETTINGS),
    });
    Report { findings }
}

/// Codex's error about a configuration that it cannot load. Its app-server starts nevertheless, and
/// only threads fail; `codex login status` prints the error.
///
/// Source: Codex 0.104.0, 0.153.4 and 0.169.0.
fn config_refused(login: &CommandOutcome) -> Option<String> {
    let CommandOutcome::Ended(finished) = login else {
        return None;
    };
    let (_, reason) = finished.stderr.split_once("Error loading configuration:")?;
    Some(words::lines(reason))
}

fn installation(installation: &Installation) -> Finding {
    let update = installation.channel.update(env!("CARGO_PKG_REPOSITORY"));
    let message = format!("{}; to update: {update}", installation.in_words());
    Finding::ok(Check::CodexMcp, message).with_value(json!({
        "commit": installation.commit,
        "channel": installation.channel.name(),
        "program": installation.program.as_deref().map(Path::to_string_lossy),
        "update": update,
    }))
}

fn state_directory(state: &Result<Option<PathBuf>, WritableState>) -> Finding {
    let check = Check::StateDir;
    let (finding, path) = match state {
        Ok(Some(path)) => {
            let message = words::one_line(&path.display().to_string());
            (Finding::ok(check, message), path)
        }
        Ok(None) => return Finding::not_checked(check, "the user has no home directory"),
        Err(error) => {
            let message = words::one_line(&error.to_string());
            (Finding::warning(check, message, REMEDY), &error.path)
        }
    };
    finding.with_value(path.to_string_lossy())
}

fn wrong_settings(error: &ConfigError) -> Finding {
    let hint = match error {
        ConfigError::Invalid {
            from: Source::Variable(name),
            ..
        }
        | ConfigError::NoRole {
            from: Source::Variable(name),
            ..
        } => format!("Correct the variable {name}, or unset it."),
        _ => "Correct the file; settings of codex-mcp stand in its table `[plugins.codex-mcp]`."
            .to_owned(),
    };
    let message = words::lines(&error.to_string());
    Finding::problem(Check::Settings, message, hint)
}

fn without_settings(error: &ConfigError) -> Vec<Finding> {
    let others = [
        Check::Codex,
        Check::Version,
        Check::Commands,
        Check::AppServer,
        Check::Login,
        Check::Limits,
        Check::CodexHome,
        Check::Config,
        Check::Sandbox,
    ];
    let others = others.map(|check| Finding::not_checked(check, NO_SETTINGS));
    std::iter::once(wrong_settings(error))
        .chain(others)
        .collect()
}

fn setup_findings(setup: &CodexSetup) -> Vec<Finding> {
    let changes = setup.repository.as_ref().and_then(|it| it.changes.as_ref());
    let changes = changes.map(TrustChanges::message);
    // The settings warn of the changes too.
    let warnings = setup.warnings.iter();
    let warnings = warnings
        .filter(|warning| Some(&warning.message) != changes.as_ref())
        .map(|Warning { message, hint }| Finding::warning(Check::Settings, message, hint.as_str()));
    let wrong = setup.wrong.iter().map(wrong_settings);
    let mut findings: Vec<Finding> = wrong.chain(warnings).collect();
    if findings.is_empty() {
        findings.push(Finding::ok(Check::Settings, "fine"));
    }
    findings.extend(setup.repository.as_ref().map(repository));
    findings.extend(match &setup.program {
        Ok(codex) => codex_findings(codex, &setup.home),
        Err(error) => without_codex(error, &setup.home),
    });
    findings.extend(setup.home.git_rules.as_ref().map(home::git_rules));
    findings
}

fn repository(repository: &RepositoryFiles) -> Finding {
    if let Some(changes) = &repository.changes {
        return Finding::warning(Check::Repository, changes.message(), changes.hint());
    }
    let top = repository.top.display();
    let files = repository.files.iter().map(CoveredFile::to_string);
    let files = files.collect::<Vec<_>>().join("; ");
    let message = match repository.trust {
        Trust::Trusted => format!("{top} is trusted, and brings {files}"),
        Trust::Untrusted => format!("{top} is not trusted; if it were, it would bring {files}"),
    };
    Finding::note(Check::Repository, words::one_line(&message))
}

fn codex_findings(codex: &Codex, home: &Home) -> Vec<Finding> {
    let first = [codex::binary(&codex.binary), codex::version(codex)];
    let rest = match &codex.probes {
        Some(probes) => probe_findings(codex, probes, home),
        None => unasked("this is not a Codex that answers", home),
    };
    first.into_iter().chain(rest).collect()
}

fn probe_findings(codex: &Codex, probes: &Probes, home: &Home) -> [Finding; 7] {
    let name = words::command_name(&codex.binary);
    let refused = config_refused(&probes.login);
    [
        codex::commands(&probes.commands),
        codex::app_server(&probes.app_server, home, &name),
        login::login(home, &probes.login, &name),
        login::limits(&probes.limits, probes.asked_at),
        home::directory(home),
        home::config(home, refused.as_deref()),
        codex::sandbox(&probes.sandbox, refused.as_deref()),
    ]
}

fn without_codex(error: &NoCodex, home: &Home) -> Vec<Finding> {
    let why = "there is no Codex";
    let first = [
        codex::none(error),
        Finding::not_checked(Check::Version, why),
    ];
    first.into_iter().chain(unasked(why, home)).collect()
}

/// The findings if Codex cannot be probed, for this reason.
fn unasked(why: &str, home: &Home) -> [Finding; 7] {
    [
        Finding::not_checked(Check::Commands, why),
        Finding::not_checked(Check::AppServer, why),
        Finding::not_checked(Check::Login, why),
        Finding::not_checked(Check::Limits, why),
        home::directory(home),
        home::config(home, None),
        Finding::not_checked(Check::Sandbox, why),
    ]
}

#[cfg(test)]
mod tests;
