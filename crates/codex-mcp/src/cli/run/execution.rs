//! The execution of a run: the checks before Codex starts, its turns, and what is restored after them.

use std::io;
use std::path::Path;

use codex_engine::Engine;
use codex_protocol::codex::SandboxMode;
use git_probe::Submodules;
use goal_run::logic::prompts::Templates;
use goal_run::look::{InspectOptions, RepoInspector};
use goal_run::notify::NotifierCheck;
use goal_run::spec::RunSpec;
use goal_run::{
    Caller, ChosenTemplates, EvidenceFile, ReadOnlyCause, RunContext, RunError, RunResult, drive,
    templates_for,
};
use mcp_server::Defaults;
use safe_files::directory::resolved;
use safe_files::off_runtime;
use settings::{Config, Source};
use uuid::Uuid;

use super::approval::{Approver, NO_TERMINAL};
use super::args::Args;
use super::failure::Failure;
use super::show::RunDisplay;
use crate::cli::services::Identity;
use crate::cli::shutdown::Shutdown;
use crate::cli::stored::complain;

/// Runs the spec with this engine. Once Codex may have started, it has ended when this returns.
pub(super) async fn execute(
    args: &Args,
    config: &Config,
    identity: &Identity,
    engine: &Engine,
    spec: &RunSpec,
    shutdown: &Shutdown,
) -> Result<RunResult, Failure> {
    let PreparedRun {
        spec,
        inspector,
        templates,
        display,
        evidence,
        mut warnings,
    } = prepare(args, config, identity, spec, shutdown).await?;
    // From here on, no path may return before `finish`.
    let (submodules, not_noted) = inspector.submodules().await;
    for warning in &not_noted {
        complain("warning", warning);
    }
    warnings.extend(not_noted);
    let context = RunContext {
        engine,
        watcher: &display,
        stop: &shutdown.closing,
        templates: &templates,
        evidence: Some(evidence),
        warnings,
        submodules: &submodules,
        name: Uuid::new_v4().simple().to_string(),
    };
    let driven = tokio::select! {
        driven = Box::pin(drive(context, &spec, inspector)) => driven,
        never = display.tick() => match never {},
    };
    let driven = explained(driven, config, &spec, &display);
    Ok(finish(engine, submodules, driven).await?)
}

/// What a run needs before Codex may start.
struct PreparedRun {
    /// The spec with the settings of the configuration and the top of the repository.
    spec: RunSpec,
    inspector: RepoInspector,
    templates: Templates,
    display: RunDisplay,
    evidence: EvidenceFile,
    /// The warnings for the result, all of which the user has seen.
    warnings: Vec<String>,
}

/// Checks what can be checked before Codex starts, shows the warnings about it, and completes the spec.
/// Creates the evidence file.
async fn prepare(
    args: &Args,
    config: &Config,
    identity: &Identity,
    spec: &RunSpec,
    shutdown: &Shutdown,
) -> Result<PreparedRun, Failure> {
    let options = InspectOptions {
        stop: shutdown.closing.clone(),
        ..InspectOptions::default()
    };
    let inspector = RepoInspector::at(&spec.repo, &spec.criteria, options).await;
    let inspector = inspector.map_err(RunError::from)?;
    check_notifiers(config, identity, spec).await?;
    let (top, home) = (inspector.top().to_owned(), config.codex_home.clone());
    let threads = config.threads.clone();
    let read = move || (templates_for(&top, &home), Defaults::read(&threads));
    let (chosen, defaults) = off_runtime::run(read).await.map_err(Failure::Files)?;
    let ChosenTemplates {
        templates,
        warnings: of_repository,
    } = chosen?;
    let mut warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    let more = identity.warnings.iter().cloned().chain(of_repository);
    let more = more.filter(|text| !warnings.contains(text));
    let more: Vec<String> = more.inspect(|text| complain("warning", text)).collect();
    warnings.extend(more);
    let defaults = defaults?.for_member(identity.member.clone(), config.directory.clone());
    let mut spec = spec.clone();
    spec.settings.thread.cwd = Some(inspector.top().to_owned());
    spec.settings = defaults.apply(spec.settings).await;
    let approver = Approver::new(args.approve, spec.approve);
    let display = RunDisplay::new(approver, spec.limits.turns());
    let evidence = evidence(args, config, inspector.top())?;
    Ok(PreparedRun {
        spec,
        inspector,
        templates,
        display,
        evidence,
        warnings,
    })
}

