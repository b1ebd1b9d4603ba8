//! What the verbs share that show what servers have written down.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use agent_team::ClaimError;
use agent_team::logic::AgentName;
use agent_team::registry::{Mode, RegistryError};
use common::output::{self, Verbosity};
use job_queue::thread_ids::NoThread;
use safe_files::state_file::FileError;
use settings::{Flags, JobSettings, Warning};

/// Why nothing can be shown.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Home(#[from] ClaimError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Thread(#[from] NoThread),
    #[error("{}: {error}", path.display())]
    Lock { path: PathBuf, error: io::Error },
    #[error("it can't be written: {0}")]
    Write(#[from] io::Error),
    /// What there is not, and what to do.
    #[error("{0}")]
    Missing(String),
}

/// What of the settings matters for what servers have written down.
pub(super) struct Kept {
    pub(super) atm_home: PathBuf,
    pub(super) registry_mode: Mode,
    /// Where jobs are kept, and who submits those that name nobody; `None` where the
    /// settings cannot be used.
    pub(super) jobs: Option<(JobSettings, AgentName)>,
}

/// Where things are kept. Settings that are wrong are told, but what they are about
/// doesn't matter here.
pub(super) fn kept() -> Result<Kept, Failure> {
    let kept = match settings::load(Flags::default()) {
        Ok(config) => {
            for Warning { message, hint } in &config.warnings {
                complain("warning", &format!("{message}. {hint}"));
            }
            Kept {
                atm_home: config.atm_home,
                registry_mode: config.registry_mode.value,
                jobs: Some((config.jobs, config.identity.value)),
            }
        }
        Err(error) => {
            complain("warning", &error.to_string());
            Kept {
                atm_home: settings::atm_home(),
                registry_mode: Mode::Document,
                jobs: None,
            }
        }
    };
    match kept.atm_home.is_absolute() {
        true => Ok(kept),
        false => Err(ClaimError::NoHome.into()),
    }
}

/// The exit code of what has come of a verb; tells what went wrong.
pub(super) fn exit(result: Result<ExitCode, Failure>) -> ExitCode {
    match result {
        Ok(code) => code,
        // Whoever read it has read enough.
        Err(Failure::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain("error", &error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Tells something on stderr; with `--quiet` only errors.
pub(super) fn complain(kind: &str, what: &str) {
    if output::verbosity() == Verbosity::Quiet && kind != "error" {
        return;
    }
    // If stderr is gone too, the exit code has to tell.
    let _ = writeln!(output::stderr(), "{kind}: {what}");
}
