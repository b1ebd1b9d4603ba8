//! Shared parts of the verbs that show the work and the records of servers.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use agent_team::ClaimError;
use agent_team::logic::AgentName;
use agent_team::registry::{Mode, RegistryError};
use common::output::{self, Verbosity};
use job_queue::thread_ids::ThreadPrefixError;
use safe_files::state_file::FileError;
use settings::{Config, ConfigError, Flags, JobSettings, PartialConfig};

use super::exit::FAILED;
use super::serve::HostEndpointError;

/// Why the work or the records cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Home(#[from] ClaimError),
    #[error(transparent)]
    Host(#[from] HostEndpointError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Thread(#[from] ThreadPrefixError),
    #[error("{}: {error}", path.display())]
    Lock { path: PathBuf, error: io::Error },
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error("cannot write to stdout: {0}")]
    Write(#[from] io::Error),
    /// A missing record, with the remedy.
    #[error("{0}")]
    Missing(String),
}

/// The settings that locate the records of servers.
pub(super) struct StorageSettings {
    pub(super) atm_home: PathBuf,
    pub(super) registry_mode: Mode,
    /// The settings of the job store, and the submitter of jobs for which none is named; `None` if
    /// the settings cannot be used.
    pub(super) jobs: Option<(JobSettings, AgentName)>,
}

/// Loads the settings, and prints their warnings.
///
/// # Errors
///
/// If they are invalid, or no home directory is known.
pub(super) fn configuration<E>() -> Result<Config, E>
where
    E: From<ConfigError> + From<ClaimError>,
{
    with_state(settings::load(Flags::default())?)
}

/// Loads the settings for a verb that starts no work, and prints their warnings. Wrong values on
/// which only new work depends are left out, with a warning.
///
/// # Errors
///
/// If others are wrong, or no home directory is known.
pub(super) fn partial_configuration<E>() -> Result<Config, E>
where
    E: From<ConfigError> + From<ClaimError>,
{
    with_state(load_partial(&Flags::default())?)
}

/// Loads the settings for a verb that starts no work, and prints a warning for each wrong value that
/// is left out.
///
/// # Errors
///
/// If a value is wrong that cannot be left out.
pub(super) fn load_partial(flags: &Flags) -> Result<Config, ConfigError> {
    let PartialConfig { config, wrong } = settings::load_partial(flags)?;
    for error in wrong {
        let left_out =
            "It is left out here; what starts work from this file is refused until it is right.";
        complain("warning", &format!("{error}. {left_out}"));
    }
    Ok(config)
}

/// Prints the warnings of settings whose state directory is known.
fn with_state<E: From<ClaimError>>(config: Config) -> Result<Config, E> {
    for warning in &config.warnings {
        complain("warning", &warning.to_string());
    }
    match config.jobs.state.is_absolute() {
        true => Ok(config),
        false => Err(ClaimError::NoHome.into()),
    }
}

/// Loads the storage settings for a verb that starts no work. An error that cannot be left out is
/// printed as a warning too, and the defaults are used.
pub(super) fn storage() -> Result<StorageSettings, Failure> {
    let storage = match load_partial(&Flags::default()) {
        Ok(config) => {
            for warning in &config.warnings {
                complain("warning", &warning.to_string());
            }
            StorageSettings {
                atm_home: config.atm_home,
                registry_mode: config.registry_mode.value,
                jobs: Some((config.jobs, config.identity.value)),
            }
        }
        Err(error) => {
            let left_out = "The threads of jobs are left out.";
            complain("warning", &format!("{error}. {left_out}"));
            StorageSettings {
                atm_home: settings::atm_home(),
                registry_mode: Mode::Document,
                jobs: None,
            }
        }
    };
    match storage.atm_home.is_absolute() {
        true => Ok(storage),
        false => Err(ClaimError::NoHome.into()),
    }
}

/// The exit code of a verb's result; prints the error if there is one.
pub(super) fn exit(result: Result<ExitCode, Failure>) -> ExitCode {
    exit_code(
        result,
        FAILED,
        |error| matches!(error, Failure::Write(error) if error.kind() == io::ErrorKind::BrokenPipe),
    )
}

/// The exit code of a verb's result, `failed` after an error, which is printed. It is no error if
/// the reader has closed the pipe.
pub(super) fn exit_code<E: Display>(
    result: Result<ExitCode, E>,
    failed: u8,
    is_closed_pipe: impl Fn(&E) -> bool,
) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            complain("error", &error.to_string());
            ExitCode::from(failed)
        }
    }
}

/// Prints a message on stderr; with `--quiet` only errors.
pub(super) fn complain(kind: &str, what: &str) {
    if output::verbosity() == Verbosity::Quiet && kind != "error" {
        return;
    }
    // If stderr is closed too, the exit code reports the failure.
    let _ = output::stderr_message(&format!("{kind}: {what}"));
}