/// The result or the error of a run, with explanations for a user at a shell.
fn explained(
    driven: Result<RunResult, RunError>,
    config: &Config,
    spec: &RunSpec,
    display: &RunDisplay,
) -> Result<RunResult, RunError> {
    let cause = || read_only_cause(config, spec);
    match driven {
        Ok(done) => {
            let mut done = done.with_cause(cause, Caller::Shell);
            if display.missed_terminal() && done.outcome.reason.is_some() {
                done.outcome.hint = done.outcome.hint.or(Some(NO_TERMINAL));
            }
            Ok(done)
        }
        Err(error) => Err(error.with_cause(cause).for_caller(Caller::Shell)),
    }
}

/// Ends Codex, restores the submodules for the last time, and adds the warnings about them to the
/// result.
async fn finish(
    engine: &Engine,
    submodules: Submodules,
    mut driven: Result<RunResult, RunError>,
) -> Result<RunResult, RunError> {
    engine.shut_down().await;
    // Processes of Codex may have run until now.
    let mut restored = submodules.finish().await;
    if let Ok(done) = &mut driven {
        restored.retain(|what| !done.warnings.contains(what));
        done.warnings.extend(restored.iter().cloned());
    }
    for warning in &restored {
        complain("warning", warning);
    }
    driven
}

/// Checks that the notifiers can work, as far as that can be known beforehand.
async fn check_notifiers(
    config: &Config,
    identity: &Identity,
    spec: &RunSpec,
) -> Result<(), Failure> {
    let lookup = NotifierCheck {
        team: identity.member.team.clone(),
        atm_home: config.atm_home.clone(),
        directory: spec.repo.clone(),
    };
    let notify = spec.notify.clone();
    let checked = off_runtime::run(move || lookup.check(&notify)).await;
    let checked = checked.map_err(Failure::Files)?;
    Ok(checked.map_err(|error| RunError::from(error).for_caller(Caller::Shell))?)
}

/// The file for the evidence of a run in the repository with this top.
fn evidence(args: &Args, config: &Config, top: &Path) -> Result<EvidenceFile, Failure> {
    let directory = config.jobs.state.join("runs");
    let (path, made) = match args.evidence() {
        // Codex could change a file there, and the file itself would change the work that is
        // checked.
        Some(path) if resolved(path).starts_with(top) => {
            let why = "it is where Codex works; name a file outside of the repository";
            (path, Err(io::Error::other(why)))
        }
        Some(path) => (path, EvidenceFile::at(path)),
        None => (&directory, EvidenceFile::new_in(&directory)),
    };
    made.map_err(|error| Failure::Evidence {
        path: path.clone(),
        error,
    })
}

/// The reason why the sandbox of a run at a shell is read-only.
fn read_only_cause(config: &Config, spec: &RunSpec) -> ReadOnlyCause {
    let settings = &spec.settings;
    // Our setting is not applied where the user has named a profile of Codex's.
    let is_applied = settings.thread.sandbox == Some(SandboxMode::ReadOnly);
    match config.threads.sandbox.as_ref().filter(|_| is_applied) {
        Some(set) => ReadOnlyCause::Setting(match &set.source {
            Source::Flag(flag) => format!("`{flag} read-only`"),
            source => format!("sandbox ({source})"),
        }),
        None => {
            let profile = settings.profile.as_ref();
            ReadOnlyCause::of_codex(profile, &spec.repo, &config.codex_home)
        }
    }
}
