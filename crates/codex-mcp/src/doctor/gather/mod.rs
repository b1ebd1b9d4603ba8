//! Gathers the facts: all probes at once, each with a time limit.

mod codex;
mod home;
mod notifiers;
mod store;
mod team;

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, io};

use codex_config::layers::UserConfig;
use codex_config::trust::covered_files::covered_files;
use codex_config::trust::directory_trust;
use codex_engine::binary::NoCodex;
use git_probe::private;
use safe_files::off_runtime;
use settings::{Config, ConfigError, Flags, PartialConfig, Warning, key_without_effect};
use supervise::short_lived::run;
use supervise::spawn::Program;

use super::facts::{CodexSetup, CommandOutcome, Directory, Facts, Home, RepositoryFiles, Tools};
use crate::installation::Installation;
use crate::writable_state;
use codex::BriefCodex;

/// Gathers all facts. `codex_bin` is the choice of the command line or the environment; `limit`
/// is the time limit of each program.
///
/// Must run on a runtime as the engine needs it, see
/// [`spawn`](supervise::spawn).
pub async fn gather(codex_bin: Option<PathBuf>, limit: Duration) -> Facts {
    let config = settings::load_partial(&Flags {
        codex_bin,
        ..Flags::default()
    });
    let (codex, tools, leftovers) = tokio::join!(
        setup(config, limit),
        tools(limit),
        off_runtime::run(private::leftovers)
    );
    let leftovers = match leftovers {
        Ok(leftovers) => leftovers.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    Facts {
        installation: Installation::of_this_process(),
        codex,
        tools,
        leftovers,
        state: writable_state::state_directory(),
    }
}

/// A Codex in brief, and its home.
pub(super) async fn inspect_briefly(
    config: &Config,
    limit: Duration,
) -> (Result<BriefCodex, NoCodex>, Home) {
    let found = codex::inspect_briefly(config, limit).await;
    (found, home::inspect(config.codex_home.clone()))
}

async fn setup(
    config: Result<PartialConfig, ConfigError>,
    limit: Duration,
) -> Result<CodexSetup, ConfigError> {
    let PartialConfig { mut config, wrong } = config?;
    let mut warnings = std::mem::take(&mut config.warnings);
    warnings.extend(notifiers::check(&config).await);
    warnings.extend(team::check(&config).await);
    warnings.extend(notifiers::mail_answers(&config));
    warnings.extend(open_endpoint(&config));
    let repository = repository(&config.codex_home);
    let mut home = home::inspect(config.codex_home.clone());
    let store = store::inspect(config.jobs.store.clone(), config.jobs.access(), limit);
    let (program, store) = tokio::join!(codex::inspect(config, limit), store);
    if home.directory == Directory::Missing && home.path.is_dir() {
        home.directory = Directory::MadeByProbe;
    }
    Ok(CodexSetup {
        program,
        home,
        wrong,
        warnings,
        repository,
        store,
    })
}

/// A warning if other machines can reach the endpoint of the host process.
fn open_endpoint(config: &Config) -> Option<Warning> {
    let http = config.http.as_ref()?;
    let warning = http.value.warning()?;
    Some(Warning {
        message: format!("http ({}): {warning}", http.source),
        hint: "If you have neither, write http = \"127.0.0.1:8377\": only this machine reaches it."
            .to_owned(),
    })
}

fn repository(codex_home: &Path) -> Option<RepositoryFiles> {
    let here = env::current_dir().ok()?;
    let found = directory_trust(&here, &UserConfig::read(codex_home)).ok()?;
    let files = covered_files(&found.directory, &found.top, key_without_effect);
    let is_worth_it = !files.is_empty() || found.changes.is_some();
    is_worth_it.then_some(RepositoryFiles {
        top: found.top,
        trust: found.trust,
        changes: found.changes,
        files,
    })
}

async fn tools(limit: Duration) -> Tools {
    let git = outside("git", &["--version"]);
    let gh = outside("gh", &["--version"]);
    // Unlike `gh auth status`, this command does not query GitHub, so it is fast and works
    // without a network.
    let gh_login = outside("gh", &["auth", "token"]);
    let (git, gh, gh_login) =
        tokio::join!(ask(&git, limit), ask(&gh, limit), ask(&gh_login, limit));
    Tools {
        git,
        gh,
        gh_login: without_stdout(gh_login),
    }
}

/// A program that runs outside of any repository, whose settings could affect it.
fn outside(name: &str, args: &[&str]) -> Program {
    let mut program = Program::new(Path::new(name), args);
    program.cwd = Some("/".into());
    program
}

async fn ask(program: &Program, limit: Duration) -> CommandOutcome {
    match run(program, limit).await {
        Ok(finished) => CommandOutcome::Ended(finished),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => CommandOutcome::TimedOut(limit),
        Err(error) => CommandOutcome::Failed(error.to_string()),
    }
}

fn without_stdout(outcome: CommandOutcome) -> CommandOutcome {
    match outcome {
        CommandOutcome::Ended(mut finished) => {
            finished.stdout.clear();
            CommandOutcome::Ended(finished)
        }
        other => other,
    }
}
