//! What the facts mean: one function for each check, none of which looks at
//! anything but the facts.

mod codex;
mod home;
mod login;
mod private_git;
mod tools;
mod words;

use codex_config::trust::Trust;
use codex_config::trust::brought::Brought;
use codex_engine::binary::NoCodex;
use settings::{ConfigError, Source, Warning};

use super::facts::{Asked, Codex, Facts, Home, Place, Probes, RepositoryFiles};
use super::report::{Check, Finding, Report};

pub(super) use codex::codex_version;

/// Makes findings of the facts.
#[must_use]
pub fn judge(facts: &Facts) -> Report {
    let mut findings = match &facts.codex {
        Ok(place) => of_place(place),
        Err(error) => without_settings(error),
    };
    findings.push(tools::git(&facts.tools.git));
    findings.push(tools::gh(&facts.tools.gh, &facts.tools.gh_login));
    findings.extend(private_git::leftovers(&facts.leftovers));
    Report { findings }
}

/// Codex's own words about a configuration that it can't load. It starts its
/// app-server all the same, and only threads fail; `codex login status` tells.
///
/// Source: Codex 0.104.0, 0.153.4 and 0.169.0.
fn config_refused(login: &Asked) -> Option<String> {
    let Asked::Ended(finished) = login else {
        return None;
    };
    let (_, reason) = finished.stderr.split_once("Error loading configuration:")?;
    Some(words::lines(reason))
}

fn without_settings(error: &ConfigError) -> Vec<Finding> {
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
    let problem = Finding::problem(Check::Settings, message, hint);
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
    let others = others.map(|check| Finding::not_checked(check, "the settings can't be used"));
    [problem].into_iter().chain(others).collect()
}

fn of_place(place: &Place) -> Vec<Finding> {
    let warnings = place.warnings.iter();
    let mut findings: Vec<Finding> = warnings
        .map(|Warning { message, hint }| Finding::warning(Check::Settings, message, hint.as_str()))
        .collect();
    if findings.is_empty() {
        findings.push(Finding::ok(Check::Settings, "fine"));
    }
    findings.extend(place.repository.as_ref().map(repository));
    findings.extend(match &place.program {
        Ok(codex) => of_codex(codex, &place.home),
        Err(error) => without_codex(error, &place.home),
    });
    findings.extend(place.home.git_rules.as_ref().map(home::git_rules));
    findings
}

fn repository(repository: &RepositoryFiles) -> Finding {
    if let Some(changes) = &repository.changes {
        return Finding::warning(Check::Repository, changes.message(), changes.hint());
    }
    let top = repository.top.display();
    let files = repository.files.iter().map(Brought::to_string);
    let files = files.collect::<Vec<_>>().join("; ");
    let message = match repository.trust {
        Trust::Trusted => format!("{top} is trusted, and brings {files}"),
        Trust::Untrusted => format!("{top} is not trusted; if it were, it would bring {files}"),
    };
    Finding::note(Check::Repository, words::one_line(&message))
}

fn of_codex(codex: &Codex, home: &Home) -> Vec<Finding> {
    let first = [codex::binary(&codex.binary), codex::version(codex)];
    let rest = match &codex.probes {
        Some(probes) => of_probes(codex, probes, home),
        None => unasked("this is not a Codex that answers", home),
    };
    first.into_iter().chain(rest).collect()
}

fn of_probes(codex: &Codex, probes: &Probes, home: &Home) -> [Finding; 7] {
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

/// The findings where Codex can't be asked, for this reason.
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
